"""Byte-addressable memory: a virtual machine with Debian's kernel (software emulation), QEMU's NVDIMM, and on it a file
system mounted with `-o dax`. The workload's stores have DAX, so their files are mapped with MAP_SYNC.

The power goes: QEMU is killed with SIGKILL at any moment. What the machine stored to the NVDIMM is then in its image,
because the emulated processor has no cache: no line is lost for want of a fence (the laboratory loses those, see
docs/dax.md). Lost is what the guest's kernel knew and had not written, such as which pages belong to a file.
"""
from __future__ import annotations

import contextlib
import os
import pathlib
import subprocess
from collections.abc import Callable

from common import (MKFS, PATIENCE_S, Cut, Deadline, RigError, Settings, Tally, Unmountable, copy_image,
                    feed_rest, need_programs, wait_for)
from machine import MEMORY_MIB, Guest, Machine
from oracle import Lines, Oracle, WorkloadError

NAME = "dax"
HEAD_BYTES = 2 << 20  # in front of the file system: what the kernel notes about the memory (a "pfn" namespace)
FS_BYTES = 318 << 20  # mkfs.xfs takes no less than 300 MiB
# As `ndctl create-namespace --mode fsdax` does: only then has the memory the kernel's descriptions of pages, which DAX
# takes. The kernel finds it again by what it noted in the head.
PREPARE = """
if [ "$(cat /sys/block/pmem0/queue/dax)" = 0 ]; then
  cd /sys/bus/nd
  echo namespace0.0 >drivers/nd_pmem/unbind
  seed=$(cat devices/region0/pfn_seed)
  cat /proc/sys/kernel/random/uuid >"devices/$seed/uuid"
  echo ram >"devices/$seed/mode"
  echo namespace0.0 >"devices/$seed/namespace"
  echo "$seed" >drivers/nd_pmem/bind
  cd /
fi
"""
GUEST = Guest(NAME, ["virtio_pci", "virtio_console", "crc32c_generic", "crc32c_intel", "ext4", "xfs", "nfit",
                     "nd_pmem"], [], PREPARE, "", 'mount -t "$fs" -o dax=always /dev/pmem0 /mnt', "--dax",
              "q35,accel=tcg,nvdimm=on", f"{MEMORY_MIB},slots=1,maxmem=1G")
# Linux 6.1 has no DAX together with shared extents.
MKFS_MORE = {"ext4": ["-b", "4096"], "xfs": ["-m", "reflink=0"]}


class DaxRig:
    operations_max = 5000  # milliseconds from the order to mount until the power goes
    deaths_ms_max = 1500

    def __init__(self, settings: Settings, fs: str) -> None:
        need_programs(f"mkfs.{fs}")
        self.settings = settings
        self.fs = fs
        self.folder = settings.work / f"{NAME}-{fs}"
        self.folder.mkdir(parents=True, exist_ok=True)
        self.image = self.folder / "memory.img"
        self.machine = Machine(settings, GUEST)

    def begin_chain(self) -> None:
        plain = self.folder / "file-system.img"
        plain.unlink(missing_ok=True)
        self.image.unlink(missing_ok=True)
        for path, size in ((plain, FS_BYTES), (self.image, HEAD_BYTES + FS_BYTES)):
            with path.open("wb") as file:
                file.truncate(size)
        command = [*MKFS[self.fs], *MKFS_MORE[self.fs], str(plain)]
        if subprocess.run(command, capture_output=True, check=False).returncode != 0:
            raise RigError(f"{' '.join(command)} failed")
        subprocess.run(["dd", f"if={plain}", f"of={self.image}", f"bs={HEAD_BYTES}", "seek=1", "conv=notrunc,sparse",
                        "status=none"], check=True)
        plain.unlink()

    def keep(self, folder: pathlib.Path) -> bool:
        copy_image(self.image, folder / "memory.img")
        return True

    def restore(self, folder: pathlib.Path) -> None:
        copy_image(folder / "memory.img", self.image)

    def close(self) -> None:
        self.image.unlink(missing_ok=True)

    def session(self, cut: Cut, oracle: Oracle, tally: Tally, check_only: bool) -> None:
        memory = ["-object", f"memory-backend-file,id=pmem,share=on,mem-path={self.image},"
                  f"size={HEAD_BYTES + FS_BYTES},align=2M", "-device", "nvdimm,id=nvdimm,memdev=pmem"]
        life = _Session(self.machine.boot(memory), oracle, tally)
        try:
            life.until(lambda: life.ready)
            deaths = ",".join(map(str, [] if check_only else cut.deaths_ms)) or "-"
            life.order([self.fs, str(cut.content), str(cut.life), deaths, "--check" if check_only else "-"])
            if check_only:
                life.until(lambda: oracle.done)
                return
            if cut.late:  # in the life after the last death
                life.until(lambda: life.lives > len(cut.deaths_ms))
            life.hear(cut.operations / 1000)
            life.power_off()
            tally.cuts += 1
        finally:
            life.power_off()
            life.close()


class _Session:
    """A machine from its start to its end. The lines of its init are those of vm_rig.py."""

    def __init__(self, machine: subprocess.Popen[bytes], oracle: Oracle, tally: Tally) -> None:
        assert machine.stdin is not None and machine.stdout is not None
        self.machine = machine
        self.orders = machine.stdin
        self.reports = machine.stdout
        self.oracle = oracle
        self.tally = tally
        self.lines = Lines()
        self.ready = False
        self.lives = 0
        self.off = False

    def order(self, words: list[str]) -> None:
        self.orders.write((" ".join(words) + "\n").encode())
        self.orders.flush()

    def until(self, done: Callable[[], bool]) -> None:
        """Hears the reports until done() holds."""
        if not self.hear(PATIENCE_S, done):
            raise RigError("what was waited for was not said for a long time")

    def hear(self, seconds: float, done: Callable[[], bool] = lambda: False) -> bool:
        """Hears the reports until done() holds, or for so long."""
        deadline = Deadline(seconds)
        while not done():
            if deadline.left < 0:
                return False
            if not wait_for([self.reports.fileno()], deadline.left):
                continue
            data = os.read(self.reports.fileno(), 65536)
            if not data:
                raise RigError(f"the machine ended by itself; its last report: {self.oracle.history[-1]}")
            for line in self.lines.add(data):
                self.feed(line)
        return True

    def power_off(self) -> None:
        """And what was said before. The machine is dead when this returns."""
        if self.off:
            return
        self.off = True
        self.machine.kill()
        self.machine.wait()
        feed_rest(self.reports.fileno(), self.lines, self)

    def close(self) -> None:
        self.reports.close()
        with contextlib.suppress(BrokenPipeError):
            self.orders.close()

    def feed(self, line: str) -> None:
        kind, _, rest = line.partition(" ")
        if kind == "R":
            self.ready = True
        elif kind == "L":
            self.oracle.begin_life()
            self.tally.kills += 1 if self.lives > 0 else 0
            self.lives += 1
        elif kind == "M":
            raise Unmountable(rest)
        elif kind == "Q":
            if rest != "0":
                raise WorkloadError(f"the workload ended with status {rest}")
        else:
            self.oracle.feed(line)
