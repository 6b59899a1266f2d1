#!/usr/bin/env python3
"""The command's words fit what happened: exit codes of `verify`, `--json` at any place, advice for what was named
and typed.

Usage: words_test.py MEMLITH HELLO_C
HELLO_C makes a store in the folder that it is given, persists to it and closes it.
"""
import ctypes
import json
import os
import pathlib
import shutil
import struct
import subprocess
import sys
import tempfile
import unittest

MEMLITH, HELLO = sys.argv[1:3]
SUPERBLOCK_SEED = 0x6D656D6C697468
CHECKSUM_AT = 504


def memlith(*words):
    return subprocess.run([MEMLITH, *map(str, words)], capture_output=True, text=True, check=False)


def set_version(log, version):
    """Makes both copies of the superblock whole ones of that version."""
    xxhash = ctypes.CDLL("libxxhash.so.0").XXH3_64bits_withSeed
    xxhash.restype, xxhash.argtypes = ctypes.c_uint64, [ctypes.c_char_p, ctypes.c_size_t, ctypes.c_uint64]
    with open(log, "r+b") as file:
        for at in 0, 4096:
            file.seek(at)
            block = bytearray(file.read(CHECKSUM_AT))
            assert xxhash(bytes(block), CHECKSUM_AT,
                          SUPERBLOCK_SEED) == struct.unpack("<Q", file.read(8))[0], "another checksum"
            struct.pack_into("<I", block, 8, version)
            file.seek(at)
            file.write(block + struct.pack("<Q", xxhash(bytes(block), CHECKSUM_AT, SUPERBLOCK_SEED)))


class Words(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory(dir=os.environ.get("MEMLITH_TEST_DIR") or None, prefix="words-test-")
        self.addCleanup(temporary.cleanup)
        self.folder = pathlib.Path(temporary.name)
        self.store = self.folder / "store"

    def make(self):
        subprocess.run([HELLO, self.store], check=True, stdout=subprocess.DEVNULL)

    def test_verify_has_a_code_for_other_versions(self):
        self.make()
        self.assertEqual(memlith("verify", self.store).returncode, 0)
        for version, says in ((2, "Use a later version of memlith"),
                              (0, "No version of memlith writes format version 0")):
            set_version(self.store / "log", version)
            done = memlith("verify", self.store)
            self.assertEqual((done.returncode, done.stdout), (3, ""))
            self.assertIn(f"written in format version {version}", done.stderr)
            self.assertIn(says, done.stderr)
            if version == 0:
                self.assertNotIn("later version of memlith", done.stderr)
            self.assertEqual(memlith("info", self.store).returncode, 1)
        for code in "0, intact", "1, not", "2, damaged", "3, another":
            self.assertIn(code, " ".join(memlith("help", "verify").stdout.split()))

    def test_a_superblock_with_wrong_checksums_is_damage_and_says_so(self):
        self.make()
        with open(self.store / "log", "r+b") as log:
            for at in 40, 4096 + 40:
                log.seek(at)
                log.write(b"\xee")
        done = memlith("verify", self.store)
        self.assertEqual(done.returncode, 2)
        self.assertEqual(done.stderr.count("its checksum is wrong (expected 0x"), 2, done.stderr)
        self.assertNotIn("magic", done.stderr)

    def test_json_before_a_command(self):
        self.make()
        for words in ["info"], ["verify"], ["recover"]:
            before, behind = memlith("--json", *words, self.store), memlith(*words, "--json", self.store)
            self.assertEqual((before.returncode, before.stderr), (0, ""))
            self.assertEqual(json.loads(before.stdout).keys(), json.loads(behind.stdout).keys())
        for words in (["--json", "stat", self.store],
                      ["--json", "sqlite", "export", self.folder / "x", self.folder / "y"],
                      ["sqlite", "--json", "export", self.folder / "x", self.folder / "y"],
                      ["--json", "bench", "open", "--dir", self.folder / "x"],
                      ["bench", "--json", "open", "--dir", self.folder / "x"]):
            done = memlith(*words)
            self.assertEqual((done.returncode, done.stderr), (1, ""), words)
            self.assertIn(json.loads(done.stdout)["error"]["category"], ("not found", "i/o error"), words)

    def test_a_database_that_is_not_there(self):
        for command in "export", "import":
            done = memlith("sqlite", command, self.folder / "none.db", self.folder / "copy.db")
            self.assertEqual(done.returncode, 1)
            self.assertIn(f"there is no database at {self.folder / 'none.db'}", done.stderr)
            self.assertIn("SQLite database", done.stderr)
            self.assertNotIn("store", done.stderr)

    def test_info_without_the_log(self):
        self.make()
        os.remove(self.store / "log")
        done = memlith("info", self.store)
        self.assertEqual(done.returncode, 1)
        self.assertIn(f"{self.store}/log was removed", done.stderr)
        self.assertIn("Put the log back", done.stderr)
        self.assertNotIn("create one", done.stderr)
        file = self.folder / "file"
        file.write_bytes(bytes(4096))
        done = memlith("info", file)
        self.assertEqual(done.returncode, 1)
        self.assertIn("put the log back", done.stderr)
        self.assertNotIn("create one", done.stderr)

    def test_watch_takes_no_number(self):
        self.make()
        for words in (["--watch", "5", self.store], [self.store, "--watch", "0.5"], ["--watch=5", self.store],
                      ["--watch", "5"]):
            done = memlith("stat", *words)
            self.assertEqual(done.returncode, 1)
            self.assertIn("--watch takes no number", done.stderr)
            self.assertIn("--interval", done.stderr)
        self.assertIn("open for writing", memlith("stat", "--watch", "--interval", "5", self.store).stderr)
        shutil.copytree(self.store, self.folder / "5")  # a store whose name is a number is a store
        done = subprocess.run([MEMLITH, "stat", "--watch", "5"], cwd=self.folder, capture_output=True, text=True,
                              check=False)
        self.assertIn("open for writing", done.stderr)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
