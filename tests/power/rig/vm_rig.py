"""The true rig: a virtual machine with Debian's kernel (software emulation) whose disk is the lossy one, over NBD; as a
virtio disk, or as an NVMe namespace with forced unit access, on which a commit is one command, under a file system, as
a block device or by its own commands.

The power goes: the disk stops answering, QEMU is killed with SIGKILL, the disk's process takes to the image what it
keeps. The next session is another machine: one in ten boots from the kernel, the others go on from the memory of a
machine that was booted once and has never seen a disk, which saves seconds and changes nothing for the file system and
memlith.
"""
from __future__ import annotations

import contextlib
import pathlib
import shutil
import subprocess
import tempfile

from common import IMAGE_BYTES, RAW, Cut, Disk, RigError, Settings, Tally, Unmountable, feed_rest, need_programs
from disk_rig import DiskRig, cut_and_count, listen
from machine import COUNTED_GUEST, DISK_GUEST, NVME_GUEST, Machine
from oracle import Lines, Oracle, WorkloadError

NAME = "vm"


class VmRig(DiskRig):
    name = NAME
    guest = DISK_GUEST
    device = "virtio-blk-pci,drive=disk,logical_block_size=512,physical_block_size=4096,write-cache=on"
    operations_max = 1500
    deaths_ms_max = 3000

    def __init__(self, settings: Settings, fs: str) -> None:
        if fs not in RAW:
            need_programs(f"mkfs.{fs}")
        super().__init__(self.name, settings, fs)
        self.sockets = pathlib.Path(tempfile.mkdtemp(prefix="power-"))  # a socket's name must be short
        self.nbd = self.sockets / "nbd"
        with self.image.open("wb") as file:
            file.truncate(IMAGE_BYTES)
        self.machine = _machine(self)

    def close(self) -> None:
        super().close()
        shutil.rmtree(self.sockets, ignore_errors=True)

    def disk(self) -> Disk:
        return Disk(self.settings, self.name, self.fs, self.image, ["--nbd", str(self.nbd)])

    def session(self, cut: Cut, oracle: Oracle, tally: Tally, check_only: bool) -> None:
        disk = self.disk()
        if not cut.late:
            disk.arm(cut.operations)
        life = _Session(self.machine.boot(nbd_disk(self), cut.cold), disk, oracle, tally)
        life.arm_at = (len(cut.deaths_ms), cut.operations) if cut.late else None
        try:
            deaths = [] if check_only else cut.deaths_ms
            modes = ["--check"] if check_only else []
            if self.fs in RAW and not any(oracle.started.values()):
                modes.append("--format")  # a cut may have struck in the formatting before
            life.order([self.fs, str(cut.content), str(cut.life), ",".join(map(str, deaths)) or "-",
                        ",".join(modes) or "-"])
            life.listen(check_only)
            life.end()
            if check_only:
                disk.finish()
                return
            life.last_words()
            cut_and_count(disk, cut, tally)()
        except BaseException:
            disk.discard()
            raise
        finally:
            life.end()
            life.close()
            disk.kill()


class NvmeRig(VmRig):
    name = "nvme"
    guest = NVME_GUEST


class CountRig(VmRig):
    """Counts what a program asks of an NVMe disk."""
    name = "nvme-count"
    guest = COUNTED_GUEST

    def count(self, program: list[str], commits: list[int]) -> list[list[int]]:
        """For so many commits each of the program, whose last word is the option that takes their number: [commits,
        writes, of these forced, flushes, other commands, bytes written, system calls]."""
        self.begin_chain()
        disk = self.disk()
        oracle = Oracle()
        life = _Session(self.machine.boot(nbd_disk(self)), disk, oracle, Tally(self.name, self.fs))
        try:
            life.order([self.fs, "1", "1", ",".join(map(str, commits)), ",".join(["--count", *program])])
            life.listen(True)
            return life.counts
        finally:
            life.end()
            life.close()
            disk.discard()
            disk.kill()


def nbd_disk(rig: VmRig) -> list[str]:
    """QEMU's options for the lossy disk."""
    return ["-blockdev", f"driver=nbd,node-name=disk,server.type=unix,server.path={rig.nbd}",
            "-device", rig.device]


# By guest and sabotage; every file system's machine is the same until it is told.
_machines: dict[tuple[str, str], Machine] = {}


def _machine(rig: VmRig) -> Machine:
    kind = rig.name, rig.settings.sabotage
    if kind not in _machines:
        machine = Machine(rig.settings, rig.guest)
        disk = rig.disk()
        try:
            machine.save_memory(nbd_disk(rig), rig.sockets)
        finally:
            disk.discard()
            disk.kill()
        _machines[kind] = machine
    return _machines[kind]


class _Session:
    """A machine from its start to its end. Init adds lines to those of the workload: R(eady), L(ife begins), M(ount
    failed), N(umber of commands), Q(uit by itself)."""

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
        self.counts: list[list[int]] = []
        self.arm_at: tuple[int, int] | None = None  # in which life, and after how many operations, the power goes

    def order(self, words: list[str]) -> None:
        self.orders.write((" ".join(words) + "\n").encode())
        self.orders.flush()

    def listen(self, check_only: bool) -> None:
        """Returns when the power has gone or is to go, or the check is through."""
        if not listen(self.disk, self.reports.fileno(), self.lines, self, lambda: check_only and self.oracle.done,
                      lambda: self.lives > 0 and not check_only):
            raise RigError(f"the machine ended by itself; its last report: {self.oracle.history[-1]}")

    def end(self) -> None:
        self.machine.kill()
        self.machine.wait()

    def last_words(self) -> None:
        """The report before the power went. The machine must have ended."""
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
        elif kind == "N":
            self.counts.append([int(number) for number in rest.split(" ")])
        elif kind == "M":
            raise Unmountable(rest)
        elif kind == "Q":
            if rest != "0":
                raise WorkloadError(f"the workload ended with status {rest}")
        elif kind != "R":
            self.oracle.feed(line)
