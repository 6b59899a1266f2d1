#!/usr/bin/env python3
"""RocksDB on memlith, whose disk loses what was not flushed: every acknowledged write survives a power cut.

The load of kill_test.py, with sync, runs while the power goes after a random number of the disk's operations, now and
then while the database is opened. Then the disk has what was flushed and a random part of the rest, and the database
has to have every acknowledged operation, whole. Stock RocksDB is held beside: with sync it loses nothing either;
without sync it has to lose something, or the test would show nothing.
Exit code 77: this machine lacks root, FUSE or loop devices.
"""
import argparse
import os
import pathlib
import random
import sys
import time

from load import DATABASES, THREADS, Load, Wrong, words_for

OPERATIONS_MAX = 700
OPERATIONS_OF_OPENING = 150


class Cutter:
    def __init__(self, given, chance, name, *words):
        self.given, self.chance, self.name, self.words = given, chance, name, list(words)
        self.folder = LossyFolder(given.bin, given.work / name)
        self.folder.make()
        self.acknowledged, self.count, self.at_open, self.said = [0] * THREADS, 0, 0, ""

    def load(self, *words):
        return Load(self.given.program, self.folder.target / "db", self.acknowledged, *self.words, *words)

    def wait_until_frozen(self, disk, load):
        deadline = Deadline(PATIENCE_S)
        while not disk.frozen:
            if deadline.left < 0:
                raise RigError("the power never went")
            if wait_for([disk.fileno()], min(deadline.left, 1.0)):
                disk.heard()
            if load.process.poll() is not None:
                load.join()
                raise Wrong(f"the program has ended by itself: {load.said}")

    def session(self, words):
        """Opens and checks the database, and changes it until the power goes."""
        disk, cut, load = self.folder.mount(), False, None
        try:
            while_opening = self.chance.random() < 0.25
            if while_opening:
                disk.arm(self.chance.randint(1, OPERATIONS_OF_OPENING))
                self.at_open += 1
            load = self.load(*words)
            if not while_opening:
                load.wait_until_open()
                disk.arm(self.chance.randint(1, OPERATIONS_MAX))
            self.wait_until_frozen(disk, load)
            load.process.kill()
            disk.cut(self.chance.getrandbits(63))
            cut = True
            load.end()
            self.acknowledged, self.count = load.acknowledged, self.count + load.count
        finally:
            if load is not None:
                load.kill()
            if cut:
                self.folder.unmount_after_cut(disk)
            else:
                self.folder.unmount(disk)

    def check(self, *words):
        disk = self.folder.mount()
        load = self.load("--check", *words)
        try:
            load.wait_until_open()
            if load.end() != 0:
                raise Wrong("the database cannot be closed")
        finally:
            load.kill()
            self.folder.unmount(disk)


    def cut(self, number):
        name = self.name if self.name in DATABASES else "batches"
        for _ in range(number):
            words = words_for(self.chance, name, unsynced=False)
            self.said = " ".join(words)
            self.session(words)
        self.check("--mode", DATABASES[name][0])


def main():
    seed = int(os.environ.get("MEMLITH_SEED") or random.randrange(1 << 30))
    print(f"seed {seed} (MEMLITH_SEED={seed} replays the sessions and the cuts, not how threads run)", flush=True)
    chance, began = random.Random(seed), time.monotonic()
    try:
        cutters = [Cutter(GIVEN, chance, name) for name in DATABASES]
    except Unable as unable:
        print(f"skipped: {unable}")
        return 77
    beside = Cutter(GIVEN, chance, "stock", "--stock")
    unsynced = Cutter(GIVEN, chance, "unsynced", "--stock", "--unsynced")
    share = GIVEN.cuts // len(cutters)
    for cutter, number in [*((each, share) for each in cutters), (beside, max(GIVEN.cuts // 10, 1))]:
        try:
            cutter.cut(number)
        except Wrong as wrong:
            print(f"FAILED, {cutter.name} {cutter.said}: {wrong}")
            return 1
        finally:
            cutter.folder.remove()
    count = sum(each.count for each in cutters)
    print(f"{GIVEN.cuts} power cuts, {sum(each.at_open for each in cutters)} of them while the database was opened, "
          f"{count} acknowledged changes, all there; {time.monotonic() - began:.0f} s", flush=True)
    if count < 5 * GIVEN.cuts:
        print(f"FAILED: only {count} changes in {GIVEN.cuts} cuts; this tests nothing")
        return 1
    for number in range(20):
        try:
            unsynced.cut(1)
        except Wrong as wrong:
            print(f"stock RocksDB without sync: cut {number} lost something: {str(wrong)[:99]}")
            unsynced.folder.remove()
            return 0
    print("FAILED: 20 cuts of stock RocksDB without sync lost nothing: the test shows nothing")
    return 1


if __name__ == "__main__":
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--program", required=True)
    options.add_argument("--bin", required=True, type=pathlib.Path, help="where the lossy disk is")
    options.add_argument("--rig", required=True, help="tests/power/rig")
    options.add_argument("--work", required=True, type=pathlib.Path)
    options.add_argument("--cuts", type=int, default=8)
    GIVEN = options.parse_args()
    GIVEN.bin = GIVEN.bin.resolve()
    sys.path.insert(0, GIVEN.rig)
    from common import Deadline, PATIENCE_S, RigError, Unable, wait_for
    from lossy_folder import LossyFolder
    sys.exit(main())
