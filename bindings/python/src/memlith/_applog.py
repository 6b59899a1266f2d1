"""Application logs: entries that are on the disk before a server answers."""

from __future__ import annotations

import os
from typing import Any, Iterator, Literal, NamedTuple, Union

from . import _core
from ._errors import Invalid, Unsupported
from ._shared_store import SharedStore
from ._store import Store
from ._ticket import Ticket

Bytes = Union[bytes, bytearray, memoryview]

_WHEN_FULL = {"block": _core.APPLOG_BLOCK, "fail": _core.APPLOG_FAIL, "grow": _core.APPLOG_GROW}


class Entry(NamedTuple):
    number: int
    content: bytes


def _bytes(entry: Bytes) -> bytes:
    return entry if type(entry) is bytes else bytes(memoryview(entry))


class AppLog:
    """The application log `name` of a store: a bounded list of entries, which have numbers 1, 2, 3, ...

        log = memlith.AppLog(store, "orders")
        log.append(b"sell marble")          # any number of threads
        log.write()                         # durable: the server may answer
        for entry in log:                   # one thread behind
            with store.transaction():       # what the entry says, and that it is done: both or neither
                stock["marble"] -= 1
                log.consume(entry.number)

    In a transaction of the store, or of a dictionary, `append` and `consume` are parts of it. They take effect when the
    transaction is committed, and entries get their numbers then. After a crash the log has a prefix of what was
    appended: every entry whose `write` returned, and of one `append` all or nothing. Any thread may call any method;
    threads that read share one place in the log.

    memlith.AppLog("state", "orders", processes=True) is one that several processes append to, read and consume at once,
    of the store at that path, or in a SharedStore. Each process opens it for itself, and a forked one may go on with
    its parent's; each reads from a place of its own, and what one consumes is consumed for all. When the keeper was
    killed, the next call raises Poisoned (IOFailure if it was under way): entries that were appended and not written
    may be lost. The call after that goes on, and reading begins with the first entry that is not consumed.
    """

    __slots__ = ("_log", "_store")

    def __init__(self, store: Store | SharedStore | str | bytes | os.PathLike[Any], name: str | None = None, *,
                 size: int = 0, max_size: int = 0, when_full: Literal["block", "fail", "grow"] = "block",
                 create: bool = True, processes: bool = False) -> None:
        """Opens the log, and creates it if it does not exist. A log that is open already is the same log.

        `size` is that of a new log, 64 MiB by default; each entry takes its bytes and 24, rounded up to 8. When the log
        is full, because entries are not consumed, `append` waits ("block"), raises Full ("fail"), or the log grows up
        to `max_size` ("grow"; by default 1 TiB), which takes addresses only. Without a name it is "log", or the one
        object of a store in one file.
        """
        if when_full not in _WHEN_FULL:
            raise Invalid(f"when_full is {when_full!r}; it can be {', '.join(_WHEN_FULL)}")
        if size < 0 or max_size < 0:
            raise Invalid("sizes of a log are not negative")
        if isinstance(store, Store):
            if processes:
                raise TypeError("this process alone has the store open; with processes=True, give its path")
            self._store: Store | None = store
            self._log: _core.AppLog | _core.SharedLog = _core.AppLog(
                store._core, name or ("file" if store.one_file else "log"), size, max_size, _WHEN_FULL[when_full],
                create)
            return
        if not isinstance(store, SharedStore):
            if not processes:
                raise TypeError("an AppLog is in an open store; with processes=True in the store at a path")
            store = SharedStore.of(store)
        self._store = None
        self._log = _core.SharedLog(store.path, name or "log", size, max_size, _WHEN_FULL[when_full], create,
                                    store.program)

    @property
    def name(self) -> str:
        return self._log.name

    @property
    def closed(self) -> bool:
        return self._log.closed

    def close(self) -> None:
        """Makes durable what was appended, and closes the log. The end of the store does the same.

        NoSpace, Full, NoMemory: there is no room for it, and nothing was closed: make room, and close again.
        """
        self._log.close()

    def remove(self) -> None:
        """Closes the log and removes it with all entries. Durable on return. Unsupported where processes share it."""
        if isinstance(self._log, _core.SharedLog):
            raise Unsupported("several processes have the log open; remove it in one that has the store for itself")
        self._log.remove()

    # ---- writers ----

    def append(self, *entries: Bytes) -> int | None:
        """Appends the entries in memory, and returns the number of the last; None in a transaction.

        Raises Full if there is no room (see `when_full`), or never will be: the entries are larger than the log, or
        than half of the store's log_max_bytes. Nothing was appended then.
        """
        return self._log.append([_bytes(entry) for entry in entries]) or None

    def write(self) -> None:
        """Makes everything durable that was appended before. Threads share flushes."""
        self._log.write()

    def write_weak(self) -> Ticket:
        """Begins to make it durable, and returns a ticket, which tells when it is: `await` it, or `result()`.

        Unsupported where processes share the log.
        """
        if self._store is None or isinstance(self._log, _core.SharedLog):
            raise Unsupported("several processes have the log open, where there are no tickets; call write()")
        return Ticket(self._store._core, self._store._threads.waiter, self._log.write_weak())

    # ---- the reader ----

    def read(self, wait: float | None = 0) -> Entry | None:
        """The next durable entry. If there is none, waits up to `wait` seconds for one (None: for ever)."""
        found = self._log.read(wait)
        return None if found is None else Entry(*found)

    def __iter__(self) -> Iterator[Entry]:
        """The durable entries that were not read, up to the last one that there is."""
        while (entry := self.read()) is not None:
            yield entry

    def rewind(self) -> None:
        """The next entry to be read is the first that is not consumed, as after opening."""
        self._log.rewind()

    def consume(self, number: int) -> None:
        """Everything up to entry `number`, which was read, is consumed, and its room is free.

        By itself it is durable a moment later, at the latest with the next write; in a transaction, with that.
        """
        self._log.consume(number)

    # ---- by number, as a consensus engine needs it ----

    def get(self, number: int) -> bytes | None:
        """The durable entry `number`, read or not; None if there is none, or it was consumed or truncated."""
        return self._log.get(number)

    def truncate_after(self, last: int) -> None:
        """Drops every entry behind entry `last`, written or not. Takes effect at once, durable with the next write."""
        self._log.truncate_after(last)

    def truncate_before(self, first: int) -> None:
        """Drops every entry before entry `first`, read or not."""
        self._log.truncate_before(first)

    def restart(self, next_number: int) -> None:
        """Drops all entries. The next one that is appended is number `next_number`."""
        self._log.restart(next_number)

    def info(self) -> dict[str, int]:
        """The fields of memlith_applog_info: size and room in bytes, and numbers of entries, 0 for none: newest,
        durable, read, consumed."""
        return self._log.info()

    def __repr__(self) -> str:
        return f"<memlith.AppLog {self.name!r}{', closed' if self.closed else ''}>"
