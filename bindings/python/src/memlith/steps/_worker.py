"""Workers: threads that execute the runs of a store that are due."""

from __future__ import annotations

import collections
import functools
import threading
import time
from types import TracebackType
from typing import Any, Callable, Iterable, Mapping, NamedTuple, TypeVar, Union, overload

from .._errors import Incompatible, Invalid
from .._store import Store
from .._ticket import Flag
from . import _format
from ._engine import Changed, Engine, Unknown, engine_of, name_of, now_us
from ._format import Head, Lease, Status
from ._run import Parked, Run, check_match

F = TypeVar("F", bound=Callable[..., Any])
Workflows = Union[Mapping[str, Callable[..., Any]], Iterable[Callable[..., Any]]]
_PAUSE = 0.25  # seconds after which an idle worker looks again, for what was committed in transactions of others


@overload
def workflow(function: F, /) -> F: ...


@overload
def workflow(*, name: str = "", version: str = "") -> Callable[[F], F]: ...


def workflow(function: Any = None, /, *, name: str = "", version: str = "") -> Any:
    """Gives a function that executes runs a name other than its own, and a version.

    A run whose records have another version than the function is stopped, and tells so.
    """
    if function is None:
        return functools.partial(_named, name, version)
    return _named(name, version, function)


def _named(name: str, version: str, function: F) -> F:
    function.memlith_workflow = (name or function.__name__, version)  # type: ignore[attr-defined]
    return function


def _version_of(function: Callable[..., Any]) -> str:
    version: str = getattr(function, "memlith_workflow", ("", ""))[1]
    return version


class _Job(NamedTuple):
    id: str
    head: Head
    head_data: bytes
    input: bytes


class Worker:
    """Threads that execute runs which were accepted with `submit`. Made by `memlith.steps.worker`.

    A run is taken with a lease, which each of its commits renews, and which ends with the process, or after `lease`
    seconds without a commit: then another thread takes the run, and the first one's next commit is refused. An
    exception lets the run go on later, up to `retries` times, `backoff` seconds the first time and twice as long each
    further time; then it has failed. A run that needs a decision is stopped: an effect's outcome is unknown, or the
    code does not match what was recorded.
    """

    def __init__(self, store: Store, workflows: Workflows, *, threads: int, lease: float, retries: int, backoff: float,
                 weak: bool) -> None:
        if threads < 1 or lease <= 0:
            raise Invalid("a worker has at least one thread, and its leases last for a time")
        self._workflows = (dict(workflows) if isinstance(workflows, Mapping)
                           else {name_of(each)[0]: each for each in workflows})
        if not self._workflows:
            raise Invalid("a worker has at least one workflow")
        self._engine: Engine = engine_of(store)
        self._lease_us = round(lease * 1e6)
        self._retries, self._backoff, self._weak = retries, backoff, weak
        self._batch = 2 * threads
        self._taken: collections.deque[_Job] = collections.deque()
        self._taking = threading.Lock()
        self._busy = 0  # threads that execute; guarded by _taking
        self._idle = Flag()  # none does, and nothing is taken
        self._stopped = False
        self.error: BaseException | None = None  # that ended a thread: the store is closed, full or broken
        self._engine.recover()
        self._threads = [threading.Thread(target=self._work, name=f"memlith-steps-{number}", daemon=True)
                         for number in range(threads)]
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        """Lets the threads end what they execute, up to its end or its next wait, and ends them.

        Raises what has ended one of them before.
        """
        self._stopped = True
        self._engine.notify()
        for thread in self._threads:
            thread.join()
        if self.error is not None:
            raise self.error
        self._give_back_taken()

    def _give_back_taken(self) -> None:
        """Runs that were taken, and that no thread has begun to execute, are due for others."""
        with self._taking:
            taken, self._taken = self._taken, collections.deque()
        if not taken or self._engine.store.closed:
            return
        with self._engine.commit(True):
            for job in taken:
                if not self._is_taken_away(job):
                    head = self._engine.known(job.id)
                    self._engine.drop_lease(job.id)
                    self._engine.set_due(job.id, head, now_us())
                    self._engine.put_head(job.id, head)
        self._engine.notify()

    def drain(self, timeout: float | None = None) -> bool:
        """Waits until no run is due or being executed. False after `timeout` seconds. Runs that wait do not count."""
        end = None if timeout is None else time.monotonic() + timeout
        while self.error is None:
            with self._taking:
                idle = not self._busy and not self._taken and self._next_due() is None
            if idle:
                return True
            left = _PAUSE if end is None else min(_PAUSE, end - time.monotonic())
            if left <= 0:
                return False
            self._idle.wait(left)
        raise self.error

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        self.close()

    # ---- threads ----

    def _work(self) -> None:
        try:
            with self._engine.listening() as flag:
                while not self._stopped:
                    job = self._take()
                    if job is None:
                        flag.wait(self._pause())
                        continue
                    try:
                        self._execute(job)
                    finally:
                        with self._taking:
                            self._busy -= 1
                            if not self._busy and not self._taken:
                                self._idle.set()
        except BaseException as error:  # noqa: BLE001 - close() raises it
            if not self._engine.store.closed:
                self.error = self.error or error
            self._stopped = True
            self._engine.notify()
            self._idle.set()

    def _pause(self) -> float:
        due = min((self._first_due(name) for name in self._workflows), default=0)
        return min(_PAUSE, max(0.001, (due - now_us()) / 1e6)) if due else _PAUSE

    def _first_due(self, name: str) -> int:
        for key in self._engine.records.irange(prefix=_format.timers_prefix(name)):
            at = len(_format.timers_prefix(name))
            return int.from_bytes(key[at : at + 8], "big")
        return now_us() + round(_PAUSE * 1e6)

    def _next_due(self) -> int | None:
        now = now_us()
        return next((due for name in self._workflows if (due := self._first_due(name)) <= now), None)

    def _take(self) -> _Job | None:
        with self._taking:
            if not self._taken:
                self._engine.recover()
                self._lease_due()
            if not self._taken:
                return None
            self._busy += 1
            return self._taken.popleft()

    def _lease_due(self) -> None:
        """Takes the runs that are due, in one commit. It is weak: what comes first in the log is durable first."""
        if self._next_due() is None:
            return
        taken: list[_Job] = []
        with self._engine.commit(True):
            now = now_us()
            for name in self._workflows:
                prefix = _format.timers_prefix(name)
                due = self._engine.records.irange(prefix, _format.timer_key(name, now + 1))
                for key in [each for each, _ in zip(due, range(self._batch))]:
                    taken.append(self._lease(key[len(prefix) + 8:].decode(), now))
        self._taken.extend(taken)

    def _lease(self, name: str, now: int) -> _Job:
        head = self._engine.known(name)
        self._engine.set_due(name, head, 0)
        head.attempt = (head.attempt + 1) % (1 << 32)
        head.status, head.waits_for = Status.READY, ""
        if not head.version and not head.position:  # it was submitted by the name of the workflow
            head.version = _version_of(self._workflows[head.workflow])
        lease = Lease(self._engine.mark, now + self._lease_us, head.attempt)
        self._engine.records[_format.lease_key(name)] = lease.pack()
        data = self._engine.put_head(name, head)
        return _Job(name, head, data, self._engine.records.get(_format.input_key(name), b""))

    def _execute(self, job: _Job) -> None:
        name, head, failures = job.id, job.head, job.head.failures
        function = self._workflows[head.workflow]
        try:
            coder = self._engine.coder_named(head.codec)
            check_match(name, head, _version_of(function), head.codec)
            run = Run(self._engine, name, head, coder, self._weak, self._lease_us, job.head_data)
            given = coder.loads(job.input)
            if coder.name == "raw":
                positional, named = [given], {}
            else:
                positional, named = given
            run.finish(function(run, *positional, **named))
        except Parked:
            pass
        except Exception as error:  # noqa: BLE001 - of the workflow, or of the store, which ends the thread
            if self._engine.store.closed or self._engine.store.info()["poisoned"]:
                raise
            if isinstance(error, (Changed, Incompatible, Unknown)):
                self._give_back(job, Status.STOPPED, str(error), 0)
            else:
                wait_us = round(self._backoff * 2 ** min(failures, 30) * 1e6)
                self._give_back(job, Status.READY, f"{type(error).__name__}: {error}", wait_us)

    def _is_taken_away(self, job: _Job) -> bool:
        """The run was cancelled, removed or taken over."""
        head = self._engine.head(job.id)
        if head is None or head.status is Status.CANCELLED or head.token != job.head.token:
            return True
        return head.attempt != job.head.attempt

    def _give_back(self, job: _Job, status: Status, error: str, wait_us: int) -> None:
        with self._engine.commit(False):
            if self._is_taken_away(job):
                return
            head = self._engine.known(job.id)
            head.status, head.error = status, error[:2000]
            if status is Status.READY:
                head.failures += 1
                if head.failures > self._retries:
                    head.status = Status.FAILED
            self._engine.set_due(job.id, head, now_us() + wait_us if head.status is Status.READY else 0)
            self._engine.drop_lease(job.id)
            self._engine.put_head(job.id, head)
        self._engine.notify()


def worker(store: Store, workflows: Workflows, *, threads: int = 4, lease: float = 3600, retries: int = 3,
           backoff: float = 1, weak: bool = False) -> Worker:
    """Begins to execute the runs of these workflows that are due, in `threads` threads, until its `close()`.

    A workflow is a function that takes its run first and then what `submit` was given; it is known by its name.
    """
    return Worker(store, workflows, threads=threads, lease=lease, retries=retries, backoff=backoff, weak=weak)
