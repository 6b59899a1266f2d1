#!/usr/bin/env python3
"""tools/memlith.supp, tried: with it valgrind has nothing to say of the first example, in a first run and a second one,
nor of a kv store, for whose addresses valgrind has room.

Usage: valgrind_test.py VALGRIND SUPPRESSIONS HELLO_C MEMLITH
"""
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

VALGRIND, SUPPRESSIONS, HELLO, MEMLITH = sys.argv[1:5]


class Valgrind(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory(dir=os.environ.get("MEMLITH_TEST_DIR") or None, prefix="valgrind-")
        self.addCleanup(temporary.cleanup)
        self.store = pathlib.Path(temporary.name) / "store"

    def run_in_valgrind(self, *command):
        done = subprocess.run([VALGRIND, "-q", "--error-exitcode=9", f"--suppressions={SUPPRESSIONS}", *command],
                              capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def test_hello(self):
        for run in "run 1", "run 2":
            self.assertIn(run, self.run_in_valgrind(HELLO, self.store))

    def test_kv(self):
        for value in "12", "13":
            self.run_in_valgrind(MEMLITH, "kv", "put", self.store, "stock", "marble", value)
            self.assertEqual(self.run_in_valgrind(MEMLITH, "kv", "get", self.store, "stock", "marble"), value + "\n")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
