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
    ticket = store.persist_async()
    await ticket
    ticket.add_done_callback(lambda done: print(done.number))
    return array

with memlith.open("s", log_max_bytes=1 << 30) as store:
    asyncio.run(work(store))
with Checkpoint("c") as checkpoint:
    written: int = checkpoint.save({"a": 1})
"""
WRONG = """
import memlith
memlith.open(5)
"""


def check(folder: pathlib.Path, text: str) -> "subprocess.CompletedProcess[str]":
    (folder / "user.py").write_text(text)
    return subprocess.run([sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(folder / "cache"), "user.py"],
                          cwd=folder, capture_output=True, text=True, check=False)


def test_a_users_program(folder: pathlib.Path) -> None:
    pytest.importorskip("mypy")
    done = check(folder, USER)
    assert done.returncode == 0, done.stdout
    assert check(folder, WRONG).returncode == 1


def test_the_package(folder: pathlib.Path) -> None:
    pytest.importorskip("mypy")
    done = subprocess.run([sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(folder / "cache"),
                           *(part for name in ("", "._store", "._ticket", "._header", "._errors", ".checkpoint",
                                                     ".sqlite")
                             for part in ("-m", f"memlith{name}"))],
                          cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
