#!/usr/bin/env python3
"""RocksDB on memlith, killed again and again under load: every acknowledged write is there, with and without sync, and
each batch is whole.

Threads change slots of two column families, and say each operation that is acknowledged. After a kill the program that
opens the database next computes from the number of the last operation what each slot has to be. Sessions differ: how
they write (pipelined, two queues, two-phase commits, waiting outside of the write queue, memtables in a region), with
sync or without; some are killed while they open the database.
"""
import shutil
import sys
import time

from load import DATABASES, THREADS, Load, words_for
from foreign import Trial, hold, options_of, seeded_random


class Killed(Trial):
    def __init__(self, given, chance, name):
        self.given, self.chance, self.name, self.path = given, chance, name, given.work / f"kill-{name}"
        self.states, self.loading = [0] * THREADS, None
        self.path.parent.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(self.path, ignore_errors=True)

    def load(self, *words):
        self.loading = Load(self.given.program, self.path, self.states, *words)
        return self.loading

    def give_up(self):
        print("words:", *self.loading.process.args[2:])
        self.loading.kill()

    def run(self, number):
        while self.number < number:
            load = self.load(*words_for(self.chance, self.name, unsynced=True))
            if self.chance.random() < 0.3:
                time.sleep(self.chance.random() * 0.3)
                self.at_start += 1
            else:
                load.wait_until_open()
                time.sleep(self.chance.random() ** 2 * 1.5)
            load.process.kill()
            load.end()
            self.states, self.number = load.acknowledged, self.number + 1
            self.acknowledged += load.count
        for last in (["--operations", "5"], ["--check", "--stock"]):
            load = self.load("--mode", DATABASES[self.name][0], *last)
            load.close()
            self.states = load.acknowledged
        shutil.rmtree(self.path)


def main():
    options = options_of(__doc__, "program")
    options.add_argument("--kills", type=int, default=15)
    given = options.parse_args()
    chance = seeded_random("the sessions and the times, not how threads run")
    return hold([(Killed(given, chance, name), given.kills // len(DATABASES)) for name in DATABASES], "kills", 5)


if __name__ == "__main__":
    sys.exit(main())
