"""Transactions of stores and of dictionaries, as blocks of `with` and `async with`, and as objects."""

from __future__ import annotations

import asyncio
import time
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from . import _core
from ._errors import Busy
from ._ticket import Ticket, Waiter

T = TypeVar("T")
_PATIENCE = 10.0  # seconds, as that of a call that waits without a number


class Transaction(_core.Transaction, Generic[T]):
    """A transaction, which is committed at the end of its block, or undone if the block raises.

    It belongs to no thread: any thread or task may end it, with `commit()`, `rollback()` or the end of its block, and
    `with tx.use():` has other threads and tasks work in it. Threads and tasks that are started with a copy of the
    context (asyncio's tasks, asyncio.to_thread) work in it from their beginning. One that is dropped is undone.
    """

    def __init__(self, core: _core.Store, waiter: Waiter, shown: Any, arrays: bool, weak: bool,
                 wait: float | None) -> None:
        super().__init__(core, shown, arrays, weak, wait)
        self._store = core
        self._waiter = waiter
        self._seconds = wait

    if TYPE_CHECKING:

        def __enter__(self) -> T: ...

    def use(self) -> _core.Use:
        """A block in which this thread or task works in the transaction. Its end does not end the transaction.

        The threads of one transaction take turns call by call; do not begin and end inner blocks in several at once.
        """
        return _core.Use(self)

    async def __aenter__(self) -> T:
        """Begins the transaction as `with` does, and waits for others without stopping the event loop."""
        end = time.monotonic() + (_PATIENCE if self._seconds is None else self._seconds)
        pause = 0.0005
        while True:
            try:
                return self.enter_within(0, True)  # type: ignore[no-any-return]
            except Busy:
                if time.monotonic() >= end:
                    raise
            await asyncio.sleep(pause)
            pause = min(2 * pause, 0.02)

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None,
                        trace: TracebackType | None) -> None:
        ticket = self.exit_weak(kind)
        if ticket and not self.weak:
            await Ticket(self._store, self._waiter, ticket)
