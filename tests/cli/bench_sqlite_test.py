#!/usr/bin/env python3
"""memlith-sqlite-bench with the least that it does: every system is measured as often as the others, and where all ran
the same statements, all hold the same. No test looks at a time.

Usage: bench_sqlite_test.py MEMLITH_SQLITE_BENCH
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

PROGRAM = sys.argv[1]
SYSTEMS = ["memlith", "memlith-weak", "wal-full", "wal-normal", "wal-off", "delete-full"]
PERCENTILES = ["p50_us", "p99_us", "p999_us", "max_us"]


class Bench(unittest.TestCase):
    def setUp(self):
        self.temporary = tempfile.TemporaryDirectory(dir=os.environ.get("MEMLITH_TEST_DIR") or None,
                                                     prefix="bench-sqlite-test-")
        self.addCleanup(self.temporary.cleanup)
        self.folder = pathlib.Path(self.temporary.name)

    def rows(self, *arguments):
        done = subprocess.run([PROGRAM, *arguments, "--json", "--repetitions", "2", "--dir", str(self.folder)],
                              capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertEqual(list(self.folder.iterdir()), [])
        return [json.loads(line) for line in done.stdout.splitlines()]

    def check(self, rows, count, same_content=True):
        self.assertEqual([row["system"] for row in rows], [*SYSTEMS, "raw"])
        for row in rows:
            self.assertEqual(row["repetitions"], 2)
            # The slowest of a few is no percentile.
            self.assertEqual([row[name] is None for name in ("p99_us", "p999_us")],
                             [row["samples_per_turn"] < few for few in (100, 1000)])
            if row["p999_us"] is None:
                self.assertIsNone(row["p999_over_wal_full"])
            values = [row[name] for name in PERCENTILES if row[name] is not None]
            self.assertGreater(values[0], 0, row)
            self.assertEqual(values, sorted(values), row)
            self.assertTrue(row["durability"])
            self.assertEqual(row["durable_at_return"], row["system"] in ("memlith", "wal-full", "raw"))
        databases = rows[:-1]
        for row in databases:
            self.assertTrue(row["verified"])
            self.assertEqual(row["same_content"], same_content)
            if count is not None:
                self.assertEqual(row["rows"], count)
            self.assertEqual(row["memlith_stats"] is not None, row["memlith"])
        if same_content:
            self.assertEqual(len({row["checksum"] for row in databases}), 1)
            self.assertEqual(len({row["commits"] for row in databases}), 1)
        return databases

    def test_update(self):
        few = self.check(self.rows("update", "--rows", "50", "--commits", "10", "--indexes", "1"), 50)
        more = self.check(self.rows("update", "--rows", "50", "--commits", "11", "--indexes", "1"), 50)
        self.assertEqual({row["samples_per_turn"] for row in few}, {10})
        # The checksum is one of what was written.
        self.assertNotEqual(few[0]["checksum"], more[0]["checksum"])

    def test_percentiles_take_samples(self):
        for commits, has_p99, has_p999 in (99, False, False), (100, True, False), (1000, True, True):
            for row in self.rows("update", "--rows", "50", "--commits", str(commits), "--systems",
                                 "wal-off,wal-normal"):
                self.assertEqual(row["samples_per_turn"], commits)
                self.assertEqual((row["p99_us"] is not None, row["p999_us"] is not None), (has_p99, has_p999), row)

    def test_dbbench(self):
        rows = self.rows("dbbench", "--keys", "300", "--writes", "64", "--transaction-kib", "4", "--pattern",
                         "random,sequential")
        self.assertEqual(len(rows), 14)
        for part, pattern in (rows[:7], "random"), (rows[7:], "sequential"):
            self.check(part, 300)
            self.assertEqual({row["pattern"] for row in part}, {pattern})

    def test_tatp(self):
        self.check(self.rows("tatp", "--subscribers", "100", "--transactions", "200"), None)
        self.check(self.rows("tatp", "--subscribers", "100", "--seconds", "0.2"), None, same_content=False)

    def test_calls(self):
        rows = self.rows("dbbench", "--keys", "300", "--writes", "256", "--transaction-kib", "4", "--pattern",
                         "random", "--calls")
        databases = self.check(rows, 300)
        calls = {row["system"]: row["calls"] for row in databases}
        # A commit is one sync on memlith and in a WAL, none with synchronous=OFF; a rollback journal takes more, and is
        # removed.
        self.assertEqual(calls["memlith"]["durable"]["per_operation"], 1)
        self.assertEqual(calls["wal-full"]["durable"]["per_operation"], 1)
        self.assertEqual(calls["wal-off"]["durable"]["per_operation"], 0)
        self.assertGreaterEqual(calls["delete-full"]["durable"]["per_operation"], 2)
        self.assertGreaterEqual(calls["delete-full"]["name"]["per_operation"], 2)
        for system, each in calls.items():
            self.assertGreaterEqual(each["write"]["per_operation"], 1, system)
            parts = sum(each[kind]["us_per_operation"] for kind in ("read", "write", "durable", "name", "lock"))
            self.assertLessEqual(parts, each["us_per_operation"], system)
        self.assertNotIn("calls", rows[-1])

    def test_writers(self):
        rows = self.rows("writers", "--rows", "64", "--seconds", "0.05", "--threads", "1,3", "--readers", "1",
                         "--workload", "4-kib", "--flush-delay-us", "100")
        self.assertEqual([row["side"] for row in rows[:4]], ["wal-full", "wal-normal", "memlith/wal",
                                                             "memlith-weak/wal"])
        self.assertEqual(len(rows), 2 * 2 * 4)  # repetitions, numbers of threads, systems
        for row in rows:
            self.assertTrue(row["verified"])
            self.assertEqual(row["flush_delay_us"], 100)
            self.assertLessEqual(row["fairness"], 1)
            if row["side"] == "wal-full":
                self.assertIn(row["throughput_over_wal_full"], (1, None))  # none where it made no commit
            if row["threads"] == 1:
                self.assertEqual(row["fairness"], 1)
                self.assertGreater(row["ops_per_s"], 0)

    def test_processes(self):
        rows = self.rows("processes", "--rows", "64", "--seconds", "0.1", "--processes", "1,2", "--think-us", "100",
                         "--workload", "select-update")
        plain = ["wal-full", "wal-normal"]
        self.assertEqual([(row["processes"], row["side"]) for row in rows[:7]],
                         [(1, side) for side in (*plain, "memlith/wal", "memlith-shared")] +
                         [(2, side) for side in (*plain, "memlith-shared")])  # the engine is for one process
        for row in rows:
            self.assertEqual((row["verified"], row["think_us"]), (True, 100))

    def test_writers_in_processes(self):
        rows = self.rows("writers", "--rows", "64", "--seconds", "0.1", "--processes", "1,2", "--readers", "1",
                         "--workload", "one-row", "--systems", "memlith-shared,wal-full")
        self.assertEqual([(row["threads"], row["processes"]) for row in rows], 2 * (2 * [(1, 1)] + 2 * [(1, 2)]))
        for row in rows:
            self.assertTrue(row["verified"])  # what each process was told is in the database
            self.assertGreater(row["ops_per_s"] + row["reads_per_s"], 0)

    def test_speed(self):
        self.check(self.rows("speed", "--size", "1"), 5 + 500 + 250 + 1)

    def test_a_system_that_there_is_not(self):
        done = subprocess.run([PROGRAM, "update", "--systems", "walfull", "--dir", str(self.folder)],
                              capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 1)
        self.assertIn("walfull", done.stderr)

    def test_a_benchmark_that_there_is_not(self):
        done = subprocess.run([PROGRAM, "updat"], capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 1)
        for says in '"updat"', "update, ", "tatp":
            self.assertIn(says, done.stderr)

    def test_output_that_does_not_arrive(self):
        with open("/dev/full", "wb") as full:
            done = subprocess.run([PROGRAM, "update", "--rows", "5", "--commits", "1", "--systems", "wal-off",
                                   "--repetitions", "1", "--dir", str(self.folder)], stdout=full,
                                  stderr=subprocess.PIPE, text=True, check=False)
        self.assertEqual(done.returncode, 1)
        self.assertIn("standard output", done.stderr)

    def test_report(self):
        report = pathlib.Path(__file__).resolve().parents[2] / "integrations/sqlite/bench/report.py"
        out = self.folder / "figures.md"
        done = subprocess.run([sys.executable, "-B", report, "--bench", PROGRAM, "--dir", self.folder, "--out", out,
                               "--quick", "--repetitions", "1"], capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        text = out.read_text(encoding="utf-8")
        self.assertNotIn("FAILED", text)
        # update with and without an index, three sizes each of two patterns, two of them with calls, one size of TATP,
        # the mix; a line a system in each.
        self.assertEqual(text.count("| memlith, full |"), 2 + 6 + 4 + 1 + 1)
        self.assertEqual(text.count("| DELETE, FULL |"), 2 + 6 + 4 + 1 + 1)
        for title in ("Single rows updated, no index", "dbbench", "TATP", "A mix of everything"):
            self.assertIn("## " + title, text)
        self.assertIn("**random, 64 KiB a transaction**", text)
        self.assertEqual(text.count("memlith, weak: throughput over WAL, OFF "), 2 + 6 + 1 + 1)
        self.assertNotIn("p99.9 over WAL, FULL's", text)  # there were not enough

        # A benchmark's sentence on its failure is in its place.
        (self.folder / "no folder").write_bytes(b"")
        for bench, folder, says in ("/bin/false", self.folder, "FAILED: exit code 1"), (PROGRAM,
                                                                                        self.folder / "no folder",
                                                                                        "cannot make the folder"):
            broken = subprocess.run([sys.executable, "-B", report, "--bench", bench, "--dir", folder, "--out", out,
                                     "--quick"],
                                    capture_output=True, text=True, check=False)
            self.assertEqual(broken.returncode, 1)
            self.assertIn("FAILED", out.read_text(encoding="utf-8"))
            self.assertIn(says, out.read_text(encoding="utf-8"))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
