"""The runs of one store: what every call below `memlith.steps` needs of it."""

from __future__ import annotations

import contextlib
import os
import threading
import time
import weakref
from typing import Any, Callable, Iterator, Literal, NamedTuple, Union

from .._dict import Codec, Dict, codec_of
from .._errors import Error, Incompatible, Invalid, NotFound
from .._store import Store
from .._ticket import Flag
from .._transaction import Transaction
from . import _format
from ._format import ENDED, Head, Kind, Lease, State, Status, Step
from ._outbox import Outbox

AnyCodec = Union[Literal["pickle", "msgpack", "raw"], Codec]
RECOVERED_AT_ONCE = 500  # leases in one commit
RECOVERED_AGAIN = 0.2  # seconds


class Changed(Incompatible):
    """The program calls something else than what its run has recorded. The message names both."""


class Unknown(Error):
    """An effect began before a crash, or raised, and has no recorded outcome; `run.unknown()` lists it."""


class Cancelled(Error):
    """The run was cancelled."""


class Failed(Error):
    """The run has failed for good, or a step has raised an exception that could not be kept; the message is its."""


class Effect(NamedTuple):
    """An effect whose outcome is unknown."""

    position: int
    name: str
    key: str  # "" if the effect has none
    began: float  # as time.time()
    arguments: tuple[tuple[Any, ...], dict[str, Any]]


class RunInfo(NamedTuple):
    id: str
    workflow: str  # "" of a run that a program executes itself
    status: str  # "ready", "waiting", "running", "done", "failed", "cancelled" or "stopped"
    steps: int  # that have ended
    created: float  # as time.time()
    changed: float
    due: float | None  # when it goes on, or is to be taken by a worker
    waits_for: str  # the signal
    failures: int
    error: str
    version: str


class Coder:
    """The two functions of a codec."""

    def __init__(self, given: AnyCodec) -> None:
        self.name, dumps, loads = codec_of(given)
        self.dumps: Callable[[Any], bytes] = dumps or _raw
        self.loads: Callable[[bytes], Any] = loads or bytes


def _raw(value: Any) -> bytes:
    return b"" if value is None else bytes(memoryview(value))


def now_us() -> int:
    return time.time_ns() // 1000


class Engine:
    """Made once for each open store."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.records: Dict[bytes] = Dict(store, _format.MAP, codec="raw")
        self.mark = int.from_bytes(os.urandom(8), "little") | 1  # of this opening: leases of others have ended
        self.coders: dict[str, Coder] = {}
        self._waiting: list[Flag] = []
        self._recovered: float | None = None
        self._outbox: Outbox | None = None

    @property
    def outbox(self) -> Outbox:
        if self._outbox is None:
            self._outbox = Outbox(self.store)
        return self._outbox

    def coder(self, given: AnyCodec) -> Coder:
        made = Coder(given)
        return self.coders.setdefault(made.name, made)

    def coder_named(self, name: str) -> Coder:
        found = self.coders.get(name)
        if found is None:
            if name not in ("pickle", "msgpack", "raw"):
                raise Incompatible(f'values of the codec "{name}" need that codec: pass codec= once in this process')
            found = self.coder(name)  # type: ignore[arg-type]
        return found

    # ---- waiting ----

    def notify(self) -> None:
        for flag in list(self._waiting):
            flag.set()

    @contextlib.contextmanager
    def listening(self) -> Iterator[Flag]:
        """Changes from here on set the flag. No lock is held: a signal handler that raises leaves none locked."""
        flag = Flag()
        self._waiting.append(flag)
        try:
            yield flag
        finally:
            self._waiting.remove(flag)

    # ---- commits ----

    def transaction(self, weak: bool) -> Transaction[Any]:
        """One commit of everything in the store: arrays, dictionaries, logs. A block of it gives the transaction."""
        return Transaction(self.store._core, self.store._threads.waiter, None, True, weak, None)

    def commit(self, weak: bool) -> Transaction[None]:
        """One commit of records; within a transaction of the caller, a part of that."""
        return Transaction(self.store._core, self.store._threads.waiter, None, False, weak, None)

    def reading(self, weak: bool) -> contextlib.AbstractContextManager[Any]:
        """A block at whose end everything that it has read is durable, unless `weak`; a follower reads nothing else."""
        return contextlib.nullcontext() if self.store.read_only or weak else self.commit(False)

    # ---- records ----

    def head(self, name: str) -> Head | None:
        data = self.records.get(_format.head_key(name))
        return None if data is None else Head.unpack(data, name)

    def known(self, name: str) -> Head:
        head = self.head(name)
        if head is None:
            raise NotFound(f'there is no run "{name}" in this store; `memlith steps list` lists them')
        return head

    def put_head(self, name: str, head: Head) -> bytes:
        """Returns the record."""
        head.changed_us = now_us()
        data = head.pack()
        self.records[_format.head_key(name)] = data
        return data

    def steps(self, name: str) -> list[Step]:
        prefix = _format.steps_prefix(name)
        return [Step.unpack(data, int.from_bytes(key[len(prefix):], "big"), name)
                for key, data in self.records.items_in(prefix=prefix)]

    def lease(self, name: str) -> Lease | None:
        """The lease of a run, if it is of this opening of the store and has not ended."""
        data = self.records.get(_format.lease_key(name))
        lease = None if data is None else Lease.unpack(data, name)
        return lease if lease is not None and self.is_live(lease) else None

    def is_live(self, lease: Lease) -> bool:
        # One process has the store open for writing, so a lease of another opening is that of a process that has gone.
        return lease.mark == self.mark and lease.until_us > now_us()

    def set_due(self, name: str, head: Head, due_us: int) -> None:
        """Moves the timer of a run; 0: it has none. The head is put by the caller."""
        if not head.workflow:
            head.due_us = due_us
            return
        if head.due_us:
            self.records.pop(_format.timer_key(head.workflow, head.due_us, name), None)
        if due_us:
            self.records[_format.timer_key(head.workflow, due_us, name)] = b""
        head.due_us = due_us

    def drop_lease(self, name: str) -> None:
        self.records.pop(_format.lease_key(name), None)

    def recover(self) -> None:
        """Makes runs due whose lease has ended: those of earlier openings of the store, and those out of time.

        Looks at all leases, so it does that again after a while only.
        """
        if self._recovered is not None and time.monotonic() < self._recovered + RECOVERED_AGAIN:
            return
        self._recovered = time.monotonic()
        names = []
        for key, data in self.records.items_in(prefix=b"l"):
            name = key[1:].decode()
            if not self.is_live(Lease.unpack(data, name)):
                names.append(name)
        for first in range(0, len(names), RECOVERED_AT_ONCE):
            with self.commit(True):
                for name in names[first : first + RECOVERED_AT_ONCE]:
                    if self.lease(name) is not None:
                        continue
                    self.drop_lease(name)
                    head = self.head(name)
                    if head is not None and head.status in (Status.READY, Status.WAITING) and not head.due_us:
                        self.set_due(name, head, now_us())
                        self.put_head(name, head)

    def next_signal(self, name: str, signal: str, take: bool) -> tuple[bytes, bytes] | None:
        for key, data in self.records.items_in(prefix=_format.signals_prefix(name, signal)):
            if take:
                del self.records[key]
            return key, data
        return None

    def info_of(self, name: str, head: Head) -> RunInfo:
        status = head.status.name.lower()
        if head.status not in ENDED and head.workflow and self.lease(name) is not None:
            status = "running"
        due = head.due_us / 1e6 if head.due_us else None
        return RunInfo(name, head.workflow, status, head.position, head.created_us / 1e6, head.changed_us / 1e6, due,
                       head.waits_for, head.failures, head.error, head.version)


_engines: weakref.WeakKeyDictionary[Store, Engine] = weakref.WeakKeyDictionary()
_making = threading.RLock()


def engine_of(store: Store) -> Engine:
    found = _engines.get(store)
    if found is None:
        with _making:
            found = _engines.get(store)
            if found is None:
                found = _engines[store] = Engine(store)
    return found


# ---- calls about runs of a store -----------------------------------------------------------------------------------


def submit(store: Store, workflow: str | Callable[..., Any], id: str, /, *arguments: Any,  # noqa: A002
           delay: float = 0, codec: AnyCodec = "pickle", **named: Any) -> bool:
    """Accepts a run for the workers: `workflow(run, *arguments, **named)`. False if there is a run `id` already.

    Durable on return; in a transaction, a part of that, so that a run is accepted with the data that it is about, or
    not at all. The run begins after `delay` seconds. Once it is accepted, it is executed to its end, whatever crashes.
    """
    engine = engine_of(store)
    called, version = name_of(workflow)
    _format.checked(id, "the id of a run")
    coder = engine.coder(codec)
    given = coder.dumps(named_input(coder, arguments, named))
    with engine.commit(False):
        if engine.head(id) is not None:
            return False
        head = new_head(called, version, coder.name)
        engine.records[_format.input_key(id)] = given
        engine.set_due(id, head, now_us() + round(delay * 1e6))
        engine.put_head(id, head)
    engine.notify()
    return True


def named_input(coder: Coder, arguments: tuple[Any, ...], named: dict[str, Any]) -> Any:
    if coder.name != "raw":
        return [list(arguments), named]
    if named or len(arguments) > 1:
        raise Invalid('a run of the codec "raw" has one argument of bytes, or none')
    return arguments[0] if arguments else None


def new_head(workflow: str, version: str, codec: str) -> Head:
    return Head(Status.READY, created_us=now_us(), token=int.from_bytes(os.urandom(8), "little"), workflow=workflow,
                version=version, codec=codec)


def name_of(workflow: str | Callable[..., Any]) -> tuple[str, str]:
    """The name and the version of a workflow. A name alone is of no version: the worker that takes the run says it."""
    if isinstance(workflow, str):
        return _format.checked(workflow, "the name of a workflow"), ""
    name, version = getattr(workflow, "memlith_workflow", (getattr(workflow, "__name__", ""), ""))
    if not name:
        raise Invalid(f"{workflow!r} has no name; give a worker {{name: function}}, and submit the name")
    return _format.checked(name, "the name of a workflow"), version


def signal(store: Store, id: str, name: str, value: Any = None) -> None:  # noqa: A002
    """Sends `value` to the run, which gets it from `run.wait_for(name)`, now or later. Durable on return.

    Signals of one name come in their order, each once. In a transaction it is a part of that.
    """
    engine = engine_of(store)
    _format.checked(name, "the name of a signal")
    with engine.commit(False):
        head = engine.known(id)
        if head.status in ENDED:
            raise Invalid(f'run "{id}" is {head.status.name.lower()}, and waits for no signal')
        number = 0
        for key in engine.records.irange(prefix=_format.signals_prefix(id, name), reverse=True):
            number = int.from_bytes(key[-8:], "big") + 1
            break
        engine.records[_format.signal_key(id, name, number)] = engine.coder_named(head.codec).dumps(value)
        if head.status is Status.WAITING and head.waits_for == name:
            engine.set_due(id, head, now_us())
            engine.put_head(id, head)
    engine.notify()


def cancel(store: Store, id: str) -> bool:  # noqa: A002
    """Ends a run before its next commit; its finished steps stay. False if it had ended before. Durable on return."""
    engine = engine_of(store)
    with engine.commit(False):
        head = engine.known(id)
        if head.status in ENDED:
            return False
        head.status = Status.CANCELLED
        engine.set_due(id, head, 0)
        engine.drop_lease(id)
        engine.put_head(id, head)
    engine.notify()
    return True


def retry(store: Store, id: str) -> None:  # noqa: A002
    """Lets a run go on that has failed, was stopped or was cancelled, from its first unfinished step.

    An effect whose outcome is unknown is called again: first find out whether it has happened, and tell the run with
    `happened` if so. Durable on return.
    """
    engine = engine_of(store)
    with engine.commit(False):
        head = engine.known(id)
        if head.status is Status.DONE:
            raise Invalid(f'run "{id}" is done')
        if engine.lease(id) is not None:
            raise Invalid(f'run "{id}" is running')
        drop_unknown(engine, id, head)
        head.status, head.failures, head.error, head.waits_for = Status.READY, 0, "", ""
        engine.set_due(id, head, now_us() if head.workflow else 0)
        engine.put_head(id, head)
    engine.notify()


def happened(store: Store, id: str, result: Any = None) -> None:  # noqa: A002
    """Says that the effect whose outcome is unknown has happened, and what it returned. Then `retry` a stopped run."""
    engine = engine_of(store)
    with engine.commit(False):
        head = engine.known(id)
        step = unknown_step(engine, id, head)
        if step is None:
            raise NotFound(f'run "{id}" has no effect whose outcome is unknown')
        step.state, step.payload = State.DONE, engine.coder_named(head.codec).dumps(result)
        engine.records[_format.step_key(id, head.position)] = step.pack(head.position)
        head.position += 1
        engine.put_head(id, head)


def unknown_step(engine: Engine, name: str, head: Head) -> Step | None:
    data = engine.records.get(_format.step_key(name, head.position))
    step = None if data is None else Step.unpack(data, head.position, name)
    return step if step is not None and (step.kind, step.state) == (Kind.EFFECT, State.INTENT) else None


def drop_unknown(engine: Engine, name: str, head: Head) -> None:
    step = unknown_step(engine, name, head)
    if step is not None and not step.key:  # one with a key is called again by itself, with that key
        del engine.records[_format.step_key(name, head.position)]


def unknown(store: Store, id: str) -> list[Effect]:  # noqa: A002
    """The effects of a run that began and have no recorded outcome: none, or the one in which it was stopped."""
    engine = engine_of(store)
    head = engine.known(id)
    step = unknown_step(engine, id, head)
    if step is None:
        return []
    positional, named = engine.coder_named(head.codec).loads(step.arguments) if step.arguments else ((), {})
    return [Effect(head.position, step.name, step.key, step.time_us / 1e6, (tuple(positional), named))]


def runs(store: Store, *, status: str | None = None, prefix: str = "") -> Iterator[RunInfo]:
    """The runs of the store, in the order of their ids; those of one status; those whose ids begin with `prefix`.

    A store that is followed or read-only shows them, too.
    """
    try:
        engine = engine_of(store)
    except NotFound:  # a store that is read-only, in which there was no run
        return
    for key, data in engine.records.items_in(prefix=b"r" + prefix.encode()):
        name = key[1:].decode()
        info = engine.info_of(name, Head.unpack(data, name))
        if status is None or status == info.status:
            yield info


def info(store: Store, id: str) -> RunInfo:  # noqa: A002
    """A run's status and counts. NotFound if there is no such run."""
    engine = engine_of(store)
    return engine.info_of(id, engine.known(id))


def result(store: Store, id: str, wait: float | None = None) -> Any:  # noqa: A002
    """Waits for the end of a run and returns its result. `wait` is in seconds, None for ever; then TimeoutError.

    Raises Failed, Cancelled, or Unknown and Changed of a run that was stopped.
    """
    engine = engine_of(store)
    end = None if wait is None else time.monotonic() + wait
    with engine.listening() as flag:
        while True:
            head = engine.known(id)
            if head.status is Status.DONE:
                with engine.reading(False):  # the end of the run may be in memory only, and its flush under way
                    data = engine.records[_format.result_key(id)]
                return engine.coder_named(head.codec).loads(data)
            if head.status is Status.CANCELLED:
                raise Cancelled(f'run "{id}" was cancelled')
            if head.status in (Status.FAILED, Status.STOPPED):
                raise Failed(f'run "{id}" {head.status.name.lower()}: {head.error}')
            left = 0.25 if end is None else min(0.25, end - time.monotonic())
            if left <= 0:
                raise TimeoutError(f'run "{id}" has not ended within {wait} s')
            flag.wait(left)


def prune(store: Store, *, older_than: float = 0, status: tuple[str, ...] = ("done", "cancelled")) -> int:
    """Removes runs that ended more than `older_than` seconds ago, with all that is recorded of them.

    Returns how many. Their ids can be used again. Durable on return, a hundred runs at a time.
    """
    engine = engine_of(store)
    allowed = {each.name.lower() for each in ENDED}
    if not set(status) <= allowed:
        raise Invalid(f"runs that are removed have ended: {', '.join(sorted(allowed))}")
    before = now_us() - round(older_than * 1e6)
    count = 0
    old = [each.id for each in runs(store) if each.status in status and each.changed * 1e6 <= before]
    for first in range(0, len(old), 100):
        with engine.commit(first + 100 < len(old)):
            for name in old[first : first + 100]:
                head = engine.head(name)
                if head is None or head.status not in ENDED or head.changed_us > before:
                    continue
                for key in (_format.head_key(name), _format.input_key(name), _format.result_key(name)):
                    engine.records.pop(key, None)
                engine.records.remove_range(prefix=_format.steps_prefix(name))
                engine.records.remove_range(prefix=_format.signals_prefix(name))
                count += 1
    return count


