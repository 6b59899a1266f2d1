"""Caches in stores, and functions whose results they keep."""

from __future__ import annotations

import functools
import hashlib
import inspect
import pickle
import time
from collections.abc import Iterator, MutableMapping
from typing import Any, Callable, ParamSpec, TypeVar, cast

from . import _core
from ._dict import Key, Records
from ._errors import Invalid
from ._store import Store

P = ParamSpec("P")
R = TypeVar("R")
_MISSING: Any = object()
_ITEM, _ORDER = 0, 1  # an item has two records: (_ITEM, key) -> (end, number, value) and (_ORDER, number) -> key


class Cache(Records):
    """A cache in a store: a mapping whose items end after a time, and of which only the newest `max_items` stay.

        cache = memlith.Cache(store, "pages", max_items=10_000)
        cache.set(url, page, expire=3600)
        page = cache.get(url)

    Changes are weak unless weak=False: a crash may lose the last 100 ms of them. Values are pickled. Keys and threads
    are as of Dict.
    """

    KIND = "cache"

    def __init__(self, store: Store, name: str, *, max_items: int | None = None, expire: float | None = None,
                 weak: bool = True) -> None:
        if max_items is not None and max_items < 1:
            raise Invalid("a cache keeps at least one item")
        super().__init__(store, name, weak=weak)
        self.max_items = max_items
        self.expire_after = expire

    def set(self, key: Key, value: Any, expire: float | None = None) -> None:
        """Keeps the value for `expire` seconds (default: as the cache says; None: as long as there is room)."""
        seconds = self.expire_after if expire is None else expire
        end = None if seconds is None else time.time() + seconds
        with self.transact():
            self._forget(key)
            newest = self._numbers(1, last=True)
            number = newest[0][0] + 1 if newest else 0
            super().__setitem__((_ITEM, key), (end, number, value))
            super().__setitem__((_ORDER, number), key)
            surplus = 0 if self.max_items is None else len(self) - self.max_items
            for _, oldest in self._numbers(surplus, last=False) if surplus > 0 else ():
                self._forget(oldest)

    def get(self, key: Key, default: Any = None) -> Any:
        """The value, or `default` if there is none or its time has ended."""
        found = super().get((_ITEM, key), None)
        return default if found is None or _ended(found[0]) else found[2]

    def __getitem__(self, key: Key, /) -> Any:
        value = self.get(key, _MISSING)
        if value is _MISSING:
            raise KeyError(key)
        return value

    def __setitem__(self, key: Key, value: Any, /) -> None:
        self.set(key, value)

    def __delitem__(self, key: Key, /) -> None:
        with self.transact():
            if key not in self:
                raise KeyError(key)
            self._forget(key)

    def __contains__(self, key: object) -> bool:
        return self.get(cast(Key, key), _MISSING) is not _MISSING

    def __len__(self) -> int:
        """The number of items, also of those whose time has ended and that were not removed yet."""
        return super().__len__() // 2

    def __iter__(self) -> Iterator[Any]:
        for (_, key), (end, _, _) in self._range(_ITEM, True):
            if not _ended(end):
                yield key

    def pop(self, key: Key, default: Any = _MISSING) -> Any:
        with self.transact():
            value = self.get(key, default)
            if value is _MISSING:
                raise KeyError(key)
            self._forget(key)
            return value

    def setdefault(self, key: Key, default: Any = None) -> Any:
        with self.transact():
            value = self.get(key, _MISSING)
            if value is _MISSING:
                self.set(key, default)
            return default if value is _MISSING else value

    def expire(self) -> int:
        """Removes the items whose time has ended, in one commit, and returns how many."""
        with self.transact():
            ended = [key for (_, key), (end, _, _) in self._range(_ITEM, True) if _ended(end)]
            for key in ended:
                self._forget(key)
        return len(ended)

    def _forget(self, key: Key) -> None:
        found = self.take((_ITEM, key), None)
        if found is not None:
            super().__delitem__((_ORDER, found[1]))

    def _range(self, kind: int, values: bool) -> Iterator[tuple[Any, Any]]:
        return self._batches(_core.encode_key((kind,)), _core.encode_key((kind + 1,)), False, values)

    def _numbers(self, count: int, last: bool) -> list[tuple[int, Any]]:
        """The first or last numbers in the order in which items were set, and their keys."""
        first, end = _core.encode_key((_ORDER,)), _core.encode_key((_ORDER + 1,))
        keys, items, _ = self.batch(first, end, last, count, True)
        return [(number, key) for (_, number), key in zip(keys, items)]

    def __repr__(self) -> str:
        if self.store.closed:
            return f"<memlith.Cache {self.name!r} of a closed store>"
        return f"<memlith.Cache {self.name!r}: {len(self)} items>"


# Methods that MutableMapping derives from those above.
for _name in ("keys", "values", "items", "popitem", "update", "__eq__"):
    setattr(Cache, _name, getattr(MutableMapping, _name))
MutableMapping.register(Cache)


def _ended(end: float | None) -> bool:
    return end is not None and time.time() >= end


def _key_of(arguments: tuple[Any, ...], named: dict[str, Any], typed: bool) -> Key:
    """Equal arguments have one key. Arguments that are no keys themselves are known by the hash of their pickle."""
    whole: Any = (arguments, tuple(sorted(named.items())))
    if typed:
        whole = (*whole, tuple(f"{type(each).__module__}.{type(each).__qualname__}"
                               for each in (*arguments, *(value for _, value in sorted(named.items())))))
    try:
        if len(_core.encode_key((_ITEM, whole))) <= 512:
            return cast(Key, whole)
    except (TypeError, Invalid):
        pass
    return hashlib.blake2b(pickle.dumps(whole, 5), digest_size=32).digest()


def cached(store: Store, name: str | None = None, *, expire: float | None = None, max_items: int | None = None,
           typed: bool = False, weak: bool = True) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Keeps the results of a function, or of a coroutine function, in a cache of the store.

        @memlith.cached(store, expire=3600)
        def page(url): ...

    `name` is that of the cache (default: the function's own). The arguments are pickled if they are no keys of a Dict.
    An exception is not kept. Threads that ask for the same result at once compute it each. The function gets
    `cache`, the Cache, and `__wrapped__`.
    """

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        cache = Cache(store, name or f"{function.__module__}.{function.__qualname__}", max_items=max_items,
                      expire=expire, weak=weak)
        made: Any
        if inspect.iscoroutinefunction(function):

            @functools.wraps(function)
            async def made(*arguments: P.args, **named: P.kwargs) -> Any:
                key = _key_of(arguments, named, typed)
                found = cache.get(key, _MISSING)
                if found is _MISSING:
                    found = await function(*arguments, **named)
                    cache.set(key, found)
                return found
        else:

            @functools.wraps(function)
            def made(*arguments: P.args, **named: P.kwargs) -> Any:
                key = _key_of(arguments, named, typed)
                found = cache.get(key, _MISSING)
                if found is _MISSING:
                    found = function(*arguments, **named)
                    cache.set(key, found)
                return found

        made.cache = cache
        return cast(Callable[P, R], made)

    return decorate
