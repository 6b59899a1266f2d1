#!/usr/bin/env python3
"""Durable steps a second, with one run and with many at once, beside savers and workflow libraries; and a restart.

    steps.py [--json] [--dir FOLDER] [--seconds S] [--runs N] [--resumed N] [--postgres URL] [--only SIDE]

The sides take turns of a fifth of the time, so that all of them meet the same disk. A step keeps a result of 100 bytes;
of LangGraph's savers it is the writes of a task and a checkpoint, as a graph keeps them. Sides whose package is not
installed are left out: langgraph-checkpoint-sqlite, dbos. --postgres is the database of DBOS in place of SQLite.
"""
import argparse
import contextlib
import itertools
import json
import pathlib
import shutil
import sqlite3
import sys
import tempfile
import threading
import time

import dictionaries

import memlith
from memlith import steps

RESULT = b"x" * 100
TURNS = 5


class Bare(dictionaries.Raw):
    """One write and one flush for each step."""

    name = "a write and a flush"

    def run(self, name):
        return lambda: self.set(b"", RESULT)


class Memlith:
    name, durability = "memlith.steps", "durable, one commit with the data"

    def __init__(self, folder, _):
        self.store = memlith.open(folder / "memlith")
        self.numbers = itertools.count()

    def run(self, name):
        """A function that does a step of a new run."""
        return steps.run(self.store, f"{name}-{next(self.numbers)}").step(lambda: RESULT, name="step")

    def close(self):
        self.store.close()


class Saver:
    """As a graph keeps a step: the writes of its task, and the checkpoint behind them."""

    def run(self, name):
        count = itertools.count()
        config = {"configurable": {"thread_id": name, "checkpoint_ns": ""}}
        versions = {"result": None}

        def step():
            versions["result"] = self.saver.get_next_version(versions["result"], None)
            checkpoint = {"v": 1, "id": f"{next(count):012}", "ts": "", "channel_values": {"result": RESULT},
                          "channel_versions": dict(versions), "versions_seen": {}, "updated_channels": None}
            if "checkpoint_id" in config["configurable"]:
                self.saver.put_writes(config, [("result", RESULT)], "task")
            config.update(self.saver.put(config, checkpoint, {"step": 1}, dict(versions)))

        return step


class SqliteSaver(Saver):
    name, durability = "LangGraph, SqliteSaver", "durable, two commits"

    def __init__(self, folder, _):
        from langgraph.checkpoint.sqlite import SqliteSaver as Kept

        self.connection = sqlite3.connect(folder / "saver.db", check_same_thread=False)
        self.saver = Kept(self.connection)
        self.saver.setup()
        self.connection.execute("PRAGMA synchronous = FULL")

    def close(self):
        self.connection.close()


class MemlithSaver(Saver):
    name, durability = "LangGraph, memlith.langgraph.Saver", "durable, two commits"

    def __init__(self, folder, _):
        from memlith.langgraph import Saver as Kept

        self.store = memlith.open(folder / "memlith-saver")
        self.saver = Kept(self.store)

    def close(self):
        self.store.close()


class Dbos:
    durability = "durable, a commit of its own"

    def __init__(self, folder, options):
        from dbos import DBOS

        self.name = f"DBOS on {'PostgreSQL' if options.postgres else 'SQLite'}"
        url = options.postgres or f"sqlite:///{folder}/dbos.sqlite"
        DBOS(config={"name": "bench", "system_database_url": url, "run_admin_server": False, "log_level": "ERROR"})

        @DBOS.step()
        def step():
            return RESULT.decode()

        @DBOS.workflow()
        def workflow(seconds):
            end = time.monotonic() + seconds
            count = 0
            while time.monotonic() < end:
                step()
                count += 1
            return count

        self.dbos, self.workflow = DBOS, workflow
        DBOS.launch()

    def count(self, runs, seconds):
        """Steps of several workflows at once."""
        return sum(each.get_result() for each in [self.dbos.start_workflow(self.workflow, seconds)
                                                  for _ in range(runs)])

    def close(self):
        self.dbos.destroy()


def count_steps(side, runs, seconds):
    """Steps of several threads, each with a run of its own."""
    if hasattr(side, "count"):
        return side.count(runs, seconds)
    counts = []
    begun = threading.Barrier(runs + 1)

    def work(number):
        step = side.run(f"run-{number}-{time.monotonic_ns()}")
        begun.wait()
        end, count = time.monotonic() + seconds, 0
        while time.monotonic() < end:
            step()
            count += 1
        counts.append(count)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(runs)]
    for thread in threads:
        thread.start()
    begun.wait()
    for thread in threads:
        thread.join()
    return sum(counts)


def rates(options, folder):
    sides = []
    with contextlib.ExitStack() as stack:
        for kind in (Bare, Memlith, SqliteSaver, MemlithSaver, Dbos):
            if options.only and options.only not in kind.__name__.lower():
                continue
            try:
                side = kind(folder, True if kind is Bare else options)
            except ImportError:
                continue
            stack.callback(side.close)
            sides.append(side)
        for runs in (1, options.runs):
            done, spent = dict.fromkeys(sides, 0), dict.fromkeys(sides, 0.0)
            for _, side in itertools.product(range(TURNS), sides):
                if runs > 1 and isinstance(side, Bare):
                    continue
                began = time.monotonic()
                done[side] += count_steps(side, runs, options.seconds / TURNS)
                spent[side] += time.monotonic() - began
            for side in sides:
                if spent[side]:
                    yield {"workload": "steps", "side": side.name, "durability": side.durability, "runs": runs,
                           "steps": done[side], "steps_per_second": done[side] / spent[side]}


def resumed(options, folder):
    """A process ends with runs behind a step; the next process executes all of them to their end."""
    path = folder / "resumed"
    with memlith.open(path) as store:
        for first in range(0, options.resumed, 500):
            with store.transaction():
                for number in range(first, min(first + 500, options.resumed)):
                    steps.submit(store, "workflow", f"run-{number}")

        def begin(run):
            run.step(lambda: RESULT, name="first")()
            run.wait_for("go")

        with steps.worker(store, {"workflow": begin}, weak=True) as worker:
            worker.drain()
        for first in range(0, options.resumed, 500):
            with store.transaction():
                for number in range(first, min(first + 500, options.resumed)):
                    steps.signal(store, f"run-{number}", "go")

    def go_on(run):
        run.step(lambda: RESULT, name="first")()
        run.wait_for("go")

    began = time.monotonic()
    with memlith.open(path) as store:
        opened = time.monotonic()
        with steps.worker(store, {"workflow": go_on}, weak=True) as worker:
            worker.drain()
        ended = time.monotonic()
        assert sum(each.status == "done" for each in steps.runs(store)) == options.resumed
    yield {"workload": "resume", "side": "memlith.steps", "durability": "in order", "runs": options.resumed,
           "open_seconds": opened - began, "seconds": ended - began}


def text_of(line):
    if line["workload"] == "resume":
        return (f"{line['side']:<36} {line['runs']:>6} runs went on and ended in {line['seconds']:.2f} s, "
                f"{line['open_seconds']:.2f} s of it opening")
    return (f"{line['side']:<36} {line['runs']:>6} runs {line['steps_per_second']:>10.0f} steps/s   "
            f"{line['durability']}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="one object a line")
    parser.add_argument("--dir", type=pathlib.Path, default=None)
    parser.add_argument("--seconds", type=float, default=5, help="of each side, with each number of runs")
    parser.add_argument("--runs", type=int, default=64)
    parser.add_argument("--resumed", type=int, default=10_000)
    parser.add_argument("--postgres", default="")
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    folder = pathlib.Path(tempfile.mkdtemp(prefix="steps.", dir=options.dir))
    try:
        for line in itertools.chain(rates(options, folder), resumed(options, folder)):
            print(json.dumps(line) if options.json else text_of(line), flush=True)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
