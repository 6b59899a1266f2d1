#!/usr/bin/env python3
"""tools/memlith.gdb, tried: gdb does not stop at the stores that memlith catches, and does stop at a wild one.

Usage: gdb_test.py GDB SNIPPET PROGRAM
"""
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

GDB, SNIPPET, PROGRAM = sys.argv[1:4]


class Gdb(unittest.TestCase):
    def run_under_gdb(self, *words, snippet=True):
        with tempfile.TemporaryDirectory(dir=os.environ.get("MEMLITH_TEST_DIR") or None, prefix="gdb-") as folder:
            command = [GDB, "-nx", "-batch", *(["-x", SNIPPET] if snippet else []), "-ex", "run", "-ex", "backtrace",
                       "--args", PROGRAM, str(pathlib.Path(folder) / "store"), *words]
            env = dict(os.environ, DEBUGINFOD_URLS="")
            done = subprocess.run(command, capture_output=True, text=True, check=False, env=env)
        text = done.stdout + done.stderr
        if "ptrace: Operation not permitted" in text or "Could not trace the inferior" in text:
            self.skipTest("this sandbox has no ptrace")
        return text

    def test_stores_to_regions(self):
        self.assertIn("SIGSEGV", self.run_under_gdb(snippet=False))
        text = self.run_under_gdb()
        self.assertIn("persisted", text)
        self.assertIn("exited normally", text)
        self.assertNotIn("SIGSEGV,", text)

    def test_a_wild_store(self):
        text = self.run_under_gdb("wild")
        self.assertIn("persisted", text)
        self.assertIn("signal handler called", text)
        self.assertIn("store_wildly", text)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
