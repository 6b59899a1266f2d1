#!/usr/bin/env python3
"""Redis on memlith, killed again and again under load: every acknowledged write is there, nothing is applied twice, a
transaction is whole.

Clients change two databases each, one change after the other, at random (model.py): all types, MULTI, scripts, INCRBY,
times to live, RENAME, MOVE, FLUSHDB, SWAPDB, values larger than the log. After each kill the databases of a client have
to be exactly what its acknowledged changes made, or that and the one change that was under way. Some kills come while
the server starts. Every tenth round is about a weak log: what is left is a prefix of what was acknowledged.
"""
import argparse
import pathlib
import random
import sys
import threading
import time

from model import Model, difference, read
from server import Gone, Refused, Server, seeded_random, skip_without

CLIENTS = 3
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
        """The model that holds; or ends the test."""
        found, expires = read(client, self.databases)
        differences = [difference(model, found, expires) for model in self.models]
        if self.wrong or all(differences):
            sys.exit(f"FAILED, databases {self.databases} after {self.acknowledged} acknowledged changes: "
                     f"{self.wrong or ' | '.join(differences)}")
        return self.models[differences.index("")]


def weak_round(server, seed):
    """A transaction adds to a counter and a list; what is left is a prefix, and whole."""
    chance = random.Random(seed)
    client = server.client(15)
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
    time.sleep(0.05 + chance.random() * 0.2)
    server.kill()
    thread.join()
    client = server.start().client(15)
    count, counts = int(client("GET", "count") or 0), client("LRANGE", "counts", 0, -1)
    if [int(each) for each in counts] != list(range(1, count + 1)) or not before <= count <= done[0] + 1:
        sys.exit(f"FAILED, weak: {before} before, {done[0]} acknowledged, count {count}, list of {len(counts)} "
                 f"that ends with {counts[-3:]}")
    return done[0] - before, done[0] - count


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--program", required=True)
    options.add_argument("--work", required=True, type=pathlib.Path)
    options.add_argument("--kills", type=int, default=50)
    options.add_argument("--minutes", type=float, default=0, help="go on for so long at least")
    given = options.parse_args()
    skip_without(given.program)
    chance = seeded_random("the changes and the times, not how threads run")
    server = Server(given.program, given.work / "kill", directives=DIRECTIVES).fresh().start()
    models = [Model(random.Random(chance.random())) for _ in range(CLIENTS)]
    began, kills, acknowledged, lost = time.monotonic(), 0, 0, 0
    while kills < given.kills or time.monotonic() - began < given.minutes * 60:
        loads = [Load(server, index, model) for index, model in enumerate(models)]
        for each in loads:
            each.start()
        time.sleep(chance.random() ** 2 * 0.8)
        server.kill()
        kills += 1
        for each in loads:
            each.join()
        while chance.random() < 0.25:
            server.begin()
            time.sleep(chance.random() * 0.15)
            server.kill()
            kills += 1
        client = server.start().client()
        models = [each.check(client) for each in loads]
        acknowledged += sum(each.acknowledged for each in loads)
        if kills % 10 == 0:
            weak, gone = weak_round(server, chance.random())
            kills, acknowledged, lost = kills + 1, acknowledged + weak, lost + gone
    server.stop()
    if acknowledged < kills:
        sys.exit(f"FAILED: only {acknowledged} changes in {kills} kills; this tests nothing")
    print(f"{kills} kills, {acknowledged} acknowledged changes, all as they should be; of weak ones {lost} were lost "
          f"within the window; {time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    try:
        main()
    finally:
        Server.kill_all()
