"""Shared by the rigs: the plan of a cut, the lossy disk's process, waiting for one of several things, file systems."""
from __future__ import annotations

import dataclasses
import json
import os
import pathlib
import random
import select
import shutil
import subprocess
import time
from typing import Protocol

from oracle import Lines, Oracle

IMAGE_BYTES = 512 << 20
PATIENCE_S = 240.0  # for anything that should take seconds, on a machine that has much else to do
SESSION_S = 60.0  # then the power goes, even if the disk has not come to the operation that was planned
COLD_ONE_IN = 10
LATE_OPERATIONS_MAX = 40

# A cut may tear what the file system survives, and no less: see docs/testing.md. ext4 and Btrfs rely on their
# superblock's block being written whole, XFS on every block of metadata, and so does ext4's journal in Linux 6.1. All
# else is torn at 512 bytes; where every block of metadata must be whole, and a block does not tell whose it is, the
# writes that are memlith's log by their first bytes.
WHOLE_BLOCKS: dict[str, list[tuple[int, int]]] = {
    "ext4": [(0, 4096)],
    "xfs": [],
    "btrfs": [(64 << 10, 68 << 10), (64 << 20, (64 << 20) + 4096)],
    "raw": [],
    "passthrough": [],
}
# Rig and file system: torn at 4096, but for memlith's log.
# No file system: the block device, and an NVMe namespace by its own commands.
RAW = ["raw", "passthrough"]
FRAIL = {("loop", "xfs"), ("vm", "xfs"), ("vm", "ext4"), ("nvme", "xfs"), ("nvme", "ext4")}
MEMLITH_PREFIXES = ["FRAM", "SLOT", "MEML"]  # frames, slots' heads, superblocks: docs/format.md
MKFS = {
    "ext4": ["mkfs.ext4", "-q", "-F", "-E", "lazy_itable_init=0,lazy_journal_init=0"],
    "xfs": ["mkfs.xfs", "-q", "-f"],
    "btrfs": ["mkfs.btrfs", "-q", "-f"],
}


class Unmountable(Exception):
    """The file system itself did not survive the cut: nothing can be said about memlith."""


class Unable(Exception):
    """This machine lacks what the rig needs."""


class RigError(Exception):
    """The rig itself failed."""


@dataclasses.dataclass
class Settings:
    programs: pathlib.Path
    work: pathlib.Path
    sabotage: str = ""

    @property
    def benchmark(self) -> pathlib.Path:
        """The workload of small records; `./dev soak power --count-records` builds it."""
        return self.programs / "memlith-kv-bench"

    @property
    def workload(self) -> pathlib.Path:
        return self.programs / ("power-workload-no-flush" if self.sabotage == "no-flush" else "power-workload")


@dataclasses.dataclass
class Cut:
    """When and how the power goes, and how the workload lives until then. All of it follows from the seed."""
    operations: int  # writes and flushes of the disk until the power goes; 0 = it stays
    late: bool  # they count from the workload's last life on, not from mounting
    seed: int  # of what is kept
    content: int  # the workload's seed, one for a chain
    life: int
    deaths_ms: list[int]  # the workload kills itself after these times, one after the other, before its last life
    cold: bool  # VM: boots from the kernel, not from a booted machine's memory

    @staticmethod
    def plan(rng: random.Random, content: int, number: int, operations_max: int, deaths_ms_max: int) -> Cut:
        # Many early ones: they strike in the file system's recovery, and in memlith's. Late ones strike in a recovery
        # from a mere kill -9, which finds what the dead process had written and not flushed.
        bound = rng.choice([60, 300, operations_max, operations_max, operations_max])
        deaths = [rng.randrange(1, deaths_ms_max) for _ in range(rng.choice([0, 0, 1, 2]))]
        late = bool(deaths) and rng.randrange(2) == 0
        return Cut(rng.randint(1, LATE_OPERATIONS_MAX if late else bound), late, rng.getrandbits(63), content, number,
                   deaths, number % COLD_ONE_IN == 0)

    @staticmethod
    def none(content: int, number: int) -> Cut:
        """For looking only."""
        return Cut(0, False, 0, content, number, [], False)


@dataclasses.dataclass
class Tally:
    """The counts of one rig and file system."""
    rig: str
    fs: str
    cuts: int = 0
    recovered: int = 0  # openings after a cut after which everything was compared and right
    in_recovery: int = 0  # cuts that struck before that: in mounting, recovering or comparing
    lost: int = 0
    unmountable: int = 0
    errors: int = 0
    kills: int = 0  # SIGKILLs between two cuts, each compared too
    kept: int = 0  # sectors written, not flushed, and kept by a cut
    dropped: int = 0
    commits: int = 0
    frames: int = 0
    flushes: int = 0  # that the disk was asked for
    forced: int = 0  # writes with forced unit access
    seconds: float = 0.0
    failed_looks: int = 0  # failures of sessions that came after a cut: what they say is said of that cut

    @property
    def not_looked_at(self) -> int:
        """Cuts whose chain was ended before anybody saw what they had left."""
        return self.cuts - self.recovered - self.in_recovery - self.failed_looks

    def as_json(self) -> dict[str, object]:
        return {**dataclasses.asdict(self), "not_looked_at": self.not_looked_at, "seconds": round(self.seconds, 1)}


class Disk:
    """The process of power-disk."""

    def __init__(self, settings: Settings, rig: str, fs: str, image: pathlib.Path, served: list[str]) -> None:
        arguments = [str(settings.programs / "power-disk"), "--image", str(image), *served]
        arguments += ["--atom", "4096" if (rig, fs) in FRAIL else "512"]
        for prefix in MEMLITH_PREFIXES:
            arguments += ["--torn-prefix", prefix]
        for begin, end in WHOLE_BLOCKS[fs]:
            arguments += ["--whole", str(begin), str(end)]
        if settings.sabotage == "lying-disk":
            arguments.append("--lie")
        self.process = subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.lines = Lines()
        self.frozen = False
        if self._answer() != {"ready": True}:
            self.kill()
            raise RigError("the lossy disk did not start")

    def fileno(self) -> int:
        assert self.process.stdout is not None
        return self.process.stdout.fileno()

    def heard(self) -> None:
        """Call when fileno() is readable."""
        data = os.read(self.fileno(), 4096)
        if not data:
            raise RigError("the lossy disk has ended by itself")
        for line in self.lines.add(data):
            self.frozen = self.frozen or "frozen" in json.loads(line)

    def arm(self, operations: int) -> None:
        if operations > 0:
            self._say(f"arm {operations}")

    def cut(self, seed: int) -> dict[str, int]:
        return self._end(f"cut {seed}")

    def finish(self) -> dict[str, int]:
        return self._end("finish")

    def discard(self) -> None:
        if self.process.poll() is None:
            self._end("discard")

    def kill(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            pipe.close()

    def _say(self, text: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(text.encode() + b"\n")
        self.process.stdin.flush()

    def _end(self, text: str) -> dict[str, int]:
        self._say(text)
        answer = self._answer()
        while "frozen" in answer:
            answer = self._answer()
        if self.process.wait(PATIENCE_S) != 0:
            raise RigError("the lossy disk failed to end")
        return answer

    def _answer(self) -> dict[str, int]:
        line = b""
        while not line.endswith(b"\n"):
            data = os.read(self.fileno(), 1)
            if not data:
                raise RigError("the lossy disk has ended by itself")
            line += data
        answer: dict[str, int] = json.loads(line)
        return answer


def make_image(fs: str, image: pathlib.Path) -> None:
    image.unlink(missing_ok=True)
    with image.open("wb") as file:
        file.truncate(IMAGE_BYTES)
    if fs in MKFS and subprocess.run([*MKFS[fs], str(image)], capture_output=True, check=False).returncode != 0:
        raise RigError(f"{MKFS[fs][0]} failed on {image}")


def copy_image(source: pathlib.Path, target: pathlib.Path) -> None:
    """Without filling its holes."""
    subprocess.run(["cp", "--sparse=always", str(source), str(target)], check=True)


def need_programs(*names: str) -> None:
    missing = [name for name in names if shutil.which(name) is None]
    if missing:
        raise Unable(f"these programs are missing: {', '.join(missing)}")


def wait_for(descriptors: list[int], seconds: float) -> list[int]:
    """The readable ones; none when the time is up."""
    poll = select.poll()
    for descriptor in descriptors:
        poll.register(descriptor, select.POLLIN)
    return [descriptor for descriptor, _ in poll.poll(max(0.0, seconds) * 1000)]


def feed_rest(descriptor: int, lines: Lines, oracle: Listener) -> None:
    """Everything that was still said before the end. The other side must be dead."""
    while data := os.read(descriptor, 65536):
        for line in lines.add(data):
            oracle.feed(line)


class Listener(Protocol):
    """Who hears the reports."""

    def feed(self, line: str) -> None: ...


class Rig(Protocol):
    """Cuts, again and again, under one file system."""
    operations_max: int  # of the disk until a cut
    deaths_ms_max: int

    def begin_chain(self) -> None:
        """Makes the file system anew."""

    def session(self, cut: Cut, oracle: Oracle, tally: Tally, check_only: bool) -> None:
        """Recovers, compares and goes on committing until the cut; or only compares. Raises what it finds wrong."""

    def keep(self, folder: pathlib.Path) -> bool:
        """Puts what the last session began with into the folder. True if restore() can go back to it."""

    def restore(self, folder: pathlib.Path) -> None: ...

    def close(self) -> None: ...


class Deadline:
    def __init__(self, seconds: float) -> None:
        self.end = time.monotonic() + seconds

    @property
    def left(self) -> float:
        return self.end - time.monotonic()
