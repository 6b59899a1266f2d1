#!/usr/bin/env python3
"""Kills a program of durable steps, and counts its effects in a process that is not killed.

    steps_kill.py FOLDER [--kills N] [--seed N] [--planted NAME] [--every]

Runs of a worker add to an array and to a dictionary, send messages, call effects with keys and without, sleep and wait
for signals. Each life of the program is a forked child that is killed: after a random time, or at a random call or
return within memlith.steps; with --every at each of them, one after the other, with one run. The effects go into a pipe
whose end is here. When all runs of a round are done, their effects and changes are counted; the next round begins in a
new store. Prints what it saw, and ends with 1 and a sentence for the first thing that is wrong. --planted puts a fault
into the child's memlith.steps, which has to be found.
"""
import argparse
import collections
import json
import os
import pathlib
import random
import select
import shutil
import signal
import sys
import threading
import time

import memlith
from memlith import steps
from memlith.steps import _engine, _format, _run, _worker

ROUNDS_OF_STEPS = 3  # of one run: each a step, an effect, and a step that sends a message
PLACE = os.path.dirname(steps.__file__)


class Wrong(Exception):
    """The proof has found a fault."""


# ---- the program that is killed ------------------------------------------------------------------------------------


def order(run, number, tell):
    @run.step
    def count(amount):
        counters[number] += amount
        totals.incr(number, amount)
        return int(counters[number])

    def call(position, key=""):
        tell(f"E {run.id} {position} {key or '-'}")
        return position

    @run.step
    def report(text):
        run.outbox.append(text)

    store = run._engine.store
    counters = store.array("counters")
    totals = memlith.Dict(store, "totals")
    effect = run.effect(key=lambda r: r.key, name="call")(call) if number % 2 else run.effect(name="call")(
        lambda position: call(position))
    for each in range(ROUNDS_OF_STEPS):
        if count(1) != each + 1:
            raise Wrong(f"{run.id}: the step had another state")
        effect(each)
        report(f"{number} {each}")
        if number % 3 == 1:
            run.sleep(0.001)
    return run.wait_for("go") if number % 3 == 2 else None


def kill_at(event):
    """Kills this process at a call or return within memlith.steps, in whatever thread it is."""
    left = [event]

    def look(frame, what, argument):
        if frame.f_code.co_filename.startswith(PLACE):
            left[0] -= 1
            if left[0] <= 0:
                os.kill(os.getpid(), signal.SIGKILL)

    threading.setprofile(look)
    sys.setprofile(look)


def live(folder, runs, threads, happened, tell, event):
    """One life: accepts the runs and executes them, until all are done or need a decision."""
    store = memlith.open(folder, log_max_bytes=8 << 20)
    store.array("counters", 16, "i8")
    memlith.Dict(store, "totals")
    if event:
        kill_at(event)
    for number in range(runs):
        name = f"run-{number}"
        if steps.submit(store, "order", name, number):
            tell(f"A {name}")
        if steps.info(store, name).status == "stopped":
            decide(store, name, happened)
    with steps.worker(store, {"order": lambda run, number: order(run, number, tell)}, threads=threads,
                      retries=0) as worker:
        before = set()
        while True:
            worker.drain()
            left = [each for each in steps.runs(store) if each.status != "done"]
            stuck = {(each.id, each.changed) for each in left if should_go_on(each)}
            for each in left:
                if each.status == "failed" or (each.id, each.changed) in stuck & before:
                    tell(f"L {each.id} {each.status} {each.error}")
                    return
                if each.waits_for:
                    steps.signal(store, each.id, "go", each.id)
            if all(each.status == "stopped" for each in left):
                break
            before = stuck
            time.sleep(0.0005)
    sys.setprofile(None)
    for name in [each.id for each in left]:
        for effect in steps.unknown(store, name):
            tell(f"U {name} {effect.arguments[0][0]} {effect.began}")
    if not left:
        tell("D " + json.dumps({
            "counters": store["counters"].tolist(), "totals": {str(k): v for k, v in totals_of(store)},
            "outbox": [[each.run, each.content] for each in steps.Outbox(store)],
            "results": {each.id: steps.result(store, each.id) for each in steps.runs(store)}}))
    store.close()


def decide(store, name, happened):
    """Tells a run the outcome of its unknown effect. The run stays stopped if the world was not asked about it yet."""
    for effect in steps.unknown(store, name):
        outcome = happened.get((name, str(effect.began)))
        if outcome is None:
            return
        if outcome:
            steps.happened(store, name, effect.arguments[0][0])
    steps.retry(store, name)


def should_go_on(run):
    """A worker that is idle twice, and has not executed the run in between, has lost it."""
    if run.status == "waiting":
        return not run.waits_for and (run.due or 0) < time.time()
    return run.status in ("running", "ready")


def totals_of(store):
    return memlith.Dict(store, "totals").items()


# ---- planted faults ------------------------------------------------------------------------------------------------


def plant(name):
    run, engine = _run.Run, _engine.Engine
    original = run._step
    if name == "result-before-state":
        def step(self, name, version, weak, function, arguments, named):
            if self._at < len(self._read()):
                return original(self, name, version, weak, function, arguments, named)
            value = int(self._engine.store["counters"][int(self.id[4:])]) + 1 if name == "count" else None
            with self._commit(False) as head:
                done = _format.Step(_format.Kind.STEP, _format.State.DONE, 0, name, payload=self._coder.dumps(value))
                self._record(head, done)
            with self._engine.transaction(False):
                self._inside = threading.get_ident()
                function(*arguments, **named)
                self._inside = None
            self._ended()
            return value

        run._step = step
    elif name == "position-before-result":
        def step(self, *rest):
            if self._at >= len(self._read()):
                with self._engine.commit(False):
                    head = self._owned()
                    head.position += 1
                    self._engine.put_head(self.id, head)
            return original(self, *rest)

        run._step = step
    elif name == "lease-without-its-end":
        engine.is_live = lambda self, lease: True
    elif name == "effect-before-intent":
        def effect(self, name, version, key, function, arguments, named):
            with self._calling(_format.Kind.EFFECT, name, version) as found:
                if found is not None:
                    return self._replayed(found)
                key = key(self) if key else ""
                value = function(*arguments, **({"key": key} if key else {}))
                with self._commit(False) as head:
                    self._record(head, _format.Step(_format.Kind.EFFECT, _format.State.DONE, 0, name, version, key,
                                                    self._coder.dumps(value)))
                self._ended()
                return value

        run._effect = effect
    elif name == "timer-before-lease":
        def lease_due(self):
            with self._engine.commit(False):
                now = _engine.now_us()
                prefix = _format.timers_prefix("order")
                keys = list(self._engine.records.irange(prefix, _format.timer_key("order", now + 1)))
                for key in keys:
                    del self._engine.records[key]
            with self._engine.commit(True):
                self._taken.extend(self._lease(key[len(prefix) + 8:].decode(), now) for key in keys)

        _worker.Worker._lease_due = lease_due
    elif name:
        raise SystemExit(f"there is no planted fault {name}")


PLANTED = ["result-before-state", "position-before-result", "lease-without-its-end", "effect-before-intent",
           "timer-before-lease"]


# ---- the process that counts ---------------------------------------------------------------------------------------


class Round:
    """The runs of one store, from their beginning to their end."""

    def __init__(self, folder, runs, threads, planted):
        self.folder, self.runs, self.threads, self.planted = folder, runs, threads, planted
        self.accepted, self.effects, self.unknown, self.happened = set(), collections.Counter(), {}, {}
        self.done = None
        shutil.rmtree(folder, ignore_errors=True)

    def life(self, event=0, seconds=0.0):
        """True if it was killed."""
        inner, outer = os.pipe()
        child = os.fork()
        if child == 0:
            code = 1
            try:
                os.close(inner)
                plant(self.planted)
                live(self.folder, self.runs, self.threads, self.happened,
                     lambda line: os.write(outer, line.encode() + b"\n"), event)
                code = 0
            except BaseException as error:  # noqa: BLE001
                os.write(outer, f"X {type(error).__name__}: {error}\n".encode().replace(b"\n", b" ") + b"\n")
            finally:
                os._exit(code)
        os.close(outer)
        text = b""
        end = time.monotonic() + seconds
        with os.fdopen(inner, "rb", 0) as lines:
            while True:
                left = max(0, end - time.monotonic()) if seconds else None
                if not select.select([lines], [], [], left)[0]:
                    os.kill(child, signal.SIGKILL)  # it was not waited for, so its number is its own
                    seconds = 0
                elif not (part := lines.read(1 << 16)):
                    break
                else:
                    text += part
        told = text.decode().split("\n")[:-1]
        status = os.waitpid(child, 0)[1]
        self.hear(told)
        if not os.WIFSIGNALED(status) and status != 0:
            raise Wrong(f"a life ended with status {status}: {told[-3:]}")
        return os.WIFSIGNALED(status)

    def hear(self, told):
        for line in told:
            kind, _, rest = line.partition(" ")
            if kind == "A":
                self.accepted.add(rest)
            elif kind == "E":
                self.effects[tuple(rest.split())] += 1
            elif kind == "U":
                name, each, began = rest.split()
                self.unknown[name] = self.unknown.get(name, 0) + 1
                self.happened[name, began] = any(effect[:2] == (name, each) for effect in self.effects)
            elif kind == "L":
                raise Wrong(f"lost: {rest}")
            elif kind == "D":
                self.done = json.loads(rest)
            elif kind == "X":
                raise Wrong(rest)
        for (name, each, key), count in self.effects.items():
            if key == "-" and count > 1:
                raise Wrong(f"{name}: effect {each} without a key happened {count} times")

    def check(self):
        wanted = {f"run-{number}" for number in range(self.runs)}
        if set(self.done["results"]) != wanted or not self.accepted <= wanted:
            raise Wrong(f"runs lost: {wanted - set(self.done['results'])}")
        for number in range(self.runs):
            name = f"run-{number}"
            if self.done["counters"][number] != ROUNDS_OF_STEPS or self.done["totals"][str(number)] != ROUNDS_OF_STEPS:
                raise Wrong(f"{name}: {self.done['counters'][number]} and {self.done['totals'][str(number)]} changes "
                            f"of {ROUNDS_OF_STEPS} steps")
            keys = {(each, key) for run, each, key in self.effects if run == name}
            if len(keys) != ROUNDS_OF_STEPS:
                raise Wrong(f"{name}: {len(keys)} effects of {ROUNDS_OF_STEPS}: {sorted(keys)}")
            sent = [text for run, text in self.done["outbox"] if run == name]
            if sent != [f"{number} {each}" for each in range(ROUNDS_OF_STEPS)]:
                raise Wrong(f"{name}: the outbox has {sent}")


def prove(folder, kills, rng, planted):
    total = collections.Counter()
    while total["kills"] < kills:
        part = Round(folder / "store", rng.randrange(1, 7), rng.choice([1, 2, 4]), planted)
        longest = 1  # grows, or a round would never end
        while part.done is None:
            if rng.random() < 0.7:
                killed = part.life(event=int(longest * 10 ** rng.uniform(1, 4)))
            else:
                killed = part.life(seconds=longest * 10 ** rng.uniform(-3, -1))
            total["lives"] += 1
            total["kills"] += killed
            longest *= 1.05
        part.check()
        total["rounds"] += 1
        total["runs"] += part.runs
        total["effects"] += len(part.effects)
        total["repeated with their key"] += sum(part.effects.values()) - len(part.effects)
        total["unknown"] += sum(part.unknown.values())
    return total


def prove_every(folder, planted):
    """Each call and return of each kind of run is the place of a kill, once."""
    total = collections.Counter()
    for runs in (1, 2, 3):
        event, killed = 1, True
        while killed:
            part = Round(folder / "store", runs, 1, planted)
            killed = part.life(event=event)
            total["kills"] += killed
            while part.done is None:
                part.life()
            part.check()
            total["unknown"] += sum(part.unknown.values())
            event += 1 if runs == 1 else 7
    return total


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--kills", type=int, default=300)
    parser.add_argument("--seed", type=int, default=int(os.environ.get("MEMLITH_SEED", "1")))
    parser.add_argument("--planted", default="")
    parser.add_argument("--every", action="store_true")
    options = parser.parse_args()
    try:
        if options.every:
            total = prove_every(options.folder, options.planted)
        else:
            total = prove(options.folder, options.kills, random.Random(options.seed), options.planted)
    except Wrong as error:
        print(f"seed {options.seed}: {error}")
        return 1
    print(f"seed {options.seed}: " + ", ".join(f"{count} {what}" for what, count in total.items()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
