#!/usr/bin/env python3
"""tools/memlith.supp, tried: with it valgrind has nothing to say of the first example, in a first run and a second one.

Usage: valgrind_test.py VALGRIND SUPPRESSIONS HELLO_C
"""
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

VALGRIND, SUPPRESSIONS, HELLO = sys.argv[1:4]


class Valgrind(unittest.TestCase):
    def test_hello(self):
        with tempfile.TemporaryDirectory(dir=os.environ.get("MEMLITH_TEST_DIR") or None, prefix="valgrind-") as folder:
            for run in "run 1", "run 2":
                done = subprocess.run([VALGRIND, "-q", "--error-exitcode=9", f"--suppressions={SUPPRESSIONS}", HELLO,
                                       pathlib.Path(folder) / "store"], capture_output=True, text=True, check=False)
                self.assertEqual(done.returncode, 0, done.stderr)
                self.assertIn(run, done.stdout)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
