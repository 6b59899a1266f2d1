#!/usr/bin/env python3
"""Power cuts under Kyoto Cabinet, unmodified, with memlith underneath and without it.

Usage: kyoto_power_test.py MEMLITH RUN_KYOTO POWER_RIG BIN WORK CUTS [SEED]
A HashDB and a TreeDB are changed and synchronized on ext4 on a disk that loses what was not flushed. The power goes
after a random number of the disk's operations. With memlith every database must be whole, and not older than the last
synchronize() that returned. Without memlith at least one must be broken, or the test would show nothing.
Exit code 77: this machine lacks root, FUSE or loop devices.
"""
import os
import pathlib
import random
import shutil
import subprocess
import sys
import time

memlith, kyoto, rig, programs, work, cuts = sys.argv[1:7]
sys.path.insert(0, rig)
from common import Deadline, PATIENCE_S, RigError, Unable, wait_for  # noqa: E402  (beside the other rigs)
from lossy_folder import LossyFolder  # noqa: E402

ROUNDS = 100000
OPERATIONS_MAX = 900
# Without memlith a database is broken in a part of the cuts only.
CUTS_WITHOUT_MAX = 40


class Bench(LossyFolder):
    def command(self, with_memlith, *words):
        prefix = [memlith, "run", "--match", "*.kc[ht]", "--commit", "fsync", "--"] if with_memlith else []
        return [*prefix, kyoto, *words]

    def cut(self, rng, database, with_memlith):
        """Returns the last round that was acknowledged."""
        disk = self.mount()
        try:
            # The database is made before anything can go wrong: memlith cannot keep a file that is not there yet.
            acknowledged = self.first_round(database, with_memlith)
            process = subprocess.Popen(self.command(with_memlith, "write", str(self.target / database), str(ROUNDS)),
                                       stdout=subprocess.PIPE)
            disk.arm(rng.randint(1, OPERATIONS_MAX))
            said = b""
            deadline = Deadline(PATIENCE_S)
            while not disk.frozen and deadline.left > 0:
                ready = wait_for([disk.fileno(), process.stdout.fileno()], 1.0)
                if disk.fileno() in ready:
                    disk.heard()
                elif process.stdout.fileno() in ready:
                    data = os.read(process.stdout.fileno(), 65536)
                    if not data:
                        raise RigError(f"run-kyoto ended by itself: {said[-300:]!r}")
                    said += data
            process.kill()
            disk.cut(rng.getrandbits(63))
            said += process.stdout.read()
            process.wait()
            lines = [line for line in said.decode().split("\n")[:-1] if line.isdigit()]
            return int(lines[-1]) if lines else acknowledged
        finally:
            self.unmount_after_cut(disk)

    def first_round(self, database, with_memlith):
        made = subprocess.run(self.command(with_memlith, "write", str(self.target / database), "1"),
                              stdout=subprocess.PIPE, check=True, text=True)
        self.flush()
        return int(made.stdout)

    def check(self, database, with_memlith, acknowledged):
        """The faults of the database; empty if there are none."""
        disk = self.mount()
        try:
            done = subprocess.run(self.command(with_memlith, "check", str(self.target / database), str(acknowledged)),
                                  capture_output=True, text=True, check=False)
            return "" if done.returncode == 0 else f"{done.stdout}{done.stderr} (exit code {done.returncode})"
        finally:
            self.unmount(disk)

    def explore(self, rng, database, with_memlith, count):
        """How many of the cuts left a broken database. With memlith the first one ends it."""
        broken = 0
        for number in range(count):
            self.make()
            acknowledged = self.cut(rng, database, with_memlith)
            problem = self.check(database, with_memlith, acknowledged)
            broken += bool(problem)
            if problem and with_memlith:
                kept = self.work / "broken.img"
                shutil.copyfile(self.image, kept)
                print(f"{database}, cut {number}: {problem}; the disk is kept as {kept}")
                return broken
            if problem:
                print(f"{database} without memlith, cut {number}: {problem.strip()}")
                return broken
        return broken


def main():
    seed = int(sys.argv[7] if len(sys.argv) > 7 else os.environ.get("MEMLITH_SEED", os.getpid()))
    print(f"MEMLITH_SEED={seed}", flush=True)
    rng = random.Random(seed)
    try:
        bench = Bench(pathlib.Path(programs), pathlib.Path(work))
    except Unable as unable:
        print(f"skipped: {unable}")
        return 77
    try:
        for database in ("data.kch", "data.kct"):
            began = time.monotonic()
            if bench.explore(rng, database, True, int(cuts)):
                return 1
            print(f"{database}: {cuts} cuts with memlith, all whole, {time.monotonic() - began:.0f} s", flush=True)
        # One of the two is enough to show that the cuts break what is not protected.
        if not bench.explore(rng, "data.kch", False, CUTS_WITHOUT_MAX):
            print(f"{CUTS_WITHOUT_MAX} cuts without memlith broke nothing: the test shows nothing")
            return 1
        return 0
    finally:
        bench.remove()


if __name__ == "__main__":
    sys.exit(main())
