"""Calls of dictionaries that a dict does not have: ranges, prefixes, estimates, compare and swap, appending."""

import os
import pathlib
import random
import subprocess
import threading
from typing import Any, Iterator

import pytest
from conftest import Program, kill

import memlith


@pytest.fixture
def store(folder: pathlib.Path) -> Iterator[memlith.Store]:
    with memlith.open(folder / "s") as opened:
        yield opened


@pytest.fixture
def d(store: memlith.Store) -> "memlith.Dict[Any]":
    return memlith.Dict(store, "d", weak=True)


KEYS = ["", "a", "a\0", "a\xff", "ab", "ab\U0010ffff", "b", b"", b"a", b"a\0", b"a\xff", b"a\xff\xff", b"b", (), ("a",),
        ("a", 1), ("a", 2, "x"), ("ab",), ("b", 1), (1, 2), 1, 2.5, None]


def begins(key: Any, prefix: Any) -> bool:
    if isinstance(prefix, tuple):
        return isinstance(key, tuple) and key[:len(prefix)] == prefix
    return type(key) is type(prefix) and bool(key.startswith(prefix))


@pytest.mark.parametrize("prefix", [key for key in KEYS if isinstance(key, (str, bytes, tuple))], ids=repr)
def test_a_prefix(d: "memlith.Dict[Any]", prefix: Any) -> None:
    d.update((key, str(key)) for key in KEYS)
    wanted = [key for key in d if begins(key, prefix)]
    assert list(d.irange(prefix=prefix)) == wanted and prefix in wanted
    assert list(d.irange(reverse=True, prefix=prefix)) == wanted[::-1]
    assert list(d.items_in(prefix=prefix)) == [(key, str(key)) for key in wanted]
    assert d.estimate(prefix=prefix).items == len(wanted)
    assert d.remove_range(prefix=prefix) == len(wanted)
    assert list(d.irange(prefix=prefix)) == [] and len(d) == len(KEYS) - len(wanted)


def test_what_is_no_prefix(d: "memlith.Dict[Any]") -> None:
    for wrong in 1, None, 2.5:
        with pytest.raises(TypeError, match="a prefix is"):
            d.irange(prefix=wrong)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="a prefix, or a start and a stop"):
        d.remove_range(1, prefix="a")


def test_removing_a_range(d: "memlith.Dict[Any]") -> None:
    d.update((number, number) for number in range(100))
    assert d.remove_range(10, 20) == 10 and len(d) == 90
    assert d.remove_range(5, 15) == 5 and list(d.irange(0, 25)) == [*range(5), *range(20, 25)]
    assert d.remove_range(5, 15) == 0
    with pytest.raises(ZeroDivisionError):
        with d.transact():
            assert d.remove_range(50) == 50 and len(d) == 35
            raise ZeroDivisionError
    assert len(d) == 85
    assert d.remove_range() == 85 and len(d) == 0 and list(d) == []


def test_estimates(d: "memlith.Dict[Any]") -> None:
    assert d.estimate() == (0, 0)
    d["a"] = 1
    assert d.estimate().items == 1 and d.estimate("b").items == 0 and 0 < d.estimate().bytes < 100
    d.append((("many", number), number) for number in range(20_000))
    assert 10_000 < d.estimate().items < 40_000
    assert d.estimate(("many", 19_999)).items == 1


def test_compare_and_swap(d: "memlith.Dict[Any]") -> None:
    absent = memlith.ABSENT
    assert repr(absent) == "memlith.ABSENT"
    assert not d.put_if("a", 0, 1) and "a" not in d
    assert d.put_if("a", absent, [1]) and d["a"] == [1]
    assert not d.put_if("a", absent, 2) and d["a"] == [1]
    assert not d.put_if("a", [2], 3) and d.put_if("a", [1], None)
    assert not d.put_if("a", absent, 1) and d["a"] is None
    assert not d.put_if("a", 0, absent) and d.put_if("a", None, absent)
    assert d.put_if("a", absent, absent) and len(d) == 0


def test_swaps_of_threads(d: "memlith.Dict[Any]") -> None:
    """No swap is lost: each one that succeeds has seen the one before."""
    d["n"] = 0
    done = [0] * 4

    def count(thread: int) -> None:
        while done[thread] < 25:
            found = d["n"]
            done[thread] += d.put_if("n", found, found + 1)

    threads = [threading.Thread(target=count, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert d["n"] == 100


def test_appending(store: memlith.Store, d: "memlith.Dict[Any]") -> None:
    d[1] = "one"
    assert d.append({2: "two", 3.5: "more"}) == 2 and len(d) == 3
    assert d.append([]) == 0
    assert d.append((("t", number), bytes(number % 3000)) for number in range(5000)) == 5000  # more than one commit
    assert len(d) == 5003 and d["t", 4999] == bytes(1999) and len(list(d)) == 5003
    strong: memlith.Dict[int] = memlith.Dict(store, "strong")
    assert strong.append(zip("abc", range(3))) == 3 and strong.copy() == {"a": 0, "b": 1, "c": 2}
    with pytest.raises(memlith.Invalid, match="order"):
        strong.append([("d", 3), ("b", 4)])
    assert len(strong) == len(list(strong))
    with pytest.raises(memlith.Invalid, match="no part of a transaction"):
        with d.transact():
            d.append([("z", 1)])
    with pytest.raises(memlith.Invalid, match="no part of a transaction"):
        with store.transaction():
            d.append([("z", 1)])
    with pytest.raises((RuntimeError, TypeError, ValueError)):
        strong.append([1])  # type: ignore[list-item]
    d.clear()
    assert len(d) == 0


def test_appending_from_another_dictionary(store: memlith.Store, d: "memlith.Dict[Any]") -> None:
    """The items come from code that uses the store."""
    d.update((number, number) for number in range(2000))
    other: memlith.Dict[Any] = memlith.Dict(store, "other")
    assert other.append(d) == 2000 and other == d

    def changing() -> Iterator[Any]:
        for number in range(2000, 2010):
            d[number] = number
            yield number, d[number]

    assert other.append(changing()) == 10 and other == d


APPENDING = """
    import memlith
    d = memlith.Dict(memlith.open("s"), "d", codec="raw")
    assert len(d) == len(list(d))
    start = next(d.irange(reverse=True), -1) + 1
    def items():
        for number in range(start, start + 10**9):
            print(number, flush=True)
            yield number, bytes(300_000)
    d.append(items())
"""


def test_the_length_after_a_kill(program: Program) -> None:
    """Appending has commits of its own, and the length agrees with each of them."""
    draw = random.Random(int(os.environ.get("MEMLITH_SEED", "1")))
    for _ in range(4):
        process = program.start(APPENDING)
        assert process.stdout is not None
        for _ in range(draw.randrange(1, 60)):
            assert process.stdout.readline()
        kill(process)
        for read_only in True, False:
            with memlith.open(program.folder / "s", read_only=read_only) as store:
                d: memlith.Dict[Any] = memlith.Dict(store, "d", codec="raw")
                assert list(d) == list(range(len(d)))


def test_a_length_that_a_kill_left_unknown(folder: pathlib.Path) -> None:
    """The states that a kill leaves between two commits of an appending."""
    command = os.environ.get("MEMLITH_COMMAND")
    if command is None:
        pytest.skip("MEMLITH_COMMAND does not name the command `memlith`")
    place = folder / "s"
    with memlith.open(place) as store:
        memlith.Dict(store, "d").append([("a", 1), ("b", 2)])
    subprocess.run([command, "kv", "put", "--kv", ".records", str(place), "memlith.python", "n=d", ""], check=True,
                   capture_output=True)
    with memlith.open(place, read_only=True) as store:
        assert len(memlith.Dict(store, "d")) == 2
    with memlith.open(place) as store:
        d: memlith.Dict[int] = memlith.Dict(store, "d")
        assert len(d) == 2
        d["c"] = 3
        assert len(d) == 3
    stored = subprocess.run([command, "kv", "get", "--kv", ".records", str(place), "memlith.python", "n=d"], check=True,
                            capture_output=True, text=True).stdout
    assert stored.strip() == "\\x03" + "\\x00" * 7


def test_clearing_more_than_fits_into_the_log(folder: pathlib.Path) -> None:
    with memlith.open(folder / "s", log_bytes=1 << 20, log_max_bytes=1 << 20) as store:
        d: memlith.Dict[Any] = memlith.Dict(store, "d", codec="raw")
        same: memlith.Dict[Any] = memlith.Dict(store, "d", codec="raw")
        d.append((number, b"x" * 100) for number in range(100_000))
        with pytest.raises(KeyError), d.transact():
            d.clear()
            assert len(d) == 0
            raise KeyError
        assert len(d) == 100_000 and d[99_999]
        with d.transact():
            d.clear()
        assert len(d) == len(same) == 0 and list(same) == [] and 5 not in same
        same[1] = b"y"
        assert d[1] == b"y" and len(d) == 1
    with memlith.open(folder / "s") as store:
        d = memlith.Dict(store, "d", codec="raw")
        assert d.copy() == {1: b"y"} and len(d) == 1
