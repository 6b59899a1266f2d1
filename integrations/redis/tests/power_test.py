#!/usr/bin/env python3
"""Redis on memlith, whose disk loses what was not flushed: every acknowledged write survives a power cut.

The clients of kill_test.py change their databases at random while the power goes after a random number of the disk's
operations, now and then while the server starts. Then the disk has what was flushed and a random part of the rest, and
the databases have to be what the acknowledged changes made, or that and the one change that was under way. Plain Redis
with appendfsync everysec is cut in the same way, and has to lose something, or the test would show nothing.
Exit code 77: this machine lacks root, FUSE or loop devices.
"""
import argparse
import pathlib
import random
import sys
import time

from kill_test import CLIENTS, DIRECTIVES, Load
from model import Model, difference, read
from server import Server, seeded_random, skip_without

OPERATIONS_MAX = 1500
OPERATIONS_OF_PLAIN_MAX = 40  # one flush a second
OPERATIONS_OF_A_START = 150
PLAIN = [("save", '""'), ("appendonly", "yes"), ("appendfsync", "everysec")]
CUTS_OF_PLAIN_MAX = 40  # it loses something in nearly every one


class Cutter:
    def __init__(self, given, rng, memlith):
        self.rng, self.acknowledged, self.at_start = rng, 0, 0
        self.operations_max = OPERATIONS_MAX if memlith else OPERATIONS_OF_PLAIN_MAX
        self.folder = LossyFolder(given.bin, given.work / ("power-memlith" if memlith else "power-plain"))
        self.folder.make()
        self.server = Server(given.program if memlith else given.plain, self.folder.target / "redis",
                             "strong" if memlith else None, DIRECTIVES if memlith else PLAIN)
        disk = self.folder.mount()
        self.server.fresh().start().stop()
        self.folder.unmount(disk)
        self.models = [[Model(random.Random(rng.random()))] for _ in range(CLIENTS)]

    def wait_until_frozen(self, disk):
        deadline = Deadline(PATIENCE_S)
        while not disk.frozen:
            if deadline.left < 0:
                raise RigError("the power never went")
            if wait_for([disk.fileno()], min(deadline.left, 1.0)):
                disk.heard()
            if self.server.process.poll() is not None:
                raise RigError(f"the server has ended by itself: {self.server.log()[-2000:]}")

    def start_without_waiting(self, disk):
        """Cuts the power while the server starts."""
        disk.arm(self.rng.randint(1, OPERATIONS_OF_A_START))
        self.server.begin()
        end = time.monotonic() + self.rng.random() * 2
        while not disk.frozen and time.monotonic() < end:
            if wait_for([disk.fileno()], 0.05):
                disk.heard()
        self.server.process.kill()
        disk.cut(self.rng.getrandbits(63))
        self.server.process.wait()
        self.at_start += 1

    def session(self, last):
        """Starts the server, compares, and changes the databases until the power goes. What is wrong, or ""."""
        disk, cut = self.folder.mount(), False
        try:
            if not last and self.rng.random() < 0.25:
                self.start_without_waiting(disk)
                cut = True
                return ""
            client = self.server.start().client()
            states = []
            for index, models in enumerate(self.models):
                found, expires = read(client, [2 * index, 2 * index + 1])
                differences = [difference(model, found, expires) for model in models]
                if all(differences):
                    return f"databases {2 * index} and {2 * index + 1}: {' | '.join(differences)}"
                states.append(models[differences.index("")])
            self.models = [[each] for each in states]
            if last:
                return ""
            self.folder.flush()  # the file of the configuration, which nothing else flushes
            loads = [Load(self.server, index, model) for index, model in enumerate(states)]
            for each in loads:
                each.start()
            disk.arm(self.rng.randint(1, self.operations_max))
            self.wait_until_frozen(disk)
            self.server.process.kill()
            disk.cut(self.rng.getrandbits(63))
            cut = True
            self.server.process.wait()
            for each in loads:
                each.join()
            self.models = [each.models for each in loads]
            self.acknowledged += sum(each.acknowledged for each in loads)
            return next((each.wrong for each in loads if each.wrong), "")
        finally:
            if cut:
                self.folder.unmount_after_cut(disk)
            else:
                self.server.stop()
                self.folder.unmount(disk)


def main():
    rng, began = seeded_random("the changes and the cuts, not how threads run"), time.monotonic()
    try:
        cutter = Cutter(GIVEN, rng, memlith=True)
    except Unable as unable:
        print(f"skipped: {unable}")
        return 77
    try:
        for number in range(GIVEN.cuts + 1):
            wrong = cutter.session(last=number == GIVEN.cuts)
            if wrong:
                print(f"FAILED at cut {number}: {wrong}\n{cutter.server.log()[-2000:]}")
                return 1
    finally:
        Server.kill_all()
    if cutter.acknowledged < 20 * GIVEN.cuts:
        print(f"FAILED: only {cutter.acknowledged} changes in {GIVEN.cuts} cuts; this tests nothing")
        return 1
    print(f"{GIVEN.cuts} power cuts, {cutter.at_start} of them while the server started, {cutter.acknowledged} "
          f"acknowledged changes, all as they should be; {time.monotonic() - began:.0f} s", flush=True)
    cutter.folder.remove()

    plain = Cutter(GIVEN, rng, memlith=False)
    try:
        for number in range(CUTS_OF_PLAIN_MAX):
            wrong = plain.session(last=False)
            if wrong:
                print(f"plain Redis with appendfsync everysec: cut {number} lost something: {wrong[:99]}")
                plain.folder.remove()
                return 0
    finally:
        Server.kill_all()
    print(f"FAILED: {CUTS_OF_PLAIN_MAX} cuts of plain Redis lost nothing: the test shows nothing")
    return 1


if __name__ == "__main__":
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--program", required=True)
    options.add_argument("--plain", required=True)
    options.add_argument("--bin", required=True, type=pathlib.Path, help="where the lossy disk is")
    options.add_argument("--rig", required=True, help="tests/power/rig")
    options.add_argument("--work", required=True, type=pathlib.Path)
    options.add_argument("--cuts", type=int, default=20)
    GIVEN = options.parse_args()
    skip_without(GIVEN.program)
    sys.path.insert(0, GIVEN.rig)
    from common import Deadline, PATIENCE_S, RigError, Unable, wait_for
    from lossy_folder import LossyFolder
    sys.exit(main())
