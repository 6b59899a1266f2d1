#!/usr/bin/env python3
"""RocksDB on memlith, killed again and again under load: every acknowledged write is there, with and without sync, and
each batch is whole.

Threads change slots of two column families, and say each operation that is acknowledged. After a kill the program that
opens the database next computes from the number of the last operation what each slot has to be. Sessions differ: how
they write (pipelined, two queues, two-phase commits, waiting outside of the write queue), with sync or without; some
are killed while they open the database.
"""
import argparse
import os
import pathlib
import random
import shutil
import sys
import time

from load import DATABASES, THREADS, Load, Wrong, words_for


class Killed:
    def __init__(self, given, chance, name):
        self.given, self.chance, self.name, self.path = given, chance, name, given.work / f"kill-{name}"
        self.acknowledged, self.count, self.kills, self.at_open, self.words = [0] * THREADS, 0, 0, 0, []
        shutil.rmtree(self.path, ignore_errors=True)

    def load(self, *words):
        return Load(self.given.program, self.path, self.acknowledged, *words)

    def run(self, kills):
        while self.kills < kills:
            self.words = words_for(self.chance, self.name, unsynced=True)
            load = self.load(*self.words)
            if self.chance.random() < 0.3:
                time.sleep(self.chance.random() * 0.3)
                self.at_open += 1
            else:
                load.wait_until_open()
                time.sleep(self.chance.random() ** 2 * 1.5)
            load.process.kill()
            load.end()
            self.acknowledged, self.count, self.kills = load.acknowledged, self.count + load.count, self.kills + 1
        mode = ["--mode", DATABASES[self.name][0]]
        for last in (["--operations", "5"], ["--check", "--stock"]):
            load = self.load(*mode, *last)
            load.wait_until_open()
            if load.end() != 0:
                raise Wrong("the database cannot be closed")
            self.acknowledged = load.acknowledged
        shutil.rmtree(self.path)


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--program", required=True)
    options.add_argument("--work", required=True, type=pathlib.Path)
    options.add_argument("--kills", type=int, default=12)
    given = options.parse_args()
    seed = int(os.environ.get("MEMLITH_SEED") or random.randrange(1 << 30))
    print(f"seed {seed} (MEMLITH_SEED={seed} replays the sessions and the times, not how threads run)", flush=True)
    chance, began = random.Random(seed), time.monotonic()
    given.work.mkdir(parents=True, exist_ok=True)
    count, at_open = 0, 0
    for name in DATABASES:
        killed = Killed(given, chance, name)
        try:
            killed.run(given.kills // len(DATABASES))
        except Wrong as wrong:
            print(f"FAILED, {name}, after {killed.kills} kills, {' '.join(killed.words)}: {wrong}")
            return 1
        count, at_open = count + killed.count, at_open + killed.at_open
    if count < 5 * given.kills:
        print(f"FAILED: only {count} changes in {given.kills} kills; this tests nothing")
        return 1
    print(f"{given.kills} kills, {at_open} of them while the database was opened, {count} acknowledged changes, all "
          f"there; {time.monotonic() - began:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
