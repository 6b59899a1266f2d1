#!/usr/bin/env python3
"""`memlith kv`: what was put is there, in order and whatever its bytes; a dump loads into the same records; mistakes
are told and change nothing.

Usage: kv_test.py MEMLITH
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

MEMLITH = sys.argv[1]


class Kv(unittest.TestCase):
    def setUp(self):
        self.temporary = tempfile.TemporaryDirectory(dir=os.environ.get("MEMLITH_TEST_DIR") or None, prefix="kv-test-")
        self.addCleanup(self.temporary.cleanup)
        self.folder = pathlib.Path(self.temporary.name)
        self.store = self.folder / "store"

    def kv(self, command, *words, store=None, status=0, given=None):
        done = subprocess.run([MEMLITH, "kv", command, store or self.store, *words], capture_output=True, text=True,
                              input=given, check=False)
        self.assertEqual(done.returncode, status, done.stdout + done.stderr)
        return done.stdout if status == 0 else done.stderr

    def fill(self):
        for key, value in ("b", "two"), ("a", "one"), ("c\\x00\\xff", "line\\x0aend \\x5c"), ("empty", ""):
            self.kv("put", "first", key, value)
        self.kv("put", "second\tmap", "k", "v" * 30000)

    def test_records(self):
        self.fill()
        self.assertEqual(self.kv("get", "first", "a"), "one\n")
        self.assertEqual(self.kv("get", "first", "empty"), "\n")
        self.assertEqual(self.kv("get", "first", "c\\x00\\xff"), "line\\x0aend \\x5c\n")
        self.kv("put", "first", "a", "three")
        self.assertEqual(self.kv("scan", "first"),
                         "a\tthree\nb\ttwo\nc\\x00\\xff\tline\\x0aend \\x5c\nempty\t\n")
        self.assertEqual(self.kv("scan", "first", "--from", "aa", "--to", "d", "--limit", "1"), "b\ttwo\n")
        self.assertEqual(json.loads(self.kv("scan", "first", "--from", "b", "--limit", "1", "--json")),
                         {"key": "b", "value": "two"})
        self.kv("del", "first", "b")
        missing = self.kv("get", "first", "b", status=1)
        self.assertIn("no record", missing)
        self.assertIn("memlith kv scan", missing)
        self.assertNotIn("Check the path", missing)
        self.assertIn("memlith kv stats", self.kv("get", "no such map", "b", status=1))
        self.assertIn("no record", self.kv("del", "first", "b", status=1))
        stats = json.loads(self.kv("stats", "--json"))
        self.assertEqual(stats["maps"], ["first", "second\tmap"])
        self.assertEqual(stats["records"], 4)
        self.assertEqual(stats["overflow_pages"], 8)
        self.assertIn("4 records in 2 maps", self.kv("stats"))

    def test_dump_and_load(self):
        self.fill()
        text = self.kv("dump")
        self.assertEqual(text.splitlines()[:4], ["memlith-kv-dump 1", "map first", " a", " one"])
        self.assertEqual(text.splitlines()[-2:], ["end", "maps 2"])
        copy = self.folder / "copy"
        self.assertIn("loaded 5 records", self.kv("load", store=copy, given=text))
        self.assertEqual(self.kv("dump", store=copy), text)
        out = self.folder / "dump"
        self.kv("dump", "second\tmap", "--out", out)
        other = self.folder / "other"
        self.assertEqual(json.loads(self.kv("load", "--in", out, "--json", store=other)), {"records": 1})
        self.assertEqual(json.loads(self.kv("stats", "--json", store=other))["maps"], ["second\tmap"])
        self.assertEqual(json.loads(self.kv("load", "first", "--json", store=other, given=text)), {"records": 4})
        self.assertEqual(self.kv("dump", store=other), text)

    def test_many_records(self):
        lines = ["memlith-kv-dump 1", "map m"]
        for i in range(30000):
            lines += [f" key{i:06}", " " + "x" * (i % 150)]
        text = "\n".join(lines + ["end", "maps 1", ""])
        self.kv("load", given=text)
        self.assertEqual(self.kv("dump"), text)

    def test_beside_a_writer(self):
        self.fill()
        before = self.kv("dump")
        with subprocess.Popen([MEMLITH, "kv", "load", self.store], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL) \
                as writer:
            def memlith(*words):
                done = subprocess.run([MEMLITH, *words, "--json"], capture_output=True, text=True, check=False)
                self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
                return json.loads(done.stdout)
            # `info` would open the store itself and could keep the writer out; `stat` takes no lock.
            while True:
                shown = subprocess.run([MEMLITH, "stat", self.store, "--json"], capture_output=True, text=True,
                                       check=False)
                if shown.returncode == 0 and json.loads(shown.stdout)["process"] == writer.pid:
                    break
                self.assertIsNone(writer.poll())
            self.assertEqual(memlith("info", self.store)["writer"], writer.pid)
            self.assertEqual(self.kv("dump"), before)
            self.assertEqual(self.kv("get", "first", "a"), "one\n")
            self.assertIn("b\ttwo\n", self.kv("scan", "first"))
            self.assertEqual(memlith("verify", self.store)["kvs"], 1)
            self.assertIn("in use", self.kv("put", "first", "a", "three", status=1))
            writer.stdin.write(b"memlith-kv-dump 1\nmap first\n later\n now\nend\nmaps 1\n")
            writer.stdin.close()
            self.assertEqual(writer.wait(), 0)
        self.assertEqual(self.kv("get", "first", "later"), "now\n")
        self.assertEqual(memlith("info", self.store)["writer"], 0)

    def test_mistakes(self):
        self.assertIn(str(self.store), self.kv("get", "first", "a", status=1))
        self.assertFalse(self.store.exists())
        self.kv("del", "first", "a", status=1)
        self.assertFalse(self.store.exists())
        self.fill()
        self.assertIn("backslash", self.kv("get", "first", "a\\x", status=1))
        self.assertIn("third", self.kv("get", "third", "a", status=1))
        self.assertIn("other", self.kv("get", "first", "a", "--kv", "other", status=1))
        (self.folder / "file").write_text("text", encoding="utf-8")
        self.assertIn("not a store's folder", self.kv("put", "m", "k", "v", store=self.folder / "file", status=1))
        before = self.kv("dump")
        for given, told in ("", "line 0"), ("memlith-kv-dump 1\n", "it was cut"), \
                ("memlith-kv-dump 1\nmap m\nend\n", "it was cut"), \
                ("memlith-kv-dump 1\nmap m\nend\nmaps 2\n", "\"maps 1\" was expected"), \
                ("memlith-kv-dump 1\nmap m\nend\nmaps 1\nmap n\n", "the last line"), \
                ("memlith-kv-dump 1\nmap m\n k\n v\n", "it was cut"), \
                ("memlith-kv-dump 1\nmap m\n k\n v", "and its value in the next line"), \
                ("memlith-kv-dump 1\nmap m\nk\n", "a key was expected"), ("memlith-kv-dump 1\nmap \\y\n", "backslash"):
            other = self.folder / "other"
            self.assertIn(told, self.kv("load", store=other, given=given, status=1), given)
        self.assertEqual(self.kv("dump"), before)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
