"""`memlith.Dict(..., processes=True)`: several processes write one dictionary, and are killed, and so is the keeper."""

import contextlib
import os
import pathlib
import random
import signal
import subprocess
import threading
import time

import pytest

import memlith

KEEPER = os.path.join(os.path.dirname(memlith.__file__), "memlith-keeper")


def in_child(act):
    """A process that was forked for `act`."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            act()
            code = 0
        finally:
            os._exit(code)
    return child


def status_of(child):
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def kill_keeper(store):
    """Returns when it has ended, if there was one."""
    found = subprocess.run(["pgrep", "-f", f"^{KEEPER} .*{store}$"], capture_output=True, text=True, check=False)
    for pid in map(int, found.stdout.split()):
        with contextlib.suppress(ProcessLookupError, FileNotFoundError):
            os.kill(pid, signal.SIGKILL)
            while pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z":
                time.sleep(0.001)


def test_is_a_dictionary(folder):
    users = memlith.Dict(folder / "store", "users", processes=True)
    users["ada"] = {"born": 1815}
    users.update({"bob": 1, "eve": 2}, zoe=3)
    assert list(users) == ["ada", "bob", "eve", "zoe"] and len(users) == 4
    assert users.get("ada") == {"born": 1815} and "grace" not in users
    assert users.pop("bob") == 1 and users.pop("bob", None) is None
    assert users.setdefault("eve", 7) == 2 and users.setdefault("new", 7) == 7
    assert users.incr("count") == 1 and users.incr("count", 4) == 5
    assert users.put_if("count", 5, 6) and not users.put_if("count", 5, 7)
    assert users.popitem() == ("zoe", 3)
    assert dict(users.items_in("c", "f")) == {"count": 6, "eve": 2}
    assert users.remove_range("c", "f") == 2
    assert users.append([("x", 1), ("y", 2)]) == 2
    users.clear()
    assert users == {} and len(users) == 0
    with pytest.raises(KeyError):
        del users["absent"]
    with pytest.raises(memlith.Incompatible):
        memlith.Dict(folder / "store", "users", processes=True, codec="raw")


def test_is_an_ordinary_dictionary_for_one_process(folder):
    with memlith.open(folder / "store") as store:
        memlith.Dict(store, "d").update(a=1, b=2)
    shared = memlith.SharedStore(folder / "store")
    both = memlith.Dict(shared, "d")
    both["c"] = 3
    assert len(both) == 3
    with pytest.raises(memlith.Busy):
        memlith.open(folder / "store")
    shared.close()
    with memlith.open(folder / "store", wait=10) as store:
        assert memlith.Dict(store, "d") == {"a": 1, "b": 2, "c": 3}
        assert len(memlith.Dict(store, "d")) == 3


def test_blocks_take_effect_together_or_not(folder):
    store = memlith.SharedStore(folder / "store")
    a, b = memlith.Dict(store, "a"), memlith.Dict(store, "b")
    with a.transact():
        a["k"], b["k"] = 1, 1
        assert a["k"] == 1
        with pytest.raises(ZeroDivisionError), b.transact():
            b["k"] = 1 / 0
        with pytest.raises(RuntimeError), store.transact():
            b["k"] = 9
            raise RuntimeError
    assert a["k"] == b["k"] == 1
    with pytest.raises(memlith.Conflict), store.transact():
        a["k"] += 1
        status = status_of(in_child(lambda: memlith.Dict(folder / "store", "a", processes=True).incr("k")))
        assert status == 0
    assert a["k"] == 2
    seen = []

    def add():
        seen.append(a["k"])
        if len(seen) == 1:  # another thread is faster
            other = threading.Thread(target=a.incr, args=("k",))
            other.start()
            other.join()
        a["k"] += 10

    store.run(add)
    assert seen == [2, 3] and a["k"] == 13
    with pytest.raises(TypeError):
        memlith.Deque(store, "deque")


def test_no_increment_of_any_process_is_lost(folder):
    counts = memlith.Dict(folder / "store", "counts", processes=True, weak=True)

    def count(number):
        for i in range(200):
            counts.incr("all")
            counts[f"{number} {i}"] = i
        counts.store.persist()

    children = [in_child(lambda number=number: count(number)) for number in range(4)]
    assert [status_of(child) for child in children] == [0] * 4
    assert counts["all"] == 800 and len(counts) == 801


def test_goes_on_after_the_keeper_was_killed(folder):
    counts = memlith.Dict(folder / "store", "counts", processes=True)
    counts["n"] = 1
    kill_keeper(folder / "store")
    assert counts["n"] == 1
    assert counts.incr("n") == 2
    weak = memlith.Dict(counts.store, "counts", weak=True)
    weak["n"] = 7
    kill_keeper(folder / "store")
    with pytest.raises(memlith.Poisoned, match="may be lost"):
        while True:
            weak.get("n")
    assert counts["n"] in (2, 7)


def test_workers_are_killed_at_random(folder):
    """Four workers, as of a web server, count requests. What was acknowledged is there; the sums agree."""
    path = folder / "store"
    told = folder / "told"
    told.mkdir()

    def opened():
        while True:
            with contextlib.suppress(memlith.IOFailure):  # the keeper ended meanwhile
                hits = memlith.Dict(path, "hits", processes=True)
                return hits, memlith.Dict(hits.store, "done")

    def work(number):
        hits, done = opened()
        out = os.open(told / str(number), os.O_WRONLY | os.O_CREAT | os.O_APPEND)

        def hit():
            hits[random.randrange(8)] = hits.get(random.randrange(8), 0)  # reads and writes what others do
            hits["all"] = hits.get("all", 0) + 1
            done[number] = done.get(number, 0) + 1

        while True:
            try:
                hits.store.run(hit)
            except memlith.IOFailure:  # the keeper ended meanwhile
                continue
            os.write(out, b".")

    workers = {number: in_child(lambda number=number: work(number)) for number in range(4)}
    for _ in range(25):
        time.sleep(random.random() / 20)
        number = random.randrange(4)
        if random.randrange(5) == 0:
            kill_keeper(path)
            continue
        os.kill(workers[number], signal.SIGKILL)
        assert status_of(workers[number]) == -signal.SIGKILL
        workers[number] = in_child(lambda number=number: work(number))
    while any(not (told / str(number)).exists() or (told / str(number)).stat().st_size == 0 for number in workers):
        time.sleep(0.01)
    for child in workers.values():
        os.kill(child, signal.SIGKILL)
        status_of(child)
    hits, done = (memlith.Dict(path, name, processes=True) for name in ("hits", "done"))
    assert hits["all"] == sum(done.values())
    for number in workers:
        assert done[number] >= (told / str(number)).stat().st_size
