#!/usr/bin/env python3
"""`memlith archive`, `restore` and `promote` as a user runs them: beside a program that writes, to a folder and through
commands of the shell; what is damaged is named; a standby becomes a store.

Usage: archive_test.py MEMLITH
"""
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
import unittest

MEMLITH = sys.argv[1]


class Archive(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory(dir=os.environ.get("MEMLITH_TEST_DIR") or None, prefix="archive-test-")
        self.addCleanup(temporary.cleanup)
        self.folder = pathlib.Path(temporary.name)
        self.store = self.folder / "store"
        self.target = self.folder / "target"
        self.restored = 0

    def run_it(self, *words, status=0):
        done = subprocess.run([MEMLITH, *map(str, words)], capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, status, done.stdout + done.stderr)
        return done.stdout if status == 0 else done.stderr

    def put(self, key, value="value"):
        self.run_it("kv", "put", self.store, "map", key, value)

    def restore(self, *words):
        """The content of a store that is restored."""
        self.restored += 1
        dest = self.folder / f"restored{self.restored}"
        self.run_it("restore", *words, dest)
        self.run_it("verify", "--data", dest)
        return self.run_it("dump", dest)

    def dump(self):
        return self.run_it("dump", self.store)

    def archiver(self, *words):
        process = subprocess.Popen([MEMLITH, "archive", self.store, *map(str, words)], stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, text=True)
        self.addCleanup(self.end, process)
        return process

    @staticmethod
    def end(process):
        if process.poll() is None:
            process.kill()
            process.communicate()

    def archived(self, *target):
        """How far the archive is; 0: there is none yet."""
        done = subprocess.run([MEMLITH, "archive", "list", "--json", *map(str, target)], capture_output=True, text=True,
                              check=False)
        told = [json.loads(line) for line in done.stdout.splitlines()] if done.returncode == 0 else []
        return told[-1]["end_lsn"] if told else 0

    def wait_for_more(self, lsn):
        for _ in range(1200):
            if self.archived(self.target) > lsn:
                return
            time.sleep(0.05)
        self.fail("the archive does not get that far")

    def wait_for(self, content):
        for _ in range(300):
            if self.restore(self.target) == content:
                return
            time.sleep(0.2)
        self.fail("the archive stays behind")

    def test_every_archived_state_can_be_restored(self):
        states = []
        for number in range(5):
            self.put(f"key{number}", "x" * number)
            self.run_it("archive", "--once", self.store, self.target)
            states.append((self.archived(self.target), self.dump()))
        for lsn, content in states:
            self.assertEqual(self.restore("--at", lsn, self.target), content)
            self.assertEqual(self.restore("--at", f"1:{lsn}", self.target), content)
        self.assertEqual(self.restore(self.target), states[-1][1])
        self.assertIn("no run 2", self.run_it("restore", "--dry-run", "--at", "2:1", self.target, status=1))
        self.assertIn("--at does not take 1:", self.run_it("restore", "--at", "1:", self.target, "x", status=1))
        self.assertIn("can be restored", self.run_it("restore", "--dry-run", self.target))
        self.assertIn("there is something already", self.run_it("restore", self.target, self.store, status=1))

    def test_beside_a_writer(self):
        self.put("first")
        archiver = self.archiver(self.target, "--wait-ms", 1, "--keep", "32M")
        self.wait_for_more(0)
        self.assertTrue((self.store / "archived").exists())
        given = "".join(f"key{number}\tvalue{number}\n" for number in range(30000))
        subprocess.run([MEMLITH, "kv", "put", self.store, "load", "--in", "-"], input=given, text=True,
                       stdout=subprocess.DEVNULL, check=True)
        self.wait_for(self.dump())
        archiver.send_signal(signal.SIGINT)
        out, err = archiver.communicate(timeout=60)
        self.assertEqual(archiver.returncode, 0, err)
        self.assertIn("archived up to LSN", out)
        self.assertIn("0 gaps", out)
        self.assertFalse((self.store / "archived").exists())
        self.assertEqual(self.restore(self.target), self.dump())

    def test_commands(self):
        there = self.folder / "objects of a command"
        there.mkdir()
        put = f"cat > '{there}/%n.part' && mv '{there}/%n.part' '{there}/%n'"
        get = f"cat '{there}/%n'"
        commands = ["--command", put, "--get-command", get]
        self.put("first")
        self.assertIn("failed", self.run_it("archive", "--once", self.store, *commands, status=1))
        self.run_it("archive", "--once", "--new", self.store, *commands)
        self.put("second")
        self.run_it("archive", "--once", self.store, *commands)
        self.assertTrue((there / "manifest").exists())
        self.assertEqual(self.restore("--get-command", get), self.dump())
        self.assertGreater(self.archived("--get-command", get), 0)
        failing = ["--command", "cat > /dev/null; exit 3", "--get-command", get]
        self.put("third")
        self.assertIn("exited with 3", self.run_it("archive", "--once", self.store, *failing, status=1))
        self.run_it("archive", "--once", self.store, *commands)
        self.assertEqual(self.restore("--get-command", get), self.dump())

    def test_damage_is_named(self):
        for number in range(4):
            self.put(f"key{number}")
            self.run_it("archive", "--once", self.store, self.target)
        segments = sorted(self.target.glob("segment-*"))
        self.assertGreater(len(segments), 1)
        content = bytearray(segments[-1].read_bytes())
        content[len(content) // 2] ^= 1
        segments[-1].write_bytes(content)
        said = self.run_it("restore", self.target, self.folder / "dest", status=1)
        self.assertIn(segments[-1].name, said)
        self.assertFalse((self.folder / "dest").exists())
        self.run_it("restore", "--as-far-as-possible", self.target, self.folder / "dest")
        self.assertEqual(self.run_it("kv", "get", self.folder / "dest", "map", "key0"), "value\n")
        segments[-1].unlink()
        self.assertIn(segments[-1].name, self.run_it("restore", self.target, self.folder / "other", status=1))

    def test_rot_in_the_store_is_no_part_of_a_full_copy(self):
        self.put("first")
        self.run_it("archive", "--once", self.store, self.target)
        region = self.store / "objects" / "1"
        content = bytearray(region.read_bytes())
        content[-1] ^= 1
        region.write_bytes(content)
        self.put("second")
        # A due copy is refused, and the frames are archived.
        done = subprocess.run([MEMLITH, "archive", "--once", "--full-every", "1", self.store, self.target],
                              capture_output=True, text=True, check=False)
        for _ in range(100):
            if "no full copy was made" in done.stderr:
                break
            time.sleep(0.1)
            done = subprocess.run([MEMLITH, "archive", "--once", "--full-every", "1", self.store, self.target],
                                  capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("no full copy was made", done.stderr)
        self.assertEqual(self.restore(self.target), self.dump())
        other = self.folder / "other"
        self.assertIn("no full copy was made", self.run_it("archive", "--once", self.store, other, status=1))
        self.run_it("archive", "--once", "--damaged", self.store, other)

    def test_another_store_is_refused(self):
        self.put("first")
        self.run_it("archive", "--once", self.store, self.target)
        self.run_it("kv", "put", self.folder / "other", "map", "key", "value")
        said = self.run_it("archive", "--once", self.folder / "other", self.target, status=1)
        self.assertIn("the archive of another store", said)

    def test_two_archivers(self):
        self.put("first")
        archiver = self.archiver(self.target)
        self.wait_for_more(0)
        said = self.run_it("archive", "--once", self.store, self.target, status=1)
        self.assertIn("another process archives to this folder", said)
        archiver.kill()
        archiver.communicate()
        self.run_it("archive", "--once", self.store, self.target)

    def test_a_standby_becomes_a_store(self):
        standby = self.folder / "standby"
        self.put("first")
        self.run_it("archive", "--once", self.store, self.target)
        self.run_it("archive", "--follow", "--once", self.target, standby)
        self.put("second")
        self.run_it("archive", "--once", self.store, self.target)
        self.run_it("archive", "--follow", "--once", self.target, standby)
        self.assertIn("standby", self.run_it("kv", "put", standby, "map", "key", "value", status=1))
        self.run_it("promote", standby)
        self.assertEqual(self.run_it("dump", standby), self.dump())
        self.run_it("verify", "--data", standby)
        self.run_it("kv", "put", standby, "map", "third", "value")


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0]], verbosity=2)
