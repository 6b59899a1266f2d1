"""The true rig: a virtual machine with Debian's kernel (software emulation) whose disk is the lossy one, over NBD.

The power goes: the disk stops answering, QEMU is killed with SIGKILL, the disk's process takes to the image what it
keeps. The next session is another machine: one in ten boots from the kernel, the others go on from the memory of a
machine that was booted once and has never seen a disk, which saves seconds and changes nothing for the file system and
memlith.
"""
from __future__ import annotations

import contextlib
import os
import pathlib
import shutil
import subprocess
import tempfile

from common import (IMAGE_BYTES, PATIENCE_S, SESSION_S, Cut, Deadline, Disk, RigError, Settings, Tally, Unmountable,
                    copy_image, feed_rest, make_image, need_programs, wait_for)
from machine import Machine
from oracle import Lines, Oracle, WorkloadError

NAME = "vm"


class VmRig:
    operations_max = 1500
    deaths_ms_max = 3000

    def __init__(self, settings: Settings, fs: str) -> None:
        self.settings = settings
        self.fs = fs
        need_programs(f"mkfs.{fs}")
        folder = settings.work / f"{NAME}-{fs}"
        folder.mkdir(parents=True, exist_ok=True)
        self.image = folder / "disk.img"
        self.sockets = pathlib.Path(tempfile.mkdtemp(prefix="power-"))  # a socket's name must be short
        self.nbd = self.sockets / "nbd"
        with self.image.open("wb") as file:
            file.truncate(IMAGE_BYTES)
        self.machine = _machine(self)

    def begin_chain(self) -> None:
        make_image(self.fs, self.image)

    def keep(self, folder: pathlib.Path) -> bool:
        copy_image(self.image, folder / "disk.img")
        return True

    def restore(self, folder: pathlib.Path) -> None:
        copy_image(folder / "disk.img", self.image)

    def close(self) -> None:
        self.image.unlink(missing_ok=True)
        shutil.rmtree(self.sockets, ignore_errors=True)

    def disk(self) -> Disk:
        return Disk(self.settings, NAME, self.fs, self.image, ["--nbd", str(self.nbd)])

    def session(self, cut: Cut, oracle: Oracle, tally: Tally, check_only: bool) -> None:
        disk = self.disk()
        if not cut.late:
            disk.arm(cut.operations)
        life = _Session(self.machine.boot(str(self.nbd), cut.cold), disk, oracle, tally)
        life.arm_at = (len(cut.deaths_ms), cut.operations) if cut.late else None
        try:
            deaths = [] if check_only else cut.deaths_ms
            life.order([self.fs, str(cut.content), str(cut.life), ",".join(map(str, deaths)) or "-",
                        "--check" if check_only else "-"])
            life.listen(check_only)
            life.end()
            if check_only:
                disk.finish()
                return
            life.last_words()
            result = disk.cut(cut.seed)
            tally.cuts += 1
            tally.kept += result["kept"]
            tally.dropped += result["dropped"]
        except BaseException:
            disk.discard()
            raise
        finally:
            life.end()
            life.close()
            disk.kill()


_machines: dict[str, Machine] = {}  # by sabotage; every file system's machine is the same until it is told


def _machine(rig: VmRig) -> Machine:
    if rig.settings.sabotage not in _machines:
        machine = Machine(rig.settings)
        disk = rig.disk()
        try:
            machine.save_memory(str(rig.nbd), rig.sockets)
        finally:
            disk.discard()
            disk.kill()
        _machines[rig.settings.sabotage] = machine
    return _machines[rig.settings.sabotage]


class _Session:
    """A machine from its start to its end. Init adds lines to those of the workload: R(eady), L(ife begins), M(ount
    failed), Q(uit by itself)."""

    def __init__(self, machine: subprocess.Popen[bytes], disk: Disk, oracle: Oracle, tally: Tally) -> None:
        assert machine.stdin is not None and machine.stdout is not None
        self.machine = machine
        self.orders = machine.stdin
        self.reports = machine.stdout
        self.disk = disk
        self.oracle = oracle
        self.tally = tally
        self.lines = Lines()
        self.lives = 0
        self.arm_at: tuple[int, int] | None = None  # in which life, and after how many operations, the power goes

    def order(self, words: list[str]) -> None:
        self.orders.write((" ".join(words) + "\n").encode())
        self.orders.flush()

    def listen(self, check_only: bool) -> None:
        """Returns when the power has gone or is to go, or the check is through."""
        session = Deadline(SESSION_S)
        deadline = Deadline(PATIENCE_S)
        while not self.disk.frozen and not (check_only and self.oracle.done):
            if session.left < 0 and self.lives > 0 and not check_only:
                return
            ready = wait_for([self.disk.fileno(), self.reports.fileno()], min(deadline.left, 1.0))
            if not ready and deadline.left > 0:
                continue
            if not ready:
                raise RigError(f"the machine neither ended nor lost power; its last report: "
                               f"{self.oracle.history[-1]}")
            if self.disk.fileno() in ready:
                self.disk.heard()
            elif data := os.read(self.reports.fileno(), 65536):
                deadline = Deadline(PATIENCE_S)
                for line in self.lines.add(data):
                    self.feed(line)
            else:
                raise RigError("the machine ended by itself")

    def end(self) -> None:
        self.machine.kill()
        self.machine.wait()

    def last_words(self) -> None:
        """What was said before the power went. The machine must have ended."""
        feed_rest(self.reports.fileno(), self.lines, self)

    def close(self) -> None:
        self.reports.close()
        with contextlib.suppress(BrokenPipeError):
            self.orders.close()

    def feed(self, line: str) -> None:
        kind, _, rest = line.partition(" ")
        if kind == "L":
            self.oracle.begin_life()
            self.tally.kills += 1 if self.lives > 0 else 0
            if self.arm_at is not None and self.arm_at[0] == self.lives:
                self.disk.arm(self.arm_at[1])
            self.lives += 1
        elif kind == "M":
            raise Unmountable(rest)
        elif kind == "Q":
            if rest != "0":
                raise WorkloadError(f"the workload ended with status {rest}")
        elif kind != "R":
            self.oracle.feed(line)
