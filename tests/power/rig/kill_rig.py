"""kill -9 and nothing else: in a folder of the machine's own file system ("host"), or on one on a loop device.

The page cache and the disk survive, so this is about the program and the kernel. Hundreds of milliseconds a kill.
"""
from __future__ import annotations

import os
import pathlib
import random
import shutil
import subprocess

import mounts
from common import PATIENCE_S, Cut, Deadline, RigError, Settings, Tally, feed_rest, make_image, need_programs, wait_for
from oracle import Lines, Oracle, WorkloadError

NAME = "kill"


class KillRig:
    operations_max = 1  # no disk of ours here, and one death a session
    deaths_ms_max = 2

    def __init__(self, settings: Settings, fs: str) -> None:
        self.settings = settings
        self.fs = fs
        folder = settings.work / f"{NAME}-{fs}"
        self.target = folder / "mnt"
        self.target.mkdir(parents=True, exist_ok=True)
        self.image = folder / "disk.img"
        if fs != "host":
            need_programs("mount", "umount", "losetup", f"mkfs.{fs}")
            mounts.enter_namespace()
            mounts.check_loop(folder)

    def keep(self, folder: pathlib.Path) -> bool:
        shutil.copytree(self.target, folder / "files", dirs_exist_ok=True)
        return False  # the files are as they were found, but what the kernel held of them is gone

    def restore(self, folder: pathlib.Path) -> None:
        raise RigError(f"{folder}: a kill cannot be gone through again")

    def close(self) -> None:
        self._unmount()
        self.image.unlink(missing_ok=True)
        shutil.rmtree(self.target)

    def begin_chain(self) -> None:
        self._unmount()
        if self.fs == "host":
            shutil.rmtree(self.target)
            self.target.mkdir()
            return
        make_image(self.fs, self.image)
        if subprocess.run(mounts.mount_command(self.fs, self.image, self.target), check=False).returncode != 0:
            raise RigError(f"{self.image} cannot be mounted")

    def session(self, cut: Cut, oracle: Oracle, tally: Tally, check_only: bool) -> None:
        reports, far_end = os.pipe()
        arguments = [str(self.settings.workload), str(self.target), "--seed", str(cut.content),
                     "--life", str(cut.life), "--report-fd", str(far_end)]
        if check_only:
            arguments.append("--check")
        oracle.begin_life()
        process = subprocess.Popen(arguments, pass_fds=(far_end,))
        os.close(far_end)
        lines = Lines()
        delay = random.Random(cut.seed).choice([0.05, 0.3, 1.0]) * random.Random(cut.seed + 1).random()
        killed_at = Deadline(PATIENCE_S if check_only else delay)
        try:
            while killed_at.left > 0:
                if not wait_for([reports], killed_at.left):
                    continue
                data = os.read(reports, 65536)
                for line in lines.add(data):
                    oracle.feed(line)
                if not data:
                    break
            if process.poll() is None and not check_only:
                process.kill()
                process.wait(PATIENCE_S)
                feed_rest(reports, lines, oracle)
                tally.cuts += 1
                return
            if process.wait(PATIENCE_S) != 0 or not oracle.done:
                raise WorkloadError(f"the workload ended with status {process.returncode}")
        finally:
            process.kill()
            process.wait()
            os.close(reports)

    def _unmount(self) -> None:
        if self.fs != "host":
            mounts.unmount(self.fs, self.target)
