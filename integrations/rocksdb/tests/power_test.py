#!/usr/bin/env python3
"""RocksDB on memlith, whose disk loses what was not flushed: every acknowledged write survives a power cut.

The load of kill_test.py, with sync, runs while the power goes after a random number of the disk's operations, now and
then while the database is opened. Then the disk has what was flushed and a random part of the rest, and the database
has to have every acknowledged operation, whole. Stock RocksDB is held beside: with sync it loses nothing either;
without sync it has to lose something, or the test would show nothing.
Exit code 77: this machine lacks root, FUSE or loop devices.
"""
import sys

from load import DATABASES, THREADS, Load, words_for
from foreign import PowerCuts, hold_power_cuts, options_of, seeded_random


class Cutter(PowerCuts):
    operations_max = 700

    def __init__(self, given, chance, name, *words):
        super().__init__(given, chance, name)
        self.program, self.words = given.program, words
        self.database = name if name in DATABASES else "batches"
        self.states, self.loading = [0] * THREADS, None

    def load(self, *words):
        self.loading = Load(self.program, self.folder.target / "db", self.states, *self.words, *words)
        return self.loading

    def begin(self):
        self.load(*words_for(self.chance, self.database, unsynced=False))

    def check(self, last):
        if last:
            self.load("--check", "--mode", DATABASES[self.database][0]).close()
        else:
            self.begin()
            self.loading.wait_until_open()

    def last_words(self):
        if self.loading.process.poll() is None:
            return None
        self.loading.join()
        return f"{' '.join(map(str, self.loading.process.args))}: {self.loading.said}"

    def kill(self):
        self.loading.process.kill()

    def reap(self):
        self.loading.end()
        self.states, self.acknowledged = self.loading.acknowledged, self.acknowledged + self.loading.count

    def give_up(self):
        self.loading.kill()


def main():
    options = options_of(__doc__, "program", "bin")
    options.add_argument("--cuts", type=int, default=9)
    given = options.parse_args()

    def trials(chance):
        share = given.cuts // len(DATABASES)
        return [*((Cutter(given, chance, name), share) for name in DATABASES),
                (Cutter(given, chance, "stock", "--stock"), max(given.cuts // 10, 1))]

    def unsynced(chance):
        return Cutter(given, chance, "unsynced", "--stock", "--unsynced")

    return hold_power_cuts(seeded_random("the sessions and the cuts, not how threads run"), trials, 5, unsynced, 20)


if __name__ == "__main__":
    sys.exit(main())
