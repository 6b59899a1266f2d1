"""The quick rig: a file system on a loop device on a file that the lossy disk shows through FUSE. A second a cut.

The power goes: the disk stops answering, the workload is killed with SIGKILL, the disk's process takes to the image
what it keeps and ends, so that every later request of the file system above fails; it is unmounted in that state. The
next session begins with mounting what is on the image.
"""
from __future__ import annotations

import os
import subprocess
import time

import mounts
from common import (PATIENCE_S, Cut, Deadline, Disk, RigError, Settings, Tally, Unmountable, feed_rest, need_programs,
                    wait_for)
from disk_rig import DiskRig, cut_and_count, listen
from oracle import Lines, Oracle, WorkloadError

NAME = "loop"


class LoopRig(DiskRig):
    operations_max = 4000
    deaths_ms_max = 400

    def __init__(self, settings: Settings, fs: str) -> None:
        need_programs("mount", "umount", "losetup", f"mkfs.{fs}")
        mounts.enter_namespace()
        super().__init__(NAME, settings, fs)
        self.target = self.folder / "mnt"
        self.target.mkdir(exist_ok=True)
        self.served = self.folder / "disk"  # the file that FUSE shows
        self.served.touch()
        mounts.check_loop(self.folder)

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
            count = cut_and_count(disk, cut, tally)
            run.bury()
            count()
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
        if listen(self.disk, self.reports, self.lines, self.oracle, lambda: False,
                  lambda: not check_only and die_ms == 0):
            return
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
