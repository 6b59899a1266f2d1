#!/usr/bin/env python3
"""memlith-kv-bench with the least that it does: every side of every suite is measured as often as the others, says how
durable it is, and holds what it should (the program compares that itself). No test looks at a time; the counts of
metadata, of space, and of bytes that are logged are promises, and are tested.

Usage: bench_kv_test.py MEMLITH_KV_BENCH FOLDER_OF_BENCH [Heap | Ycsb | DbBench | Calls | AppLog | Processes]
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
LIBRARIES = pathlib.Path(PROGRAM).parents[1] / "lib"
# Sides of builds that have memlith-c++, or memlith-g++.
INSTRUMENTED, GCC = ([f"memlith-{name}"] if (LIBRARIES / f"libmemlith-heap-map-{name}.so").exists() else []
                     for name in ("instrumented", "gcc"))
OURS = INSTRUMENTED + [
    f"memlith-{kind}{tracker}" for kind in ("", "btree-", "hash-") for tracker in ("fault", "scan")]
WINDOWS = ["memlith-fault-window", "memlith-scan-window"]
TIMES = ["p50_us", "p99_us", "p999_us", "max_us"]
FIELDS = ["suite", "side", "workload", "durability", "threads", "ops_per_s", *TIMES, "samples", "ratio", "ratio_of",
          "base"]


class Bench(unittest.TestCase):
    SUITE = []

    def setUp(self):
        temporary = tempfile.TemporaryDirectory(dir=os.environ.get("MEMLITH_TEST_DIR") or None, prefix="bench-kv-test-")
        self.addCleanup(temporary.cleanup)
        self.folder = pathlib.Path(temporary.name)

    def run_it(self, *arguments):
        return subprocess.run([PROGRAM, *self.SUITE, *arguments, "--dir", str(self.folder)], capture_output=True,
                              text=True, check=False)

    def rows(self, *arguments):
        done = self.run_it(*arguments, "--json")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertEqual(list(self.folder.iterdir()), [])
        rows = [json.loads(line) for line in done.stdout.splitlines()]
        for row in rows:
            self.assertEqual(list(row)[:len(FIELDS)], FIELDS)
            values = [row[name] for name in TIMES]
            self.assertEqual(values, sorted(values), row)
            self.assertTrue(row["does"] and row["side_version"] and row["ops_per_s"] > 0 and row["samples"] > 0, row)
            if row["side"] == row["base"] and row["workload"] not in ("remove-map", "after-crash"):
                self.assertIn(row["ratio"], (1, None), row)
        return rows


class Heap(Bench):
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
        rows = self.rows("table2-large", "--keys", "150", "--operations", "15", "--rest-us", "1")
        self.check_map(rows, "table2-large", 15)
        self.assertEqual({row["rest_us"] for row in rows}, {1})

    def test_entries(self):
        rows = self.rows("entries", "--keys", "300", "--changes", "1,10", "--rounds", "20")
        ours = ["memlith-auto", "memlith-btree-auto", "memlith-hash-auto", *GCC, *INSTRUMENTED, "memlith"]
        sides = [row["side"] for row in rows if row["changes"] == 1]
        self.assertEqual(sides[:len(ours)], ours)
        self.assertEqual(sides[-1], "raw")
        self.assertEqual([(row["changes"], row["side"]) for row in rows],
                         [(changes, side) for changes in (1, 10) for side in sides])
        for row in rows:
            self.assertEqual((row["suite"], row["durability"], row["samples"]), ("entries", "sync", 20))
            self.assertGreater(row["ratio_per_turn"], 0)
            if row["side"] == "raw":
                self.assertEqual(row["ratio_per_turn"], 1)

    @unittest.skipIf(SANITIZED, "the program ran above, and a sanitizer makes this slow")
    def test_pages_and_entries_are_one_benchmark(self):
        done = subprocess.run([sys.executable, "-B", SCRIPTS / "run.py", "--bin", pathlib.Path(PROGRAM).parent,
                               "transparent", "--quick", "--json", "--sides", "memlith-auto", "--pages", "0,4", "--dir",
                               self.folder], capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        rows = [json.loads(line) for line in done.stdout.splitlines()]
        self.assertEqual({(row["suite"], row["region_mib"]) for row in rows if "region_mib" in row},
                         {("transparent", 2), ("transparent", 4)})
        self.assertEqual([(row["changes"], row["side"]) for row in rows if row["suite"] == "entries"],
                         [(changes, side) for changes in (1, 10, 100) for side in ("memlith-auto", "raw")])

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
        self.assertEqual([row["ratio"] for row in rows], [None] * 3)
        done = self.run_it("table2", "--sides", "none")
        self.assertEqual(done.returncode, 1)
        self.assertIn("there is no side none; there are: " + ", ".join(OURS), done.stderr)

    @unittest.skipIf(SANITIZED, "the program ran above, and a sanitizer makes this slow")
    def test_the_report_has_every_table(self):
        out = self.folder / "heap.md"
        done = subprocess.run([sys.executable, "-B", SCRIPTS / "kv/report.py", "--bench", PROGRAM, "--dir",
                               self.folder, "--out", out, "--quick"], capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        text = out.read_text(encoding="utf-8")
        self.assertNotIn("FAILED", text)
        for title in ("**Insert, each durable**", "**Delete, without any sync**",
                      "**Replace, each durable, 2 threads**", "**Allocate, 2 threads**", "**Small, 16 to 256 bytes**",
                      "**After a crash**", "## The sides"):
            self.assertIn(title, text)


class Ycsb(Bench):
    SUITE = ["ycsb"]
    WORKLOADS = ["write", "read", "insert", "scan", "modify", "a", "b", "c", "d", "e", "f"]

    def test_every_workload_of_every_side(self):
        rows = self.rows("--workloads", ",".join(self.WORKLOADS), "--records", "300", "--seconds", "0.01", "--rounds",
                         "1", "--durability", "both", "--distribution", "zipfian", "--threads", "1,2")
        sides = [(row["side"], row["durability"]) for row in rows if row["workload"] == "a" and row["threads"] == 1]
        self.assertEqual(sides[:2], [("memlith", "weak"), ("memlith-no-durability", "none")])
        self.assertIn(("memlith", "sync"), sides)
        self.assertEqual([(row["threads"], row["workload"], row["side"], row["durability"]) for row in rows],
                         [(threads, workload, *side) for threads in (1, 2) for workload in self.WORKLOADS
                          for side in sides])
        for row in rows:
            if row["side"] == "memlith-no-durability":
                self.assertEqual(row["logged_bytes_per_op"], 0, row)
            # Only where a record is read and changed; null of those whose changes are no transactions that read.
            self.assertEqual("aborts" in row, row["workload"] in ("modify", "f"), row)
            if "aborts" in row:
                self.assertEqual(row["aborts"] is None, row["side"] in ("leveldb", "rocksdb"), row)

    def test_transactions_that_meet(self):
        """Threads that change one of few records meet, and what they change is there at the end of each try."""
        rows = self.rows("--workloads", "modify", "--records", "10", "--seconds", "0.3", "--rounds", "1", "--threads",
                         "4", "--sides", "memlith,memlith-memtable")
        self.assertEqual([(row["side"], row["durability"]) for row in rows],
                         [("memlith", "weak"), ("memlith-memtable", "weak")])
        self.assertGreaterEqual(rows[0]["aborts"], 0)
        self.assertEqual(rows[1]["aborts"], 0)  # they wait for each other

    def test_what_an_update_logs(self):
        """A random update of 116 bytes writes at most 1.3 times the bytes of key and value, and 48."""
        row = self.rows("--workloads", "write", "--records", "20000", "--seconds", "0.5", "--rounds", "1", "--sides",
                        "memlith", "--window-ms", "5")[0]
        self.assertGreater(row["logged_bytes_per_op"], 0)
        self.assertLessEqual(row["logged_bytes_per_op"], 1.3 * 116 + 48, row)

    def test_windows(self):
        """For a later window only the side to which it matters is measured again."""
        rows = self.rows("--workloads", "write", "--records", "300", "--seconds", "0.01", "--rounds", "1",
                         "--window-ms", "1,100", "--sides", "memlith,memlith-no-durability", "--window-mib", "64")
        self.assertEqual([(row["side"], row.get("window_ms")) for row in rows],
                         [("memlith", 1), ("memlith-no-durability", None), ("memlith", 100)])
        self.assertEqual(["weak_wait_max_ms" in row for row in rows], [True, False, True])

    def test_how_long_weak_commits_wait(self):
        """Each window is counted anew; so few updates become durable at its end only. The limits are lower ones."""
        rows = self.rows("--workloads", "b", "--records", "300", "--seconds", "0.5", "--rounds", "1",
                         "--window-ms", "100,1,20", "--window-mib", "4096", "--sides", "memlith")
        for row in rows:
            waits = [row[f"weak_wait_{name}_ms"] for name in ("p50", "p99", "max")]
            self.assertEqual(waits, sorted(waits))
            self.assertGreaterEqual(waits[2], 0.9 * row["window_ms"], row)
        self.assertLess(rows[1]["weak_wait_p50_ms"], rows[0]["weak_wait_max_ms"])  # nothing is left of the one before

    def test_waiting_for_the_end_of_the_window(self):
        """A transaction of memlith-group becomes durable with its window, and hurries no flush."""
        rows = self.rows("--workloads", "write", "--records", "100", "--seconds", "0.2", "--rounds", "1",
                         "--durability", "sync", "--sides", "memlith,memlith-group", "--window-ms", "40", "--threads",
                         "1,100")
        self.assertEqual([(row["threads"], row["side"], row.get("window_ms")) for row in rows],
                         [(threads, *side) for threads in (1, 100)
                          for side in (("memlith", None), ("memlith-group", 40))])
        self.assertGreaterEqual(rows[1]["p50_us"], 36_000)

    def test_long_transactions(self):
        """All sides have transactions that only write; some have none that read as well."""
        rows = self.rows("--workloads", "write,read,modify", "--records", "300", "--seconds", "0.01", "--rounds", "1",
                         "--durability", "both", "--threads", "2", "--transaction-records", "1,5")
        sides = {records: {(row["workload"], row["side"], row["durability"]) for row in rows
                           if row["transaction_records"] == records} for records in (1, 5)}
        without = ("leveldb", "rocksdb")
        self.assertEqual(sides[5], {key for key in sides[1]
                                    if key[0] == "write" or (key[0] == "modify" and key[1] not in without)})
        for row in rows:
            self.assertEqual("aborts" in row, row["workload"] == "modify" or row["transaction_records"] == 5, row)

    def test_what_a_long_transaction_logs(self):
        rows = self.rows("--workloads", "write,modify", "--records", "20000", "--seconds", "0.3", "--rounds", "1",
                         "--sides", "memlith", "--window-ms", "5", "--transaction-records", "1,16")
        logged = [row["logged_bytes_per_op"] for row in rows]
        self.assertEqual(len(logged), 4)
        for one, many in (logged[:2], logged[2:]):
            self.assertGreater(many, 8 * one, logged)

    @unittest.skipIf(SANITIZED, "a sanitizer's memory is no side's")
    def test_little_memory(self):
        """Each side has a process of its own, which is killed, or not even begun, where it needs more."""
        words = ["--workloads", "write,read", "--records", "20000", "--seconds", "0.05", "--rounds", "1", "--sides",
                 "memlith,lmdb"]
        done = self.run_it(*words, "--cgroup-mib", "1")
        if "control group" in done.stderr:
            self.skipTest("this takes root and memory control groups")
        self.assertEqual(done.returncode, 1)
        self.assertRegex(done.stderr, "memory cannot be limited to 1 MiB|needs more than 1 MiB")
        rows = self.rows(*words, "--cgroup-mib", "64")
        self.assertEqual([(row["side"], row["workload"]) for row in rows],
                         [(side, workload) for side in dict.fromkeys(row["side"] for row in rows)
                          for workload in ("write", "read")])
        self.assertEqual({row["cgroup_mib"] for row in rows}, {64})

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
        rows = self.rows("--records", "5000", "--recovery-log-mib", "1,3")
        self.assertEqual([(row["workload"], row["log_mib"], row["records"]) for row in rows],
                         [("clean", 0, 5000), ("after-crash", 1, 5000), ("clean", 0, 5000), ("after-crash", 3, 5000)])

    def test_text_and_mistakes(self):
        done = self.run_it("--records", "50", "--seconds", "0.01", "--workloads", "read", "--sides", "memlith")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("read: reads, uniform, 1 thread", done.stdout)
        for words, told in (["--sides", "nobody"], "there is no side nobody; there are: memlith"), \
                (["--workloads", "z"], "z not in"), (["--durability", "half"], "durability"):
            done = self.run_it(*words)
            self.assertEqual(done.returncode, 1)
            self.assertIn(told, done.stderr)


class DbBench(Bench):
    SUITE = ["dbbench"]
    SMALL = ["--records", "2000", "--seconds", "0.02", "--backends", "file"]
    WORKLOADS = ["fillseq", "fillrandom", "overwrite", "readseq", "readrandom"]

    def test_every_workload_of_every_side(self):
        rows = self.rows(*self.SMALL, "--workloads", ",".join(self.WORKLOADS))
        sides = [row["side"] for row in rows if row["workload"] == "fillseq"]
        self.assertEqual(sides[:2], ["memlith-log", "memlith"])
        self.assertEqual([(row["workload"], row["side"]) for row in rows],
                         [(workload, side) for workload in self.WORKLOADS for side in sides])
        for row in rows:
            self.assertEqual(row["durability"], "none" if row["workload"].startswith("read") else "sync")

    @unittest.skipIf(SANITIZED, "a sanitizer's memory is no side's")
    def test_little_memory(self):
        words = [*self.SMALL, "--workloads", "overwrite,readrandom", "--sides", "memlith-log,memlith"]
        if "control group" in self.run_it(*words, "--cgroup-mib", "128").stderr:
            self.skipTest("this takes root and memory control groups")
        rows = self.rows(*words, "--cgroup-mib", "128")
        self.assertEqual([(row["workload"], row["side"], row["cgroup_mib"]) for row in rows],
                         [(workload, side, 128) for workload in ("overwrite", "readrandom")
                          for side in ("memlith-log", "memlith")])


class Calls(Bench):
    SUITE = ["kvcalls"]
    SMALL = ["--records", "3000", "--seconds", "0.01", "--repetitions", "2"]

    def test_every_call_of_every_side(self):
        rows = self.rows(*self.SMALL)
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
        done = self.run_it("--calls", "put-if", *self.SMALL, "--sides", "memlith")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("comparing and swapping one of 3000 records", done.stdout)
        for words, told in (["--sides", "nobody"], "nobody"), (["--calls", "z"], "z"), (["--records", "9"], "9"):
            done = self.run_it(*words)
            self.assertEqual(done.returncode, 1)
            self.assertIn(told, done.stderr)


class AppLog(Bench):
    SUITE = ["applog"]
    SMALL = ["--seconds", "0.01", "--rounds", "1", "--bytes", "100,5000", "--threads", "1,2", "--log-mib", "1"]

    def test_every_suite(self):
        rows = self.rows(*self.SMALL)
        self.assertEqual([(row["side"], row["workload"], row["durability"], row["threads"]) for row in rows],
                         [(side, workload, "sync", threads)
                          for workload, threads in (("append-100", 1), ("append-5000", 1), ("writers", 1),
                                                    ("writers", 2))
                          for side in ("memlith", "raw-captured")]
                         + [("memlith", "consumed-1MiB", durability, 1) for durability in ("sync", "weak")]
                         + [(side, "device", "sync", threads)
                            for threads in (1, 2) for side in ("memlith", "raw-captured")])
        for row in rows:
            self.assertIn("entry_bytes", row)
            if row["workload"] == "device":
                self.assertGreaterEqual(row["device_bytes_per_byte"], 1)

    def test_text_and_mistakes(self):
        done = self.run_it("--suites", "append", *self.SMALL)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("append-5000", done.stdout)
        done = self.run_it("--suites", "nothing")
        self.assertEqual(done.returncode, 1)
        self.assertIn("nothing", done.stderr)


class Processes(Bench):
    SUITE = ["processes"]
    SMALL = ["--seconds", "0.04", "--records", "200", "--repetitions", "2"]

    def test_every_workload_of_every_side(self):
        rows = self.rows(*self.SMALL)
        seen = {(row["workload"], row["processes"], row["side"]) for row in rows}
        others = {row["side"] for row in rows} - {"memlith"}
        self.assertLessEqual({"memlith-shared"}, others)
        self.assertLessEqual(others, {"memlith-shared", "lmdb", "sqlite", "sqlite-memlith"})
        self.assertEqual(seen, {(workload, processes, side) for workload in ("get", "put", "weak-put")
                                for processes in (1, 4)
                                for side in others | ({"memlith"} if processes == 1 else set())})
        for row in rows:
            self.assertEqual(row["base"], "memlith-shared")
            self.assertGreater(row["ratio"], 0)
            self.assertEqual(row["durability"] == "sync", row["workload"] != "weak-put", row)
            values = [row[name] for name in ("p50_us", "p99_us", "p999_us", "max_us")]
            self.assertEqual(values, sorted(values), row)

    def test_text_and_mistakes(self):
        done = self.run_it(*self.SMALL, "--workloads", "put", "--processes", "3", "--sides", "memlith-shared")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("put of 3 processes at the same time", done.stdout)
        for words, told in (["--sides", "redb"], "there is no side redb"), (["--workloads", "z"], "z"), \
                (["--redb", "/nothing"], "redb"):
            done = self.run_it(*words)
            self.assertEqual(done.returncode, 1)
            self.assertIn(told, done.stderr)

    def test_a_process_that_fails(self):
        """The program of side redb ends at once: the run tells so, and waits for nothing."""
        done = self.run_it(*self.SMALL, "--redb", "/bin/false", "--sides", "redb")
        self.assertEqual(done.returncode, 1)
        self.assertIn("a process that uses a store beside others failed", done.stderr)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
