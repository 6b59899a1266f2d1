#!/usr/bin/env python3
"""`bench copy` in its smallest form: its line has the fields of docs/json.md, and copies were made beside persists.

Usage: bench_copy_test.py MEMLITH BENCH_FOLDER JSON_MD
"""
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

MEMLITH, BENCH, DOCUMENT = map(pathlib.Path, sys.argv[1:4])


class BenchCopy(unittest.TestCase):
    def test_the_smallest(self):
        with tempfile.TemporaryDirectory(dir=os.environ.get("MEMLITH_TEST_DIR") or None) as folder:
            done = subprocess.run([sys.executable, "-B", BENCH / "run.py", "--bin", MEMLITH.parent, "copy", "--dir",
                                   folder, "--region-mib", "1", "--seconds", "1", "--rounds", "1",
                                   "--restore-mib", "4", "--restore-log-mib", "1", "--json"],
                                  capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        line = json.loads(done.stdout)
        section = DOCUMENT.read_text(encoding="utf-8").split("\n## bench copy\n")[1].split("\n## ")[0]
        rows = [row.split(" | ", 1)[0] for row in section.splitlines() if row.startswith("| `")]
        self.assertEqual(set(line), {name for row in rows for name in re.findall(r"`([^`]+)`", row)})
        self.assertGreater(line["copies"], 0)
        self.assertGreater(line["p99_us"], 0)
        self.assertGreater(line["restore_segments"], 0)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0]], verbosity=2)
