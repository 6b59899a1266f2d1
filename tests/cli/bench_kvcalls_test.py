#!/usr/bin/env python3
"""memlith-kvcalls-bench with the least that it does: every side makes every call, finds what it must find, and says
what it does for that. No test looks at a time; the bytes that appending logs are counted, and are tested.

Usage: bench_kvcalls_test.py MEMLITH_KVCALLS_BENCH
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

PROGRAM = sys.argv[1]
FIELDS = ["suite", "side", "workload", "durability", "threads", "ops_per_s", "p50_us", "p99_us", "p999_us", "max_us",
          "samples", "repetitions", "records", "value_bytes", "ratio", "ratio_of", "base"]
SMALL = ["--records", "3000", "--seconds", "0.01", "--repetitions", "2"]


class Bench(unittest.TestCase):
    def setUp(self):
        self.temporary = tempfile.TemporaryDirectory(dir=os.environ.get("MEMLITH_TEST_DIR") or None,
                                                     prefix="bench-kvcalls-test-")
        self.addCleanup(self.temporary.cleanup)
        self.folder = pathlib.Path(self.temporary.name)

    def run_it(self, *arguments):
        return subprocess.run([PROGRAM, *arguments, "--dir", str(self.folder)], capture_output=True, text=True,
                              check=False)

    def rows(self, *arguments):
        done = self.run_it(*arguments, "--json")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertEqual(list(self.folder.iterdir()), [])
        rows = [json.loads(line) for line in done.stdout.splitlines()]
        for row in rows:
            self.assertEqual(list(row)[:len(FIELDS)], FIELDS)
            values = [row[name] for name in ("p50_us", "p99_us", "p999_us", "max_us")]
            self.assertEqual(values, sorted(values), row)
            self.assertTrue(row["does"] and row["side_version"] and row["samples"] > 0, row)
            self.assertGreater(row["ops_per_s"], 0, row)
            if row["side"] == row["base"] and row["workload"] != "remove-map":
                self.assertEqual(row["ratio"], 1, row)
        return rows

    def test_every_call_of_every_side(self):
        rows = self.rows(*SMALL)
        seen = [(row["workload"], row["side"]) for row in rows]
        lmdb = ("append", "lmdb") in seen
        three = ["memlith", "memlith-without"] + ["lmdb"] * lmdb
        self.assertEqual(seen, [(workload, side) for side in ["memlith"] + ["lmdb"] * lmdb
                                for workload in ("no-removal", "remove-map")]
                         + [("fairness", side) for side in ("memlith", "memlith-wait") * 2]
                         + [(workload, side) for workload in ("append", "put-if", "remove-range") for side in three])
        for row in rows:
            self.assertEqual("removal_ms" in row, row["workload"] == "remove-map", row)
            if row["workload"] == "fairness":
                self.assertLessEqual(row["successes"], row["attempts"])
                self.assertGreaterEqual(row["attempts"], row["repetitions"])

    def test_what_filling_logs(self):
        """Appending logs each record once and little more; the puts that it replaces log more."""
        rows = self.rows("--calls", "append", "--records", "20000", "--repetitions", "1", "--sides",
                         "memlith,memlith-without")
        logged = {row["side"]: row["logged_bytes_per_op"] for row in rows}
        self.assertGreaterEqual(logged["memlith"], 108)
        self.assertLessEqual(logged["memlith"], 1.25 * 108, logged)
        self.assertGreater(logged["memlith-without"], logged["memlith"])

    def test_text_and_mistakes(self):
        done = self.run_it("--calls", "put-if", *SMALL, "--sides", "memlith")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("comparing and swapping one of 3000 records", done.stdout)
        for words, told in (["--sides", "nobody"], "nobody"), (["--calls", "z"], "z"), (["--records", "9"], "9"):
            done = self.run_it(*words)
            self.assertEqual(done.returncode, 1)
            self.assertIn(told, done.stderr)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
