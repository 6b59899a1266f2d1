#!/usr/bin/env python3
"""PostgreSQL on memlith, killed again and again under load: everything, the server without the keeper (and
started at once, before the keeper has ended), the keeper alone, one backend.

Every acknowledged transaction is there, tables, indexes and sums agree, and the server goes on where it should. After
everything was killed, PostgreSQL without memlith refuses the data directory; it opens it after `memlith postgres
recover`, and after a clean stop.
Exit code 77: this machine lacks PostgreSQL 15 or 17.
"""
import fcntl
import os
import signal
import sys
import time

from server import Load, Server, skip_without_postgres
from foreign import Trial, Wrong, hold, options_of, seeded_random

KINDS = {"everything": 2, "keeper": 3, "backend": 3, "recover": 2, "server": 2, "at once": 2}  # and how often


class Killed(Trial):
    name = "memlith"

    def __init__(self, given, chance):
        self.given, self.chance = given, chance
        self.server = Server(given.work / "kill", given.plugin)
        self.stock = Server(given.work / "kill")
        self.counts = dict.fromkeys(KINDS, 0)

    def give_up(self):
        print(self.counts)
        self.server.kill()

    def refused(self):
        if self.stock.try_start():
            raise Wrong("PostgreSQL without memlith has opened a directory that needs its log")
        if "in-use-by-memlith" not in self.server.log.read_text(errors="replace"):
            raise Wrong(f"PostgreSQL without memlith does not say what to do{self.server.said()}")

    def kill(self, kind, load):
        server = self.server
        if kind == "keeper":
            before = server.keeper()
            os.kill(before, signal.SIGKILL)
            server.sql("checkpoint")
            self.server.wait(lambda: server.keeper() not in (None, before), "another keeper is started")
            if not load.runs():
                raise Wrong(f"the load did not survive the keeper's death{server.said()}")
            server.kill()
        elif kind == "backend":
            os.kill(self.chance.choice(server.backends()), signal.SIGKILL)
            self.server.wait(lambda: not load.runs(), "the load ends")
            return
        elif kind == "at once":
            self.start_beside_keeper()
            return
        else:
            server.kill(keeper=kind != "server")
        if kind == "server":
            self.server.wait(lambda: server.keeper() is None, "the keeper ends")
            if self.chance.random() < 0.5:
                self.stock.start().check()  # an ordinary directory, whose pages are whole
                self.stock.stop()
        elif kind == "recover":
            self.refused()
            server.call(self.given.memlith, "postgres", "recover", server.data)
            self.stock.start().check()
            self.stock.stop()

    def is_begun(self):
        """True if a server has the lock that all processes of a server share."""
        with (self.server.pages / "life").open() as life:
            try:
                fcntl.flock(life, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return True
            return False

    def start_beside_keeper(self):
        """The server is killed and started at once: the next server is there before the old keeper has looked."""
        server, old = self.server, self.server.keeper()
        os.kill(old, signal.SIGSTOP)
        server.kill(keeper=False)
        starting = server.begin_start()
        server.wait(self.is_begun, "the next server begins")
        time.sleep(self.chance.random() * 0.5)
        os.kill(old, signal.SIGCONT)
        if starting.wait() != 0:
            raise Wrong(f"a server that was killed and started at once does not start{server.said()}")
        server.wait(lambda: old not in server.processes(), "the old keeper ends")
        if server.keeper() is None or "in-use-by-memlith" not in (server.data / "PG_VERSION").read_text():
            raise Wrong(f"the server runs without its keeper, or without the mark{server.said()}")

    def session(self, kind):
        load = Load(self.server)
        try:
            load.disturb(self.chance, 0.5 + self.chance.random() * 1.5)
            if not load.runs():
                raise Wrong(f"the load has ended by itself{self.server.said()}")
            self.kill(kind, load)
        finally:
            counts = load.end()
        if kind in ("backend", "at once"):
            self.server.wait(lambda: self.server.sql("select 1", check=False) == "1", "the server comes back")
        else:
            self.server.start()
        load.compare(counts)
        self.server.check()
        self.acknowledged += sum(counts.values())
        self.counts[kind] += 1
        self.number += 1

    def run(self, number):
        self.server.remove()
        self.server.make().start().fill()
        kinds = list(KINDS)
        while self.number < number:
            self.session(kinds[self.number] if self.number < len(kinds) else
                         self.chance.choices(kinds, list(KINDS.values()))[0])
            if self.number % 20 == 0:
                print(f"{self.number} kills, {self.acknowledged} acknowledged transactions", flush=True)
        if self.server.sql("show full_page_writes") != "off":
            raise Wrong("full_page_writes is not off")
        self.server.stop()
        self.server.check_checksums()
        self.stock.start().check()
        self.stock.stop()
        self.server.remove()
        print(", ".join(f"{count} {kind}" for kind, count in self.counts.items()))


def main():
    options = options_of(__doc__, "plugin", "memlith")
    options.add_argument("--kills", type=int, default=6)
    given = options.parse_args()
    skip_without_postgres(given.plugin)
    chance = seeded_random("the kinds and the times, not how processes run")
    return hold([(Killed(given, chance), given.kills)], "kills", 20)


if __name__ == "__main__":
    sys.exit(main())
