"""The records of runs and steps, as bytes that Python and C++ (memlith/steps.hpp) read and write.

They lie in the dictionary ".steps", of raw bytes: docs/steps.md, "Records in the store", has the table. Numbers are
little-endian, except within keys, whose order matters. A text is its length (4 bytes) and UTF-8; bytes likewise.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import struct
from typing import NamedTuple

from .._errors import Corrupt, Incompatible, Invalid

MAP = ".steps"
VERSION = 1
NAME_BYTES_MAX = 250
STEPS_MAX = 100_000

_HEAD = struct.Struct("<BBHIIIQQQQ")
_STEP = struct.Struct("<BBBBIQ")
_LEASE = struct.Struct("<QQI")
_SIZE = struct.Struct("<I")


class Status(enum.IntEnum):
    READY = 0  # goes on as soon as a worker takes it, or its program opens it
    WAITING = 1  # for a time or a signal
    DONE = 2
    FAILED = 3  # raised too often
    CANCELLED = 4
    STOPPED = 5  # needs a decision: an effect's outcome is unknown, or the code does not match the records


ENDED = (Status.DONE, Status.FAILED, Status.CANCELLED)


class Kind(enum.IntEnum):
    STEP = 1
    EFFECT = 2
    SLEEP = 3
    SIGNAL = 4


class State(enum.IntEnum):
    INTENT = 1  # began, and has no result yet
    DONE = 2
    RAISED = 3
    TIMEOUT = 4


_STATUSES = {int(each): each for each in Status}  # quicker than a call of the class
_KINDS = {int(each): each for each in Kind}
_STATES = {int(each): each for each in State}


@dataclasses.dataclass(slots=True)
class Head:
    """A run."""

    status: Status
    position: int = 0  # of the step that comes next
    attempt: int = 1  # how often it was taken: an earlier taker's commit is refused
    failures: int = 0  # since the last step that ended
    created_us: int = 0
    changed_us: int = 0
    due_us: int = 0  # of its timer; 0: it has none
    token: int = 0  # tells two runs of one name apart
    workflow: str = ""
    version: str = ""
    codec: str = ""
    waits_for: str = ""
    error: str = ""

    def pack(self) -> bytes:
        fixed = _HEAD.pack(VERSION, self.status, 0, self.position, self.attempt, self.failures, self.created_us,
                           self.changed_us, self.due_us, self.token)
        return fixed + _texts(self.workflow, self.version, self.codec, self.waits_for, self.error)

    @classmethod
    def unpack(cls, data: bytes, name: str) -> Head:
        try:
            version, status, _, *numbers = _HEAD.unpack_from(data)
            check_version(version, name)
            return cls(_STATUSES[status], *numbers, *map(bytes.decode, split_parts(data, _HEAD.size, 5)))
        except (struct.error, KeyError, ValueError) as error:
            raise damaged(name) from error


@dataclasses.dataclass(slots=True)
class Step:
    """A call of a run: a step, an effect, a sleep or a wait."""

    kind: Kind
    state: State
    time_us: int
    name: str = ""
    version: str = ""
    key: str = ""
    payload: bytes = b""  # the result; of an exception, its text; of what waits, when that ends
    arguments: bytes = b""  # of an effect; of an exception, the exception itself

    def pack(self, position: int) -> bytes:
        fixed = _STEP.pack(VERSION, self.kind, self.state, 0, position, self.time_us)
        return b"".join((fixed, _texts(self.name, self.version, self.key), _SIZE.pack(len(self.payload)), self.payload,
                         _SIZE.pack(len(self.arguments)), self.arguments))

    @classmethod
    def unpack(cls, data: bytes, position: int, name: str) -> Step:
        try:
            version, kind, state, _, stored, time_us = _STEP.unpack_from(data)
            check_version(version, name)
            called, of, key, payload, arguments = split_parts(data, _STEP.size, 5)
            if stored != position:
                raise damaged(name)
            return cls(_KINDS[kind], _STATES[state], time_us, called.decode(), of.decode(), key.decode(), payload,
                       arguments)
        except (struct.error, KeyError, ValueError) as error:
            raise damaged(name) from error


class Lease(NamedTuple):
    """Which opening of the store executes a run, and until when."""

    mark: int
    until_us: int
    attempt: int

    def pack(self) -> bytes:
        return _LEASE.pack(*self)

    @classmethod
    def unpack(cls, data: bytes, name: str) -> Lease:
        if len(data) != _LEASE.size:
            raise damaged(name)
        return cls(*_LEASE.unpack(data))


def check_version(version: int, name: str) -> None:
    if version != VERSION:
        raise Incompatible(f'run "{name}" has records of version {version}; this memlith reads version {VERSION}')


def damaged(name: str) -> Corrupt:
    return Corrupt(f'run "{name}": a record makes no sense; run `memlith verify` on the store')


def pack_parts(*parts: bytes) -> bytes:
    return b"".join(_SIZE.pack(len(part)) + part for part in parts)


@functools.lru_cache(maxsize=256)  # a run's records have the same again and again
def _texts(*parts: str) -> bytes:
    return pack_parts(*(part.encode() for part in parts))


def split_parts(data: bytes, at: int, count: int) -> list[bytes]:
    parts = []
    for _ in range(count):
        begin = at + 4
        at = begin + int.from_bytes(data[at:begin], "little")
        parts.append(data[begin:at])
    if at != len(data):
        raise ValueError("cut, or too long")
    return parts


# ---- keys --------------------------------------------------------------------------------------------------------


def checked(name: str, what: str) -> str:
    size = len(name.encode())
    if not 0 < size <= NAME_BYTES_MAX or "\0" in name:
        raise Invalid(f"{what} has 1 to {NAME_BYTES_MAX} bytes and no zero byte; this one has {size}: {name[:40]!r}")
    return name


def head_key(run: str) -> bytes:
    return b"r" + run.encode()


def input_key(run: str) -> bytes:
    return b"i" + run.encode()


def result_key(run: str) -> bytes:
    return b"o" + run.encode()


def lease_key(run: str) -> bytes:
    return b"l" + run.encode()


def steps_prefix(run: str) -> bytes:
    return b"s" + run.encode() + b"\0"


def step_key(run: str, position: int) -> bytes:
    return steps_prefix(run) + position.to_bytes(4, "big")


def signals_prefix(run: str, signal: str | None = None) -> bytes:
    return b"g" + run.encode() + b"\0" + (b"" if signal is None else signal.encode() + b"\0")


def signal_key(run: str, signal: str, number: int) -> bytes:
    return signals_prefix(run, signal) + number.to_bytes(8, "big")


def timers_prefix(workflow: str) -> bytes:
    return b"t" + workflow.encode() + b"\0"


def timer_key(workflow: str, due_us: int, run: str = "") -> bytes:
    return timers_prefix(workflow) + due_us.to_bytes(8, "big") + run.encode()
