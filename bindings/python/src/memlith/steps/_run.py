"""A run: its steps, effects, sleeps and waits."""

from __future__ import annotations

import contextlib
import functools
import inspect
import pickle
import threading
import time
from types import TracebackType
from typing import Any, Callable, Iterator, ParamSpec, TypeVar, overload

from .._errors import Busy, Conflict, Corrupt, Incompatible, Invalid
from .._store import Store
from .._transaction import Transaction
from . import _format
from ._engine import (
    AnyCodec,
    Cancelled,
    Changed,
    Coder,
    Effect,
    Engine,
    Failed,
    Unknown,
    drop_unknown,
    engine_of,
    happened,
    new_head,
    now_us,
    unknown,
)
from ._format import Head, Kind, Lease, State, Status, Step
from ._outbox import Outbox

P = ParamSpec("P")
R = TypeVar("R")


class Parked(BaseException):
    """Ends the thread's work on a run that waits; the worker calls the workflow again when it goes on."""


class RunOutbox:
    """The store's outbox, as a step of a run uses it."""

    def __init__(self, run: Run) -> None:
        self._run = run

    def append(self, content: Any) -> None:
        """Sends a message in the commit of the step that calls this."""
        self._run._send(content)


class Run:
    """A program that goes on where it was killed. Made by `memlith.steps.run`, and by a worker for its workflow.

        run = memlith.steps.run(store, "order-4711")

        @run.step
        def reserve(stock, item):
            stock[item] -= 1
            return item

    The program calls the same steps in the same order each time that it is executed. A step that has ended returns what
    it returned then, and does nothing. One thread at a time calls a run. A step that is called within a step is a part
    of that one.
    """

    def __init__(self, engine: Engine, name: str, head: Head, coder: Coder, weak: bool, lease_us: int = 0,
                 head_data: bytes = b"") -> None:
        self.id = name
        self.weak = weak
        self._engine = engine
        self._key, self._prefix = _format.head_key(name), _format.steps_prefix(name)
        self._token, self._attempt = head.token, head.attempt
        self._head: Head | None = head if head_data else None  # of that record, and of nothing that was undone
        self._head_data = head_data
        self._coder = coder
        self._lease_us = lease_us  # 0: a program executes the run, and no worker
        self._steps: list[Step] | None = None  # as they were found; None: to be read
        self._at = 0
        self._raised: dict[int, Step] = {}  # exceptions that the program has survived; recorded with the next call
        self._turn = threading.Lock()
        self._inside: int | None = None  # the thread, in a step
        self._transaction: Transaction[Any] | None = None  # likewise
        self._parked = False

    # ---- steps and effects ----

    @overload
    def step(self, function: Callable[P, R], /, *, name: str = "", version: str = "", weak: bool | None = None
             ) -> Callable[P, R]: ...

    @overload
    def step(self, /, *, name: str = "", version: str = "", weak: bool | None = None) -> Callable[
        [Callable[P, R]], Callable[P, R]]: ...

    def step(self, function: Any = None, /, *, name: str = "", version: str = "", weak: bool | None = None) -> Any:
        """Makes a function a step: what it changes in the store and what it returns are one commit, which happens once.

        The commit has the changes of arrays and dictionaries, entries of application logs, messages of `run.outbox`,
        the result, and the run's position. It is durable on return; with weak=True (of the run, or of the step) within
        the store's window, in order. A step that raises has changed nothing of all that (variables of the program are
        not the store's). If the program goes on behind the exception, the next commit records it, and the exception is
        raised again wherever the run is executed anew; else the step is called again then.

        `name` is that of the function, and `version` tells code that must not be mixed: a run that has recorded another
        name or version at this place raises Changed. The function calls nothing outside, as it may be called again
        after a crash; that is what `effect` is for.
        """
        if function is None:
            return functools.partial(self._made, self._step, name, version, weak)
        return self._made(self._step, name, version, weak, function)

    @overload
    def effect(self, function: Callable[P, R], /) -> Callable[P, R]: ...

    @overload
    def effect(self, function: Callable[..., R], /, *, key: str | Callable[[Run], str], name: str = "",
               version: str = "") -> Callable[..., R]: ...

    @overload
    def effect(self, /, *, key: str | Callable[[Run], str] | None = None, name: str = "", version: str = ""
               ) -> Callable[[Callable[..., R]], Callable[..., R]]: ...

    def effect(self, function: Any = None, /, *, key: str | Callable[[Run], str] | None = None, name: str = "",
               version: str = "") -> Any:
        """Makes a function an effect: a call of the world outside of the store, such as a payment.

        That it begins is durable before it is called, and its result is durable on return. A crash in between leaves an
        outcome that is unknown: it may have happened. With `key`, a text or a function of the run (`lambda r: r.key`:
        one that no other effect has), the effect is called again with the same key, by which the other side refuses
        what it has done; a function with a parameter `key` gets it there. Without a key it is never repeated by itself:
        the call raises Unknown, `run.unknown()` lists the effect, and `run.happened(result)` or `run.repeat()` decides.
        The same holds if the function raises, as the exception does not tell whether the other side has acted; if the
        program goes on behind the exception, it is recorded like that of a step.
        """
        if function is None:
            return functools.partial(self._made, self._effect, name, version, key)
        return self._made(self._effect, name, version, key, function)

    @property
    def key(self) -> str:
        """A text that no other call of this or another run has, and that is the same whenever the run is executed."""
        return f"{self._token:016x}-{self._at}"

    def unknown(self) -> list[Effect]:
        """The effects that began and have no recorded outcome: none, or the newest one."""
        return unknown(self._engine.store, self.id)

    def happened(self, result: Any = None) -> None:
        """Says that the effect of `unknown()` has happened, and what it returned. Durable on return."""
        happened(self._engine.store, self.id, result)
        self._forget()

    def repeat(self) -> None:
        """Says that the effect of `unknown()` has not happened: the next call of it calls it. Durable on return."""
        with self._engine.commit(False):
            drop_unknown(self._engine, self.id, self._owned())
        self._forget()

    @property
    def outbox(self) -> RunOutbox:
        """`run.outbox.append(message)`, in a step: sends a message in the step's commit. Outbox(store) reads it."""
        return RunOutbox(self)

    @property
    def transaction(self) -> Transaction[Any]:
        """In a step: its transaction, for threads that the step starts: `with run.transaction.use():`.

        Threads with a copy of the step's context (asyncio.to_thread) work in it from their beginning.
        """
        if self._transaction is None:
            raise Invalid("a run has a transaction while one of its steps is called")
        return self._transaction

    # ---- waits ----

    def sleep(self, seconds: float) -> None:
        """Waits until `seconds` after the first call, whatever crashes meanwhile.

        A run of a worker takes no thread while it sleeps.
        """
        with self._calling(Kind.SLEEP, "", "") as found:
            due = now_us() + round(seconds * 1e6) if found is None else int.from_bytes(found.payload, "little")
            is_newest = self._at + 1 >= len(self._read())
            if is_newest and due > now_us() or found is None:
                with self._commit(self.weak) as head:
                    if self._lease_us:
                        self._wait_until(head, due, "")
                    self._record(head, Step(Kind.SLEEP, State.DONE, now_us(), payload=due.to_bytes(8, "little")))
                if self._lease_us:
                    self._park()
            self._ended()
            if is_newest:
                time.sleep(max(0, due - now_us()) / 1e6)

    def wait_for(self, signal: str, *, timeout: float | None = None, default: Any = None) -> Any:
        """The value of the next signal of that name (`memlith.steps.signal`), which is taken with the run's commit.

        After `timeout` seconds from the first call without one, `default`. A run of a worker takes no thread meanwhile.
        """
        _format.checked(signal, "the name of a signal")
        with self._calling(Kind.SIGNAL, signal, "") as found, self._engine.listening() as flag:
            if found is not None and found.state is not State.INTENT:
                self._ended()
                return default if found.state is State.TIMEOUT else self._coder.loads(found.payload)
            deadline = 0
            if found is not None:
                deadline = int.from_bytes(found.payload, "little")
            elif timeout is not None:
                deadline = now_us() + round(timeout * 1e6)
            while True:
                step = self._take_signal(signal, deadline, found is None)
                if step is not None:
                    return default if step.state is State.TIMEOUT else self._coder.loads(step.payload)
                if self._lease_us:
                    self._park()
                while self._engine.next_signal(self.id, signal, False) is None and not _is_past(deadline):
                    self._owned()
                    flag.wait(0.25 if not deadline else min(0.25, max(0, deadline - now_us()) / 1e6))
                found = Step(Kind.SIGNAL, State.INTENT, 0)

    def _take_signal(self, signal: str, deadline: int, is_first: bool) -> Step | None:
        with self._commit(self.weak) as head:
            step = Step(Kind.SIGNAL, State.INTENT, now_us(), signal, payload=deadline.to_bytes(8, "little"))
            taken = self._engine.next_signal(self.id, signal, True)
            if taken is not None:
                step.state, step.payload = State.DONE, taken[1]
            elif _is_past(deadline):
                step.state = State.TIMEOUT
            elif self._lease_us:
                self._wait_until(head, deadline, signal)
            if step.state is not State.INTENT or is_first or self._lease_us:
                self._record(head, step)
        if step.state is State.INTENT:
            return None
        self._ended()
        return step

    def _wait_until(self, head: Head, due_us: int, signal: str) -> None:
        head.status, head.waits_for = Status.WAITING, signal
        self._engine.set_due(self.id, head, due_us)

    def _park(self) -> None:
        self._parked = True
        raise Parked

    # ---- the end ----

    def finish(self, result: Any = None) -> Any:
        """Records the end of the run and its result. Durable on return. A run that is done returns what it has."""
        with self._turned():
            head = self._known()
            if head.status is Status.DONE and head.token == self._token:
                return self._coder.loads(self._engine.records[_format.result_key(self.id)])
            if self._at < len(self._read()):
                raise Changed(f'run "{self.id}" ends behind {self._at} steps, and has recorded {len(self._read())}: '
                              f"{self._read()[self._at].name!r} comes next")
            payload = self._coder.dumps(result)
            with self._commit(self.weak) as head:
                self._put_raised()
                head.position = self._at
                head.status, head.error, head.failures = Status.DONE, "", 0
                self._engine.set_due(self.id, head, 0)
                self._engine.records[_format.result_key(self.id)] = payload
                self._put_head(head)
                if self._lease_us:
                    self._engine.drop_lease(self.id)
        self._engine.notify()
        return result

    @property
    def done(self) -> bool:
        """True if the end of the run is recorded."""
        return self._engine.known(self.id).status is Status.DONE

    def __enter__(self) -> Run:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        if kind is None:
            self.finish()

    def __repr__(self) -> str:
        return f"<memlith.steps.Run {self.id!r}, {self._at} steps so far>"

    # ---- inside ----

    def _made(self, call: Callable[..., Any], name: str, version: str, how: Any, function: Callable[P, R]
              ) -> Callable[P, R]:
        if inspect.iscoroutinefunction(function):
            raise TypeError(f"{function.__name__} is asynchronous; steps are ordinary functions. In asyncio, call the "
                            "program that has them with asyncio.to_thread")
        called = _format.checked(name or function.__name__, "the name of a step")
        if len(version.encode()) > _format.NAME_BYTES_MAX:
            raise Invalid(f"the version of {called} is too long")

        @functools.wraps(function)
        def wrapped(*arguments: P.args, **named: P.kwargs) -> R:
            made: R = call(called, version, how, function, arguments, named)
            return made

        return wrapped

    def _step(self, name: str, version: str, weak: bool | None, function: Callable[..., Any],
              arguments: tuple[Any, ...], named: dict[str, Any]) -> Any:
        if self._inside == threading.get_ident():
            return function(*arguments, **named)
        # All of it in one block of `try` and one of `with`: a step is to cost little beside its flush.
        self._take_turn()
        try:
            found = self._found(Kind.STEP, name, version)
            if found is not None:
                return self._replayed(found)
            failure: Exception | None = None
            try:
                with self._engine.transaction(self.weak if weak is None else weak) as self._transaction:
                    head = self._owned()
                    self._inside = threading.get_ident()
                    try:
                        value = function(*arguments, **named)
                    except Exception as error:
                        failure = error
                        raise
                    finally:
                        self._inside = None
                    payload = self._coder.dumps(value)
                    self._record(head, Step(Kind.STEP, State.DONE, now_us(), name, version, payload=payload))
            except BaseException as error:
                self._forget()
                if failure is not None and error is failure:
                    self._survived(Step(Kind.STEP, State.RAISED, now_us(), name, version), failure)
                raise
            finally:
                self._transaction = None
            self._ended()
            return value
        finally:
            self._turn.release()

    def _effect(self, name: str, version: str, key: str | Callable[[Run], str] | None, function: Callable[..., Any],
                arguments: tuple[Any, ...], named: dict[str, Any]) -> Any:
        if self._inside == threading.get_ident():
            raise Invalid(f"effect {name} is called within a step, whose transaction it would hold; call it from the "
                          "run, and give its result to the step")
        with self._calling(Kind.EFFECT, name, version) as step:
            if step is not None and step.state is not State.INTENT:
                return self._replayed(step)
            if step is None:
                given = "" if key is None else key if isinstance(key, str) else key(self)
                about = b"" if self._coder.name == "raw" else self._coder.dumps([list(arguments), named])
                step = Step(Kind.EFFECT, State.INTENT, now_us(), name, version, given, arguments=about)
                with self._commit(False) as head:  # durable before the call, or a crash would repeat it
                    self._record(head, step)
            elif not step.key:
                self._owned()
                raise Unknown(f'run "{self.id}": it is unknown whether effect {name} has happened, which began '
                              f"{time.strftime('%F %T', time.localtime(step.time_us / 1e6))} and has no key; find out, "
                              "and call run.happened(result) or run.repeat()")
            if _takes_key(function):
                named = {**named, "key": step.key}
            try:
                value = function(*arguments, **named)
            except Exception as error:
                self._survived(Step(Kind.EFFECT, State.RAISED, now_us(), name, version, step.key), error)
                raise
            except BaseException:
                self._forget()
                raise
            step.state, step.payload, step.time_us = State.DONE, self._coder.dumps(value), now_us()
            with self._commit(self.weak) as head:
                self._record(head, step)
            self._ended()
            return value

    def _send(self, content: Any) -> None:
        if self._inside != threading.get_ident():
            raise Invalid("a message is sent in a step: its commit sends it, once")
        self._engine.outbox.append(content, codec=self._coder, run=self.id, position=self._at)

    def _take_turn(self) -> None:
        if self._parked:
            raise Parked
        if self._inside is not None or not self._turn.acquire(blocking=False):
            raise Invalid(f'run "{self.id}" is in a call already; one thread at a time calls a run, and steps do not '
                          "wait, sleep or end it")

    @contextlib.contextmanager
    def _turned(self) -> Iterator[None]:
        self._take_turn()
        try:
            yield
        finally:
            self._turn.release()

    @contextlib.contextmanager
    def _calling(self, kind: Kind, name: str, version: str) -> Iterator[Step | None]:
        """A call of the program, and its record, if there is one."""
        with self._turned():
            yield self._found(kind, name, version)

    def _found(self, kind: Kind, name: str, version: str) -> Step | None:
        steps = self._read()
        if self._at < len(steps):
            found = steps[self._at]
            if (found.kind, found.name, found.version) != (kind, name, version):
                raise Changed(f'run "{self.id}" has recorded {_text(found.kind, found.name, found.version)} as call '
                              f"{self._at}, and the program calls {_text(kind, name, version)} there: execute the run "
                              "with the code that began it, or begin a new run")
            return found
        if self._at >= _format.STEPS_MAX:
            raise Invalid(f'run "{self.id}" has {self._at} steps, the most that a run may have; go on in a new run')
        return None

    @contextlib.contextmanager
    def _commit(self, weak: bool) -> Iterator[Head]:
        """One commit of the store, if the run is still this object's. After an error the records are read anew."""
        try:
            with self._engine.transaction(weak) as self._transaction:
                yield self._owned()
        except BaseException:
            self._forget()
            raise
        finally:
            self._transaction = None

    def _known(self) -> Head:
        """The head as it is stored. As long as the record is the one that this object knows, the same Head."""
        data = self._engine.records.get(self._key)
        if self._head is None or data != self._head_data:
            self._head = self._engine.known(self.id) if data is None else Head.unpack(data, self.id)
            self._head_data = data or b""
        return self._head

    def _put_head(self, head: Head) -> None:
        self._head_data = self._engine.put_head(self.id, head)

    def _owned(self) -> Head:
        head = self._known()
        if head.status is Status.CANCELLED:
            raise Cancelled(f'run "{self.id}" was cancelled')
        if (head.token, head.attempt) != (self._token, self._attempt):
            raise Conflict(f'run "{self.id}" was taken by another thread or program meanwhile, which goes on with it')
        if head.status is Status.DONE:
            raise Changed(f'run "{self.id}" is done, with {head.position} steps, and the program calls one more')
        return head

    def _record(self, head: Head, step: Step) -> None:
        """Puts the call's record and the run's position, in one commit: never one without the other."""
        self._put_raised()
        self._engine.records[self._prefix + self._at.to_bytes(4, "big")] = step.pack(self._at)
        head.position = self._at if step.state is State.INTENT else self._at + 1
        head.failures, head.error = 0, ""
        if self._lease_us:
            if head.status is Status.WAITING:
                self._engine.drop_lease(self.id)
            else:
                lease = Lease(self._engine.mark, now_us() + self._lease_us, self._attempt)
                self._engine.records[_format.lease_key(self.id)] = lease.pack()
        self._put_head(head)

    def _put_raised(self) -> None:
        for position, raised in self._raised.items():
            self._engine.records[_format.step_key(self.id, position)] = raised.pack(position)

    def _replayed(self, step: Step) -> Any:
        self._ended()
        if step.state is not State.RAISED:
            return self._coder.loads(step.payload)
        text = step.payload.decode()
        if not step.arguments or self._coder.name != "pickle":
            raise Failed(text)
        raise pickle.loads(step.arguments)

    def _survived(self, step: Step, error: Exception) -> None:
        step.payload = f"{type(error).__name__}: {error}".encode(errors="replace")
        if self._coder.name == "pickle":
            with contextlib.suppress(Exception):  # one that pickle does not know comes back as Failed
                step.arguments = pickle.dumps(error, 5)
                pickle.loads(step.arguments)
        self._raised[self._at] = step
        self._at += 1

    def _ended(self) -> None:
        """The call is recorded, and the one behind it comes next."""
        self._at += 1
        self._raised.clear()

    def _read(self) -> list[Step]:
        if self._steps is None:
            with self._engine.reading(self.weak):
                head = self._known()
                steps = self._engine.steps(self.id)
            newest = len(steps) - 1 if steps and steps[-1].state is State.INTENT else len(steps)
            if head.token == self._token and newest != head.position:
                raise Corrupt(f'run "{self.id}" has {newest} recorded steps, and its position is {head.position}; run '
                              "`memlith verify` on the store")
            self._steps = steps
        return self._steps

    def _forget(self) -> None:
        self._steps = self._head = None


def _is_past(deadline: int) -> bool:
    return deadline != 0 and deadline <= now_us()


def _takes_key(function: Callable[..., Any]) -> bool:
    try:
        return "key" in inspect.signature(function).parameters
    except (TypeError, ValueError):  # one of C
        return False


def _text(kind: Kind, name: str, version: str) -> str:
    word = {Kind.STEP: "step", Kind.EFFECT: "effect", Kind.SLEEP: "a sleep", Kind.SIGNAL: "a wait for signal"}[kind]
    return f"{word} {name}".strip() + (f" of version {version}" if version else "")


def run(store: Store, id: str, *, weak: bool = False, codec: AnyCodec = "pickle",  # noqa: A002
        version: str = "") -> Run:
    """The run `id` of a store: found again after a crash, or begun. The program executes it, from its beginning.

    With weak=True its steps return when they are in memory and are durable within the store's window, in order; effects
    are as ever. Results are kept by `codec`, as of Dict; a run of another codec raises Incompatible. `version` is that
    of the program: a run that another one began raises Changed. Another object of the same run, in this process, loses
    it: its next commit raises Conflict. A run that a worker executes raises Busy.
    """
    engine = engine_of(store)
    _format.checked(id, "the id of a run")
    coder = engine.coder(codec)
    with engine.commit(True):  # the order of commits makes it durable with the first step
        head = engine.head(id)
        if head is None:
            head = new_head("", version, coder.name)
        else:
            check_match(id, head, version, coder.name)
            if engine.lease(id) is not None:
                raise Busy(f'run "{id}" is executed by a worker of this process')
            if head.workflow and head.status not in (Status.DONE, Status.CANCELLED):
                raise Busy(f'run "{id}" belongs to the workers of workflow {head.workflow}')
            if head.status in (Status.DONE, Status.CANCELLED):
                return Run(engine, id, head, coder, weak)
            head.attempt = (head.attempt + 1) % (1 << 32)
            if head.status is Status.STOPPED:
                head.status, head.error = Status.READY, ""
        engine.put_head(id, head)
    return Run(engine, id, head, coder, weak)


def check_match(name: str, head: Head, version: str, codec: str) -> None:
    if head.version != version:
        raise Changed(f'run "{name}" was begun by version "{head.version}" of its program, and this is version '
                      f'"{version}": execute it with the code that began it, or begin a new run')
    if head.codec != codec:
        raise Incompatible(f'run "{name}" keeps its results by the codec "{head.codec}", not by "{codec}"')
