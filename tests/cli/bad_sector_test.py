#!/usr/bin/env python3
"""Commands that meet a sector which cannot be read say which file and where, instead of dying without a word.

Usage: bad_sector_test.py MEMLITH BAD_SECTOR_SO
"""
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import unittest

MEMLITH, PRELOADED = sys.argv[1:3]
PAGE = 4096


class BadSectors(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory(dir=os.environ.get("MEMLITH_TEST_DIR") or None, prefix="bad-")
        self.addCleanup(temporary.cleanup)
        self.folder = pathlib.Path(temporary.name).resolve()
        self.store = self.folder / "store"
        self.empty = self.folder / "empty"
        self.empty.touch()
        for number in range(40):
            subprocess.run([MEMLITH, "kv", "put", self.store, "m", f"key{number:04}", "v" * 4000], check=True)

    def run_memlith(self, page, *words):
        environment = {**os.environ, "LD_PRELOAD": PRELOADED, "BAD_FILE": "/objects/1", "BAD_PAGE": str(page),
                       "BAD_EMPTY": str(self.empty)}
        return subprocess.run([MEMLITH, *map(str, words)], capture_output=True, text=True, check=False,
                              env=environment)

    def page_in(self, message):
        found = re.search(r"/objects/1 at offset (\d+)|/empty at offset (\d+)", message)
        self.assertIsNotNone(found, message)
        return int(found[1] or found[2]) // PAGE

    def test_the_file_and_the_offset_are_named(self):
        text = self.folder / "text"
        for words in (("dump", self.store, "--out", text), ("kv", "stats", self.store),
                      ("kv", "scan", self.store, "m"), ("verify", self.store)):
            done = self.run_memlith(9, *words)
            self.assertEqual(done.returncode, 1, (words, done.stderr))
            self.assertEqual(self.page_in(done.stderr), 9)
            self.assertIn("dmesg", done.stderr)
            self.assertIn('region "kv"', done.stderr)
            told = json.loads(self.run_memlith(9, *words, "--json").stdout.splitlines()[-1])
            self.assertEqual(self.page_in(told["error"]["message"]), 9)

    def test_what_can_be_read_is_dumped(self):
        subprocess.run([MEMLITH, "kv", "put", self.store, "long", "value", "w" * 50_000], check=True)
        whole = subprocess.run([MEMLITH, "dump", self.store], capture_output=True, text=True, check=True).stdout
        stats = subprocess.run([MEMLITH, "kv", "stats", self.store, "--json"], capture_output=True, check=True)
        pages = json.loads(stats.stdout)["pages"]
        left_out = 0
        for page in range(1, pages):
            text = self.folder / "text"
            done = self.run_memlith(page, "dump", self.store, "--skip-damaged", "--out", text, "--json")
            if done.returncode == 1:  # the list of the maps
                self.assertIn("listing the maps", done.stdout)
                continue
            lines = [json.loads(each) for each in done.stdout.splitlines()]
            copy = self.folder / "copy"
            subprocess.run([MEMLITH, "load", copy, "--in", text], check=True, capture_output=True)
            shutil.rmtree(copy)
            dumped = text.read_text().splitlines()
            if done.returncode == 0:
                self.assertEqual(dumped, whole.splitlines())
                continue
            self.assertEqual(done.returncode, 4, done.stderr)
            left_out += 1
            self.assertEqual(self.page_in(lines[0]["left_out"][0]), page)
            self.assertIn('of "kv"', lines[0]["left_out"][0])
            self.assertLessEqual(set(dumped[:-1]), set(whole.splitlines()))
            self.assertGreater(len(dumped), 20 if "all of map" not in lines[0]["left_out"][0] else 2)
        self.assertGreater(left_out, 40)

    def test_verify_looks_at_all_objects(self):
        subprocess.run([MEMLITH, "kv", "put", self.store, "m", "key", "value", "--kv", "other"], check=True)
        with open(self.store / "objects" / "2", "r+b") as file:
            file.seek(2 * PAGE)
            file.write(b"damage")
        done = self.run_memlith(9, "verify", self.store)
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertEqual(self.page_in(done.stderr), 9)
        self.assertIn('(damaged, too: "other")', done.stderr)
        self.assertEqual(self.run_memlith(1 << 20, "verify", self.store).returncode, 2)

    def test_the_disk_is_not_blamed_for_what_is_not_its(self):
        """A signal that another process sends, and a command that meets no bad sector."""
        self.assertEqual(self.run_memlith(1 << 20, "kv", "get", self.store, "m", "key0007").returncode, 0)
        listening = subprocess.Popen([MEMLITH, "disktest", "listen", "0", self.folder / "told"],
                                     stdout=subprocess.PIPE)
        self.addCleanup(listening.stdout.close)
        listening.stdout.readline()
        listening.send_signal(signal.SIGBUS)
        self.assertEqual(listening.wait(), -signal.SIGBUS)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
