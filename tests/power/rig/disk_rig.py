"""Shared by the two rigs with a lossy disk: the image under it, hearing disk and workload, and counting a cut."""
from __future__ import annotations

import os
import pathlib
from collections.abc import Callable

from common import (PATIENCE_S, SESSION_S, Cut, Deadline, Disk, Listener, RigError, Settings, Tally, copy_image,
                    make_image, wait_for)
from oracle import Lines


class DiskRig:
    """Begins each chain with a file system made anew; its image can be kept, and gone back to."""

    def __init__(self, name: str, settings: Settings, fs: str) -> None:
        self.settings = settings
        self.fs = fs
        self.folder = settings.work / f"{name}-{fs}"
        self.folder.mkdir(parents=True, exist_ok=True)
        self.image = self.folder / "disk.img"

    def begin_chain(self) -> None:
        make_image(self.fs, self.image)

    def keep(self, folder: pathlib.Path) -> bool:
        copy_image(self.image, folder / "disk.img")
        return True

    def restore(self, folder: pathlib.Path) -> None:
        copy_image(folder / "disk.img", self.image)

    def close(self) -> None:
        self.image.unlink(missing_ok=True)


def cut_and_count(disk: Disk, cut: Cut, tally: Tally) -> Callable[[], None]:
    """Takes the power from the disk; what is returned counts it, once everything else has gone well."""
    result = disk.cut(cut.seed)

    def count() -> None:
        tally.cuts += 1
        tally.kept += result["kept"]
        tally.dropped += result["dropped"]
        tally.flushes += result["flushes"]
        tally.forced += result["forced"]

    return count


def listen(disk: Disk, reports: int, lines: Lines, listener: Listener, done: Callable[[], bool],
           may_cut: Callable[[], bool]) -> bool:
    """Hears both until the power has gone, or done() holds, or the session has lasted long enough and may_cut() holds.
    False if the other side of the reports has ended by itself."""
    session = Deadline(SESSION_S)
    deadline = Deadline(PATIENCE_S)
    while not disk.frozen and not done():
        if session.left < 0 and may_cut():
            return True
        ready = wait_for([disk.fileno(), reports], min(deadline.left, 1.0))
        if not ready and deadline.left > 0:
            continue
        if not ready:
            raise RigError("neither an end nor a loss of power, and nothing was said for a long time")
        if disk.fileno() in ready:
            disk.heard()
        elif data := os.read(reports, 65536):
            deadline = Deadline(PATIENCE_S)
            for line in lines.add(data):
                listener.feed(line)
        else:
            return False
    return True
