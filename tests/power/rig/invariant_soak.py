#!/usr/bin/env python3
"""Key-value stores that flush nothing, on a disk that loses at a power cut what was not flushed: memlith's weak commits
keep their order, and other stores may not.

`memlith-kv-bench invariant` changes two records by transactions that all keep x < y. The kernel writes back what it
wrote while the power goes; then the disk has a random part of what was not flushed. On memlith x < y has to hold after
each cut. Of the other stores at least one has to break it, or to be unreadable, or the test would show nothing.
Exit code 77: this machine lacks root, FUSE or loop devices.
"""
import re
import subprocess
import sys
import time

from common import PATIENCE_S, Unable
from foreign import PowerCuts, Wrong, hold, options_of, seeded_random, skip

PEERS = "leveldb,kyoto-tree-tran,sqlite,lmdb,rocksdb,berkeleydb,wiredtiger"


class Writer(PowerCuts):
    """A store that changes the records, and a loop that has the kernel write back."""

    operations_max, start_share = 400, 0.0

    def __init__(self, given, chance, side):
        super().__init__(given, chance, side)
        self.command = [given.program, "invariant", "--sides", side, "--dir", self.folder.target / "store"]
        self.processes = []

    def check(self, last):
        (self.folder.target / "store").mkdir(exist_ok=True)
        self.processes = [subprocess.Popen(self.command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)]
        said = self.processes[0].stdout.readline()
        if not re.fullmatch(r"\d+ \d+\n", said):
            raise Wrong(said + self.rest())
        self.acknowledged = max(self.acknowledged, int(said.split()[0]))
        if last:
            self.give_up()

    def work(self):
        self.processes.append(subprocess.Popen(["sh", "-c", 'while sync -f "$0"; do :; done', self.folder.target],
                                               stderr=subprocess.DEVNULL))
        time.sleep(self.chance.random() / 2)

    def rest(self):
        """The lines until it ends. WiredTiger may wait for ever for its own transaction, which failed."""
        try:
            self.processes[0].wait(timeout=PATIENCE_S)
        except subprocess.TimeoutExpired:
            self.processes[0].kill()
        return self.processes[0].stdout.read()

    def last_words(self):
        return None if self.processes[0].poll() is None else self.processes[0].stdout.read()

    def kill(self):
        for each in self.processes:
            each.kill()

    def reap(self):
        for each in self.processes:
            each.wait()


def breaks(writer, cuts):
    """True if the records, or the store, were broken after one of the cuts."""
    try:
        for _ in range(cuts):
            writer.session()
        writer.session(last=True)
    except Wrong as wrong:
        said = " ".join(str(wrong).removeprefix("memlith: ").split())[:200]
        print(f"{writer.name}: broken after {writer.number} power cuts: {said}", flush=True)
        return True
    finally:
        writer.folder.remove()
    print(f"{writer.name}: x < y after each of {writer.number} power cuts", flush=True)
    return False


def main():
    options = options_of(__doc__, "program", "bin")
    options.add_argument("--cuts", type=int, default=60)
    options.add_argument("--sides", default=PEERS, help="the other stores; default all")
    given = options.parse_args()
    chance = seeded_random("the cuts, not how threads run")
    try:
        ours = Writer(given, chance, "memlith")
    except Unable as unable:
        skip(unable)
    if hold([(ours, given.cuts)], "power cuts", 5) != 0:
        return 1
    if not [side for side in given.sides.split(",") if breaks(Writer(given, chance, side), given.cuts)]:
        print(f"FAILED: no store was broken by {given.cuts} cuts: the test shows nothing")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
