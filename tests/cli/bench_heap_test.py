#!/usr/bin/env python3
"""memlith-heap-bench with the least that it does: every side is measured as often as the others, says how durable it
is, and holds what it should (the program compares that itself). No test looks at a time; the counts of metadata and
space are promises, and are tested.

Usage: bench_heap_test.py MEMLITH_HEAP_BENCH FOLDER_OF_BENCH
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

PROGRAM, SCRIPTS = sys.argv[1], pathlib.Path(sys.argv[2])
SANITIZED = "asan" in PROGRAM or "tsan" in PROGRAM
INSTRUMENTED = pathlib.Path(PROGRAM).parents[1] / "lib/libmemlith-heap-map-instrumented.so"  # where memlith-c++ is
OURS = (["memlith-instrumented"] if INSTRUMENTED.exists() else []) + ["memlith-fault", "memlith-scan"]
WINDOWS = ["memlith-fault-window", "memlith-scan-window"]
FIELDS = ["suite", "side", "workload", "durability", "threads", "ops_per_s", "p50_us", "p99_us", "p999_us"]


class Bench(unittest.TestCase):
    def setUp(self):
        self.temporary = tempfile.TemporaryDirectory(dir=os.environ.get("MEMLITH_TEST_DIR") or None,
                                                     prefix="bench-heap-test-")
        self.addCleanup(self.temporary.cleanup)
        self.folder = pathlib.Path(self.temporary.name)

    def rows(self, *arguments):
        done = subprocess.run([PROGRAM, *arguments, "--json", "--dir", str(self.folder)], capture_output=True,
                              text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertEqual(list(self.folder.iterdir()), [])
        rows = [json.loads(line) for line in done.stdout.splitlines()]
        for row in rows:
            self.assertEqual(list(row)[:len(FIELDS)], FIELDS)
            values = [row[name] for name in ("p50_us", "p99_us", "p999_us")]
            self.assertEqual(values, sorted(values), row)
            self.assertTrue(row["does"] and row["side_version"] and row["ops_per_s"] > 0, row)
        return rows

    def check_map(self, rows, suite, samples):
        workloads = ["insert", "replace", "delete"]
        self.assertEqual({row["samples"] for row in rows}, {samples})
        self.assertEqual({row["suite"] for row in rows}, {suite})
        for durability, ours in ("sync", OURS), ("none", OURS + WINDOWS):
            part = [row for row in rows if row["durability"] == durability]
            sides = [row["side"] for row in part if row["workload"] == "insert"]
            self.assertEqual(sides[:len(ours)], ours)
            self.assertEqual([(row["workload"], row["side"]) for row in part],
                             [(workload, side) for workload in workloads for side in sides])

    def test_table2(self):
        self.check_map(self.rows("table2", "--keys", "25", "--repetitions", "2"), "table2", 50)

    def test_table2_large(self):
        self.check_map(self.rows("table2-large", "--keys", "150", "--operations", "15"), "table2-large", 15)

    def test_allocate(self):
        rows = self.rows("allocate", "--rounds", "100", "--trace-mib", "32")
        self.assertEqual([row["side"] for row in rows[:2]], ["memlith", "malloc"])
        ours = [row for row in rows if row["side"] == "memlith"]
        self.assertEqual(len(ours), 2)
        for row in ours:
            # A bit each, and now and then a slab that is made or given back.
            self.assertLessEqual(row["metadata_bytes_per_op"], 32, row)
            self.assertGreater(row["metadata_bytes_per_op"], 0, row)
            self.assertLessEqual(row["space_ratio"], 1.3, row)
            self.assertGreater(row["space_ratio"], 1, row)

    def test_threads(self):
        rows = self.rows("threads", "--threads", "1,2", "--seconds", "0.05", "--keys", "30")
        for workload in "replace", "allocate":
            self.assertEqual(sorted({row["threads"] for row in rows if row["workload"] == workload}), [1, 2])

    def test_open(self):
        rows = self.rows("open", "--heap-mib", "16", "--blocks", "5000", "--repetitions", "2")
        self.assertEqual([(row["workload"], row["blocks"]) for row in rows],
                         [("after a clean close", 5000), ("after a crash", 5100)])
        for row in rows:
            self.assertEqual(row["samples"], 2)
            self.assertTrue(row["store_open_ms"] > 0 and row["first_allocate_us"] > 0, row)

    def test_sides_are_chosen(self):
        rows = self.rows("table2", "--sides", "memlith-scan", "--durability", "sync", "--keys", "5", "--repetitions",
                         "1")
        self.assertEqual([row["side"] for row in rows], ["memlith-scan"] * 3)
        self.assertEqual([row["over_leveldb"] for row in rows], [None] * 3)
        done = subprocess.run([PROGRAM, "table2", "--sides", "none", "--dir", str(self.folder)], capture_output=True,
                              text=True, check=False)
        self.assertEqual(done.returncode, 1)
        self.assertIn("there is no side none; there are: " + ", ".join(OURS), done.stderr)

    @unittest.skipIf(SANITIZED, "the program ran above, and a sanitizer makes this slow")
    def test_the_report_has_every_table(self):
        out = self.folder / "heap.md"
        done = subprocess.run([sys.executable, "-B", SCRIPTS / "heap/report.py", "--bench", PROGRAM, "--dir",
                               self.folder, "--out", out, "--quick"], capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        text = out.read_text(encoding="utf-8")
        self.assertNotIn("FAILED", text)
        for title in ("**Insert, each durable**", "**Delete, without any sync**",
                      "**Replace, each durable, 2 threads**", "**Allocate, 2 threads**", "**Small, 16 to 256 bytes**",
                      "**After a crash**", "## The sides"):
            self.assertIn(title, text)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
