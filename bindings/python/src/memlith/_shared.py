"""Regions that several processes write."""

from __future__ import annotations

import math
import os
from typing import TYPE_CHECKING, Any

import numpy

from . import _core

if TYPE_CHECKING:
    from numpy.typing import DTypeLike, NDArray

_SYNC, _ASYNC = 0, 1

_Path = str | bytes | os.PathLike[str] | os.PathLike[bytes]


class SharedRegion:
    """Memory of a store that several processes map and store to, all at the same address.

    Each process opens it for itself, also a forked one. `size` is that of a new region; one that exists keeps its own,
    which may be larger. The first process starts a keeper, a program that this package brings; `program` is the path
    of another one, the command `memlith`. A process opens a region once.

    A transaction takes bytes before they change, and commits them: all or nothing, also if the process dies. What is
    stored without a transaction is seen by others, and is not durable.

        with memlith.SharedRegion("shop", "counters", 4096) as region:
            counters = region.array(16, "i8")
            with region.transaction() as tx:
                tx.touch_before(counters[3:4])
                counters[3] += 1

    Raises NotFound, Busy (another process has the store open, and is no keeper), AddressTaken, Unsupported. When the
    keeper has ended, everything raises Poisoned: close the region, and open it again.
    """

    __slots__ = ("_core",)

    def __init__(
        self, store: _Path, name: str, size: int = 0, *, create: bool = True, program: _Path | None = None
    ) -> None:
        place = os.path.abspath(os.fsencode(store))
        self._core = _core.SharedRegion(place, name, size, create, b"" if program is None else os.fsencode(program))

    def array(self, shape: int | tuple[int, ...], dtype: DTypeLike, offset: int = 0) -> NDArray[Any]:
        """An array whose memory is the region's, from `offset` on. It may outlive close()."""
        # frombuffer keeps the buffer as long as the array lives; numpy.ndarray would give it back at once.
        count = math.prod(shape) if isinstance(shape, tuple) else shape
        flat = numpy.frombuffer(self._core, dtype, count, offset)  # type: ignore[call-overload]
        return flat.reshape(shape)  # type: ignore[no-any-return]

    def transaction(self, *, wait: bool = True) -> SharedTransaction:
        """Begins a transaction, which `with` commits at its end, or aborts after an exception.

        With wait=False the commit returns when the keeper has copied the bytes; see SharedTransaction.ticket.
        """
        return SharedTransaction(self._core, _SYNC if wait else _ASYNC)

    def wait(self, ticket: int) -> None:
        """Returns when the commit with that ticket, and all before it, are durable."""
        self._core.wait(ticket)

    def __len__(self) -> int:
        return len(self._core)

    @property
    def address(self) -> int:
        """The same in all processes."""
        return self._core.address

    def close(self) -> None:
        """Closes the region, when the last array of it and the last transaction have gone."""
        self._core.close()

    def __enter__(self) -> SharedRegion:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


class SharedTransaction(_core.SharedTransaction):
    """Bytes of a shared region that belong to this transaction until it ends. One thread at a time uses it."""

    def touch_before(self, memory: Any, timeout: float = 10) -> None:
        """Takes the bytes of an array, or of a slice of it, for this transaction. Call it before they change.

        Waits up to `timeout` seconds while another transaction has any of them. Then raises Conflict: abort, and begin
        again. `memory` is contiguous.
        """
        self.touch_bytes_before(memory, max(0, round(timeout * 1000)))

    def commit(self) -> int:
        """Makes the bytes durable, all or nothing, ends the transaction, and returns the ticket.

        Raises IOFailure if the keeper ended meanwhile: whether the commit is durable is known when the region is open
        again. After any error the transaction is open, and abort() ends it.
        """
        return super().commit()

    def __enter__(self) -> SharedTransaction:
        return self
