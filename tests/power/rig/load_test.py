#!/usr/bin/env python3
"""`memlith load` on a disk whose power is cut after each number of its operations: the new store is there as a whole,
or is not there. A load that does not flush has to leave something else, or the test would show nothing.

Usage: load_test.py MEMLITH PROGRAMS WORK
"""
import os
import pathlib
import random
import shutil
import subprocess
import sys
import unittest
import zlib

from common import Unable, wait_for
from lossy_folder import LossyFolder

MEMLITH, PROGRAMS, WORK = sys.argv[1], pathlib.Path(sys.argv[2]), pathlib.Path(sys.argv[3])
OPERATIONS_MAX = 2000
WITHOUT_FLUSHES = {"LD_PRELOAD": str(PROGRAMS / "power-no-flush.so")}


def dump_of(kind, objects, *lines):
    text = "".join(f"{line}\n" for line in (f"memlith-dump 1 {kind}", *lines)).encode()
    return text + f"end of dump objects={objects} lines={len(lines) + 1} crc32={zlib.crc32(text):08x}\n".encode()


DUMPS = {
    "folder": dump_of("folder", 3, "kv max_size=1099511627776 name=kv", "map m", " key", " " + "v" * 5000, "end",
                      "log first=3 max_size=8192 size=8192 name=log", " 3 entry", "end",
                      "region address=0x200000000000 max_size=1073741824 size=8192 name=region", "at 0",
                      " " + "/w" + "A" * 62, "end"),
    "file": dump_of("file", 1, "region size=100000 name=file", "at 96000", " " + "/w" + "A" * 62, "end"),
}


class PowerCuts(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        shutil.rmtree(WORK, ignore_errors=True)
        cls.folder = LossyFolder(PROGRAMS, WORK)
        cls.rng = random.Random(int(os.environ.get("MEMLITH_SEED", "7")))

    @classmethod
    def tearDownClass(cls):
        cls.folder.remove()

    def one_cut(self, given, operations, environment):
        """"nothing", "all" or "half" of the store after a power cut; and if the load had ended before it."""
        self.folder.make()
        disk = self.folder.mount()
        store = self.folder.target / "store"
        disk.arm(operations)
        load = subprocess.Popen([MEMLITH, "load", store, "--in", given], stdout=subprocess.DEVNULL,
                                stderr=subprocess.DEVNULL, env={**os.environ, **environment})
        try:
            while not disk.frozen and load.poll() is None:
                if wait_for([disk.fileno()], 0.005):
                    disk.heard()
            has_ended = load.poll() is not None
            load.kill()
            disk.cut(self.rng.getrandbits(63))
        finally:
            load.kill()
            load.wait()
            self.folder.unmount_after_cut(disk)
        disk = self.folder.mount()
        try:
            shown = subprocess.run([MEMLITH, "dump", store], capture_output=True, check=False)
            if shown.returncode == 0:
                found = "all" if shown.stdout == given.read_bytes() else "half"
            else:
                found = "half" if store.exists() else "nothing"
        finally:
            self.folder.unmount(disk)
        return found, has_ended

    def cuts(self, kind):
        """The store after each cut; the last one came when the load had ended."""
        given = WORK / "given"
        given.write_bytes(DUMPS[kind])
        found = []
        for operations in range(1, OPERATIONS_MAX):
            one, has_ended = self.one_cut(given, operations, {})
            found.append(one)
            if has_ended:
                return found
        raise AssertionError("the load never ended")

    def test_a_folder(self):
        found = self.cuts("folder")
        self.assertEqual(found[-1], "all", found)
        self.assertNotIn("half", found)
        self.assertIn("nothing", found)
        print(f"folder: {len(found)} cuts", flush=True)

    def test_a_file(self):
        found = self.cuts("file")
        self.assertEqual(found[-1], "all", found)
        self.assertNotIn("half", found)
        self.assertIn("nothing", found)
        print(f"file: {len(found)} cuts", flush=True)

    def test_flushes_that_never_reach_the_disk_are_found(self):
        given = WORK / "given"
        given.write_bytes(DUMPS["folder"])
        for _ in range(5):
            if self.one_cut(given, OPERATIONS_MAX, WITHOUT_FLUSHES) != ("all", True):
                return
        self.fail("a load without flushes lost nothing")


if __name__ == "__main__":
    try:
        LossyFolder(PROGRAMS, WORK)
    except Unable as reason:
        print(f"skipped: {reason}")
        sys.exit(77)
    unittest.main(argv=sys.argv[:1])
