#!/usr/bin/env python3
"""Programs under `memlith run` that do not commit: a line says so, --commit-every commits, between two calls.

Usage: late_test.py MEMLITH
"""
import os
import signal
import unittest

from folder import Folder, KILL, OPEN, PYTHON, WITHOUT_USERFAULTFD

LATE_S = 5
LINE = "are lost"
MAPPED = OPEN + "memory = mmap.mmap(fd, 8192)\n"
STREAM = """
import ctypes
libc = ctypes.CDLL(None)
libc.fopen.restype = ctypes.c_void_p
file = ctypes.c_void_p(libc.fopen(b'data.bin', b'w'))
libc.fputs(b'one', file)
libc.fflush(file)
"""


class Told(Folder):
    """One line on standard error for each file that is changed and not committed."""

    def said(self, program, options=()):
        return self.python("import time\n" + program, options=options).stderr

    def check_told(self, program):
        said = self.said(program + f"time.sleep({LATE_S + 3})\n")
        self.assertEqual(said.count(LINE), 1, said)
        self.assertIn("data.bin: it was changed 5 seconds ago", said)
        self.assertIn("--commit-every", said)

    def test_a_write_that_is_not_committed_for_five_seconds(self):
        self.check_told(OPEN + "os.write(fd, b'one')\n")

    def test_a_store_to_a_mapping_that_is_not_committed(self):
        self.check_told(MAPPED + "os.fsync(fd)\nmemory[5000:5003] = b'one'\n")

    def test_a_stream(self):
        self.check_told(STREAM)

    def test_stores_that_nothing_marks(self):
        said = self.said(WITHOUT_USERFAULTFD + f"""
os.execv(sys.executable, ['python3', '-c', '''
import mmap, os, time
fd = os.open('data.bin', os.O_RDWR | os.O_CREAT, 0o644)
os.ftruncate(fd, 8192)
memory = mmap.mmap(fd, 8192)
os.fsync(fd)
memory[5000:5006] = b'stored'
time.sleep({3 * LATE_S})
'''])
""")
        self.assertEqual(said.count(LINE), 1, said)

    def test_sixteen_mebibytes_are_told_at_once(self):
        said = self.said(OPEN + """
for _ in range(40):
    os.write(fd, bytes(1 << 20))
""" + KILL.replace("SIGKILL", "SIGCONT"))
        self.assertEqual(said.count(LINE), 1, said)
        self.assertIn("data.bin: 16 MiB were written", said)

    def test_programs_that_commit_or_change_nothing_are_told_nothing(self):
        said = self.said(MAPPED + f"""
(idle, other) = (os.open('idle.bin', os.O_RDWR | os.O_CREAT), os.open('weak.bin', os.O_RDWR | os.O_CREAT))
os.ftruncate(idle, 8192)
held = mmap.mmap(idle, 8192)
held.flush()
for i in range({2 * (LATE_S + 3)}):
    os.pwrite(fd, b'%08d' % i, 0)
    memory[5000:5003] = b'%03d' % i
    os.fsync(fd)
    os.pwrite(other, bytes(4 << 20), 0)
    os.fdatasync(other)
    held[0:1]
    time.sleep(0.5)
os.write(os.open('synced.bin', os.O_RDWR | os.O_CREAT | os.O_DSYNC), bytes(20 << 20))
""")
        self.assertEqual(said, "")

    def test_with_commit_every_nothing_is_told(self):
        self.assertEqual(self.said(OPEN + f"os.write(fd, bytes(20 << 20))\ntime.sleep({LATE_S + 3})\n",
                                   ["--commit-every", "1"]), "")


class CommitEvery(Folder):
    """--commit-every keeps what a program has written that never calls fsync."""

    def kept(self, program):
        done = self.python("import time\n" + program + "time.sleep(1)\n" + KILL, options=["--commit-every", "0.1"],
                           check=False)
        self.assertEqual(done.returncode, -signal.SIGKILL, done.stderr)
        return self.recovered()

    def test_writes_stores_and_lengths(self):
        found = self.kept(MAPPED + "os.write(fd, b'one')\nmemory[5000:5003] = b'two'\nos.ftruncate(fd, 9000)\n")
        self.assertEqual((found[:3], found[5000:5003], len(found)), (b"one", b"two", 9000))

    def test_streams(self):
        self.assertEqual(self.kept(STREAM), b"one")

    def test_a_child_commits_its_own_file(self):
        found = self.kept("""
os.close(os.open('other.bin', os.O_RDWR | os.O_CREAT))
child = os.fork()
if child == 0:
    fd = os.open('data.bin', os.O_RDWR | os.O_CREAT)
    os.write(fd, b'child')
    time.sleep(1)
    os.kill(os.getpid(), signal.SIGKILL)
os.wait()
""")
        self.assertEqual(found, b"child")

    def test_each_write_is_in_the_commit_as_a_whole(self):
        """Threads write blocks without a pause; a commit waits for the calls under way, and has no half of one."""
        block = 1 << 20
        for _ in range(6):
            program = f"""
import os, signal, threading, time
fd = os.open('data.bin', os.O_RDWR | os.O_CREAT, 0o644)
blocks = [bytes([each]) * {block} for each in range(1, 8)]
counts = [0, 0, 0]
def write(place):
    while True:
        os.pwrite(fd, blocks[counts[place] % 7], place * {block})
        counts[place] += 1
for place in range(3):
    threading.Thread(target=write, args=(place,), daemon=True).start()
while min(counts) < 2:
    time.sleep(0.01)
os.fsync(fd)  # on a busy machine no commit of --commit-every may have come yet
time.sleep(0.7)
os.kill(os.getpid(), signal.SIGKILL)
"""
            done = self.run_with("*.bin", PYTHON, "-c", program, options=["--commit-every", "0.01"], check=False)
            self.assertEqual(done.returncode, -signal.SIGKILL, done.stderr)
            found = self.recovered()
            self.assertEqual(len(found), 3 * block)
            self.assertEqual([len(set(found[at:at + block])) for at in range(0, len(found), block)], [1, 1, 1])
            os.remove(self.folder / "data.bin")

    def test_a_kill_at_any_moment_leaves_what_was_so_at_one(self):
        """A number goes to three places and to the length, one after the other: a commit has that of one moment."""
        looked_at = 0
        for turn in range(8):
            program = f"""
import os, signal, threading
fd = os.open('data.bin', os.O_RDWR | os.O_CREAT, 0o644)
threading.Timer({0.15 + turn * 0.037}, lambda: os.kill(os.getpid(), signal.SIGKILL)).start()
number = 0
while True:
    number += 1
    for place in (0, 70000, 140000):
        os.pwrite(fd, b'%08d' % number, place)
    os.pwrite(fd, bytes(1), 150000 + number)
"""
            done = self.run_with("*.bin", PYTHON, "-c", program, options=["--commit-every", "0.01"], check=False)
            self.assertEqual(done.returncode, -signal.SIGKILL, done.stderr)
            found = self.recovered()
            os.remove(self.folder / "data.bin")
            if len(found) < 150002:  # killed before the first commits
                continue
            looked_at += 1
            first, second, third = (int(found[at:at + 8]) for at in (0, 70000, 140000))
            self.assertTrue(first >= second >= third >= first - 1, (first, second, third))
            self.assertIn(len(found) - 150001, (third, third - 1))
        self.assertGreater(looked_at, 0)


if __name__ == "__main__":
    unittest.main()
