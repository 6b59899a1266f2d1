#!/usr/bin/env python3
"""`memlith run --one-commit`: a commit of one file is one of all.

Usage: one_commit_test.py MEMLITH
"""
import subprocess
import unittest

from folder import Folder, MEMLITH, PYTHON


class OneCommit(Folder):
    def test_a_commit_of_one_file_is_one_of_all(self):
        program = """
import mmap, os, sys
files = [os.open(name + '.bin', os.O_RDWR | os.O_CREAT, 0o644) for name in 'abc']
last = int.from_bytes(os.pread(files[0], 8, 0), 'little')
for number in range(last + 1, 1 << 30):
    for each, fd in enumerate(files):
        os.pwrite(fd, number.to_bytes(8, 'little'), 0)
        if each == 1:
            os.ftruncate(fd, 8 + number % 50 * 200)
    os.fsync(files[number % 3])
    print(number, flush=True)
    if number % 40 == 0:  # it leaves the others, and comes back
        os.close(files[2])
        files[2] = os.open('c.bin', os.O_RDWR)
"""
        told = 0
        for kill in range(12):
            with subprocess.Popen([MEMLITH, "run", "--match", "*.bin", "--one-commit", "--", PYTHON, "-c", program],
                                  cwd=self.folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as child:
                for _ in range(1 + kill * 17 % 90):
                    line = child.stdout.readline()
                    self.assertTrue(line, child.stderr.read() if not line else "")
                    told = int(line)
                child.kill()
                for line in child.stdout:
                    told = int(line) if line.endswith("\n") else told
            names = ["a.bin", "b.bin", "c.bin"]
            order = names[kill % 3:] + names[:kill % 3]
            if kill % 4 == 3:  # the next program recovers them
                continue
            found = {int.from_bytes(self.recovered(name)[:8], "little") for name in order}
            self.assertEqual(len(found), 1, found)
            self.assertGreaterEqual(found.pop(), told)
            self.assertEqual(list(self.folder.glob("common-*")), [])
        done = self.python("a, b, c = (os.open(name + '.bin', os.O_RDWR) for name in 'abc')\n"
                           "os.pwrite(a, b'end', 100)\nos.pwrite(b, b'end', 1)\n", options=["--one-commit"])
        self.assertEqual(done.stderr, "")
        self.assertEqual((self.folder / "a.bin").read_bytes()[100:103], b"end")
        self.assertEqual(sorted(each.name for each in self.folder.iterdir()), names)

    def test_what_one_commit_does_not_go_with(self):
        for option in (["--weak", "5"], ["--commit-every", "1"]):
            done = self.python("", options=["--one-commit", *option], check=False)
            self.assertNotEqual(done.returncode, 0)
            self.assertIn("does not go with", done.stderr)

    def test_one_commit_of_four_files_takes_one(self):
        rounds = 50
        program = f"""
files = [os.open(name + '.bin', os.O_RDWR | os.O_CREAT, 0o644) for name in 'abcd']
for number in range({rounds}):
    for fd in files:
        os.pwrite(fd, b'%d' % number, 0)
    for fd in files:
        os.fsync(fd)
"""
        # Making and ending five logs takes the same in both.
        together, apart = self.flushes(program, ["--one-commit"]), self.flushes(program)
        self.assertLessEqual(together, rounds + 100)
        self.assertGreaterEqual(apart, 4 * rounds)

    def test_threads_commit_all_files_while_others_open_and_close_theirs(self):
        done = self.python("""
import threading, time
until = time.monotonic() + 2
def works(own):
    number = 0
    while time.monotonic() < until:
        fd = os.open(f'{own}.bin', os.O_RDWR | os.O_CREAT, 0o644)
        for _ in range(20):
            number += 1
            os.pwrite(fd, b'%08d' % number, number % 100 * 8)
            os.fsync(fd)
        os.ftruncate(fd, 800)
        os.close(fd)
        if number % 60 == 0:
            os.rename(f'{own}.bin', f'{own}-moved.bin')
            os.rename(f'{own}-moved.bin', f'{own}.bin')
        if number % 180 == 0 and own > 1:
            os.unlink(f'{own}.bin')
    with open(f'{own}.bin', 'a+b') as file:
        file.truncate(0)
        file.write(b'%08d' % number)
    print(own, number)
threads = [threading.Thread(target=works, args=(own,)) for own in range(4)]
for each in threads:
    each.start()
for each in threads:
    each.join()
""", options=["--one-commit"])
        self.assertEqual(done.stderr, "")
        for line in done.stdout.splitlines():
            own, number = line.split()
            self.assertEqual((self.folder / f"{own}.bin").read_bytes(), b"%08d" % int(number))
        self.assertEqual(len(done.stdout.splitlines()), 4)
        self.assertEqual(sorted(each.name for each in self.folder.iterdir()), [f"{own}.bin" for own in range(4)])


if __name__ == "__main__":
    unittest.main()
