#!/usr/bin/env python3
"""memlith-ycsb-bench with the least that it does: every side runs every workload, finds every record, and says how
durable it is. No test looks at a time; the bytes that a commit logs are a promise, and are tested.

Usage: bench_ycsb_test.py MEMLITH_YCSB_BENCH
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
          "samples", "distribution", "records", "value_bytes", "flush_delay_us", "memory_mib"]
WORKLOADS = ["write", "read", "insert", "scan", "modify", "a", "b", "c", "d", "e", "f"]


class Bench(unittest.TestCase):
    def setUp(self):
        self.temporary = tempfile.TemporaryDirectory(dir=os.environ.get("MEMLITH_TEST_DIR") or None,
                                                     prefix="bench-ycsb-test-")
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
            self.assertTrue(row["does"] and row["side_version"] and row["ops_per_s"] > 0, row)
        return rows

    def test_every_workload_of_every_side(self):
        rows = self.rows("--workloads", ",".join(WORKLOADS), "--records", "300", "--seconds", "0.01", "--rounds", "1",
                         "--durability", "both", "--distribution", "zipfian", "--threads", "1,2")
        sides = [(row["side"], row["durability"]) for row in rows if row["workload"] == "a" and row["threads"] == 1]
        self.assertEqual(sides[:2], [("memlith", "weak"), ("memlith-no-durability", "none")])
        self.assertIn(("memlith", "sync"), sides)
        self.assertEqual([(row["threads"], row["workload"], row["side"], row["durability"]) for row in rows],
                         [(threads, workload, *side) for threads in (1, 2) for workload in WORKLOADS
                          for side in sides])
        for row in rows:
            if row["side"] == "memlith-no-durability":
                self.assertEqual(row["logged_bytes_per_op"], 0, row)

    def test_what_an_update_logs(self):
        """Of a random update of 116 bytes: at most 1.3 times the bytes of key and value, and 48."""
        row = self.rows("--workloads", "write", "--records", "20000", "--seconds", "0.5", "--rounds", "1", "--sides",
                        "memlith", "--window-ms", "5")[0]
        self.assertGreater(row["logged_bytes_per_op"], 0)
        self.assertLessEqual(row["logged_bytes_per_op"], 1.3 * 116 + 48, row)

    def test_windows(self):
        """Of a later window only the side to which it matters is measured again."""
        rows = self.rows("--workloads", "write", "--records", "300", "--seconds", "0.01", "--rounds", "1",
                         "--window-ms", "1,100", "--sides", "memlith,memlith-no-durability", "--window-mib", "64")
        self.assertEqual([(row["side"], row.get("window_ms")) for row in rows],
                         [("memlith", 1), ("memlith-no-durability", None), ("memlith", 100)])

    def test_a_slower_disk_is_slower_for_all(self):
        """Every side that is durable waits for the flush that is slower. The limit is a lower one: load cannot break
        it."""
        rows = self.rows("--workloads", "write", "--records", "100", "--seconds", "0.05", "--rounds", "1",
                         "--durability", "sync", "--flush-delay-us", "20000")
        self.assertIn("memlith-wait", [row["side"] for row in rows])
        for row in rows:
            self.assertEqual(row["flush_delay_us"], 20000)
            self.assertGreaterEqual(row["p50_us"], 20000, row["side"])

    def test_small_caches(self):
        rows = self.rows("--workloads", "a", "--records", "3000", "--seconds", "0.02", "--rounds", "1",
                         "--durability", "both", "--memory-mib", "4")
        self.assertEqual({row["memory_mib"] for row in rows}, {4})

    def test_recovery(self):
        done = self.run_it("--records", "5000", "--recovery-log-mib", "1,3", "--json")
        self.assertEqual(done.returncode, 0, done.stderr)
        rows = [json.loads(line) for line in done.stdout.splitlines()]
        self.assertEqual([(row["workload"], row["log_mib"], row["records"]) for row in rows],
                         [("clean", 0, 5000), ("after-crash", 1, 5000), ("clean", 0, 5000), ("after-crash", 3, 5000)])
        self.assertEqual(list(self.folder.iterdir()), [])

    def test_text_and_mistakes(self):
        done = self.run_it("--records", "50", "--seconds", "0.01", "--workloads", "read", "--sides", "memlith")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("read: reads, uniform, 1 thread", done.stdout)
        for words, told in (["--sides", "nobody"], "there is no side nobody; there are: memlith"), \
                (["--workloads", "z"], "there is no workload z"), (["--durability", "half"], "durability"):
            done = self.run_it(*words)
            self.assertEqual(done.returncode, 1)
            self.assertIn(told, done.stderr)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
