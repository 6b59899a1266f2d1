"""Holds what is found after a cut against what the workload had reported before it.

The lines are those of workload_main.cpp. Of each stream: last acknowledged <= found <= last started. Several may have
started that are not acknowledged yet, for commits are asynchronous too; the acknowledgement of one is that of all
before it. What was found is from then on both: it may not be lost again, and what came after it may not come back.
"""
from __future__ import annotations

from collections import deque

STREAMS = "abcf"
DEVICE_STREAMS = "abckl"  # of a store on a device
CREATIONS = "c"  # reports its numbers modulo 4 after opening, and counts on from there


class Violation(Exception):
    """Something acknowledged is not there, or something is there that was never committed."""


class WorkloadError(Exception):
    """The workload ended in a way that is neither a cut nor a loss."""


class Oracle:
    def __init__(self, streams: str = STREAMS) -> None:
        self.streams = streams
        self.acknowledged = dict.fromkeys(streams, 0)
        self.started = dict.fromkeys(streams, 0)
        self.shift = 0  # of the creations' numbers in this life
        self.found: set[str] = set()  # streams compared in this life
        self.lives = 0  # openings after which everything was compared
        self.commits = 0
        self.frames = 0
        self.done = False
        self.history: deque[str] = deque(maxlen=200)  # for the story of a failure

    def begin_life(self) -> None:
        self.found = set()
        self.done = False
        self.shift = 0
        self.history.append("a life begins")

    @property
    def recovered(self) -> bool:
        """Has everything been compared since begin_life()?"""
        return len(self.found) == len(self.streams)

    def feed(self, line: str) -> None:
        self.history.append(line)
        kind, _, rest = line.partition(" ")
        if kind == "X":
            raise Violation(f"{rest} ({self.bounds()})")
        if kind == "E":
            raise WorkloadError(rest)
        if kind == "F":
            self.frames += int(rest)
        elif kind == "D":
            self.done = True
        elif kind in ("P", "S", "A"):
            stream, number = rest.split(" ")
            {"P": self._found, "S": self._started, "A": self._acknowledged}[kind](stream, int(number))
        else:
            raise WorkloadError(f"reported {line!r}, which says nothing")

    def bounds(self) -> str:
        return ", ".join(f"{stream} {self.acknowledged[stream]}..{self.started[stream]}" for stream in self.streams)

    def _found(self, stream: str, number: int) -> None:
        low, high = self.acknowledged[stream], self.started[stream]
        allowed = range(low, high + 1)
        if stream == CREATIONS:
            fitting = [n for n in allowed if n % 4 == number]
            if not fitting:
                raise Violation(f"stream c: the regions there are fit none of {low}..{high} (found {number} modulo 4)")
            self.shift = fitting[0] - number
            number = fitting[0]
        elif number < low:
            raise Violation(f"stream {stream}: commit {low} was acknowledged, found the state after {number}: "
                            f"{low - number} lost")
        elif number > high:
            raise Violation(f"stream {stream}: commit {high} was the last to start, found the state after {number}")
        self.acknowledged[stream] = self.started[stream] = number
        self.found.add(stream)
        if self.recovered:
            self.lives += 1

    def _started(self, stream: str, number: int) -> None:
        number += self.shift if stream == CREATIONS else 0
        if stream not in self.found or number != self.started[stream] + 1:
            raise WorkloadError(f"started {stream} {number} after {self.started[stream]}")
        self.started[stream] = number

    def _acknowledged(self, stream: str, number: int) -> None:
        number += self.shift if stream == CREATIONS else 0
        if not self.acknowledged[stream] < number <= self.started[stream]:
            raise WorkloadError(f"acknowledged {stream} {number}, with {self.bounds()}")
        self.commits += number - self.acknowledged[stream]
        self.acknowledged[stream] = number


class Lines:
    """Cuts what arrives into lines. What is behind the last line end was never said: the writer had not returned."""

    def __init__(self) -> None:
        self.rest = b""

    def add(self, data: bytes) -> list[str]:
        *lines, self.rest = (self.rest + data).split(b"\n")
        return [line.decode(errors="replace").strip("\r") for line in lines if line]
