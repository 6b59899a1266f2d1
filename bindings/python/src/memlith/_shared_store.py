"""Stores whose dictionaries several processes read and write."""

from __future__ import annotations

import os
import random
import time
import weakref
from types import TracebackType
from typing import Callable, TypeVar

from . import _core
from ._errors import Conflict

_Path = str | bytes | os.PathLike[str] | os.PathLike[bytes]
R = TypeVar("R")
_known: weakref.WeakValueDictionary[bytes, SharedStore] = weakref.WeakValueDictionary()


class SharedStore:
    """A store that any number of processes have open at once, for dictionaries and application logs.

        store = memlith.SharedStore("state")
        visits = memlith.Dict(store, "visits")
        visits.incr("ada")                 # durable when the line has run; no increment of another process is lost

    Each process opens it for itself, and a forked one may go on with its parent's. The first starts a keeper, a
    program that this package brings, which has the store until a moment after the last process has gone; `program` is
    the path of another one, the command `memlith`. Reads are made on memory that the processes share, and wait for no
    other process.

    When the keeper was killed, the next call starts another one and goes on with what was durable. Poisoned is raised
    once if weak changes of this process may be lost with it, and IOFailure by a change that was under way, which may
    have taken effect or not.

    Raises NotFound, Busy (another process has the store open by memlith.open), Unsupported (it is a file).
    """

    def __init__(self, path: _Path, *, create: bool = True, program: _Path | None = None) -> None:
        self.path = os.path.abspath(os.fsencode(path))
        self.program = b"" if program is None else os.fsencode(program)
        self._core = _core.SharedStore(self.path, create, self.program)

    @classmethod
    def of(cls, path: _Path) -> SharedStore:
        """The one of this process for that path: what is opened by a path can be changed in one block."""
        place = os.path.abspath(os.fsencode(path))
        found = _known.get(place)
        if found is None or found.closed:
            _known[place] = found = cls(place)
        return found

    def transact(self, *, weak: bool = False) -> SharedBlock:
        """A block of `with` whose changes take effect, and become durable, together; none if it raises.

        It sees the state of its beginning. Conflict is raised at its end, and nothing has changed, if another process
        or thread has changed what it read: run it again, or let `run` do so. Blocks nest; a block is of its thread.
        """
        return SharedBlock(self._core, weak)

    def run(self, act: Callable[[], R], *, weak: bool = False) -> R:
        """Calls act() in a block, again after each conflict, and returns what it returned."""
        for tries in range(1 << 62):
            try:
                with self.transact(weak=weak):
                    return act()
            except Conflict:
                if self._core.in_block:
                    raise  # the block around this one is to begin again
            time.sleep(random.random() * 2 ** min(tries, 10) / 1e6)
        raise AssertionError

    def persist(self) -> None:
        """Returns when all changes of all processes that were made before are durable."""
        self._core.persist()

    def close(self) -> None:
        """Ends this process's use of the store, and its open blocks. Weak changes become durable first."""
        self._core.close()

    @property
    def closed(self) -> bool:
        return self._core.closed

    def __enter__(self) -> SharedStore:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<memlith.SharedStore {os.fsdecode(self.path)!r}{': closed' if self.closed else ''}>"


class SharedBlock:
    """As SharedStore.transact() returns it."""

    __slots__ = ("_core", "_weak")

    def __init__(self, core: _core.SharedStore, weak: bool) -> None:
        self._core = core
        self._weak = weak

    def __enter__(self) -> None:
        self._core.begin_block()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        self._core.end_block(kind is None, self._weak)
