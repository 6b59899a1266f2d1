#!/usr/bin/env python3
"""PostgreSQL on memlith, whose disk loses and tears what was not flushed: every acknowledged transaction survives a
power cut, and no page is damaged.

The power goes after a random number of the disk's operations while clients change tables, now and then while the server
starts. Then the disk has what was flushed and a random part of the rest, torn at 512 bytes, and the server has to
start, have what was acknowledged, and pass the checks of all checksums, indexes, heaps and sums. Stock PostgreSQL with
full_page_writes=off is cut in the same way, and has to break, or the test would show nothing.
Exit code 77: this machine lacks PostgreSQL 15 or 17, root, FUSE or loop devices.
"""
import sys

from server import Load, Server, skip_without_postgres
from foreign import PowerCuts, hold_power_cuts, options_of, seeded_random


class Cutter(PowerCuts):
    operations_max, operations_of_a_start, start_share = 3000, 120, 0.2

    def __init__(self, given, chance, plugin):
        super().__init__(given, chance, "power-stock" if plugin is None else "power-memlith")
        self.server = Server(self.folder.target / "cluster", plugin, fpw="off" if plugin is None else "on")
        self.load, self.counts, self.starting = None, {}, None
        disk = self.folder.mount()
        try:
            self.server.make().start().fill()
            self.server.stop()
            self.folder.flush()
        finally:
            self.server.kill()
            self.folder.unmount(disk)

    def begin(self):
        self.server.forget_process()
        self.starting = self.server.begin_start()

    def check(self, last):
        self.server.forget_process()
        self.server.start()
        if self.load is not None:
            self.load.compare(self.counts)
        self.server.check()
        if last:
            self.server.stop()
            self.server.check_checksums()

    def work(self):
        self.load = Load(self.server)
        self.load.disturb(self.chance, self.chance.random() * 1.5)

    def last_words(self):
        return self.server.said() if self.starting is None and not self.load.runs() else None

    def kill(self):
        self.server.signal_all()

    def reap(self):
        self.server.kill_processes()
        if self.starting is not None:
            self.starting.kill()
            self.starting.wait()
            self.starting = None
        else:
            self.counts = self.load.end()
            self.acknowledged += sum(self.counts.values())

    def give_up(self):
        self.server.kill()
        for process in (self.load and self.load.process, self.starting):
            if process:
                process.kill()
                process.wait()


def main():
    options = options_of(__doc__, "plugin", "bin")
    options.add_argument("--cuts", type=int, default=5)
    given = options.parse_args()
    skip_without_postgres(given.plugin)
    return hold_power_cuts(seeded_random("the times and the cuts, not how processes run"),
                           lambda chance: [(Cutter(given, chance, given.plugin), given.cuts)], 20,
                           lambda chance: Cutter(given, chance, None), 30)


if __name__ == "__main__":
    sys.exit(main())
