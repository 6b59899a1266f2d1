"""The result of an asynchronous persist: something to wait for, to await, or to be called back by."""

from __future__ import annotations

import asyncio
import concurrent.futures
import queue
import threading
from typing import TYPE_CHECKING, Any, Callable, Generator

from ._errors import Error

if TYPE_CHECKING:
    from . import _core


class Flag:
    """An event for which one thread waits, once. A signal handler that raises in an Event may leave its lock locked."""

    def __init__(self) -> None:
        self._queue: queue.SimpleQueue[None] = queue.SimpleQueue()

    def set(self) -> None:
        if self._queue.empty():  # or the thread that waits would find it set again for each time that it was
            self._queue.put(None)

    def wait(self, seconds: float) -> bool:
        try:
            self._queue.get(timeout=max(0, seconds))
        except queue.Empty:
            return False
        return True


class Ticket:
    """An asynchronous persist. Its bytes are captured; `result()` or `await` returns when they are durable.

    Like a `concurrent.futures.Future` that cannot be cancelled. Tickets of one store become durable in their order.
    Waiting in any form, also by a callback, starts the flush at once; `done()` leaves it to the store's flush window.
    """

    __slots__ = ("number", "_core", "_waiter")

    def __init__(self, core: _core.Store, waiter: Waiter, number: int) -> None:
        self.number = number
        self._core = core
        self._waiter = waiter

    def done(self) -> bool:
        """True if the persist is durable by now, or has failed. Never waits."""
        if self._core.durable() >= self.number:
            return True
        return not self._core.closed and bool(self._core.info()["poisoned"])

    def result(self, timeout: float | None = None) -> None:
        """Returns when the persist is durable. Raises IOFailure or Poisoned if the flush failed."""
        if timeout is None:
            self._core.wait(self.number)
            return
        if not self.done():
            told = Flag()
            self._waiter.add(self.number, lambda error: told.set())
            if not told.wait(timeout):
                raise concurrent.futures.TimeoutError()
        self._core.wait(self.number)

    def exception(self, timeout: float | None = None) -> Error | None:
        try:
            self.result(timeout)
        except Error as error:
            return error
        return None

    def cancel(self) -> bool:
        return False

    def cancelled(self) -> bool:
        return False

    def running(self) -> bool:
        return not self.done()

    def add_done_callback(self, callback: Callable[[Ticket], Any]) -> None:
        """Calls `callback(ticket)` in a thread of the store's when the persist is durable or has failed."""
        self._waiter.add(self.number, lambda error: callback(self))

    def __await__(self) -> Generator[Any, None, None]:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()

        def resolve(error: Error | None) -> None:
            if future.done():  # its task was cancelled
                return
            if error is None:
                future.set_result(None)
            else:
                future.set_exception(error)

        def tell(error: Error | None) -> None:
            try:
                loop.call_soon_threadsafe(resolve, error)
            except RuntimeError:  # the loop was closed: there is no waiter
                pass

        self._waiter.add(self.number, tell)
        return (yield from future)

    def __repr__(self) -> str:
        return f"<memlith.Ticket {self.number}: {'done' if self._core.closed or self.done() else 'not durable yet'}>"


class Waiter:
    """The thread of a store that waits for tickets and calls back. It starts with the first callback.

    A signal handler may raise between any two lines of the methods that the main thread calls: what they have done by
    then must not keep other threads waiting. So the queue is one that needs no lock of Python code.
    """

    def __init__(self, core: _core.Store) -> None:
        self._core = core
        self._lock = threading.RLock()
        self._waiting: queue.SimpleQueue[tuple[int, Callable[[Error | None], Any]] | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._stopped = False

    def add(self, number: int, callback: Callable[[Error | None], Any]) -> None:
        with self._lock:
            if not self._stopped:
                if self._thread is None:
                    thread = threading.Thread(target=self._run, name="memlith-tickets", daemon=True)
                    thread.start()
                    self._thread = thread
                self._waiting.put((number, callback))
                return
        self._call(number, callback)

    def stop(self) -> None:
        """Calls back for every ticket so far, and ends the thread."""
        with self._lock:
            self._stopped = True
            self._waiting.put(None)
            thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join()

    def _run(self) -> None:
        while (each := self._waiting.get()) is not None:
            self._call(*each)
        self._waiting.put(None)  # for a second thread, if a signal interrupted add()

    def _call(self, number: int, callback: Callable[[Error | None], Any]) -> None:
        failure: Error | None = None
        try:
            self._core.wait(number)
        except Error as error:
            failure = error
        try:
            callback(failure)
        except BaseException as error:  # noqa: BLE001 - one caller's mistake must not end the thread of all
            threading.excepthook(threading.ExceptHookArgs((type(error), error, error.__traceback__, None)))
