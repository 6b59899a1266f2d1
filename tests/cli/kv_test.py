#!/usr/bin/env python3
"""`memlith kv`: what was put is there, in order and whatever its bytes; what `scan` prints can be put; mistakes are
told and change nothing.

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

    def test_prefixes_and_counts(self):
        for key in ("user/1", "user/2", "user\\xff", "user\\xff\\xff1", "v"):
            self.kv("put", "first", key, "value")
        self.assertEqual(self.kv("scan", "first", "--prefix", "user/"), "user/1\tvalue\nuser/2\tvalue\n")
        self.assertEqual(self.kv("count", "first", "--prefix", "user"), "4\n")
        self.assertEqual(self.kv("count", "first", "--prefix", "user\\xff"), "2\n")
        self.assertEqual(self.kv("count", "first", "--prefix", "\\xff"), "0\n")
        self.assertEqual(self.kv("count", "first"), "5\n")
        self.assertEqual(json.loads(self.kv("count", "first", "--from", "user/2", "--to", "v", "--json")),
                         {"map": "first", "records": 3, "bytes": 6 + 5 + 7 + 3 * 5})
        self.assertIn("--prefix", self.kv("scan", "first", "--prefix", "a", "--from", "b", status=1))

    def test_raw_values(self):
        raw = bytes(range(256)) * 300
        (self.folder / "raw").write_bytes(raw)
        self.kv("put", "first", "raw", "--value-from", self.folder / "raw")
        done = subprocess.run([MEMLITH, "kv", "put", self.store, "first", "piped", "--value-from", "-"],
                              input=raw[:700], capture_output=True, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        for key, wanted in ("raw", raw), ("piped", raw[:700]):
            done = subprocess.run([MEMLITH, "kv", "get", "--raw", self.store, "first", key], capture_output=True,
                                  check=True)
            self.assertEqual(done.stdout, wanted)
        self.assertIn("opening", self.kv("put", "first", "raw", "--value-from", self.folder / "gone", status=1))
        self.assertIn("value", self.kv("put", "first", "raw", status=1))

    def test_records_of_a_file(self):
        self.fill()
        text = self.kv("scan", "first")
        copy = self.folder / "copy"
        self.assertIn("put 4 records", self.kv("put", "first", "--in", "-", store=copy, given=text))
        self.assertEqual(self.kv("scan", "first", store=copy), text)
        file = self.folder / "records"
        file.write_text("b\tthree\nnew\t\\x09\n", encoding="utf-8")
        self.assertEqual(json.loads(self.kv("put", "first", "--in", file, "--json", store=copy)),
                         {"map": "first", "records": 2, "durable": True})
        self.assertEqual(self.kv("scan", "first", store=copy), text.replace("two", "three") + "new\t\\x09\n")

    def test_many_records(self):
        text = "".join(f"key{i:06}\t{'x' * (i % 150)}\n" for i in range(30000))
        self.kv("put", "m", "--in", "-", given=text)
        self.assertEqual(self.kv("scan", "m"), text)

    def test_beside_a_writer(self):
        self.fill()
        before = self.kv("scan", "first")
        with subprocess.Popen([MEMLITH, "kv", "put", self.store, "first", "--in", "-"], stdin=subprocess.PIPE,
                              stdout=subprocess.DEVNULL) as writer:
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
            self.assertEqual(self.kv("scan", "first"), before)
            self.assertEqual(self.kv("get", "first", "a"), "one\n")
            self.assertIn("b\ttwo\n", self.kv("scan", "first"))
            self.assertEqual(memlith("verify", self.store)["kvs"], 1)
            self.assertIn("in use", self.kv("put", "first", "a", "three", status=1))
            writer.stdin.write(b"later\tnow\n")
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
        before = self.kv("scan", "first")
        for given, told in (("k v\n", "line 1"), ("k\tv\nk\\x\tv\n", "line 2"), ("k\tv", "line 1 was cut"),
                            ("\tv\n", "line 1")):
            said = self.kv("put", "m", "--in", "-", store=self.folder / "other", given=given, status=1)
            self.assertIn(told, said, given)
        self.kv("put", "first", "key", status=1)
        self.kv("put", "first", status=1)
        self.kv("put", "first", "key", "value", "--in", "-", status=1)
        self.kv("put", "first", "--in", self.folder / "none", status=1)
        self.assertEqual(self.kv("scan", "first"), before)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
