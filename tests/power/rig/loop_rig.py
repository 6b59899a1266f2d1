"""The quick rig: a file system on a loop device on a file that the lossy disk shows through FUSE. A second a cut.

The power goes: the disk stops answering, the workload is killed with SIGKILL, the disk's process takes to the image
what it keeps and ends, so that every later request of the file system above fails; it is unmounted in that state. The
next session begins with mounting what is on the image.
"""
from __future__ import annotations

import os
import pathlib
import subprocess
import time

import mounts
from common import (PATIENCE_S, SESSION_S, Cut, Deadline, Disk, RigError, Settings, Tally, Unmountable, copy_image,
                    feed_rest, make_image, need_programs, wait_for)
from oracle import Lines, Oracle, WorkloadError

NAME = "loop"


class LoopRig:
    operations_max = 4000
    deaths_ms_max = 400

    def __init__(self, settings: Settings, fs: str) -> None:
        self.settings = settings
        self.fs = fs
        need_programs("mount", "umount", "losetup", f"mkfs.{fs}")
        mounts.enter_namespace()
        folder = settings.work / f"{NAME}-{fs}"
        self.target = folder / "mnt"
        self.target.mkdir(parents=True, exist_ok=True)
        self.image = folder / "disk.img"
        self.served = folder / "disk"  # the file that FUSE shows
        self.served.touch()
        mounts.check_loop(folder)

    def begin_chain(self) -> None:
        make_image(self.fs, self.image)

    def keep(self, folder: pathlib.Path) -> bool:
        copy_image(self.image, folder / "disk.img")
        return True

    def restore(self, folder: pathlib.Path) -> None:
        copy_image(folder / "disk.img", self.image)

    def close(self) -> None:
        self.image.unlink(missing_ok=True)

    def session(self, cut: Cut, oracle: Oracle, tally: Tally, check_only: bool) -> None:
        """Mounts, recovers, compares, goes on committing until the power goes."""
        disk = Disk(self.settings, NAME, self.fs, self.image, ["--fuse", str(self.served)])
        run = _Session(self, disk, oracle)
        try:
            if not cut.late:
                disk.arm(cut.operations)
            run.mount()
            deaths = [] if check_only else cut.deaths_ms
            for number, die_ms in enumerate([*deaths, 0]):
                if cut.late and die_ms == 0:
                    disk.arm(cut.operations)
                if not disk.frozen:
                    run.live(cut, number, die_ms, check_only)
                    tally.kills += 0 if disk.frozen or die_ms == 0 else 1
            if check_only:
                mounts.unmount(self.fs, self.target)
                disk.finish()
                return
            run.kill()
            result = disk.cut(cut.seed)
            run.bury()
            tally.cuts += 1
            tally.kept += result["kept"]
            tally.dropped += result["dropped"]
        except BaseException:
            run.kill()
            disk.discard()
            raise
        finally:
            disk.kill()
            run.end()


class _Session:
    """The processes above the disk between one mount and the cut."""

    def __init__(self, rig: LoopRig, disk: Disk, oracle: Oracle) -> None:
        self.rig = rig
        self.disk = disk
        self.oracle = oracle
        self.process: subprocess.Popen[bytes] | None = None  # the one that lives now
        self.reports = -1
        self.lines = Lines()

    def mount(self) -> None:
        """Returns when it is mounted, or the power has gone."""
        self.process = subprocess.Popen(mounts.mount_command(self.rig.fs, self.rig.served, self.rig.target),
                                        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        ended = os.pidfd_open(self.process.pid)
        try:
            deadline = Deadline(PATIENCE_S)
            while True:
                ready = wait_for([self.disk.fileno(), ended], deadline.left)
                if not ready:
                    raise RigError("mount did not end")
                if self.disk.fileno() in ready:
                    self.disk.heard()
                if self.disk.frozen:
                    return
                if ended in ready:
                    break
        finally:
            os.close(ended)
        _, message = self.process.communicate()
        if self.process.returncode != 0:
            raise Unmountable(message.decode(errors="replace").strip())

    def live(self, cut: Cut, number: int, die_ms: int, check_only: bool) -> None:
        """Returns when the workload has ended, or the power has gone or is to go."""
        if self.reports >= 0:
            os.close(self.reports)
        self.reports, far_end = os.pipe()
        self.lines = Lines()
        arguments = [str(self.rig.settings.workload), str(self.rig.target), "--seed", str(cut.content),
                     "--life", str(cut.life * 10 + number), "--die-ms", str(die_ms), "--report-fd", str(far_end)]
        if check_only:
            arguments.append("--check")
        self.oracle.begin_life()
        self.process = subprocess.Popen(arguments, pass_fds=(far_end,))
        os.close(far_end)
        session = Deadline(SESSION_S)
        deadline = Deadline(PATIENCE_S)
        while True:
            if session.left < 0 and not check_only and die_ms == 0:
                return
            ready = wait_for([self.disk.fileno(), self.reports], min(deadline.left, 1.0))
            if not ready and deadline.left > 0:
                continue
            if not ready:
                raise RigError("the workload neither ended nor said anything")
            if self.disk.fileno() in ready:
                self.disk.heard()
            if self.disk.frozen:
                return
            if self.reports in ready:
                data = os.read(self.reports, 65536)
                deadline = Deadline(PATIENCE_S)
                for line in self.lines.add(data):
                    self.oracle.feed(line)
                if not data:
                    break
        status = self.process.wait(PATIENCE_S)
        if status != (-9 if die_ms > 0 else 0):
            raise WorkloadError(f"the workload ended with status {status}")

    def kill(self) -> None:
        """A machine without power runs nothing. May wait for the disk with dying, but does nothing more."""
        if self.process is not None and self.process.poll() is None:
            self.process.kill()

    def bury(self) -> None:
        """Hears the last words: what was said before the power went."""
        self._await_death()
        if self.reports >= 0:
            feed_rest(self.reports, self.lines, self.oracle)

    def end(self) -> None:
        self._await_death()
        if self.process is not None and self.process.stderr is not None:
            self.process.stderr.close()
        if self.reports >= 0:
            os.close(self.reports)
            self.reports = -1
        mounts.unmount(self.rig.fs, self.rig.target)

    def _await_death(self) -> None:
        deadline = Deadline(PATIENCE_S)
        while self.process is not None and self.process.poll() is None:
            mounts.give_up(self.rig.fs, self.rig.served)
            if deadline.left < 0:
                raise RigError(f"process {self.process.pid} does not die")
            time.sleep(0.002)
