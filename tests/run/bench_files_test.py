#!/usr/bin/env python3
"""`bench files` with the least that it does: every side of the suites prints its line. No test looks at a time.

Usage: bench_files_test.py BENCH_PY FOLDER_OF_PROGRAMS
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

BENCH, PROGRAMS = sys.argv[1:3]
FIELDS = ["suite", "side", "workload", "durability", "threads", "ops_per_s", "mean_us", "p50_us", "p99_us", "p999_us"]


class Bench(unittest.TestCase):
    def sides(self, suite, *options):
        if not all((pathlib.Path(PROGRAMS) / f"memlith-files-{name}").exists() for name in ("kyoto", "msync", "http")):
            self.skipTest("the benchmark's programs are not built")
        with tempfile.TemporaryDirectory(dir=os.environ.get("MEMLITH_TEST_DIR"), prefix="memlith-bench-") as folder:
            done = subprocess.run([sys.executable, "-B", BENCH, "--bin", PROGRAMS, "--dir", folder, "--json",
                                   "--seconds", "0.05", "--rounds", "1", suite, *options], capture_output=True,
                                  text=True, check=False)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            self.assertEqual(list(pathlib.Path(folder).iterdir()), [])
        rows = [json.loads(line) for line in done.stdout.splitlines()]
        for row in rows:
            self.assertEqual(list(row), FIELDS)
            self.assertEqual(row["suite"], suite)
            self.assertGreater(row["mean_us"], 0)
        return [(row["workload"], row["side"]) for row in rows]

    def test_kyoto(self):
        self.assertEqual(self.sides("kyoto"), [
            (f"{kind}-{load}", side) for kind in ("hash", "tree") for load in ("light", "full")
            for side in ("write", "synchronize", "transactions", "memlith")])

    def test_pauses_of_msync(self):
        """The program of the suite msync, which as a whole fills loop devices. The limit holds on any machine."""
        program = pathlib.Path(PROGRAMS) / "memlith-files-msync"
        if not program.exists():
            self.skipTest("the benchmark's programs are not built")
        for how in "msync", "memlith":
            with tempfile.TemporaryDirectory(dir=os.environ.get("MEMLITH_TEST_DIR"), prefix="memlith-bench-") as folder:
                said = subprocess.run([program, folder, how, "1", "0.05", "20"], capture_output=True, text=True,
                                      check=True).stdout
            told = json.loads(said)
            self.assertGreater(told["mean_us"], 0)
            self.assertLessEqual(told["ops_per_s"], 50)

    def test_tycoon(self):
        self.assertEqual(self.sides("tycoon", "--connections", "2"),
                         [("put-2", side) for side in ("synchronize", "transactions", "memlith")])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
