"""Shared by the tests of `memlith run`: a folder, programs in it, and the file as its last commit left it."""
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

MEMLITH = os.path.abspath(sys.argv.pop(1))
PYTHON = "/usr/bin/python3"  # Debian's, which has Debian's modules
HANG_S = 300


def have_module(name):
    found = subprocess.run([PYTHON, "-c", f"import {name}"], capture_output=True, check=False)
    return found.returncode == 0


class Folder(unittest.TestCase):
    def setUp(self):
        made = tempfile.TemporaryDirectory(dir=os.environ.get("MEMLITH_TEST_DIR"), prefix="memlith-run-")
        self.addCleanup(made.cleanup)
        self.folder = pathlib.Path(made.name)

    def run_with(self, match, *command, options=(), check=True, **more):
        done = subprocess.run([MEMLITH, "run", "--match", match, *options, "--", *command], cwd=self.folder,
                              capture_output=True, text=True, timeout=HANG_S, check=False, **more)
        if check:
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return done

    def python(self, program, options=(), check=True):
        return self.run_with("*.bin", PYTHON, "-c", "import mmap, os, signal, subprocess, sys\n" + program,
                             options=options, check=check)

    def recovered(self, name="data.bin"):
        log = self.folder / (name + ".memlith")
        if log.exists():
            subprocess.run([MEMLITH, "recover", str(self.folder / name)], check=True, capture_output=True)
        return (self.folder / name).read_bytes()

    def flushes(self, program, options=()):
        """How many flushes a program costs that opens matching files, uses and closes them."""
        traced = self.folder / "trace"
        done = subprocess.run(["strace", "-f", "-qq", "-e", "trace=fsync,fdatasync,sync_file_range,syncfs,msync", "-o",
                               traced, MEMLITH, "run", "--match", "*.bin", *options, "--", PYTHON, "-c",
                               "import os\n" + program],
                              cwd=self.folder, capture_output=True, text=True, timeout=HANG_S, check=False)
        if "ptrace" in done.stderr.lower():
            self.skipTest("strace may not trace here")
        self.assertEqual(done.returncode, 0, done.stderr)
        return sum("sync(" in line for line in traced.read_text().splitlines())


OPEN = """
fd = os.open('data.bin', os.O_RDWR | os.O_CREAT, 0o644)
os.ftruncate(fd, 8192)
"""
KILL = "os.kill(os.getpid(), signal.SIGKILL)\n"
# userfaultfd fails with EPERM from here on, also after exec.
WITHOUT_USERFAULTFD = """
import ctypes, platform, struct
libc = ctypes.CDLL(None, use_errno=True)
number = 323 if platform.machine() == 'x86_64' else 282
words = ((0x20, 0, 0, 0), (0x15, 0, 1, number), (0x06, 0, 0, 0x50001), (0x06, 0, 0, 0x7fff0000))
code = b''.join(struct.pack('HBBI', *each) for each in words)
text = ctypes.create_string_buffer(code)
program = ctypes.create_string_buffer(struct.pack('HxxxxxxP', len(words), ctypes.addressof(text)))
assert libc.prctl(38, 1, 0, 0, 0) == 0 and libc.prctl(22, 2, program) == 0
"""
# C: system calls by an instruction of the program.
RAW = """
#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <signal.h>
static long raw(long n, long a, long b, long c, long d) {
  long r;
#ifdef __x86_64__
  register long r10 __asm__("r10") = d;
  __asm__ volatile("syscall" : "=a"(r) : "a"(n), "D"(a), "S"(b), "d"(c), "r"(r10) : "rcx", "r11", "memory");
#else
  register long x8 __asm__("x8") = n; register long x0 __asm__("x0") = a; register long x1 __asm__("x1") = b;
  register long x2 __asm__("x2") = c; register long x3 __asm__("x3") = d;
  __asm__ volatile("svc 0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2), "r"(x3) : "memory"); r = x0;
#endif
  return r;
}
"""
# System calls by their numbers, as the processor has them.
NUMBERS = """
import ctypes, platform
libc = ctypes.CDLL(None, use_errno=True)
PWRITE, FSYNC, CLOSE, WRITE = (18, 74, 3, 1) if platform.machine() == 'x86_64' else (68, 82, 57, 64)
IO_URING_SETUP = 425
def call(number, *words):
    return libc.syscall(number, *(ctypes.c_long(each) if isinstance(each, int) else each for each in words))
"""
