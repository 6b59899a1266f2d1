"""Mounts that end with the rig: it lives in a mount namespace of its own, and a killed run leaves nothing behind."""
from __future__ import annotations

import ctypes
import os
import pathlib
import subprocess
import time

from common import PATIENCE_S, RigError, Unable

CLONE_NEWNS = 0x00020000


_entered = False


def enter_namespace() -> None:
    """Raises Unable where there is no root, FUSE or loop device."""
    global _entered
    if _entered:
        return
    if os.geteuid() != 0:
        raise Unable("mounting takes root")
    for device in ("/dev/fuse", "/dev/loop-control"):
        try:
            os.close(os.open(device, os.O_RDWR))
        except OSError as error:
            raise Unable(f"{device}: {error.strerror}") from error
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(CLONE_NEWNS) != 0:
        raise Unable(f"no mount namespace: {os.strerror(ctypes.get_errno())}")
    if subprocess.run(["mount", "--make-rprivate", "/"], check=False).returncode != 0:
        raise Unable("the mounts cannot be made private")
    _entered = True


def check_loop(work: pathlib.Path) -> None:
    """Loop devices may be there and be forbidden."""
    image = work / "probe.img"
    image.write_bytes(bytes(1 << 20))
    try:
        made = subprocess.run(["losetup", "--find", "--show", str(image)], capture_output=True, text=True, check=False)
        if made.returncode != 0:
            raise Unable(f"no loop device: {made.stderr.strip()}")
        subprocess.run(["losetup", "--detach", made.stdout.strip()], check=True)
    finally:
        image.unlink()


def mount_command(fs: str, source: pathlib.Path, target: pathlib.Path) -> list[str]:
    return ["mount", "-t", fs, "-o", "loop", str(source), str(target)]


def give_up(fs: str, source: pathlib.Path) -> None:
    """Says that the disk will not come back: XFS, while it mounts, would try to write for ever."""
    if fs != "xfs":
        return
    for loop in pathlib.Path("/sys/fs/xfs").glob("loop*"):
        backing = pathlib.Path("/sys/block") / loop.name / "loop" / "backing_file"
        try:
            if backing.read_text(encoding="utf-8").rstrip("\n") in (str(source), "/"):
                for setting in loop.glob("error/metadata/*/max_retries"):
                    setting.write_text("0", encoding="utf-8")
        except OSError:
            continue  # it has gone meanwhile


def unmount(fs: str, target: pathlib.Path) -> None:
    """Also of a file system whose disk has gone, and of none. The loop device goes with the mount."""
    end = time.monotonic() + PATIENCE_S
    while True:
        # Asking first does not help: a file system that has shut down does not even say that it is mounted.
        done = subprocess.run(["umount", str(target)], capture_output=True, text=True, check=False,
                              env={**os.environ, "LC_ALL": "C"})
        if done.returncode != 0 and "not mounted" in done.stderr:
            break
        if done.returncode != 0 and time.monotonic() > end:
            raise RigError(f"umount: {done.stderr.strip()}")
        if done.returncode != 0:
            time.sleep(0.05)
    if fs == "btrfs":
        # The kernel remembers Btrfs devices by their identity, and the next mount is the same one, older.
        subprocess.run(["btrfs", "device", "scan", "--forget"], capture_output=True, check=False)
