#!/usr/bin/env python3
"""The demo succeeds where nothing was lost, however many kills fit; and its closing line can be typed as it stands,
wherever the demo and its store lie.

Usage: demo_test.py MEMLITH_DEMO
"""
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

DEMO = sys.argv[1]


class Demo(unittest.TestCase):
    def test_fewer_kills_than_wanted_are_a_figure_and_no_failure(self):
        with tempfile.TemporaryDirectory(dir=os.environ.get("MEMLITH_TEST_DIR") or None) as name:
            folder = pathlib.Path(name)
            text = folder / "text"
            text.mkdir()
            for number in range(20):
                (text / f"{number}.txt").write_text(f"granite slate {'marble ' * 500}{number}\n", encoding="utf-8")
            # For most machines too many: the text ends before.
            done = subprocess.run([DEMO, "run", "--folder", str(text), "--kills", "150", "--store",
                                   str(folder / "store")], capture_output=True, text=True, check=False)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            at_work = sum(int(count) for count in re.search(
                "kills survived .*?([0-9]+) while indexing, ([0-9]+) inside", done.stdout).groups())
            self.assertEqual(f"after {at_work} of the 150 kills" in done.stdout, at_work < 150, done.stdout)
            self.assertIn("equal: every document", done.stdout)
            self.assertRegex(done.stdout, "All [0-9,]+ kills were survived")
            for other in ("msync", "SQLite", "a new file", "one plain write"):
                self.assertRegex(done.stdout, f"\n  {other} +[0-9.]+ (us|ms|s) +[0-9.]+ times a persist; ")
            self.assertEqual(sorted(path.name for path in (folder / "store").iterdir()),
                             ["files.txt", "memlith-demo.marker", "store"])


class Hint(unittest.TestCase):
    def test_the_closing_line_can_be_typed(self):
        with tempfile.TemporaryDirectory(dir=os.environ.get("MEMLITH_TEST_DIR") or None,
                                         prefix="demo test's $HOME ") as name:
            folder = pathlib.Path(name)
            text = folder / "text"
            text.mkdir()
            for number in range(20):
                (text / f"{number}.txt").write_text(f"granite slate {'marble ' * 1000}{number}\n", encoding="utf-8")
            done = subprocess.run([DEMO, "run", "--folder", str(text), "--kills", "1", "--store",
                                   str(folder / "the store")],
                                  capture_output=True, text=True, check=False)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            hint = done.stdout.rstrip().splitlines()[-1].removeprefix("Ask it yourself:").strip()
            self.assertTrue(hint.endswith(" WORD..."), hint)
            asked = subprocess.run(hint.replace("WORD...", "granite"), shell=True, capture_output=True, text=True,
                                   check=False)
            self.assertEqual(asked.returncode, 0, hint + asked.stderr)
            self.assertIn("7.txt", asked.stdout)
            checked = subprocess.run([DEMO, "check", "--store", str(folder / "the store")], capture_output=True,
                                     text=True, check=False)
            self.assertEqual(checked.returncode, 0, checked.stderr)
            self.assertIn("equal: every document", checked.stdout)
            self.assertIn("the heap accounts for every byte", checked.stdout)

    def test_wrong_words_are_refused_as_by_the_other_commands(self):
        for words, code in (["--help"], 0), (["nothing"], 1), (["query"], 1), (["run", "--kills", "x"],
                                                                               1), (["--nothing"], 1):
            done = subprocess.run([DEMO, *words], capture_output=True, text=True, check=False)
            self.assertEqual(done.returncode, code, words)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
