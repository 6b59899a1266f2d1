"""Deques in stores."""

from __future__ import annotations

import operator
from collections.abc import MutableSequence
from typing import Any, Generic, Iterable, Iterator, Literal, TypeVar

from ._dict import Codec, Records
from ._store import Store

V = TypeVar("V")
_MISSING: Any = object()


class Deque(Records, Generic[V]):
    """A deque in a store: as collections.deque, and each change is one commit.

        jobs = memlith.Deque(store, "jobs")
        jobs.append(job)       # durable when the line has run
        job = jobs.popleft()

    Adding and removing at the ends takes the same time for every length, as do `len` and an item by its index; `insert`
    and `del` move the items behind. `weak`, `codec` and threads are as of Dict.
    """

    # The keys are successive integers, so the index of an item is the distance to the first key.

    KIND = "deque"

    def __init__(self, store: Store, name: str, iterable: Iterable[V] = (), maxlen: int | None = None, *,
                 weak: bool = False, codec: Literal["pickle", "msgpack", "raw"] | Codec = "pickle") -> None:
        if maxlen is not None and maxlen < 0:
            raise ValueError("maxlen must be non-negative")
        super().__init__(store, name, weak=weak, codec=codec)
        self.maxlen = maxlen
        if maxlen is not None and not store.read_only and len(self) > maxlen:
            with self.transact():
                self._trim(True)
        self.extend(iterable)

    def _edge(self, last: bool) -> int | None:
        keys = self.batch(b"", b"", last, 1, False)[0]
        return keys[0] if keys else None

    def _key(self, index: int) -> int:
        """The key of an index. In a transaction."""
        index = _index(index)
        count = len(self)
        if index < 0:
            index += count
        if not 0 <= index < count:
            raise IndexError("deque index out of range")
        first = self._edge(False)
        assert first is not None
        return first + index

    def _add(self, value: V, left: bool) -> None:
        edge = self._edge(not left)
        super().__setitem__(0 if edge is None else edge - 1 if left else edge + 1, value)
        self._trim(not left)

    def _trim(self, left: bool) -> None:
        """Removes what is too much, at the left or the right end. Another object may have let the deque grow longer."""
        surplus = 0 if self.maxlen is None else len(self) - self.maxlen
        for _ in range(surplus):
            super().__delitem__(self._edge(not left))

    def _take(self, last: bool) -> V:
        with self.transact():
            edge = self._edge(last)
            if edge is None:
                raise IndexError("pop from an empty deque")
            value: V = self.take(edge, None)
            return value

    def append(self, value: V) -> None:
        with self.transact():
            self._add(value, False)

    def appendleft(self, value: V) -> None:
        with self.transact():
            self._add(value, True)

    def extend(self, values: Iterable[V]) -> None:
        """Adds all of them, in one commit."""
        values = list(values)
        if values:
            with self.transact():
                for value in values:
                    self._add(value, False)

    def extendleft(self, values: Iterable[V]) -> None:
        values = list(values)
        if values:
            with self.transact():
                for value in values:
                    self._add(value, True)

    def pop(self, index: int = -1) -> V:
        if index == -1:
            return self._take(True)
        with self.transact():
            value = self[index]
            del self[index]
            return value

    def popleft(self) -> V:
        return self._take(False)

    def __iter__(self) -> Iterator[V]:
        return (value for _, value in self._batches(b"", b"", False, True))

    def __reversed__(self) -> Iterator[V]:
        return (value for _, value in self._batches(b"", b"", True, True))

    def __contains__(self, value: object) -> bool:
        return any(value is each or value == each for each in self)

    def __getitem__(self, index: int, /) -> V:
        index = _index(index)
        if index == 0 or index == -1:  # without a transaction, which other threads would wait for
            found = self.batch(b"", b"", index == -1, 1, True)[1]
            if not found:
                raise IndexError("deque index out of range")
            edge: V = found[0]
            return edge
        with self.transact():
            value: V = super().__getitem__(self._key(index))
            return value

    def __setitem__(self, index: int, value: V, /) -> None:
        with self.transact():
            super().__setitem__(self._key(index), value)

    def __delitem__(self, index: int, /) -> None:
        with self.transact():
            key, count = self._key(index), len(self)
            first = self._edge(False)
            assert first is not None
            left = key - first < count // 2  # the shorter side moves
            end = first if left else first + count - 1
            step = -1 if left else 1
            for at in range(key, end, step):
                super().__setitem__(at, super().__getitem__(at + step))
            super().__delitem__(end)

    def insert(self, index: int, value: V) -> None:
        with self.transact():
            count = len(self)
            if self.maxlen is not None and count >= self.maxlen:
                raise IndexError("deque already at its maximum size")
            index = max(0, index + count) if index < 0 else min(index, count)
            if index == count:
                self._add(value, False)
                return
            first = self._edge(False)
            assert first is not None
            for at in range(first, first + index):
                super().__setitem__(at - 1, super().__getitem__(at))
            super().__setitem__(first - 1 + index, value)

    def remove(self, value: V) -> None:
        """Removes the first item that is equal. ValueError if there is none."""
        with self.transact():
            del self[self.index(value)]

    def index(self, value: V, start: int = 0, stop: int | None = None) -> int:
        with self.transact():
            low, high, _ = slice(start, stop).indices(len(self))
            for at, each in enumerate(self):
                if low <= at < high and (each is value or each == value):
                    return at
        raise ValueError(f"{value!r} is not in the deque")

    def count(self, value: V) -> int:
        return sum(each is value or each == value for each in self)

    def reverse(self) -> None:
        with self.transact():
            for at, value in enumerate(list(reversed(self))):
                self[at] = value

    def rotate(self, steps: int = 1) -> None:
        """Moves `steps` items from the right end to the left, or the other way round if it is negative."""
        with self.transact():
            count = len(self)
            right = steps % count if count else 0
            for _ in range(right if 2 * right <= count else 0):
                self.appendleft(self.pop())
            for _ in range(count - right if 2 * right > count else 0):
                self.append(self.popleft())

    def __iadd__(self, values: Iterable[V]) -> Deque[V]:
        self.extend(values)
        return self

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, (MutableSequence, Deque)):
            return NotImplemented
        return list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        if self.store.closed:
            return f"<memlith.Deque {self.name!r} of a closed store>"
        return f"<memlith.Deque {self.name!r}: {len(self)} items>"


MutableSequence.register(Deque)


def _index(index: Any) -> int:
    try:
        return operator.index(index)
    except TypeError:
        raise TypeError(f"the index of a deque is an integer, not a {type(index).__name__}; a slice of it is "
                        "list(q)[a:b], or itertools.islice(q, a, b)") from None
