"""Stores, and NumPy arrays in them."""

from __future__ import annotations

import contextlib
import math
import operator
import os
import threading
import warnings
import weakref
from typing import Any, Iterator, Literal, NamedTuple, Sequence, cast

import numpy as np
import numpy.typing as npt

from . import _core, _header
from ._errors import Error, Exists, Incompatible, Invalid, NotFound, NotPersisted, Poisoned
from ._ticket import Flag, Ticket, Waiter
from ._transaction import Transaction

Tracker = Literal["scan", "fault", "explicit", "auto"]
Scope = Literal["process", "thread"]
Array = npt.NDArray[Any]

_TRACKERS: dict[Tracker, int] = {
    "auto": _core.TRACKER_AUTO,
    "scan": _core.TRACKER_SCAN,
    "explicit": _core.TRACKER_EXPLICIT,
    "fault": _core.TRACKER_FAULT,
}
_SCOPES: dict[Scope, int] = {"process": _core.SCOPE_PROCESS, "thread": _core.SCOPE_THREAD}
_TRACKER_NAMES = {number: name for name, number in _TRACKERS.items()}


def open(  # noqa: A001 - as in shelve, dbm and gzip
    path: str | bytes | os.PathLike[str] | os.PathLike[bytes],
    *,
    create: bool = True,
    read_only: bool = False,
    follow: bool = False,
    exclusive: bool = False,
    wait: float = 0,
    **options: int,
) -> Store:
    """Opens the store in folder `path`, and creates it if it does not exist. Recovers it after a crash.

    One process has a store open for writing. Any number of processes read the store beside it with follow=True: arrays
    and dictionaries show one durable commit, and move on to a later one in refresh(). With read_only=True no process
    can open the store for writing until it is closed here; if a process has it open for writing already, that is Busy.
    While another process has the store, opening waits for `wait` seconds, such as for a server that is being replaced,
    before it raises Busy.
    `options` are those of memlith_store_options: log_bytes, log_max_bytes, memory_max_bytes, window_ms,
    window_bytes, physical_block_bytes, manual_checkpoint, io.
    """
    return Store(
        path, create=create, read_only=read_only, follow=follow, exclusive=exclusive, wait=wait, one_file=False,
        **options,
    )


def open_file(
    path: str | bytes | os.PathLike[str] | os.PathLike[bytes],
    *,
    create: bool = True,
    read_only: bool = False,
    follow: bool = False,
    exclusive: bool = False,
    wait: float = 0,
    **options: int,
) -> Store:
    """Opens one file as a store, and creates it if it does not exist. The log lies beside it, as FILE.memlith.

    The file holds one object: the array "file", or dictionaries, or an application log. After a clean close the file
    alone has everything; until then copy it with `copy` only. The rest is as for `open`.
    """
    return Store(
        path, create=create, read_only=read_only, follow=follow, exclusive=exclusive, wait=wait, one_file=True,
        **options,
    )


class Store:
    """A folder, or a file, with what survives crashes. Any thread may call any method."""

    __slots__ = ("path", "read_only", "one_file", "_place", "_core", "_threads", "_finalizer", "_foreign",
                 "__weakref__")

    def __init__(
        self,
        path: str | bytes | os.PathLike[str] | os.PathLike[bytes],
        *,
        create: bool = True,
        read_only: bool = False,
        follow: bool = False,
        exclusive: bool = False,
        wait: float = 0,
        one_file: bool = False,
        **options: int,
    ) -> None:
        unknown = options.keys() - _OPTIONS
        if unknown:
            raise TypeError(f"memlith.open has no option {', '.join(sorted(unknown))}; it has {', '.join(_OPTIONS)}")
        for option, number in options.items():
            largest = (1 << 32 if option in _OPTIONS_32 else 1 << 64) - 1
            if not 0 <= operator.index(number) <= largest:
                raise Invalid(f"memlith.open: {option} takes an integer from 0 to {largest}, not {number}")
        if not 0 <= wait <= 86_400:
            raise Invalid(f"memlith.open: wait is {wait}; it can be 0 to 86400 seconds")
        flags = _core.OPEN_FOLLOW if follow else _core.OPEN_READ_ONLY if read_only else 0
        if flags == 0 and (create or exclusive):
            flags = _core.OPEN_CREATE
        flags |= _core.OPEN_EXCLUSIVE if exclusive else 0
        self.path = os.fspath(path)
        self._place = os.path.abspath(os.fsencode(path))  # wherever the program changes its working folder to
        self.read_only = read_only or follow
        self.one_file = one_file
        self._foreign: set[str] = set()  # regions that were found to be no arrays
        try:
            self._core = _core.Store(os.fsencode(path), one_file, flags=flags, open_wait_ms=math.ceil(wait * 1000),
                                     **options)
            self._threads = _Threads(self._core)
            # Also when the interpreter ends, while its threads still can.
            self._finalizer = weakref.finalize(self, _close, self._core, self._threads, os.fsdecode(self.path))
        except BaseException:  # a signal handler has raised, and the traceback keeps this object
            if hasattr(self, "_core"):
                self._core.close()
            raise

    # ---- the store itself ----

    def close(self) -> None:
        """Closes the store. Persists nothing: changes since the last persist are dropped from the store.

        If there are such changes of arrays, a warning (NotPersisted) says so; `rollback()` before drops them silently.
        Arrays keep their values as ordinary memory that belongs to no store. Closing twice has no effect.
        What weak dictionaries acknowledged is made durable. If there is no room for it (NoSpace, Full, NoMemory),
        nothing is closed: make room, and close the store again.
        A signal handler that raises meanwhile (Ctrl-C) is heard when the store is closed; before the call has begun, it
        leaves the store open.
        """
        _close(self._core, self._threads, os.fsdecode(self.path))
        self._finalizer.detach()

    @property
    def closed(self) -> bool:
        return self._core.closed

    def __enter__(self) -> Store:
        return self

    def __exit__(self, kind: object, *exception: object) -> None:
        # The changes of a block that raised are dropped on purpose.
        _close(self._core, self._threads, os.fsdecode(self.path) if kind is None else None)
        self._finalizer.detach()

    def __repr__(self) -> str:
        state = "closed" if self.closed else "of the parent process" if self._core.inherited else "open"
        return f"<memlith.Store {self.path!r}, {state}{', read-only' if self.read_only else ''}>"

    def info(self) -> dict[str, int]:
        """The counters of memlith_store_info."""
        return self._core.info()

    def stats(self) -> dict[str, int]:
        """The counters and latencies of memlith_stats, since the store was opened."""
        return self._core.stats()

    def checkpoint(self) -> None:
        """Writes everything durable to the home files, so that the next opening has nothing to replay."""
        self._core.checkpoint()

    def copy(self, target: str | bytes | os.PathLike[str] | os.PathLike[bytes]) -> int:
        """Copies the whole store, as its newest durable commit left it, to the new folder `target`, a store of its own.

        Persists in this and in other processes go on meanwhile. What was not persisted is not in the copy. The copy
        appears whole or not at all. Returns the LSN of the commit: `info()["durable_lsn"]` as it was then.
        Raises Exists (`target` is there), Busy (another copy to it is being made, or persists are too fast) or NoSpace;
        then there is no copy.
        """
        return _core.copy_store(self._place, os.fsencode(target))

    def refresh(self) -> int:
        """Moves a store that is followed on to the newest durable commit, and returns the commit's number.

        All arrays change in place, together, and dictionaries with them. An array that was resized has its new shape
        when it is asked for again. No other thread may use them meanwhile. In a store that is open read-only while
        it cannot be written, nothing changes.
        """
        return self._core.refresh()

    # ---- durability ----

    def persist(self, *, scope: Scope = "process") -> None:
        """Makes all changes of all arrays durable, all of them or none. Returns when they are.

        Weak changes of dictionaries that were made before are durable then, too. With scope="thread" only what the
        calling thread stored to arrays: for threads that work on parts of their own. Each open array was opened with
        thread_scope=True, or with a tracker that knows threads, else the call raises Unsupported.
        """
        self._core.persist(_scope_of(scope))

    def persist_async(self, *, scope: Scope = "process") -> Ticket:
        """Captures all changes and returns. The ticket tells when they are durable: `await` it, or `result()`.

        `scope` is that of persist().
        """
        return Ticket(self._core, self._threads.waiter, self._core.persist_async(_scope_of(scope)))

    def rollback(self) -> None:
        """Puts all arrays back to what was last persisted. No other thread may change arrays meanwhile."""
        self._core.rollback()

    def transaction(self, *, wait: float | None = None) -> Transaction[Store]:
        """A block of `with` or `async with` that persists at its end, or rolls back if it raises.

        Arrays and dictionaries change as one. The block starts from the last persist: what was changed before it and
        not persisted belongs to it. There is one transaction at a time; persists, and changes of dictionaries, wait for
        its end. `wait` is how many seconds the block may wait for its beginning; then it raises Busy, which names the
        transaction in front. Default: 10 s for each transaction in front.
        """
        return Transaction(self._core, self._threads.waiter, self, True, False, wait)

    def begin(self, *, wait: float | None = None) -> Transaction[Any]:
        """Begins such a transaction, and returns it.

        It ends with its `commit()` or `rollback()`, or with a block of `with`, in whatever thread or task. `with
        tx.use():` has other threads and tasks work in it. If the object is dropped, the transaction is undone.
        """
        made: Transaction[Any] = Transaction(self._core, self._threads.waiter, None, True, False, wait)
        made.enter_within(wait, False)
        return made

    def autosave(self, seconds: float | None) -> None:
        """Persists every `seconds` in the background, between transactions; None ends that.

        A crash then loses at most the last `seconds` and the time of a flush. If a persist fails, the next call of
        persist, persist_async or transaction fails, too.
        """
        if seconds is not None and not seconds > 0:
            raise Invalid("autosave takes a positive number of seconds, or None")
        self._threads.autosave(seconds)

    def set_window(self, seconds: float, bytes: int = 0) -> None:  # noqa: A002
        """How long asynchronous persists may wait for their flush, in time and in bytes of log (weak durability)."""
        if seconds < 0 or bytes < 0:
            raise Invalid("a flush window has a time and a number of bytes that are not negative")
        self._core.set_window(round(seconds * 1000), bytes)

    # ---- arrays ----

    def array(
        self,
        name: str,
        shape: int | Sequence[int] | None = None,
        dtype: npt.DTypeLike | None = None,
        *,
        max_bytes: int = 0,
        tracker: Tracker | None = None,
        thread_scope: bool = False,
    ) -> Array:
        """The array `name`. With a shape, creates it if it does not exist, filled with zeros (dtype default: float).

        An existing array of another shape or dtype raises Incompatible. `max_bytes` limits later growth (default: four
        times the size, at least 1 GiB; it only costs addresses). `tracker` says how memlith finds changes, by default
        "scan"; with `thread_scope`, for persist(scope="thread"), by default "fault": docs/python.md.
        """
        how = _how(tracker, thread_scope)
        if shape is None:
            header = self._open(name, None, None, how, 0)
            if header is None:
                raise NotFound(f'{os.fsdecode(self.path)}: array "{name}" was never filled; give its shape')
        else:
            wanted, lengths = _folded(dtype, shape)
            header = self._open(name, wanted, lengths, how, max_bytes) or self._create(name, wanted, lengths, None)
            if header.shape != lengths:
                raise Incompatible(f'array "{name}" has shape {header.shape}, not {lengths}; `resize` changes it')
        if dtype is not None and header.dtype != _folded(dtype, ())[0]:
            raise Incompatible(f'array "{name}" has type {header.dtype}, not {np.dtype(dtype)}')
        return self._view(name, header)

    def zeros(self, name: str, shape: int | Sequence[int], dtype: npt.DTypeLike | None = None,
              *, max_bytes: int = 0, tracker: Tracker | None = None, thread_scope: bool = False) -> Array:
        """Creates an array of zeros. Exists if there is one of this name. Durable on return."""
        return self._new(name, shape, dtype, None, _how(tracker, thread_scope), max_bytes)

    def full(self, name: str, shape: int | Sequence[int], value: Any, dtype: npt.DTypeLike | None = None,
             *, max_bytes: int = 0, tracker: Tracker | None = None, thread_scope: bool = False) -> Array:
        """Creates an array filled with `value`. Exists if there is one of this name. Durable on return, as a whole."""
        wanted = np.asarray(value).dtype if dtype is None else dtype
        return self._new(name, shape, wanted, value, _how(tracker, thread_scope), max_bytes)

    def from_array(self, name: str, source: npt.ArrayLike, *, max_bytes: int = 0, tracker: Tracker | None = None,
                   thread_scope: bool = False) -> Array:
        """Creates a copy of `source`. Exists if there is one of this name. Durable on return, as a whole."""
        given = np.asarray(source)
        return self._new(name, given.shape, given.dtype, given, _how(tracker, thread_scope), max_bytes)

    def resize(self, name: str, shape: int | Sequence[int]) -> Array:
        """Changes the length of the first axis, in place, and returns the array with its new shape.

        New rows are zeros. Arrays that were made before keep the shape that they had, over the same memory. The new
        shape is durable with the next persist, together with what is stored in the array by then.
        """
        header = self._open(name, None, None, _SCAN, 0)
        if header is None:
            raise NotFound(f'there is no array "{name}"')
        lengths = _header.shape_of(_lengths(shape))
        if not header.shape or lengths[1:] != header.shape[1:] or len(lengths) != len(header.shape):
            raise Invalid(f'array "{name}" has shape {header.shape}; resize changes the first axis only, not to '
                          f"{lengths}")
        resized = header._replace(shape=lengths)
        if resized.array_bytes < header.array_bytes:
            self._view(name, header)[lengths[0] :] = np.zeros((), header.dtype)  # for when it grows again
        if resized.offset + resized.array_bytes > len(self._memory(name)):
            self._core.grow(name, resized.offset + resized.array_bytes)
        with memoryview(self._memory(name)) as memory:
            _header.write(memory, resized)
        return self._view(name, resized)

    def remove(self, name: str) -> None:
        """Removes an array. Durable on return. Arrays that Python still holds become ordinary memory.

        Incompatible if the region holds something else, such as the kv store of a program in another language.
        """
        if not self._is_array(name):
            raise Incompatible(f'{os.fsdecode(self.path)}: "{name}" holds no array; remove it with the program that '
                               "made it")
        self._core.remove_region(name)

    def names(self) -> list[str]:
        """The names of the arrays. Of a store that is followed, also those of regions of other programs."""
        return sorted(name for region in self._core.regions() if self._is_array(name := region["name"]))

    def __iter__(self) -> Iterator[str]:
        return iter(self.names())

    def __len__(self) -> int:
        return len(self.names())

    def __bool__(self) -> bool:
        return True

    def __contains__(self, name: object) -> bool:
        return any(region["name"] == name for region in self._core.regions()) and self._is_array(cast(str, name))

    def __getitem__(self, name: str) -> Array:
        """The existing array `name`."""
        return self.array(name)

    def __delitem__(self, name: str) -> None:
        self.remove(name)

    def tracker(self, name: str) -> tuple[str, str]:
        """The tracker of an open array, and how it works on this kernel."""
        info = self._core.region_info(name)
        return _TRACKER_NAMES.get(info["tracker"], "none"), info["tracker_detail"]

    def touch(self, name: str, changed: Array) -> None:
        """For arrays opened with tracker="explicit": says that `changed`, a part of array `name`, was stored to."""
        self._core.touch(name, *self._extent(name, changed))

    def prepare(self, name: str, part: Array) -> None:
        """For arrays opened with tracker="fault": call it before a system call writes into `part` (`readinto`)."""
        self._core.prepare(name, *self._extent(name, part))

    def release(self, name: str) -> None:
        """Gives the memory of unchanged pages of an array back to the system."""
        self._core.release(name)

    def snapshot(self, *names: str) -> dict[str, Array]:
        """Read-only arrays as one durable persist left them, for threads and for processes that are forked later.

        They never change, and outlive the store. Without names: of all arrays.
        """
        chosen = list(names) or self.names()
        for name in chosen:
            self._open(name, None, None, _SCAN, 0)
        arrays: dict[str, Array] = {}
        for name, memory in zip(chosen, self._core.snapshot(chosen)):
            with memoryview(cast(Any, memory)) as view:
                header = _header.read(view, name)
            if header is not None:
                arrays[name] = np.ndarray(header.shape, header.dtype, cast(Any, memory), header.offset)
        return arrays

    # ---- inner parts ----

    def _memory(self, name: str) -> Any:
        return self._core.memory(name, self)

    def _view(self, name: str, header: _header.Header) -> Array:
        return np.ndarray(header.shape, header.dtype, self._memory(name), header.offset)

    def _open(self, name: str, dtype: np.dtype[Any] | None, shape: tuple[int, ...] | None, how: _How,
              max_bytes: int) -> _header.Header | None:
        """Opens the region, creates it if there is a dtype, and reads its head: None if the region is new."""
        size = 0
        if dtype is not None and shape is not None:
            header = _header.for_array(dtype, shape)
            size = header.offset + header.array_bytes
        if max_bytes < 0:
            raise Invalid(f"max_bytes takes a number of bytes, not {max_bytes}")
        was_open = self._core.is_open(name)
        self._core.open_region(name, size, max_bytes, how.tracker, how.flags | (_core.CREATE if size else 0))
        try:
            with memoryview(self._memory(name)) as memory:
                return _header.read(memory, name)
        except Error as error:
            if isinstance(error, Incompatible):
                self._foreign.add(name)
            if not was_open:
                self._core.close_region(name)
            raise

    def _is_array(self, name: str) -> bool:
        """True if a region holds an array, or a new one. True in a store that is followed: a look would copy it."""
        if name in self._foreign:
            return False
        if self._core.follows or self._core.is_open(name):
            return True
        try:
            self._open(name, None, None, _SCAN, 0)
        except Error:  # others raise when the array is used
            return name not in self._foreign
        self._core.close_region(name)
        return True

    def _create(self, name: str, dtype: np.dtype[Any], shape: tuple[int, ...], values: Any) -> _header.Header:
        """Writes head and values of a new region, and persists both together."""
        header = _header.for_array(dtype, shape)
        if header.offset + header.array_bytes > len(self._memory(name)):  # a crash left it, of another size
            self._core.grow(name, header.offset + header.array_bytes)
        if values is not None:
            self._view(name, header)[...] = values
        with memoryview(self._memory(name)) as memory:
            _header.write(memory, header)
        if self.tracker(name)[0] == "explicit":
            self._core.touch(name, 0, header.offset + header.array_bytes)
        self._core.persist_region(name)
        return header

    def _new(self, name: str, shape: int | Sequence[int], dtype: npt.DTypeLike | None, values: Any, how: _How,
             max_bytes: int) -> Array:
        wanted, lengths = _folded(dtype, shape)
        if self._open(name, wanted, lengths, how, max_bytes) is not None:
            raise Exists(f'there is an array "{name}" already; `array` opens it, `remove` removes it')
        return self._view(name, self._create(name, wanted, lengths, values))

    def _extent(self, name: str, part: Array) -> tuple[int, int]:
        """Offset and bytes in the region of the smallest range that holds all of `part`."""
        bounds = getattr(np, "byte_bounds", None) or cast(Any, np.lib).array_utils.byte_bounds  # since NumPy 2
        low, high = bounds(part)
        memory = self._memory(name)
        if not memory.address <= low <= high <= memory.address + len(memory):
            raise Invalid(f'that is no part of array "{name}"')
        return low - memory.address, high - low


_OPTIONS = ("log_bytes", "log_max_bytes", "memory_max_bytes", "window_ms", "window_bytes",
            "physical_block_bytes", "manual_checkpoint", "io")
_OPTIONS_32 = ("physical_block_bytes", "manual_checkpoint", "io")


def _close(core: _core.Store, threads: _Threads, path: str | None = None) -> None:
    """With a path, warns of changes that are dropped."""
    dropped: list[tuple[str, int]] = []
    try:
        if not core.inherited:  # a forked child has none of the threads
            core.persist_waiting()
            threads.autosave(None)
            threads.waiter.stop()
            if path is not None and not core.closed:
                with contextlib.suppress(Error):
                    dropped = core.unpersisted()
    except Error:  # there is no room for what weak dictionaries acknowledged
        raise
    except BaseException:  # of a signal handler
        core.close()
        raise
    core.close()
    if dropped:
        names = ", ".join(f'"{name}"' for name, _ in dropped)
        warnings.warn(f"{path}: the store was closed, and changes of {names} that no persist had made durable were "
                      "dropped; call persist() before the end, or use transaction() or autosave()",
                      NotPersisted, stacklevel=3)


class _How(NamedTuple):
    """How a region is opened."""

    tracker: int
    flags: int


_SCAN = _How(_core.TRACKER_SCAN, 0)


def _how(tracker: Tracker | None, thread_scope: bool) -> _How:
    chosen = tracker or ("auto" if thread_scope else "scan")
    if chosen not in _TRACKERS:
        raise Invalid(f"there is no tracker {tracker!r}; there are {', '.join(_TRACKERS)}")
    return _How(_TRACKERS[chosen], _core.REGION_THREAD_SCOPE if thread_scope else 0)


def _scope_of(scope: Scope) -> int:
    if scope not in _SCOPES:
        raise Invalid(f"there is no scope {scope!r}; there are {', '.join(_SCOPES)}")
    return _SCOPES[scope]


def _lengths(shape: int | Sequence[int]) -> int | tuple[int, ...]:
    return tuple(shape) if isinstance(shape, Sequence) else shape


def _folded(dtype: npt.DTypeLike | None, shape: int | Sequence[int]) -> tuple[np.dtype[Any], tuple[int, ...]]:
    """A type that is itself an array, such as "(3,)f4", adds its axes to the shape, as in NumPy."""
    wanted, lengths = _header.dtype_of(dtype), _header.shape_of(_lengths(shape))
    if wanted.itemsize == 0:
        raise Invalid(f"an array of {wanted} has no bytes; give strings a length, such as 'U20'")
    if wanted.subdtype is not None:
        return wanted.subdtype[0], lengths + wanted.subdtype[1]
    return wanted, lengths


class _Threads:
    """The threads of a store, each of which starts when it is needed."""

    def __init__(self, core: _core.Store) -> None:
        self._core = core
        self.waiter = Waiter(core)
        self._autosave: _Autosave | None = None

    def autosave(self, seconds: float | None) -> None:
        before = self._autosave
        if before is not None:
            before.stop()  # a signal handler that raises here leaves it to the next call
            self._autosave = None
        if seconds is not None:
            self._autosave = _Autosave(self._core, seconds)


class _Autosave:
    def __init__(self, core: _core.Store, seconds: float) -> None:
        self._core = core
        self._seconds = seconds
        self._stop = Flag()
        self._thread = threading.Thread(target=self._run, name="memlith-autosave", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.wait(self._seconds):
            try:
                self._core.persist(_core.SCOPE_PROCESS)
            except Error as error:
                if isinstance(error, (Poisoned, Invalid)):  # nothing will be durable any more; every later call says so
                    return

    def stop(self) -> None:
        self._stop.set()
        if self._thread is not threading.current_thread():
            self._thread.join()
