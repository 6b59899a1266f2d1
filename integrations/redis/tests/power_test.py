#!/usr/bin/env python3
"""Redis on memlith, whose disk loses what was not flushed: every acknowledged write survives a power cut, and so does
what a client was told that only looks (docs/guarantees.md, "Redis").

The clients of kill_test.py change their databases at random while the power goes after a random number of the disk's
operations, now and then while the server starts. Then the disk has what was flushed and a random part of the rest, and
the databases have to be what the acknowledged changes made, or that and the one change that was under way. Plain Redis
with appendfsync everysec is cut in the same way, and has to lose something, or the test would show nothing.
Exit code 77: this machine lacks root, FUSE or loop devices.
"""
import sys

from kill_test import DIRECTIVES, Loads
from server import Server
from foreign import PowerCuts, hold_power_cuts, options_of, seeded_random, skip_without

PLAIN = [("save", '""'), ("appendonly", "yes"), ("appendfsync", "everysec")]


class Cutter(PowerCuts):
    def __init__(self, given, chance, name, program, memlith, directives):
        super().__init__(given, chance, f"power-{name}")
        self.operations_max = 1500 if memlith else 40  # plain Redis flushes once a second
        self.server = Server(program, self.folder.target / "redis", memlith, directives)
        disk = self.folder.mount()
        self.server.fresh().start().stop()
        self.folder.unmount(disk)
        self.loads = Loads(self.server, chance)

    def begin(self):
        self.server.begin()

    def check(self, last):
        self.server.start()
        self.loads.check()
        if last:
            self.server.stop()

    def work(self):
        self.folder.flush()  # the file of the configuration, which nothing else flushes
        self.loads.start()

    def last_words(self):
        return None if self.server.process.poll() is None else self.server.log()[-2000:]

    def kill(self):
        self.server.process.kill()

    def reap(self):
        self.server.process.wait()
        self.acknowledged += self.loads.end()

    def give_up(self):
        self.server.stop()


def main():
    options = options_of(__doc__, "program", "plain", "bin")
    options.add_argument("--cuts", type=int, default=20)
    given = options.parse_args()
    skip_without(given.program)

    def memlith(chance):
        return [(Cutter(given, chance, "memlith", given.program, "strong", DIRECTIVES), given.cuts)]

    def plain(chance):
        return Cutter(given, chance, "plain", given.plain, None, PLAIN)

    return hold_power_cuts(seeded_random("the changes and the cuts, not how threads run"), memlith, 20, plain, 40)


if __name__ == "__main__":
    try:
        sys.exit(main())
    finally:
        Server.kill_all()
