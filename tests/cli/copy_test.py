#!/usr/bin/env python3
"""`memlith copy`: stores of every kind, also while a process writes to them, become whole stores; a copy that cannot be
made says why and leaves nothing.

Usage: copy_test.py MEMLITH
"""
import fcntl
import json
import os
import pathlib
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "lib" / "support"))
import loop_device  # noqa: E402 pylint: disable=wrong-import-position

MEMLITH = sys.argv[1]
MIB = 1 << 20


class Copy(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory(dir=os.environ.get("MEMLITH_TEST_DIR") or None, prefix="copy-test-")
        self.addCleanup(temporary.cleanup)
        self.folder = pathlib.Path(temporary.name)
        self.store = self.folder / "store"
        self.copy = self.folder / "copy"

    def run_it(self, *words, status=0):
        done = subprocess.run([MEMLITH, *map(str, words)], capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, status, done.stdout + done.stderr)
        return done.stdout if status == 0 else done.stderr

    def fill(self, store):
        for number in range(10):
            self.run_it("kv", "put", store, "map", f"key{number}", "value" * number)
        return self.run_it("dump", store)

    def names(self):
        return sorted(path.name for path in self.folder.iterdir())

    def make_device(self, name):
        image = self.folder / name
        with open(image, "wb") as file:
            file.truncate(64 * MIB)
        return loop_device.attach_for(self, image)

    def test_a_folder(self):
        dump = self.fill(self.store)
        said = self.run_it("copy", "--verify", self.store, self.copy)
        self.assertIn("as of LSN", said)
        self.assertIn("verified", said)
        self.assertEqual(self.run_it("dump", self.copy), dump)
        self.assertTrue(json.loads(self.run_it("info", "--json", self.copy))["clean"])
        self.run_it("kv", "put", self.copy, "map", "own", "value")
        self.assertEqual(self.run_it("dump", self.store), dump)
        self.assertEqual(self.names(), ["copy", "store"])

    def test_a_copy_that_does_not_verify_is_removed(self):
        self.fill(self.store)
        (self.store / "objects/1.sums").unlink()  # the copy would compare them
        home = self.store / "objects/1"
        content = bytearray(home.read_bytes())
        at = content.index(b"value" * 9)
        content[at - 200:at] = b"x" * 200
        home.write_bytes(content)
        said = self.run_it("copy", "--verify", self.store, self.copy, status=2)
        self.assertIn("verifying the copy", said)
        self.assertIn("the copy was removed", said)
        self.assertEqual(self.names(), ["store"])
        self.run_it("copy", "--verify", "--damaged", self.store, self.copy, status=2)
        self.assertTrue(self.copy.exists())

    def test_files_that_were_copied_one_by_one(self):
        self.fill(self.store)
        closed = self.folder / "closed"
        shutil.copytree(self.store, closed)
        dump = self.run_it("dump", closed)
        # A program that is killed after its put.
        with subprocess.Popen([MEMLITH, "kv", "put", self.store, "load", "--in", "-"], stdin=subprocess.PIPE,
                              stdout=subprocess.DEVNULL) as load:
            load.stdin.write(b"".join(b"key%d\tvalue\n" % number for number in range(20000)))
            load.stdin.flush()
            while json.loads(self.run_it("info", "--json", self.store))["clean"]:
                pass
            load.kill()
        shutil.copytree(self.store, self.copy)
        for command in (("info", self.copy), ("dump", self.copy), ("recover", self.copy),
                        ("copy", self.copy, self.folder / "again")):
            self.assertIn(f"memlith recover --accept-copy {self.copy}", self.run_it(*command, status=1))
        self.assertIn("--accept-copy", self.run_it("verify", self.copy, status=2))
        self.run_it("recover", "--accept-copy", self.copy)
        self.run_it("verify", self.copy)
        self.run_it("recover", self.store)
        self.assertEqual(self.run_it("dump", self.copy), self.run_it("dump", self.store))
        self.assertEqual(self.run_it("dump", closed), dump)

    def test_info_tells_how_far_a_closed_store_is_durable(self):
        self.fill(self.store)
        told = json.loads(self.run_it("info", "--json", self.store))
        self.assertTrue(told["clean"])
        self.assertEqual(told["durable_lsn"], json.loads(self.run_it("copy", "--json", self.store, self.copy))["lsn"])
        self.assertGreater(told["durable_lsn"], 0)

    def test_a_raw_device_and_back(self):
        dump = self.fill(self.store)
        first, second = self.make_device("one"), self.make_device("two")
        self.assertIn("is not prepared", self.run_it("copy", self.store, first, status=1))
        for device in first, second:
            self.run_it("format", device)
        self.run_it("copy", "--verify", self.store, first)
        self.assertIn("exists already", self.run_it("copy", self.store, first, status=1))
        self.run_it("copy", first, second)
        self.run_it("copy", second, self.copy)
        for each in first, second, self.copy:
            self.assertEqual(self.run_it("dump", each), dump)

    def test_beside_a_writer(self):
        self.fill(self.store)
        source = self.folder / "records"
        source.write_text("".join(f"key{number}\tvalue{number}\n" for number in range(60000)), encoding="utf-8")
        with subprocess.Popen([MEMLITH, "kv", "put", self.store, "load", "--in", source],
                              stdout=subprocess.DEVNULL) as load:
            last = 0
            while load.poll() is None:
                told = json.loads(self.run_it("copy", "--verify", "--json", self.store, self.copy))
                self.assertGreaterEqual(told["lsn"], last)
                last = told["lsn"]
                self.assertEqual(self.run_it("kv", "get", self.copy, "map", "key2"), "valuevalue\n")
                shutil.rmtree(self.copy)
        self.assertEqual(load.returncode, 0)

    def test_a_sqlite_database_becomes_an_ordinary_one(self):
        database = sqlite3.connect(self.folder / "app.db")
        database.execute("create table t(a)")
        database.execute("insert into t values (7)")
        database.commit()
        database.close()
        self.run_it("copy", self.folder / "app.db", self.folder / "copy.db")
        with sqlite3.connect(self.folder / "copy.db") as copied:
            self.assertEqual(copied.execute("select a from t").fetchall(), [(7,)])
        self.assertIn("integrity_check", self.run_it("copy", "--verify", self.folder / "app.db", self.folder / "b.db",
                                                     status=1))
        (self.folder / "app.db-memlith").touch()  # the shared page of mode shared
        said = self.run_it("copy", self.folder / "app.db", self.folder / "b.db", status=1)
        self.assertIn("mode shared", said)
        self.assertIn('.backup', said)

    def test_what_is_there_stays(self):
        self.fill(self.store)
        self.copy.mkdir()
        self.assertIn("exists already", self.run_it("copy", self.store, self.copy, status=1))
        self.assertEqual(self.names(), ["copy", "store"])
        self.assertIn("in the store itself", self.run_it("copy", self.store, self.store / "copy", status=1))
        self.assertIn("there is no store", self.run_it("copy", self.folder / "nothing", self.folder / "c", status=1))

    def test_two_copies_to_one_place(self):
        self.fill(self.store)
        working = self.folder / "copy.memlith-copy"
        working.mkdir()
        held = os.open(working, os.O_RDONLY)
        fcntl.flock(held, fcntl.LOCK_EX)
        self.assertIn("another process is making a copy", self.run_it("copy", self.store, self.copy, status=1))
        os.close(held)
        (working / "log.new").write_bytes(b"left over")
        self.run_it("copy", "--verify", self.store, self.copy)
        self.assertEqual(self.names(), ["copy", "store"])

    def test_a_damaged_store_is_told(self):
        self.fill(self.store)
        region = next(path for path in (self.store / "objects").iterdir() if path.name == "1")
        os.truncate(region, region.stat().st_size - 4096)
        self.assertIn("cut short", self.run_it("copy", self.store, self.copy, status=1))
        self.assertEqual(self.names(), ["store"])

    def flip(self, offset):
        region = self.store / "objects" / "1"
        content = bytearray(region.read_bytes())
        content[offset] ^= 4
        region.write_bytes(content)

    def test_rot_is_found(self):
        dump = self.fill(self.store)
        told = json.loads(self.run_it("verify", "--data", "--json", self.store))
        self.assertTrue(told["ok"])
        self.assertEqual(told["data"]["unknown"], 0)
        blocks = told["data"]["blocks"]
        self.assertGreater(blocks, 0)
        last = (self.store / "objects" / "1").stat().st_size - 4096
        self.flip(last)  # no structure has it
        said = subprocess.run([MEMLITH, "verify", "--data", self.store], capture_output=True, text=True, check=False)
        self.assertEqual(said.returncode, 2, said.stdout + said.stderr)
        self.assertIn(f"4096 bytes from offset {last} on", said.stdout)
        self.assertIn("1 of them damaged", said.stdout)
        self.assertIn("sound", self.run_it("verify", self.store))
        self.assertIn(f"offset {last} on", self.run_it("copy", self.store, self.copy, status=1))
        self.assertEqual(self.names(), ["store"])
        self.run_it("copy", "--damaged", self.store, self.copy)
        self.assertEqual(self.run_it("dump", self.copy), dump)
        # A store goes on with it, and what is damaged stays known to be.
        self.run_it("kv", "put", self.store, "map", "more", "value")
        self.assertIn("1 of them damaged",
                      subprocess.run([MEMLITH, "verify", "--data", "--complete", self.store], capture_output=True,
                                     text=True, check=False).stdout)
        self.flip(last)
        self.run_it("verify", "--data", self.store)

    def test_checksums_that_are_missing_are_made(self):
        dump = self.fill(self.store)
        (self.store / "objects" / "1.sums").unlink()
        told = json.loads(self.run_it("verify", "--data", "--json", self.store))["data"]
        self.assertEqual((told["unknown"], told["damaged"]), (told["blocks"], 0))
        told = json.loads(self.run_it("verify", "--data", "--complete", "--json", self.store))["data"]
        self.assertEqual((told["unknown"], told["damaged"], told["completed"]), (0, 0, told["blocks"]))
        self.assertEqual(self.run_it("dump", self.store), dump)
        self.flip(100)
        self.run_it("verify", "--data", self.store, status=2)

    def test_a_copy_has_checksums(self):
        self.fill(self.store)
        self.run_it("copy", self.store, self.copy)
        told = json.loads(self.run_it("verify", "--data", "--json", self.copy))["data"]
        self.assertEqual((told["unknown"], told["damaged"]), (0, 0))

    def test_a_full_disk(self):
        dump = self.fill(self.store)
        mount = self.folder / "mount"
        mount.mkdir()
        if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "none", mount], capture_output=True,
                          check=False).returncode != 0:
            self.skipTest("skip: cannot mount (needs root)")
        try:
            said = self.run_it("copy", self.store, mount / "copy", status=1)
            self.assertIn("there is no room for the copy", said)
            self.assertIn("make room", said)
            self.assertEqual(list(mount.iterdir()), [])
            subprocess.run(["mount", "-o", "remount,size=64m", mount], check=True)
            self.run_it("copy", self.store, mount / "copy")
            self.assertEqual(self.run_it("dump", mount / "copy"), dump)
        finally:
            subprocess.run(["umount", mount], check=True)

    def test_blocks_are_shared_where_the_file_system_can(self):
        image, mount = self.folder / "image", self.folder / "mount"
        with open(image, "wb") as file:
            file.truncate(512 * MIB)
        mount.mkdir()
        if shutil.which("mkfs.xfs") is None or subprocess.run(["mkfs.xfs", "-q", image], check=False).returncode != 0:
            self.skipTest("skip: no XFS")
        if subprocess.run(["mount", "-o", "loop", image, mount], capture_output=True, check=False).returncode != 0:
            self.skipTest("skip: cannot mount (needs root)")
        try:
            dump = self.fill(mount / "store")
            told = json.loads(self.run_it("copy", "--verify", "--json", mount / "store", mount / "copy"))
            self.assertGreater(told["shared_bytes"], 0)
            self.run_it("kv", "put", mount / "store", "map", "key2", "changed")
            self.run_it("recover", mount / "store")
            self.assertEqual(self.run_it("dump", mount / "copy"), dump)
        finally:
            subprocess.run(["umount", mount], check=True)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0]], verbosity=2)
