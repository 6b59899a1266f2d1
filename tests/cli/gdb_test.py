#!/usr/bin/env python3
"""tools/memlith.gdb, tried: gdb does not stop at the stores that memlith catches, and does stop at a wild one.
tools/memlith_gdb.py, tried: gdb prints what lies in memlith's containers.

Usage: gdb_test.py GDB SNIPPET PROGRAM PRINTERS CONTAINERS
"""
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

GDB, SNIPPET, PROGRAM, PRINTERS, CONTAINERS = sys.argv[1:6]


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

    def test_containers(self):
        with tempfile.TemporaryDirectory(dir=os.environ.get("MEMLITH_TEST_DIR") or None, prefix="gdb-") as folder:
            asked = ["words", "longest", "number", "failed", "done", "tree", "numbers", "table"]
            asks = ["set print elements 700", "break stop_here", "run", *(f"print {name}" for name in asked)]
            command = [GDB, "-nx", "-batch", "-x", SNIPPET, "-x", PRINTERS,
                       *(word for ask in asks for word in ("-ex", ask)),
                       "--args", CONTAINERS, str(pathlib.Path(folder) / "words.heap")]
            done = subprocess.run(command, capture_output=True, text=True, check=False,
                                  env=dict(os.environ, DEBUGINFOD_URLS=""))
        if "ptrace: Operation not permitted" in done.stderr or "Could not trace the inferior" in done.stderr:
            self.skipTest("this sandbox has no ptrace")
        shown = dict(line.split(" = ", 1) for line in done.stdout.splitlines() if line.startswith("$"))
        text = done.stdout + done.stderr
        self.assertTrue(shown["$1"].startswith("std::map with 2 elements"), text)
        self.assertIn('["granite"] = std::vector of length 2, capacity 2 = {1, 2}', shown["$1"], text)
        self.assertIn('["marble, which is too long to lie in the string itself"] = std::vector', shown["$1"], text)
        self.assertEqual(shown["$2"], '"marble, which is too long to lie in the string itself"', text)
        self.assertEqual(shown["$3"], "memlith::Result, ok = {value = 42}", text)
        self.assertIn("no such thing", shown["$4"], text)
        self.assertEqual(shown["$5"], "memlith::Result, ok", text)
        self.assertEqual(shown["$6"], 'memlith::btree_map with 2 elements = {["granite"] = 1, ["marble"] = 2}', text)
        self.assertTrue(shown["$7"].startswith("memlith::btree_set with 3000 elements = {1, 2, 3, 4, 5, "), text)
        self.assertTrue(shown["$8"].startswith("memlith::flat_hash_map with 300 elements = {["), text)
        pairs = re.findall(r'\[(\d+)\] = "(\d+)"', shown["$8"])
        self.assertEqual(len(set(pairs)), 300, text)
        self.assertTrue(all(key == value for key, value in pairs), text)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
