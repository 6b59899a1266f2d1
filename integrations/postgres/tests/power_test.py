#!/usr/bin/env python3
"""PostgreSQL on memlith, whose disk loses and tears what was not flushed: every acknowledged transaction survives a
power cut, and no page is damaged.

The power goes after a random number of the disk's operations while clients change tables, now and then while the server
starts. Then the disk has what was flushed and a random part of the rest, torn at 512 bytes, and the server has to
start, have what was acknowledged, and pass the checks of all checksums, indexes, heaps and sums. Stock PostgreSQL with
full_page_writes=off is cut in the same way, and has to break, or the test would show nothing.
Exit code 77: this machine lacks PostgreSQL 15 or 17, root, FUSE or loop devices.
"""
import argparse
import pathlib
import sys
import time

from server import PATIENCE_S, Load, Server, Wrong, seeded_random, skip_without_postgres

OPERATIONS_MAX = 3000
OPERATIONS_OF_A_START = 120
CUTS_OF_STOCK_MAX = 30  # it breaks in the first few


class Cutter:
    def __init__(self, given, chance, plugin):
        self.chance, self.acknowledged, self.at_start, self.cuts = chance, 0, 0, 0
        name = "stock" if plugin is None else "memlith"
        self.folder = LossyFolder(given.bin, given.work / f"power-{name}")
        self.folder.make()
        self.server = Server(self.folder.target / "cluster", plugin, fpw="off" if plugin is None else "on")
        disk = self.folder.mount()
        try:
            self.server.make().start().fill()
            self.server.stop()
            self.folder.flush()
        finally:
            self.server.kill()
            self.folder.unmount(disk)
        self.load, self.counts, self.is_cut = None, {}, False

    def wait_until_frozen(self, disk, load):
        deadline = Deadline(PATIENCE_S)
        while not disk.frozen:
            if deadline.left < 0:
                raise RigError("the power never went")
            if wait_for([disk.fileno()], min(deadline.left, 0.5)):
                disk.heard()
            if not disk.frozen and not load.runs():
                raise Wrong(f"the load has ended by itself{self.server.said()}")

    def cut_while_starting(self, disk):
        disk.arm(self.chance.randint(1, OPERATIONS_OF_A_START))
        starting = self.server.begin_start()
        end = time.monotonic() + self.chance.random() * 2
        while not disk.frozen and time.monotonic() < end:
            if wait_for([disk.fileno()], 0.05):
                disk.heard()
        self.end(disk)
        starting.kill()
        starting.wait()
        self.at_start += 1

    def end(self, disk):
        """The power is off: nothing that the processes do reaches the disk any more."""
        self.server.signal_all()
        disk.cut(self.chance.getrandbits(63))
        self.is_cut = True
        self.server.kill_processes()

    def session(self, last=False):
        """Starts the server, compares, and changes tables until the power goes."""
        disk, self.is_cut = self.folder.mount(), False
        try:
            self.server.forget_process()
            if not last and self.chance.random() < 0.2:
                self.cut_while_starting(disk)
                return
            self.server.start()
            if self.load is not None:
                self.load.compare(self.counts)
            self.server.check()
            if last:
                self.server.stop()
                self.server.check_checksums()
                return
            self.load = Load(self.server)
            end = time.monotonic() + self.chance.random() * 1.5
            while time.monotonic() < end:
                if self.chance.random() < 0.5:
                    self.server.sql("checkpoint")
                if self.chance.random() < 0.1:
                    self.server.sql("truncate junk")
                time.sleep(self.chance.random() * 0.2)
            disk.arm(self.chance.randint(1, OPERATIONS_MAX))
            self.wait_until_frozen(disk, self.load)
            self.end(disk)
            self.counts = self.load.end()
            self.acknowledged += sum(self.counts.values())
        finally:
            if self.load is not None and self.load.runs():
                self.load.end()
            if self.is_cut:
                self.cuts += 1
                self.folder.unmount_after_cut(disk)
            else:
                self.server.kill()
                self.folder.unmount(disk)


def main():
    chance, began = seeded_random("the times and the cuts, not how processes run"), time.monotonic()
    try:
        cutter = Cutter(GIVEN, chance, GIVEN.plugin)
    except Unable as unable:
        print(f"skipped: {unable}")
        return 77
    try:
        for number in range(GIVEN.cuts + 1):
            cutter.session(last=number == GIVEN.cuts)
            if number % 20 == 19:
                print(f"{number + 1} power cuts, {cutter.acknowledged} acknowledged transactions", flush=True)
    except Wrong as wrong:
        print(f"FAILED after {cutter.cuts} cuts: {wrong}")
        return 1
    if cutter.acknowledged < 20 * GIVEN.cuts:
        print(f"FAILED: only {cutter.acknowledged} transactions in {GIVEN.cuts} cuts; this tests nothing")
        return 1
    print(f"{GIVEN.cuts} power cuts, {cutter.at_start} of them while the server started, {cutter.acknowledged} "
          f"acknowledged transactions, all there; {time.monotonic() - began:.0f} s", flush=True)
    cutter.folder.remove()

    stock = Cutter(GIVEN, chance, None)
    for number in range(CUTS_OF_STOCK_MAX):
        try:
            stock.session()
        except Wrong as wrong:
            what = " ".join(str(wrong).split())
            print(f"stock PostgreSQL with full_page_writes=off: broken after {number} cuts: {what[:200]}")
            stock.folder.remove()
            return 0
    print(f"FAILED: {CUTS_OF_STOCK_MAX} cuts of stock PostgreSQL with full_page_writes=off broke nothing: the test "
          "shows nothing")
    return 1


if __name__ == "__main__":
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--plugin", required=True, type=pathlib.Path)
    options.add_argument("--bin", required=True, type=pathlib.Path, help="where the lossy disk is")
    options.add_argument("--rig", required=True, help="tests/power/rig")
    options.add_argument("--work", required=True, type=pathlib.Path)
    options.add_argument("--cuts", type=int, default=5)
    GIVEN = options.parse_args()
    GIVEN.bin = GIVEN.bin.resolve()
    skip_without_postgres(GIVEN.plugin)
    sys.path.insert(0, GIVEN.rig)
    from common import Deadline, RigError, Unable, wait_for
    from lossy_folder import LossyFolder
    sys.exit(main())
