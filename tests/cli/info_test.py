#!/usr/bin/env python3
"""`memlith info` says how a store was left, from a single look at it: closed, or killed with commits in its log. And
what the command says of a word that is none of its commands.

Usage: info_test.py MEMLITH HELLO_C
HELLO_C makes a store in the folder that it is given, persists to it and closes it.
"""
import errno
import json
import mmap
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

MEMLITH, HELLO = sys.argv[1:3]
RWF_ATOMIC = 0x40


def kernel():
    return tuple(int(part) for part in os.uname().release.split(".")[:2])


def info(path):
    done = subprocess.run([MEMLITH, "info", "--json", str(path)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout)


class Info(unittest.TestCase):
    def setUp(self):
        self.temporary = tempfile.TemporaryDirectory(dir=os.environ.get("MEMLITH_TEST_DIR") or None,
                                                     prefix="info-test-")
        self.addCleanup(self.temporary.cleanup)
        self.folder = pathlib.Path(self.temporary.name)

    @unittest.skipUnless(shutil.which("strace"), "strace is missing")
    def test_the_advice_after_a_failed_read_does_not_promise_what_cannot_be_read(self):
        store = self.folder / "store"
        subprocess.run([HELLO, str(store)], check=True, stdout=subprocess.DEVNULL)
        done = subprocess.run(["strace", "-f", "-qq", "-o", "/dev/null", "-P", str(store / "objects" / "0"), "-e",
                               "inject=pread64:error=EIO", MEMLITH, "info", str(store)], capture_output=True, text=True,
                              check=False)
        if "ptrace" in done.stderr.lower():
            self.skipTest("strace may not trace here")
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        self.assertIn("objects/0: cannot read", done.stderr)
        self.assertIn("restore it from a copy or an archive", done.stderr)

    def test_a_closed_store_is_clean(self):
        store = self.folder / "store"
        for opened in 1, 2:
            subprocess.run([HELLO, str(store)], check=True, stdout=subprocess.DEVNULL)
            found = info(store)
            self.assertTrue(found["clean"])
            self.assertEqual(found["incarnation"], opened)
            self.assertEqual(found["log"]["frames_waiting"], 0)
            self.assertEqual(len(found["regions"]), 1)
        self.assertEqual(info(store), found, "looking has changed something")

    def test_a_killed_one_is_not_and_says_what_waits(self):
        bench = subprocess.Popen([MEMLITH, "bench", "persist", "--dir", str(self.folder), "--pages", "1",
                                  "--region-mib", "1", "--log-mib", "64", "--seconds", "600", "--json"],
                                 stdout=subprocess.DEVNULL)
        try:
            store = self.folder / f"memlith-bench-{bench.pid}" / "store"
            stat = {"persists": 0}
            while stat["persists"] < 300:  # the region was filled and the store checkpointed before most of them
                self.assertIsNone(bench.poll(), "the benchmark has ended")
                done = subprocess.run([MEMLITH, "stat", "--json", str(store)], capture_output=True, text=True,
                                      check=False)
                stat = json.loads(done.stdout) if done.returncode == 0 else stat
            self.assertTrue(stat["alive"])
            self.assertIn("open for", subprocess.run([MEMLITH, "stat", str(store)], capture_output=True, text=True,
                                                     check=True).stdout)
            bench.kill()
            os.waitid(os.P_PID, bench.pid, os.WEXITED | os.WNOWAIT)  # its number is still taken
            last = subprocess.run([MEMLITH, "stat", str(store)], capture_output=True, text=True, check=True).stdout
            self.assertIn(f"{bench.pid} (it has ended", last)
            for clock in "open for", "a second":
                self.assertNotIn(clock, last)
            watched = subprocess.run([MEMLITH, "stat", "--watch", "--interval", "0.01", str(store)],
                                     capture_output=True, text=True, check=True)
            titles, gone = watched.stdout.splitlines()
            self.assertIn("p50 us", titles)
            self.assertTrue(all(len(line) <= 80 for line in watched.stdout.splitlines()), watched.stdout)
            self.assertIn("has ended", gone)
        finally:
            bench.kill()
            bench.wait()
        for _ in range(2):
            found = info(store)
            self.assertFalse(found["clean"])
            self.assertGreater(found["log"]["frames_waiting"], 0)
            self.assertGreater(found["log"]["frame_bytes"], 4096)


class UntornWrites(unittest.TestCase):
    """The sizes that it tells are those of writes that the file system takes."""

    def takes(self, folder, size):
        memory = mmap.mmap(-1, size)  # direct writes want whole pages of memory
        try:
            with open(folder / "file", "wb", buffering=0, opener=lambda path, flags: os.open(path, flags | os.O_DIRECT)
                      ) as file:
                return os.pwritev(file.fileno(), [memory], 0, RWF_ATOMIC) == size
        except OSError as error:
            self.assertIn(error.errno, (errno.EINVAL, errno.EOPNOTSUPP))
            return False

    def check(self, folder):
        subprocess.run([HELLO, str(folder / "store")], check=True, stdout=subprocess.DEVNULL)
        found = info(folder / "store")
        least, most = found["untorn_write_bytes_min"], found["untorn_write_bytes_max"]
        said = subprocess.run([MEMLITH, "info", folder / "store"], capture_output=True, text=True, check=True).stdout
        self.assertEqual("RWF_ATOMIC" in said, most > 0, said)
        for size in least, most:
            self.assertTrue(size == 0 or self.takes(folder, size), found)
        self.assertFalse(self.takes(folder, max(2 * most, 4096)), found)
        return most

    def test_here(self):
        with tempfile.TemporaryDirectory(dir=os.environ.get("MEMLITH_TEST_DIR") or None, prefix="info-test-") as folder:
            self.check(pathlib.Path(folder))

    @unittest.skipUnless(os.geteuid() == 0 and shutil.which("mkfs.xfs"), "mounting an XFS takes root and mkfs.xfs")
    def test_on_xfs(self):
        with tempfile.TemporaryDirectory(dir=os.environ.get("MEMLITH_TEST_DIR") or None, prefix="info-test-") as folder:
            image, mounted = pathlib.Path(folder, "image"), pathlib.Path(folder, "mounted")
            mounted.mkdir()
            image.touch()
            os.truncate(image, 400 << 20)
            subprocess.run(["mkfs.xfs", "-q", image], check=True)
            if subprocess.run(["mount", "-o", "loop", image, mounted], capture_output=True, check=False).returncode:
                self.skipTest("no loop device can be mounted here")
            try:
                most = self.check(mounted)
            finally:
                subprocess.run(["umount", mounted], check=True)
            if kernel() >= (6, 16):
                self.assertGreaterEqual(most, 8192)


class Stat(unittest.TestCase):
    def test_a_store_that_nobody_has_open(self):
        with tempfile.TemporaryDirectory(dir=os.environ.get("MEMLITH_TEST_DIR") or None, prefix="stat-test-") as folder:
            store = os.path.join(folder, "store")
            subprocess.run([HELLO, store], check=True, stdout=subprocess.DEVNULL)
            for path, says in (store, "open for writing"), (store + "s", "there is no store at"):
                done = subprocess.run([MEMLITH, "stat", path], capture_output=True, text=True, check=False)
                self.assertEqual(done.returncode, 1)
                self.assertIn(says, done.stderr)
                self.assertEqual("Check the path" in done.stderr, path != store, done.stderr)


class Hello(unittest.TestCase):
    def test_an_option_is_no_folder(self):
        with tempfile.TemporaryDirectory(dir=os.environ.get("MEMLITH_TEST_DIR") or None,
                                         prefix="hello-test-") as folder:
            for program in HELLO, HELLO.removesuffix("hello_c") + "hello_cpp":
                for option, code in ("--help", 0), ("-h", 1):
                    done = subprocess.run([program, option], cwd=folder, capture_output=True, text=True, check=False)
                    self.assertEqual(done.returncode, code)
                    self.assertIn("[FOLDER]", done.stdout)
            self.assertEqual(os.listdir(folder), [])


class Mistyped(unittest.TestCase):
    def test_names_the_word_and_what_there_is(self):
        for words, says in ((["verifi"], ["verifi", "verify", "bench"]),
                            (["bench", "persit", "--dir", "x"], ["persit", "persist", "tail"]),
                            (["bench"], ["memlith bench needs", "persist"]),
                            (["sqlite", "--json"], ["memlith sqlite needs", "export"])):
            done = subprocess.run([MEMLITH, *words], capture_output=True, text=True, check=False)
            self.assertEqual(done.returncode, 1)
            for each in says:
                self.assertIn(each, done.stdout + done.stderr)

    def test_help_that_does_not_arrive(self):
        for words in ["--version"], ["--help"], ["bench", "persist", "--help"], ["help"]:
            with open("/dev/full", "wb") as full:
                done = subprocess.run([MEMLITH, *words], stdout=full, stderr=subprocess.PIPE, text=True, check=False)
            self.assertEqual(done.returncode, 1, words)
            self.assertIn("standard output", done.stderr)
            self.assertEqual(subprocess.run([MEMLITH, *words], stdout=subprocess.DEVNULL, check=False).returncode, 0)

    def test_of_a_command_says_what_it_lacks(self):
        done = subprocess.run([MEMLITH, "info"], capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 1)
        self.assertIn("STORE is required", done.stderr)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
