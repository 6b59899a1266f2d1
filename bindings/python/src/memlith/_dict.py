"""Dictionaries in stores: mappings whose records survive kill -9."""

from __future__ import annotations

import enum
import os
import pickle
from collections.abc import Callable, ItemsView, Iterator, KeysView, Mapping, MutableMapping, ValuesView
from typing import TYPE_CHECKING, Any, Final, Generic, Iterable, Literal, NamedTuple, Protocol, TypeVar, Union

from . import _core
from ._shared_store import SharedBlock, SharedStore
from ._store import Store
from ._transaction import Transaction

Key = Union[bytes, str, int, float, None, "tuple[Key, ...]"]
Prefix = Union[bytes, str, "tuple[Key, ...]"]
V = TypeVar("V")
_BATCH = 256
_MISSING: Any = object()


class Absent(enum.Enum):
    """Stands for no item in Dict.put_if."""

    ABSENT = "absent"

    def __repr__(self) -> str:
        return "memlith.ABSENT"


ABSENT: Final = Absent.ABSENT


class Estimate(NamedTuple):
    """About how many items there are, and how many bytes their keys and values have as they are stored."""

    items: int
    bytes: int


class Codec(Protocol):
    """How values become bytes. `name` is kept in the store, so that no other codec reads them."""

    name: str

    def dumps(self, value: Any) -> bytes: ...

    def loads(self, data: bytes) -> Any: ...


def _ends(start: Key, stop: Key, prefix: Prefix) -> tuple[bytes, bytes]:
    """The bounds of keys as bytes; no bytes where there is none."""
    if prefix is not _MISSING:
        if start is not _MISSING or stop is not _MISSING:
            raise TypeError("a range has a prefix, or a start and a stop")
        return _core.encode_prefix(prefix)
    return (b"" if start is _MISSING else _core.encode_key(start), b"" if stop is _MISSING else _core.encode_key(stop))


def codec_of(given: Literal["pickle", "msgpack", "raw"] | Codec) -> tuple[str, Any, Any]:
    """The name of a codec, and its two functions; None for raw bytes, which need none."""
    if given == "pickle":
        return "pickle", _dumps, pickle.loads
    if given == "raw":
        return "raw", None, None
    if given == "msgpack":
        import msgpack  # type: ignore[import-not-found,import-untyped,unused-ignore]

        return "msgpack", msgpack.packb, msgpack.unpackb
    if isinstance(given, str):
        raise ValueError(f'there is no codec {given!r}; there are "pickle", "msgpack", "raw" and objects like Codec')
    return given.name, given.dumps, given.loads


def _dumps(value: Any) -> bytes:
    return pickle.dumps(value, 5)


class Records(_core.Map):
    """Shared by the classes below: the records of one name in a store."""

    KIND = ""

    store: Any

    def __init__(self, store: Store | SharedStore, name: str, *, weak: bool = False,
                 codec: Literal["pickle", "msgpack", "raw"] | Codec = "pickle") -> None:
        if isinstance(store, SharedStore) and self.KIND != Dict.KIND:
            raise TypeError(f"a {type(self).__name__} is for one process; in a SharedStore there are dictionaries")
        codec_name, dumps, loads = codec_of(codec)
        super().__init__(store._core, name, f"{self.KIND} of {codec_name}", weak, dumps, loads)
        self.store = store
        self.name = name
        self.weak = weak

    def transact(self, *, wait: float | None = None) -> Transaction[None] | SharedBlock:
        """A block whose changes of all dictionaries take effect, and become durable, together; none if it raises.

        A block of `with` or `async with`. Other threads and tasks that write wait for its end; those that read see the
        state before. Blocks nest. `wait` is as of Store.transaction. In a SharedStore it is SharedStore.transact().
        """
        if isinstance(self.store, SharedStore):
            return self.store.transact(weak=self.weak)
        return Transaction(self.store._core, self.store._threads.waiter, None, False, self.weak, wait)

    def _change(self, act: Callable[[], Any]) -> Any:
        """Calls act() in a block, where processes share the store again and again until there is no conflict."""
        if isinstance(self.store, SharedStore):
            return self.store.run(act, weak=self.weak)
        with self.transact():
            return act()

    def __reduce__(self) -> Any:
        raise TypeError(f"a {type(self).__name__} belongs to its store and cannot be pickled; pickle a copy of it")

    def _batches(self, start: bytes, stop: bytes, backwards: bool, values: bool) -> Iterator[tuple[Any, Any]]:
        at: bytes | None = b""
        count = 16
        while at is not None:
            span = (start, at or stop) if backwards else (at or start, stop)
            keys, found, at = self.batch(*span, backwards, count, values)
            yield from zip(keys, found)
            count = _BATCH


class Dict(Records, Generic[V]):
    """A dictionary in a store: a MutableMapping in the order of its keys.

        d = memlith.Dict(store, "users")
        d["ada"] = {"born": 1815}        # durable when the line has run
        with d.transact():               # all of it, or nothing
            d["a"], d["b"] = d["b"], d["a"]

    memlith.Dict("state", "users", processes=True) is one that several processes read and write at once, of the
    SharedStore at that path.

    Keys are bytes, str, int, float, None and tuples of them, in that order of kinds (numbers come before bytes, bytes
    before str); equal numbers are one key, as in a dict. Values are what `codec` takes: "pickle", "msgpack", "raw"
    (bytes), or an object like Codec. With weak=True a change returns at the speed of memory and is durable within
    100 ms, in order. Any thread may use it. An iteration sees changes that are made meanwhile. A read outside of a
    block shows the newest change, durable or not; what a block has read is durable at its end.
    """

    KIND = "dictionary"

    def __init__(self, store: Store | SharedStore | str | bytes | os.PathLike[Any], name: str, *, weak: bool = False,
                 codec: Literal["pickle", "msgpack", "raw"] | Codec = "pickle", processes: bool = False) -> None:
        if not isinstance(store, (Store, SharedStore)):
            if not processes:
                raise TypeError("a Dict is in an open store; with processes=True in the store at a path")
            store = SharedStore.of(store)
        elif processes and isinstance(store, Store):
            raise TypeError("this process alone has the store open; with processes=True, give its path")
        super().__init__(store, name, weak=weak, codec=codec)

    if TYPE_CHECKING:

        def __getitem__(self, key: Key, /) -> V: ...

        def __setitem__(self, key: Key, value: V, /) -> None: ...

    def __iter__(self) -> Iterator[Any]:
        return self.irange()

    def __reversed__(self) -> Iterator[Any]:
        return self.irange(reverse=True)

    def irange(self, start: Key = _MISSING, stop: Key = _MISSING, reverse: bool = False, *,
               prefix: Prefix = _MISSING) -> Iterator[Any]:
        """The keys with start <= key < stop, or those that begin with `prefix`, in order.

        A prefix is bytes, str, or a tuple of the first items of tuples.
        """
        return (key for key, _ in self._batches(*_ends(start, stop, prefix), reverse, False))

    def items_in(self, start: Key = _MISSING, stop: Key = _MISSING, reverse: bool = False, *,
                 prefix: Prefix = _MISSING) -> Iterator[tuple[Any, V]]:
        """The items with start <= key < stop, or those whose keys begin with `prefix`, in order."""
        return self._batches(*_ends(start, stop, prefix), reverse, True)

    def remove_range(self, start: Key = _MISSING, stop: Key = _MISSING, *, prefix: Prefix = _MISSING) -> int:
        """Removes the items with start <= key < stop, or those whose keys begin with `prefix`, in one commit.

        Returns how many there were.
        """
        return self.remove_between(*_ends(start, stop, prefix))

    def estimate(self, start: Key = _MISSING, stop: Key = _MISSING, *, prefix: Prefix = _MISSING) -> Estimate:
        """About how many items there are with start <= key < stop, or with keys that begin with `prefix`.

        Looks at a few pages, however many items there are, and does not see what a block has changed.
        """
        return Estimate(*self.estimate_between(*_ends(start, stop, prefix)))

    def put_if(self, key: Key, expected: V | Absent, value: V | Absent) -> bool:
        """Compares and swaps: sets the value if it equals `expected`, and tells whether it did.

        `expected=memlith.ABSENT`: if there is no such key. `value=memlith.ABSENT`: removes the key.
        """
        def swap() -> bool:
            found = self.get(key, ABSENT)
            if found is not expected and (found is ABSENT or expected is ABSENT or found != expected):
                return False
            if value is not ABSENT:
                self[key] = value
            elif found is not ABSENT:
                del self[key]
            return True

        return bool(self._change(swap))

    def append(self, items: Mapping[Any, V] | Iterable[tuple[Any, V]]) -> int:
        """Adds items quickly that come in the order of their keys, behind all that are there. Returns how many.

        It is no transaction: a crash or an error leaves the first of them. Invalid: a key is not above the one before,
        or a block is open. Other threads may write meanwhile, though not behind the last key.
        """
        return self.append_items(items.items() if isinstance(items, (Mapping, Dict)) else items)

    def keys(self) -> KeysView[Any]:
        return KeysView(self)

    def values(self) -> ValuesView[V]:
        return _Values(self)

    def items(self) -> ItemsView[Any, V]:
        return _Items(self)

    def pop(self, key: Key, default: Any = _MISSING) -> Any:
        """Removes a key and returns its value; `default`, or KeyError, if there is none."""
        found = self.take(key, default)
        if found is _MISSING:
            raise KeyError(key)
        return found

    def popitem(self, last: bool = True) -> tuple[Any, V]:
        """Removes the last item, or the first, and returns it. KeyError if there is none."""
        def pop() -> tuple[Any, V] | None:
            for key, value in self.items_in(reverse=last):
                del self[key]
                return key, value
            return None

        found: tuple[Any, V] | None = self._change(pop)
        if found is None:
            raise KeyError("the dictionary is empty")
        return found

    def update(self, other: Any = (), /, **named: Any) -> None:
        """As of a dict, in one commit."""
        if isinstance(other, (Mapping, Dict)):
            other = other.items()
        elif hasattr(other, "keys"):
            other = [(key, other[key]) for key in other.keys()]
        if isinstance(self.store, SharedStore):
            other = list(other)  # which may be gone through again

        def add() -> None:
            for key, value in other:
                self[key] = value
            for name, value in named.items():
                self[name] = value

        self._change(add)

    def incr(self, key: Key, by: Any = 1) -> Any:
        """Adds to the value, which is 0 if there is none, and returns the sum."""
        def add() -> Any:
            total = self.get(key, 0) + by
            self[key] = total
            return total

        return self._change(add)

    def copy(self) -> dict[Any, V]:
        """A plain dict of the same items."""
        return dict(self.items())

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, (Mapping, Dict)):
            return NotImplemented
        return dict(self.items()) == dict(other.items())

    __hash__ = None  # type: ignore[assignment]

    def __ior__(self, other: Mapping[Any, V] | Iterable[tuple[Any, V]]) -> Dict[V]:  # type: ignore[misc]
        self.update(other)
        return self

    def __or__(self, other: Mapping[Any, Any]) -> dict[Any, Any]:
        return {**self.copy(), **dict(other)} if isinstance(other, (Mapping, Dict)) else NotImplemented

    def __ror__(self, other: Mapping[Any, Any]) -> dict[Any, Any]:
        return {**dict(other), **self.copy()} if isinstance(other, (Mapping, Dict)) else NotImplemented

    def __repr__(self) -> str:
        if self.store.closed:
            return f"<memlith.Dict {self.name!r} of a closed store>"
        return f"<memlith.Dict {self.name!r}: {len(self)} items>"


MutableMapping.register(Dict)


class _Values(ValuesView[Any]):
    """Values a batch at a time, not a look-up for each key."""

    _mapping: Any

    def __iter__(self) -> Iterator[Any]:
        return (value for _, value in self._mapping.items_in())

    def __reversed__(self) -> Iterator[Any]:
        return (value for _, value in self._mapping.items_in(reverse=True))

    def __contains__(self, value: object) -> bool:
        return any(value is each or value == each for each in self)


class _Items(ItemsView[Any, Any]):
    _mapping: Any

    def __iter__(self) -> Iterator[tuple[Any, Any]]:
        items: Iterator[tuple[Any, Any]] = self._mapping.items_in()
        return items

    def __reversed__(self) -> Iterator[tuple[Any, Any]]:
        items: Iterator[tuple[Any, Any]] = self._mapping.items_in(reverse=True)
        return items


