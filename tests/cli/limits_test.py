#!/usr/bin/env python3
"""docs/guarantees.md, "Addresses": a kv store opens, and takes records, in a process that may have few addresses, as
under `ulimit -v`; and it says so where a record needs more.

Usage: limits_test.py MEMLITH
"""
import os
import pathlib
import resource
import subprocess
import sys
import tempfile
import unittest

MEMLITH = sys.argv[1]
GIB = 1 << 30


class Limits(unittest.TestCase):
    def setUp(self):
        self.temporary = tempfile.TemporaryDirectory(dir=os.environ.get("MEMLITH_TEST_DIR") or None, prefix="limits-")
        self.addCleanup(self.temporary.cleanup)
        self.store = pathlib.Path(self.temporary.name) / "store"

    def kv(self, addresses, command, *words, status=0, given=None):
        done = subprocess.run([MEMLITH, "kv", command, self.store, *words], capture_output=True, text=True,
                              input=given, check=False,
                              preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (addresses, addresses)))
        self.assertEqual(done.returncode, status, done.stdout + done.stderr)
        return done.stdout if status == 0 else done.stderr

    def test_a_store_opens_under_each_limit(self):
        for number, addresses in enumerate((GIB // 2, GIB, 2 * GIB, 4 * GIB)):
            self.kv(addresses, "put", "first", f"key{number}", "v" * 20000)
            for other in (GIB // 2, 4 * GIB):
                self.assertEqual(self.kv(other, "get", "first", f"key{number}"), "v" * 20000 + "\n")
        self.assertIn("4 records in 1 map", self.kv(GIB, "stats"))

    def test_what_needs_more_addresses_is_told(self):
        line = "v" * (16 << 20)
        told = self.kv(GIB // 2, "put", "first", "--in", "-", status=1,
                       given="".join(f"key{number}\t{line}\n" for number in range(9)))
        self.assertIn("ulimit -v", told)
        self.kv(2 * GIB, "put", "first", "--in", "-", given="".join(f"key{number}\t{line}\n" for number in range(9)))
        self.assertIn("9 records", self.kv(2 * GIB, "stats"))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
