"""A folder on ext4, on a disk that loses at a cut what was not flushed: for programs that know nothing of the rigs."""
from __future__ import annotations

import pathlib
import subprocess

import mounts
from common import Disk, Settings, make_image, need_programs


class LossyFolder:
    """Raises Unable where this machine lacks root, FUSE or loop devices."""

    def __init__(self, programs: pathlib.Path, work: pathlib.Path) -> None:
        self.settings = Settings(programs, work)
        self.work = work
        self.work.mkdir(parents=True, exist_ok=True)
        need_programs("mount", "umount", "losetup", "mkfs.ext4")
        mounts.enter_namespace()
        self.target = self.work / "mnt"
        self.target.mkdir(exist_ok=True)
        self.served = self.work / "disk"
        self.served.touch()
        mounts.check_loop(self.work)
        self.image = self.work / "disk.img"

    def make(self) -> None:
        """An empty file system."""
        make_image("ext4", self.image)

    def mount(self) -> Disk:
        disk = Disk(self.settings, "loop", "ext4", self.image, ["--fuse", str(self.served)])
        subprocess.run(mounts.mount_command("ext4", self.served, self.target), check=True)
        return disk

    def flush(self) -> None:
        subprocess.run(["sync", "-f", str(self.target)], check=True)

    def unmount_after_cut(self, disk: Disk) -> None:
        disk.kill()
        mounts.unmount("ext4", self.target)

    def unmount(self, disk: Disk) -> None:
        """Everything that was written is on the disk then."""
        mounts.unmount("ext4", self.target)
        disk.finish()
        disk.kill()

    def remove(self) -> None:
        self.image.unlink(missing_ok=True)
