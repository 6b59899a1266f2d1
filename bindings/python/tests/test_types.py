"""The package's types, as a strict checker sees them."""

import pathlib
import subprocess
import sys

import pytest

USER = """
import asyncio
import numpy as np
import numpy.typing as npt
import memlith
from memlith.checkpoint import Checkpoint

async def work(store: memlith.Store) -> npt.NDArray[np.float64]:
    array: npt.NDArray[np.float64] = store.array("a", (3, 4), np.float64)
    with store.transaction() as same:
        array[0] = len(same.names())
    async with store.transaction(wait=3) as again:
        array[1] = len(again.names())
    with store.begin() as tx, tx.use():
        array[2] = 1
    ticket = store.persist_async()
    await ticket
    ticket.add_done_callback(lambda done: print(done.number))
    return array

with memlith.open("s", log_max_bytes=1 << 30) as store:
    asyncio.run(work(store))
    users: memlith.Dict[int] = memlith.Dict(store, "users", weak=True)
    with users.transact():
        users["a"] = users.get("a", 0) + len(users)
    for name, number in users.items():
        print(name, number + 1)
    jobs: memlith.Deque[str] = memlith.Deque(store, "jobs", ["a"], maxlen=3)
    job: str = jobs.popleft()

    @memlith.cached(store, expire=3.5)
    def square(number: int) -> int:
        return number * number

    nine: int = square(3)
    log = memlith.AppLog(store, "log", when_full="grow")
    last: int | None = log.append(b"a", memoryview(b"b"))
    log.write_weak().result()
    for entry in log:
        log.consume(entry.number)
        print(entry.content.decode())
    with memlith.steps.run(store, "order", weak=True) as run:
        @run.step
        def reserve(item: str, *, amount: int = 1) -> tuple[str, int]:
            run.outbox.append(item)
            return item, amount

        @run.effect(key=lambda r: r.key)
        def charge(cents: int, key: str) -> str:
            return f"{cents} {key}"

        pair: tuple[str, int] = reserve("marble", amount=2)
        paid: str = charge(500)
        again: int = run.step(name="again", version="2")(lambda: 5)()
        run.sleep(0.1)
    with memlith.steps.worker(store, [lambda run, item: item]) as worker:
        new: bool = memlith.steps.submit(store, "order", "o2", "marble", delay=3.5)
        worker.drain(1)
    for info in memlith.steps.runs(store, status="done"):
        print(info.id, info.changed + 1)
    for message in memlith.steps.Outbox(store):
        print(message.number, message.run)
with memlith.open_file("f") as file:
    print(file.array("file", 3).shape)
with Checkpoint("c") as checkpoint:
    written: int = checkpoint.save({"a": 1})
"""
WRONG = """
import memlith
memlith.open(5)
"""


def test_the_package_and_a_users_program(folder: pathlib.Path) -> None:
    """One test: the second run uses what the first one learnt of NumPy."""
    pytest.importorskip("mypy")
    (folder / "user.py").write_text(USER)
    (folder / "wrong.py").write_text(WRONG)
    mypy = [sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(folder / "cache")]
    parts = ("", "._store", "._ticket", "._header", "._errors", "._transaction", "._shared", "._dict", "._deque",
             "._cache", "._applog", ".checkpoint", ".sqlite", ".steps", ".steps._engine", ".steps._format",
             ".steps._outbox", ".steps._run", ".steps._worker")
    modules = [word for part in parts for word in ("-m", f"memlith{part}")]
    done = subprocess.run([*mypy, "-m", "user", *modules], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    wrong = subprocess.run([*mypy, "wrong.py"], cwd=folder, capture_output=True, text=True, check=False)
    assert wrong.returncode == 1 and "wrong.py:3" in wrong.stdout, wrong.stdout


def test_the_package_with_pyright(folder: pathlib.Path) -> None:
    """In the extended tests: where basedpyright is installed, which brings an interpreter of JavaScript."""
    pytest.importorskip("basedpyright")
    (folder / "user.py").write_text(USER)
    (folder / "pyrightconfig.json").write_text('{"typeCheckingMode": "standard"}')
    command = [sys.executable, "-m", "basedpyright", "--pythonpath", sys.executable]
    done = subprocess.run([*command, "user.py"], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
