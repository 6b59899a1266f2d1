"""Makes and checks the golden store of the Python package: golden_python.py make|check FOLDER [--crash]

Never change what it holds: stores that earlier builds made are checked against it.
"""
import os
import signal
import sys

import memlith
import numpy as np
from memlith.checkpoint import Checkpoint

NUMBERS = np.arange(5000, dtype="f8").reshape(50, 100) / 7
RECORD = np.dtype([("name", "S8"), ("height", "f4")])


def make(folder, must_crash):
    with Checkpoint(f"{folder}/checkpoint") as checkpoint:
        checkpoint.save({"step": 1, "weights": NUMBERS, "names": ["ada"]})
        checkpoint.save({"step": 2, "weights": NUMBERS + 1, "names": ["ada", "grace"]})
    store = memlith.open(f"{folder}/store")
    numbers = store.zeros("numbers", NUMBERS.shape)
    numbers[:] = NUMBERS
    people = store.zeros("people", 3, RECORD)
    store.persist()
    if must_crash:
        store.checkpoint()
    people[:] = [(b"ada", 1.65), (b"grace", 1.7), (b"linus", 1.78)]
    with store.transaction():
        users = memlith.Dict(store, "users")
        users.update({"ada": {"born": 1815}, 7: [1, 2], (1, "b"): None, 2.5: b"x", b"raw": "text"})
    memlith.Deque(store, "jobs", range(20)).popleft()
    if must_crash:
        os.kill(os.getpid(), signal.SIGKILL)
    store.close()


def check(folder):
    for opened in range(3):
        with memlith.open(f"{folder}/store", create=False) as store:
            assert store.names() == ["numbers", "people"], store.names()
            assert np.array_equal(store["numbers"][1:], NUMBERS[1:]) and store["numbers"][0, 0] == opened
            assert store["people"].dtype == RECORD and store["people"]["name"].tolist() == [b"ada", b"grace", b"linus"]
            users = memlith.Dict(store, "users")
            assert dict(users) == {2.5: b"x", 7: [1, 2], b"raw": "text", "ada": {"born": 1815}, (1, "b"): None}
            assert list(memlith.Deque(store, "jobs")) == list(range(1, 20))
            store["numbers"][0, 0] += 1
            store.persist()
    with Checkpoint(f"{folder}/checkpoint") as checkpoint:
        state = checkpoint.load()
        assert state["step"] == 2 and state["names"] == ["ada", "grace"]
        assert np.array_equal(state["weights"], NUMBERS + 1)


if __name__ == "__main__":
    if sys.argv[1] == "make":
        make(sys.argv[2], "--crash" in sys.argv)
    else:
        check(sys.argv[2])
