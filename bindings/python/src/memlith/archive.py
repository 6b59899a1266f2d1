"""Archives: every durable commit of a store, beside the program that writes to it, and restoring from them.

    with memlith.archive.start("state", "/backup/state"):      # in a thread, until the block ends
        ...
    memlith.archive.restore("/backup/state", "state-before", at=datetime.datetime(2026, 11, 25, 10))

What an archive is: docs/backup.md. `memlith archive` and `memlith restore` do the same from a shell.
"""

from __future__ import annotations

import dataclasses
import datetime
import operator
import os
import threading
import warnings
from typing import NamedTuple, SupportsIndex

from . import _core
from ._errors import Error, Invalid, IOFailure, NoMemory, NoSpace, TooManyFiles
from ._ticket import Flag

_Path = str | bytes | os.PathLike[str] | os.PathLike[bytes]

_FLAG_NEW, _FLAG_DAMAGED = 1, 2
_NEVER = 2**64 - 1
_LATEST, _LSN, _TIME = 0, 1, 2
_RESTORE_DRY, _RESTORE_AS_FAR_AS_CAN = 1, 2
_LOOK_EVERY_S = 0.1
_LOOK_AFTER_FAILURE_S = 2.0

__all__ = ["Archive", "Commands", "Progress", "Restored", "Run", "open", "restore", "runs", "start"]


@dataclasses.dataclass(frozen=True)
class Commands:
    """An archive that commands of the shell reach; `%n` is the name of an object, and a command fails by its exit code.

    `put` stores its input, `get` writes to its output, `remove` removes. new=True begins an archive; without it, a
    manifest that cannot be fetched is an error.
    """

    put: str = ""
    get: str = ""
    remove: str = ""
    new: bool = False


class Progress(NamedTuple):
    """How far an archive is; what is counted is counted since it was opened."""

    archived_lsn: int  # everything before it is in the archive
    durable_lsn: int  # of the store
    segments: int
    full_copies: int
    gaps: int  # how often frames were missing, and a new run began with a full copy
    refused_copies: int  # full copies that were due and not made, because the store is damaged
    log_is_full: bool  # as much as keep_log_bytes is not archived: the log waits no more


class Run(NamedTuple):
    """A stretch of one history of the store, without a gap. Times are nanoseconds since 1970."""

    number: int
    why: str  # "first", "gap" (frames before it are missing) or "history" (the store had gone back)
    begin_lsn: int  # the earliest state that can be restored; 0 with end_lsn 0: none can
    end_lsn: int
    begin_ns: int
    end_ns: int
    segments: int
    segment_bytes: int
    full_copies: int
    full_bytes: int


class Restored(NamedTuple):
    lsn: int  # what was restored: every commit before it
    segments: int
    clock_went_back: bool  # several states are of that time, because a clock was set; this is the last of them
    cut_short: str  # what kept it from going further, if as_far_as_possible; else ""


class Archive:
    """Archives a store as long as step() is called. Any thread may call any method."""

    __slots__ = ("_core",)

    def __init__(self, core: _core.Archive) -> None:
        self._core = core

    def step(self) -> Progress:
        """Looks at the store once, and archives what is due. To be called several times a second.

        After IOFailure or NoSpace (the target), nothing is lost, and the next call tries again.
        """
        return Progress(*self._core.step())

    def copy(self) -> None:
        """Makes a full copy now."""
        self._core.copy()

    def close(self) -> None:
        """Archives what was durable when the call began, for which it waits up to a second.

        Closing twice has no effect.
        """
        self._core.close()

    def __enter__(self) -> Archive:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


class Archiving:
    """An archive with a thread of its own. A failure of the target is a warning, and tried again."""

    __slots__ = ("_archive", "_ended", "_thread", "_failure", "_progress")

    def __init__(self, archive: Archive) -> None:
        self._archive = archive
        self._ended = Flag()
        self._failure: Error | None = None
        self._progress = archive.step()
        self._thread = threading.Thread(target=self._work, name="memlith-archive", daemon=True)
        self._thread.start()

    @property
    def progress(self) -> Progress:
        """As of the last look."""
        return self._progress

    def stop(self) -> None:
        """Archives what is left, and ends the thread. Raises what ended it before."""
        self._ended.set()
        self._thread.join()
        if self._failure is not None:
            raise self._failure
        self._archive.close()

    def __enter__(self) -> Archiving:
        return self

    def __exit__(self, *exception: object) -> None:
        self.stop()

    def _work(self) -> None:
        told = ""
        wait = _LOOK_EVERY_S
        while not self._ended.wait(wait):
            try:
                self._progress = self._archive.step()
                told, wait = "", _LOOK_EVERY_S
            except (IOFailure, NoMemory, NoSpace, TooManyFiles) as failure:
                wait = _LOOK_AFTER_FAILURE_S
                if str(failure) != told:
                    told = str(failure)
                    warnings.warn(f"{told}; archiving tries again", stacklevel=1)
            except Error as failure:
                self._failure = failure
                return


def open(  # noqa: A001 - as memlith.open
    store: _Path,
    target: _Path | Commands,
    *,
    wait: float = 0.5,
    full_every: float | None = 86400,
    keep_for: float | None = 7 * 86400,
    keep_log_bytes: int = 0,
    damaged: bool = False,
) -> Archive:
    """Goes on with the archive of `store` at `target`, a folder or Commands, or begins one with a full copy.

    Commits wait `wait` seconds for others to share their segment. A full copy is made every `full_every` seconds (None:
    only where one is needed), and states of the last `keep_for` seconds stay restorable (None: all). The store's log is
    not reused before it is archived, and grows up to `keep_log_bytes`; 0: it does not wait.
    Raises Invalid (the archive of another store), Busy (another archiver), NotFound, and what the target raises.
    """
    flags = (_FLAG_NEW if isinstance(target, Commands) and target.new else 0) | (_FLAG_DAMAGED if damaged else 0)
    core = _core.Archive(
        os.path.abspath(os.fsencode(store)),
        _place(target),
        flags,
        max(1, round(wait * 1000)),
        _NEVER if full_every is None else max(1, round(full_every)),
        _NEVER if keep_for is None else max(1, round(keep_for)),
        keep_log_bytes,
    )
    return Archive(core)


def start(
    store: _Path,
    target: _Path | Commands,
    *,
    wait: float = 0.5,
    full_every: float | None = 86400,
    keep_for: float | None = 7 * 86400,
    keep_log_bytes: int = 0,
    damaged: bool = False,
) -> Archiving:
    """The same, and a thread that archives until stop(), or until the block of `with` ends."""
    return Archiving(
        open(
            store,
            target,
            wait=wait,
            full_every=full_every,
            keep_for=keep_for,
            keep_log_bytes=keep_log_bytes,
            damaged=damaged,
        )
    )


def runs(target: _Path | Commands) -> list[Run]:
    """The content of an archive, in order. Between a run and a next one whose `why` is "gap", states are missing."""
    return [Run(*run) for run in _core.archive_runs(_place(target))]


def restore(
    target: _Path | Commands,
    dest: _Path | None,
    at: SupportsIndex | datetime.datetime | None = None,
    *,
    run: SupportsIndex | None = None,
    dry_run: bool = False,
    as_far_as_possible: bool = False,
) -> Restored:
    """Restores a store to `dest`, which must not exist: as of an LSN, a time, or the newest commit that is archived.

    The `number` of a Ticket is an LSN, and stands for the state with its commit. An LSN that several histories have
    needs `run`, the number of a run (runs()), in which it is looked for; so may a time. A datetime without a time zone
    is local time. `dest` appears whole or not at all. dry_run=True reads and checks what is needed, and makes nothing;
    `dest` may be None then. Where the archive is damaged, Corrupt names the part, and as_far_as_possible=True restores
    the last complete state before it.
    Raises Exists, NotFound (no archive, or no such state), Invalid (an LSN of several histories), Corrupt, NoSpace.
    """
    kind, value = _LATEST, 0
    if isinstance(at, datetime.datetime):
        since = at.astimezone(datetime.timezone.utc) - datetime.datetime(1970, 1, 1, tzinfo=datetime.timezone.utc)
        kind, value = _TIME, (since // datetime.timedelta(microseconds=1)) * 1000
    elif at is not None:
        kind, value = _LSN, _number("at", at)
    if run is not None and kind == _LATEST:
        raise Invalid("run says in which run `at` is looked for; give an LSN or a time as `at`, too")
    of_run = 0 if run is None else _number("run", run)
    flags = (_RESTORE_DRY if dry_run else 0) | (_RESTORE_AS_FAR_AS_CAN if as_far_as_possible else 0)
    return Restored(*_core.restore(_place(target), b"" if dest is None else os.fsencode(dest), kind, value, of_run,
                                   flags))


def _number(name: str, given: SupportsIndex) -> int:
    try:
        number = operator.index(given)
    except TypeError:
        wanted = "an LSN, such as the number of a Ticket, or a datetime" if name == "at" else "the number of a run"
        raise Invalid(f"{name}={given!r}: give {wanted}") from None
    if not 0 < number < _NEVER:
        raise Invalid(f"{name}={number}: numbers of LSNs and runs are positive, and below 2**64 - 1")
    return number


def _place(target: _Path | Commands) -> tuple[bytes, bytes, bytes, bytes]:
    if isinstance(target, Commands):
        return b"", os.fsencode(target.put), os.fsencode(target.get), os.fsencode(target.remove)
    return os.path.abspath(os.fsencode(target)), b"", b"", b""
