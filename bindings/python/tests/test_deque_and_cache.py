"""Deques and caches."""

import asyncio
import collections
import pathlib
import signal
from typing import Any, Iterator

import numpy as np
import pytest
from conftest import Program
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test

import memlith
from memlith import _cache


@pytest.fixture
def store(folder: pathlib.Path) -> Iterator[memlith.Store]:
    with memlith.open(folder / "s") as opened:
        yield opened


def outcome(call: Any) -> Any:
    try:
        return call()
    except (IndexError, ValueError) as error:
        return type(error)


def test_a_deque_that_is_too_long_is_trimmed(store: memlith.Store) -> None:
    grown: memlith.Deque[int] = memlith.Deque(store, "q", range(10))
    q: memlith.Deque[int] = memlith.Deque(store, "q", maxlen=4)
    assert list(q) == [6, 7, 8, 9]
    grown.extend([10, 11, 12])
    q.append(13)
    assert list(q) == [10, 11, 12, 13]
    grown.extend([14, 15])
    q.appendleft(9)
    assert list(q) == [9, 10, 11, 12]


def test_a_deque_has_no_slices(store: memlith.Store) -> None:
    q: memlith.Deque[int] = memlith.Deque(store, "q", range(5))
    for call in (lambda: q[1:2], lambda: q.__setitem__(slice(1, 2), 1), lambda: q.__delitem__(slice(1, 2)),
                 lambda: q["a"]):
        with pytest.raises(TypeError, match="integer"):
            call()
    assert q[np.int64(2)] == 2 and list(q) == [*range(5)]


class AgainstADeque(RuleBasedStateMachine):
    folder: pathlib.Path
    machines = 0
    items = st.integers(0, 4)

    @initialize(maxlen=st.one_of(st.none(), st.integers(0, 5)))
    def open_new(self, maxlen: "int | None") -> None:
        AgainstADeque.machines += 1
        self.path, self.maxlen = self.folder / f"s{self.machines}", maxlen
        self.plain: collections.deque[int] = collections.deque(maxlen=maxlen)
        self.open()

    def open(self) -> None:
        self.store = memlith.open(self.path)
        self.deque: memlith.Deque[int] = memlith.Deque(self.store, "q", maxlen=self.maxlen, weak=True)
        self.same()

    def same(self) -> None:
        assert list(self.deque) == list(self.plain) and len(self.deque) == len(self.plain)
        assert list(reversed(self.deque)) == list(reversed(self.plain))

    def both(self, name: str, *arguments: Any) -> None:
        given = [list(each) if isinstance(each, tuple) else each for each in arguments]
        ours = outcome(lambda: getattr(self.deque, name)(*given))
        assert ours == outcome(lambda: getattr(self.plain, name)(*given)), (name, arguments)
        self.same()

    @rule(name=st.sampled_from(["append", "appendleft", "remove", "index", "count"]), item=items)
    def with_an_item(self, name: str, item: int) -> None:
        self.both(name, item)

    @rule(name=st.sampled_from(["pop", "popleft", "reverse", "clear"]))
    def without(self, name: str) -> None:
        self.both(name)

    @rule(name=st.sampled_from(["extend", "extendleft"]), items=st.lists(items, max_size=4).map(tuple))
    def with_items(self, name: str, items: Any) -> None:
        self.both(name, items)

    @rule(index=st.integers(-7, 7), item=items)
    def at_an_index(self, index: int, item: int) -> None:
        self.both("__getitem__", index)
        self.both("__setitem__", index, item)
        self.both("insert", index, item)
        self.both("__delitem__", index)
        self.both("rotate", index)
        assert (item in self.deque) == (item in self.plain)

    @rule()
    def reopen(self) -> None:
        self.store.close()
        self.open()

    @rule(now=st.integers(0, 9))
    def killed_in_another_process(self, now: int) -> None:
        if now != 7:
            return
        self.store.close()
        ended = Program(self.folder).run("""
            import os, signal, sys
            import memlith
            q = memlith.Deque(memlith.open(sys.argv[1]), "q", maxlen=eval(sys.argv[2]))
            q.append(3)
            with q.transact():
                q.clear()
                os.kill(os.getpid(), signal.SIGKILL)
            """, self.path, self.maxlen)
        assert ended.returncode == -signal.SIGKILL, ended.stderr
        self.plain.append(3)
        self.open()

    def teardown(self) -> None:
        if hasattr(self, "store"):
            self.store.close()


def test_against_a_deque(folder: pathlib.Path) -> None:
    AgainstADeque.folder = folder
    run_state_machine_as_test(AgainstADeque, settings=settings(max_examples=8, stateful_step_count=15))


def test_a_deque_from_items(store: memlith.Store) -> None:
    q: memlith.Deque[int] = memlith.Deque(store, "q", range(3))
    q += [3]
    assert q == [0, 1, 2, 3] and q != [0] and repr(q) == "<memlith.Deque 'q': 4 items>"
    with pytest.raises(memlith.Incompatible, match="deque"):
        memlith.Dict(store, "q")
    with pytest.raises(ValueError):
        memlith.Deque(store, "p", maxlen=-1)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Iterator["list[float]"]:
    now = [1000.0]
    monkeypatch.setattr(_cache.time, "time", lambda: now[0])
    yield now


def test_a_cache(folder: pathlib.Path, clock: "list[float]") -> None:
    with memlith.open(folder / "s") as store:
        cache = memlith.Cache(store, "c", max_items=3, expire=10)
        for number in range(5):
            cache[number] = str(number)
        assert list(cache) == [2, 3, 4] and len(cache) == 3 and 1 not in cache
        cache[2] = "again"  # the newest now
        cache.set("long", None, expire=100)
        assert dict(cache.items()) == {2: "again", 4: "4", "long": None}
        clock[0] += 10
        assert cache.get(2) is None and cache.get("long", 1) is None and list(cache) == ["long"]
        with pytest.raises(KeyError):
            cache[2]
        assert len(cache) == 3 and cache.expire() == 2 and len(cache) == 1
    with memlith.open(folder / "s") as store:
        cache = memlith.Cache(store, "c")
        assert cache.pop("long") is None and cache.pop("long", 4) == 4 and cache.setdefault("x", 1) == 1
        assert cache.setdefault("x", 2) == 1 and cache == {"x": 1}
        del cache["x"]
        with pytest.raises(KeyError):
            del cache["x"]
        assert not cache
        with pytest.raises(memlith.Invalid):
            memlith.Cache(store, "d", max_items=0)


def test_cached(folder: pathlib.Path, clock: "list[float]") -> None:
    calls: list[Any] = []

    def work(*arguments: Any, **named: Any) -> Any:
        calls.append((arguments, named))
        if "bad" in map(str, arguments):
            raise KeyError
        return None if "0" in map(str, arguments) else len(calls)

    for run in range(2):  # the second one after reopening
        with memlith.open(folder / "s") as store:
            kept = memlith.cached(store, "work", expire=5)(work)
            for arguments, named in (((1, "a"), {}), ((0,), {}), ((), {"b": [1], "a": 2}),
                                     ((np.arange(3), {"x": 1}), {}), (("x" * 5000,), {})):
                first = kept(*arguments, **named)
                assert kept(*arguments, **named) == first
            assert kept(b=[1], a=2) == kept(a=2, b=[1]) and kept(1.0, "a") == kept(True, "a") == kept(1, "a")
            assert len(calls) == 5
    with memlith.open(folder / "s") as store:
        kept = memlith.cached(store, "work", expire=5)(work)
        for _ in range(2):
            with pytest.raises(KeyError):
                kept("bad")
        assert len(calls) == 7
        clock[0] += 5
        kept(1, "a")
        assert len(calls) == 8
        typed = memlith.cached(store, "typed", typed=True)(work)
        assert typed(1) != typed(1.0) and typed(a=1) != typed(a=True)

        @memlith.cached(store)
        async def slow(number: int) -> int:
            """Doubles."""
            await asyncio.sleep(0)
            calls.append(number)
            return 2 * number

        assert [asyncio.run(slow(4)), asyncio.run(slow(4))] == [8, 8] and calls.count(4) == 1
        assert slow.__doc__ == "Doubles." and slow.cache.name.endswith("slow")  # type: ignore[attr-defined]
