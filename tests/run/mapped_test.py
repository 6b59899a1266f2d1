#!/usr/bin/env python3
"""Files that are mapped by memlith_mmap: of any size, in little memory, and under kernels that cannot scan.

Usage: mapped_test.py MEMLITH MEMLITH_FILES_SIZE
"""
import json
import os
import pathlib
import subprocess
import sys
import unittest

from folder import Folder, HANG_S, WITHOUT_USERFAULTFD

PROGRAM = os.path.abspath(sys.argv.pop(1))
GIB = 1 << 30
GROUPS = pathlib.Path("/sys/fs/cgroup")


class Box:
    """A control group with so much memory; its tasks may have no swap."""

    def __init__(self, limit):
        v2 = (GROUPS / "cgroup.controllers").exists()
        self.folder = (GROUPS if v2 else GROUPS / "memory") / f"memlith-test-{os.getpid()}"
        self.folder.mkdir()
        try:
            (self.folder / ("memory.max" if v2 else "memory.limit_in_bytes")).write_text(str(limit), "ascii")
        except OSError:
            self.folder.rmdir()
            raise

    def enter(self):
        (self.folder / "cgroup.procs").write_text(str(os.getpid()), "ascii")

    def remove(self):
        self.folder.rmdir()


class Mapped(Folder):
    def sparse(self, size):
        with open(self.folder / "data", "wb") as file:
            file.truncate(size)

    def change(self, changes, each, prefix=(), **more):
        done = subprocess.run([*prefix, PROGRAM, "data", str(changes), str(each)], cwd=self.folder, timeout=HANG_S,
                              capture_output=True, text=True, check=False, **more)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        told = json.loads(done.stdout)
        self.assertEqual((told["changes"], told["wrong"]), (changes, 0))
        return told

    def test_a_file_takes_memory_and_space_for_what_is_changed(self):
        few = 256
        self.sparse(64 * GIB)
        told = self.change(few, 64)
        # Beside the pages there are tables of pages, of which each holds for 2 MiB of the file, and the log's buffers.
        self.assertLess(told["memory_opened_kib"], 8 << 10)
        self.assertLess(told["memory_most_kib"], 32 << 10)
        self.assertEqual(told["disk_opened_kib"], 0)
        self.assertLess(told["disk_kib"], 16 * few)

    def test_a_file_is_larger_than_the_memory_that_the_process_may_have(self):
        limit = 256 << 20
        try:
            box = Box(limit)
        except OSError as error:
            self.skipTest(f"no control group: {error}")
        self.addCleanup(box.remove)
        self.sparse(16 * GIB)
        # More than half of the memory, which is what copies of pages may take.
        told = self.change(40_000, 1000, preexec_fn=box.enter)
        self.assertLess(told["memory_most_kib"], limit >> 10)

    def test_stores_are_found_by_page_faults_where_the_kernel_cannot_scan(self):
        prefix = (sys.executable, "-c", WITHOUT_USERFAULTFD + "import os, sys\nos.execv(sys.argv[1], sys.argv[1:])")
        self.sparse(4 * GIB)
        told = self.change(512, 64, prefix)
        self.assertLess(told["memory_opened_kib"], 8 << 10)


if __name__ == "__main__":
    unittest.main()
