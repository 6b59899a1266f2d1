#!/usr/bin/env python3
"""Redis on memlith, killed again and again under load: every acknowledged write is there, nothing is applied twice, a
transaction is whole.

Clients change two databases each, one change after the other, at random (model.py): all types, MULTI, scripts, INCRBY,
times to live, RENAME, MOVE, FLUSHDB, SWAPDB, values larger than the log. After each kill the databases of a client have
to be exactly what its acknowledged changes made, or that and the one change that was under way. Some kills come while
the server starts. A client that only looks is never told what is gone afterwards (docs/guarantees.md, "Redis"). Every
tenth round is about a weak log: what is left is a prefix of what was acknowledged.
"""
import random
import sys
import threading
import time

from model import Model, difference, read
from server import Gone, Refused, Server
from foreign import Trial, Wrong, hold, options_of, seeded_random, skip_without

CLIENTS = 3
WATCHED = 14  # the database of a counter that one client changes and another one looks at
DIRECTIVES = [("memlith-log-size", "1mb"), ("save", '""')]


class Load(threading.Thread):
    """A client with its model. `models` are the states that the databases may be in."""

    def __init__(self, server, index, model):
        super().__init__()
        self.server, self.databases, self.models, self.acknowledged = server, [2 * index, 2 * index + 1], [model], 0
        self.wrong, self.stopping = "", False

    def run(self):
        try:
            client = self.server.client(self.databases[self.models[0].selected])
            while not self.stopping:
                after = self.models[0].copy()
                commands = [tuple(self.databases[each[1]] if isinstance(each, tuple) else each for each in command)
                            for command in after.change()]
                self.models = [self.models[0], after]
                if len(commands) == 1:
                    client(*commands[0])
                else:
                    client.transaction(*commands)
                self.models = [after]
                self.acknowledged += 1
        except Gone:
            pass
        except (Refused, AssertionError) as why:
            self.wrong = repr(why)

    def check(self, client):
        """The model that holds."""
        found, expires = read(client, self.databases)
        differences = [difference(model, found, expires) for model in self.models]
        if self.wrong or all(differences):
            raise Wrong(f"databases {self.databases} after {self.acknowledged} acknowledged changes: "
                        f"{self.wrong or ' | '.join(differences)}")
        return self.models[differences.index("")]


class Watch(threading.Thread):
    """A client that counts, or looks at the counter; `seen` is the largest number that it was told."""

    def __init__(self, server, command):
        super().__init__()
        self.server, self.command, self.seen = server, command, 0

    def run(self):
        try:
            client = self.server.client(WATCHED)
            while True:
                self.seen = max(self.seen, int(client(self.command, "count") or 0))
        except Gone:
            pass


class Loads:
    """All clients of a server."""

    def __init__(self, server, chance):
        self.server, self.running = server, False
        self.watches, self.seen = [], 0
        self.loads = [Load(server, index, Model(random.Random(chance.random()))) for index in range(CLIENTS)]

    def check(self):
        """The server's databases, from which the clients go on."""
        client = self.server.client()
        self.loads = [Load(self.server, index, each.check(client)) for index, each in enumerate(self.loads)]
        found = int(self.server.client(WATCHED)("GET", "count") or 0)
        if found < self.seen:
            raise Wrong(f"a client was told that the counter is {self.seen}, and it is {found}")

    def start(self):
        self.running = True
        self.watches = [Watch(self.server, command) for command in ("INCR", "GET")]
        for each in self.loads + self.watches:
            each.start()

    def end(self):
        """The number of changes that were acknowledged since the start; the server has gone."""
        if not self.running:
            return 0
        self.running = False
        for each in self.loads + self.watches:
            each.join()
        self.seen = max(self.seen, *(each.seen for each in self.watches))
        return sum(each.acknowledged for each in self.loads)


class Killed(Trial):
    name = "memlith"

    def __init__(self, given, chance):
        self.given, self.chance, self.lost = given, chance, 0
        self.server = Server(given.program, given.work / "kill", directives=DIRECTIVES).fresh().start()
        self.loads = Loads(self.server, chance)

    def kill(self):
        self.server.kill()
        self.number += 1

    def give_up(self):
        Server.kill_all()

    def weak_round(self):
        """A transaction adds to a counter and a list; what is left is a prefix, and whole."""
        client = self.server.client(15)
        client("CONFIG", "SET", "memlith-durability", "weak")
        client("CONFIG", "SET", "memlith-window-ms", 20)
        before = int(client("GET", "count") or 0)
        done = [before]

        def run():
            try:
                while True:
                    client.transaction(("INCR", "count"), ("RPUSH", "counts", done[0] + 1))
                    done[0] += 1
            except Gone:
                pass

        thread = threading.Thread(target=run)
        thread.start()
        time.sleep(0.05 + self.chance.random() * 0.2)
        self.kill()
        thread.join()
        client = self.server.start().client(15)
        count, counts = int(client("GET", "count") or 0), client("LRANGE", "counts", 0, -1)
        if [int(each) for each in counts] != list(range(1, count + 1)) or not before <= count <= done[0] + 1:
            raise Wrong(f"weak: {before} before, {done[0]} acknowledged, count {count}, list of {len(counts)} "
                        f"that ends with {counts[-3:]}")
        self.acknowledged += done[0] - before
        self.lost += done[0] - count

    def run(self, number):
        end = time.monotonic() + self.given.minutes * 60
        while self.number < number or time.monotonic() < end:
            self.loads.start()
            time.sleep(self.chance.random() ** 2 * 0.8)
            self.kill()
            self.acknowledged += self.loads.end()
            while self.chance.random() < 0.25:
                self.server.begin()
                time.sleep(self.chance.random() * 0.15)
                self.kill()
                self.at_start += 1
            self.server.start()
            self.loads.check()
            if self.number % 10 == 0:
                self.weak_round()
        self.server.stop()
        print(f"of weak changes {self.lost} were lost within the window")


def main():
    options = options_of(__doc__, "program")
    options.add_argument("--kills", type=int, default=50)
    options.add_argument("--minutes", type=float, default=0, help="go on for so long at least")
    given = options.parse_args()
    skip_without(given.program)
    chance = seeded_random("the changes and the times, not how threads run")
    return hold([(Killed(given, chance), given.kills)], "kills", 1)


if __name__ == "__main__":
    try:
        sys.exit(main())
    finally:
        Server.kill_all()
