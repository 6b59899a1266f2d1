#!/usr/bin/env python3
"""memlith-applog-bench with the least that it does: every suite has its lines. No test looks at a time.

Usage: bench_applog_test.py MEMLITH_APPLOG_BENCH
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
          "samples", "entry_bytes"]
SMALL = ["--seconds", "0.01", "--rounds", "1", "--bytes", "100,5000", "--threads", "1,2", "--log-mib", "1"]


class Bench(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory(dir=os.environ.get("MEMLITH_TEST_DIR") or None,
                                                prefix="bench-applog-test-")
        self.addCleanup(temporary.cleanup)
        self.folder = pathlib.Path(temporary.name)

    def run_it(self, *arguments):
        return subprocess.run([PROGRAM, *arguments, "--dir", str(self.folder)], capture_output=True, text=True,
                              check=False)

    def test_every_suite(self):
        done = self.run_it(*SMALL, "--json")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertEqual(list(self.folder.iterdir()), [])
        rows = [json.loads(line) for line in done.stdout.splitlines()]
        self.assertEqual([(row["side"], row["workload"], row["durability"], row["threads"]) for row in rows],
                         [(side, workload, "sync", threads)
                          for workload, threads in (("append-100", 1), ("append-5000", 1), ("writers", 1),
                                                    ("writers", 2))
                          for side in ("memlith", "raw-captured")]
                         + [("memlith", "consumed-1MiB", durability, 1) for durability in ("sync", "weak")])
        for row in rows:
            self.assertEqual(list(row)[:len(FIELDS)], FIELDS)
            values = [row[name] for name in ("p50_us", "p99_us", "p999_us", "max_us")]
            self.assertEqual(values, sorted(values), row)
            self.assertGreater(row["samples"], 0)

    def test_text_and_mistakes(self):
        done = self.run_it("--suites", "append", *SMALL)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("append-5000", done.stdout)
        done = self.run_it("--suites", "nothing")
        self.assertEqual(done.returncode, 1)
        self.assertIn("nothing", done.stderr)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
