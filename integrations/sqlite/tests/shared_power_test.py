#!/usr/bin/env python3
"""docs/guarantees.md, "SQLite in mode shared": power cuts under processes in mode shared and of plain SQLite that work
on one database (shared_workers.py).

The database is on ext4, on a disk that loses at a cut what was not flushed. The power goes after a random number of the
disk's operations, now and then while processes are killed. Then the disk has what was flushed and a random part of the
rest, and the database has to be whole, with every commit that was acknowledged, and every one that a reader was shown.
With --mutants the plugin has a mistake, and has to lose something, or the test would show nothing.
Exit code 77: this machine lacks root, FUSE or loop devices.
"""
import argparse
import os
import pathlib
import random
import signal
import sys
import time

from shared_workers import ACKNOWLEDGED, FAULTS, Board, judge, make, start

KINDS = "sscodnprr"
OPERATIONS_MAX = (20, 100, 500)  # of the disk until the cut
CHAIN_CUTS = 25  # then the file system is made anew
SAY_EVERY_S = 60.0
# The mutants' plugin has the laboratory's whole engine in it, with more thread-locals than the C library leaves room
# for in a library that is opened late. The program begins with that room.
ROOM = "glibc.rtld.optional_static_tls=8192"


class Cutter:
    def __init__(self, given, rng, folder, plugin):
        self.given, self.rng, self.folder, self.plugin = given, rng, folder, plugin
        self.path = folder.target / "app.db"
        self.board = Board(KINDS)
        self.cuts = self.kills = self.kept = self.dropped = self.acknowledged = 0
        self.numbers = []

    def begin_chain(self):
        self.folder.make()
        disk = self.folder.mount()
        make(self.path, KINDS)
        self.folder.unmount(disk)
        self.board.reset([0] * len(KINDS))

    def end_workers(self):
        for number in self.numbers:
            os.kill(number, signal.SIGKILL)
        self.numbers, numbers = [], self.numbers
        return numbers

    def work_until_frozen(self, disk):
        deadline = Deadline(PATIENCE_S)
        while not disk.frozen:
            if deadline.left < 0:
                raise RigError("the power never went")
            if wait_for([disk.fileno()], 0.02):
                disk.heard()
            for i, number in enumerate(self.numbers):
                if not disk.frozen and self.rng.random() < 0.01:
                    os.kill(number, signal.SIGKILL)
                    self.kills += 1
                if os.waitpid(number, os.WNOHANG)[0] != 0:
                    self.numbers[i] = start(self.board, i, self.plugin, self.path)

    def session(self):
        """Works until the power goes. What is wrong then, or an empty list."""
        disk = self.folder.mount()
        try:
            disk.arm(self.rng.randint(1, self.rng.choice(OPERATIONS_MAX)))
            self.numbers = [start(self.board, i, self.plugin, self.path) for i in range(len(KINDS))]
            self.work_until_frozen(disk)
        finally:
            numbers = self.end_workers()
            result = disk.cut(self.rng.getrandbits(63))  # with it those end that wait for the disk
            for number in numbers:
                os.waitpid(number, 0)
            self.folder.unmount_after_cut(disk)
        self.cuts += 1
        self.kept += result["kept"]
        self.dropped += result["dropped"]
        disk = self.folder.mount()
        try:
            begun = self.board.column(ACKNOWLEDGED)
            wrong, counts = judge(self.board, self.path, is_cut=True)
        finally:
            self.folder.unmount(disk)
        self.acknowledged += sum(begun)
        self.board.reset(counts)
        return wrong

    def run(self, cuts, say):
        """The errors after a cut, at the first one that has some."""
        said = time.monotonic()
        for number in range(cuts):
            if number % CHAIN_CUTS == 0:
                self.begin_chain()
                self.acknowledged_before = 0
            wrong = self.session()
            if wrong:
                return wrong
            if say and time.monotonic() > said + SAY_EVERY_S:
                said = time.monotonic()
                print(f"  {self.cuts} of {cuts} cuts", flush=True)
        return []


def main():
    seed = int(os.environ.get("MEMLITH_SEED") or random.randrange(1 << 30))
    print(f"seed {seed}: MEMLITH_SEED={seed} replays the choices", flush=True)
    if any(name in GIVEN.plugin.read_bytes() for name in (b"__asan_init", b"__tsan_init")):
        print("skipped: a sanitizer's runtime has to be the first library of a process")
        return 77
    rng, began = random.Random(seed), time.monotonic()
    try:
        folder = LossyFolder(GIVEN.bin, GIVEN.work)
    except Unable as unable:
        print(f"skipped: {unable}")
        return 77
    for mutant in GIVEN.mutants:
        os.environ["MEMLITH_SQLITE_MUTANT"] = mutant
        cutter = Cutter(GIVEN, rng, folder, str(GIVEN.mutant_plugin.resolve()))
        wrong = cutter.run(GIVEN.mutant_cuts, say=False)
        if not wrong:
            print(f"FAILED: {cutter.cuts} cuts lost nothing with {mutant}: the test shows nothing")
            return 1
        print(f"{mutant}: cut {cutter.cuts} lost something: {wrong[0]}", flush=True)
        del os.environ["MEMLITH_SQLITE_MUTANT"]
    cutter = Cutter(GIVEN, rng, folder, str(GIVEN.plugin.resolve()))
    wrong = cutter.run(GIVEN.cuts, say=True)
    for text in wrong:
        print(f"FAILED at cut {cutter.cuts}: {text}")
    folder.remove()
    print(f"{cutter.cuts} power cuts, {cutter.kills} kills, {cutter.kept} unflushed sectors kept, {cutter.dropped} "
          f"dropped, {len(wrong)} faults; {time.monotonic() - began:.0f} s")
    return 1 if wrong else 0


if __name__ == "__main__":
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--plugin", required=True, type=pathlib.Path)
    options.add_argument("--mutant-plugin", type=pathlib.Path, help="of mutant_plugin.cpp")
    options.add_argument("--mutants", nargs="*", default=[], help="those that have to be noticed")
    options.add_argument("--mutant-cuts", type=int, default=100, help="within so many cuts each")
    options.add_argument("--bin", required=True, type=pathlib.Path, help="where the lossy disk is")
    options.add_argument("--rig", required=True, help="tests/power/rig")
    options.add_argument("--work", required=True, type=pathlib.Path)
    options.add_argument("--cuts", type=int, default=20)
    GIVEN = options.parse_args()
    if GIVEN.mutants and os.environ.get("GLIBC_TUNABLES") != ROOM:
        os.environ["GLIBC_TUNABLES"] = ROOM
        os.execv(sys.executable, [sys.executable, "-B", *sys.argv])
    sys.path.insert(0, GIVEN.rig)
    from common import Deadline, PATIENCE_S, RigError, Unable, wait_for
    from lossy_folder import LossyFolder
    sys.exit(main())
