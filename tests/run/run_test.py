#!/usr/bin/env python3
"""Programs under `memlith run`: what is kept after a crash, what is refused, what is flushed.

Usage: run_test.py MEMLITH
"""
import errno
import os
import pty
import shutil
import signal
import socket
import subprocess
import time
import unittest

from folder import Folder, HANG_S, KILL, MEMLITH, NUMBERS, OPEN, PYTHON, RAW, WITHOUT_USERFAULTFD


class AfterACrash(Folder):
    """A killed program leaves the last commit, whatever it wrote since."""

    def died(self, program, options=()):
        done = self.python(program + KILL, options=options, check=False)
        self.assertEqual(done.returncode, -signal.SIGKILL, done.stderr)
        return self.recovered()

    def test_fsync_commits_writes_and_stores_together(self):
        found = self.died(OPEN + """
memory = mmap.mmap(fd, 8192)
memory[4096:4101] = b'store'
os.pwrite(fd, b'write', 10)
os.fsync(fd)
memory[4096:4101] = b'xxxxx'
os.pwrite(fd, b'xxxxx', 10)
""")
        self.assertEqual((len(found), found[10:15], found[4096:4101]), (8192, b"write", b"store"))

    def test_what_was_never_committed_is_dropped(self):
        self.assertEqual(self.died(OPEN + "os.write(fd, b'x' * 100)\n"), b"")

    def test_msync_commits_until_there_was_an_fsync(self):
        found = self.died(OPEN + """
memory = mmap.mmap(fd, 8192)
memory[0:1] = b'a'
memory.flush()
memory[1:2] = b'b'
os.fsync(fd)
memory[2:3] = b'c'
memory.flush()
""")
        self.assertEqual(found[:3], b"ab\0")

    def test_commit_says_which_call_commits(self):
        stores = OPEN + """
memory = mmap.mmap(fd, 8192)
os.fsync(fd)
memory[0:1] = b'a'
memory.flush()
"""
        self.assertEqual(self.died(stores, ["--commit", "msync"])[:1], b"a")
        self.assertEqual(self.died(stores.replace("b'a'", "b'z'"), ["--commit", "fsync"])[:1], b"a")

    def test_a_weak_commit_is_durable_soon(self):
        found = self.died("import time\n" + OPEN + "os.write(fd, b'weak')\nos.fsync(fd)\ntime.sleep(1)\n",
                          ["--weak", "1"])
        self.assertEqual(found[:4], b"weak")

    def test_a_guarded_file_is_marked_until_it_is_recovered(self):
        done = self.python(OPEN + "os.pwrite(fd, b'left', 0)\nos.fsync(fd)\n" + KILL, options=["--guard"], check=False)
        self.assertEqual(done.returncode, -signal.SIGKILL, done.stderr)
        self.assertEqual((self.folder / "data.bin").read_bytes()[:7], b"\x89MEMLIT")
        self.assertEqual(self.recovered()[:5], b"left\0")
        self.python(OPEN + "os.pwrite(fd, b'd', 3)\n", options=["--guard"])
        self.assertEqual((self.folder / "data.bin").read_bytes()[:5], b"lefd\0")

    def test_an_archive_goes_on_beside_programs_that_end(self):
        path, target = self.folder / "data.bin", self.folder / "target"
        path.write_bytes(bytes(8192))
        with subprocess.Popen([MEMLITH, "archive", path, target, "--wait-ms", "1"], stderr=subprocess.PIPE,
                              text=True) as archiver:
            self.addCleanup(archiver.kill)
            self.wait_until(lambda: (self.folder / "data.bin.memlith-archived").exists())
            for number, word in enumerate([b"one", b"two", b"six"]):
                self.python(OPEN + f"os.pwrite(fd, {word!r}, 0)\nos.fsync(fd)\n", options=["--guard"])
                self.assertEqual(path.read_bytes()[:3], word)
                self.wait_until(lambda: self.restored(target)[:3] == word)  # pylint: disable=cell-var-from-loop
                self.assertIsNone(archiver.poll())
                if number == 1:  # another program changes it
                    path.write_bytes(b"other" * 2000)
            self.assertEqual(self.restored(target), path.read_bytes())
            archiver.send_signal(signal.SIGINT)
            self.assertEqual(archiver.wait(HANG_S), 0, archiver.stderr.read())

    def wait_until(self, holds):
        for _ in range(200):
            if holds():
                return
            time.sleep(0.05)
        self.fail("it did not come within 10 s")

    def restored(self, target):
        dest = self.folder / "restored"
        dest.unlink(missing_ok=True)
        done = subprocess.run([MEMLITH, "restore", target, dest], capture_output=True, check=False)
        return dest.read_bytes() if done.returncode == 0 else b""

    def test_streams_are_committed_whole(self):
        found = self.died("""
import ctypes
libc = ctypes.CDLL(None)
libc.fopen.restype = ctypes.c_void_p
file = ctypes.c_void_p(libc.fopen(b'data.bin', b'w'))
libc.fputs(b'one', file)
libc.fflush(file)
os.fsync(libc.fileno(file))
libc.fputs(b'two', file)
libc.fflush(file)
""")
        self.assertEqual(found, b"one")

    def test_system_calls_by_number_commit_and_are_committed(self):
        found = self.died(NUMBERS + OPEN + """
call(PWRITE, fd, b'one', 3, 5000)
os.fsync(fd)
os.pwrite(fd, b'two', 0)
call(FSYNC, fd)
call(PWRITE, fd, b'xxx', 3, 6)
""")
        self.assertEqual((found[:9], found[5000:5003]), (b"two\0\0\0\0\0\0", b"one"))

    def test_what_the_c_library_opens_and_writes_by_itself(self):
        found = self.died("""
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
name = ctypes.create_string_buffer(b'./XXXXXX.bin')
fd = libc.mkstemps(name, 4)
libc.dprintf(fd, b'%s %d', b'printed', 7)
os.fsync(fd)
libc.dprintf(fd, b'lost')
os.rename(name.value.decode(), 'data.bin')
os.pwrite(fd, b'lost', 0)
""")
        self.assertEqual(found, b"printed 7lost")  # a rename commits

    def test_o_dsync_commits_each_write(self):
        found = self.died("""
fd = os.open('data.bin', os.O_RDWR | os.O_CREAT | os.O_DSYNC, 0o644)
os.write(fd, b'one')
os.write(fd, b'two')
""")
        self.assertEqual(found, b"onetwo")

    def test_programs_that_are_started_in_between_change_nothing(self):
        found = self.died(OPEN + """
os.write(fd, b'1')
subprocess.run(['true'], check=True)  # by vfork
os.write(fd, b'2')
os.waitpid(os.posix_spawn('/bin/true', ['true'], {}), 0)
os.write(fd, b'3')
os.system('true')
if os.fork() == 0:
    os.execv('/bin/true', ['true'])
os.wait()
try:
    subprocess.run(['/nowhere'])
except FileNotFoundError:
    os.write(fd, b'4')
os.fsync(fd)
os.write(fd, b'x')
""")
        self.assertEqual(found[:5], b"1234\0")

    def test_renaming_over_a_file_keeps_the_new_content(self):
        (self.folder / "data.bin").write_bytes(b"old content")
        found = self.died("""
old = os.open('data.bin', os.O_RDWR)
os.pwrite(old, b'OLD', 0)
os.fsync(old)
fd = os.open('new.bin', os.O_RDWR | os.O_CREAT, 0o644)
os.write(fd, b'new')
os.fsync(fd)
os.rename('new.bin', 'data.bin')
os.write(fd, b' and more')
os.fsync(fd)
os.write(fd, b' and lost')
os.fsync(old)
""")
        self.assertEqual(found, b"new and more")
        self.assertFalse((self.folder / "new.bin.memlith").exists())

    def test_a_removed_file_leaves_no_log_for_the_next_of_its_name(self):
        found = self.died(OPEN + """
os.write(fd, b'first')
os.fsync(fd)
os.unlink('data.bin')
fd = os.open('data.bin', os.O_RDWR | os.O_CREAT, 0o644)
os.write(fd, b'2')
os.fsync(fd)
""")
        self.assertEqual(found, b"2")

    def test_a_file_that_gets_its_name_by_rename_while_it_is_open(self):
        found = self.died("""
(part, memory) = (os.open('part.tmp', os.O_RDWR | os.O_CREAT, 0o644), None)
os.write(part, b'before' + bytes(8186))
memory = mmap.mmap(part, 8192)
copy = os.dup(part)
os.rename('part.tmp', 'data.bin')
os.write(copy, b'end')
assert os.lseek(part, 0, os.SEEK_CUR) == 8195
memory[4096:4102] = b'stored'
os.pwrite(part, b'BEF', 0)
os.fsync(part)
memory[4096:4102] = b'xxxxxx'
os.pwrite(copy, b'xxx', 0)
""")
        self.assertEqual((found[:6], found[4096:4102], found[8192:]), (b"BEFore", b"stored", b"end"))

    def test_a_file_that_was_opened_by_a_call_that_nobody_saw(self):
        source = self.folder / "unseen.c"
        source.write_text(RAW + """
int main(void) {
  int fd = (int)raw(SYS_openat, AT_FDCWD, (long)"data.bin", O_RDWR | O_CREAT, 0644);
  if (write(fd, "first", 5) != 5 || fsync(fd) != 0) return 1;
  if (pwrite(fd, "lost!", 5, 0) != 5) return 1;
  kill(getpid(), SIGKILL);
}
""")
        subprocess.run(["cc", "-o", str(self.folder / "unseen"), str(source)], check=True)
        done = self.run_with("*.bin", "./unseen", check=False)
        self.assertEqual(done.returncode, -signal.SIGKILL, done.stderr)
        self.assertIn("opened by a system call that memlith does not see", done.stderr)
        self.assertEqual(self.recovered(), b"first")

    def test_a_write_that_nobody_saw_to_a_file_that_was_not_changed_before(self):
        source = self.folder / "unseen.c"
        source.write_text(RAW + """
int main(void) {
  int fd = open("data.bin", O_RDWR | O_CREAT, 0644);
  if (raw(SYS_pwrite64, fd, (long)"first", 5, 0) != 5 || fsync(fd) != 0) return 1;
  if (raw(SYS_pwrite64, fd, (long)"more!", 5, 0) != 5 || fsync(fd) != 0) return 1;
  if (raw(SYS_pwrite64, fd, (long)"lost!", 5, 0) != 5) return 1;
  kill(getpid(), SIGKILL);
}
""")
        subprocess.run(["cc", "-o", str(self.folder / "unseen"), str(source)], check=True)
        done = self.run_with("*.bin", "./unseen", check=False)
        self.assertEqual(done.returncode, -signal.SIGKILL, done.stderr)
        self.assertIn("written by a system call that memlith does not see", done.stderr)
        self.assertEqual(self.recovered(), b"more!")

    def test_a_write_that_nobody_saw_beside_others(self):
        source = self.folder / "unseen.c"
        source.write_text(RAW + """
int main(void) {
  int fd = open("data.bin", O_RDWR | O_CREAT, 0644);
  if (ftruncate(fd, 8192) != 0 || write(fd, "seen", 4) != 4 || fsync(fd) != 0) return 1;
  if (raw(SYS_pwrite64, fd, (long)"unseen", 6, 5000) != 6) return 1;
  return close(fd);
}
""")
        subprocess.run(["cc", "-o", str(self.folder / "unseen"), str(source)], check=True)
        done = self.run_with("*.bin", "./unseen")
        self.assertIn("written by a system call that memlith does not see", done.stderr)
        found = (self.folder / "data.bin").read_bytes()
        self.assertEqual((found[:4], found[5000:5006]), (b"seen", b"unseen"))

    def test_the_next_run_sees_the_last_commit(self):
        self.died(OPEN + "os.write(fd, b'seen')\nos.fsync(fd)\nos.ftruncate(fd, 100)\n")
        done = self.python("print(os.stat('data.bin').st_size, open('data.bin', 'rb').read()[:4])")
        self.assertEqual(done.stdout, "8192 b'seen'\n")


class AfterAnEnd(Folder):
    """A program that ends, or becomes another one, leaves what it has written."""

    def check(self, ending, expected=b"left"):
        done = self.python("fd = os.open('data.bin', os.O_RDWR | os.O_CREAT, 0o644)\nos.write(fd, b'left')\n" + ending)
        self.assertEqual((self.folder / "data.bin").read_bytes(), expected)
        self.assertEqual([each.name for each in self.folder.iterdir()], ["data.bin"])
        return done

    def test_exit(self):
        self.check("sys.exit(0)")

    def test__exit(self):
        self.check("os._exit(0)")

    def test_what_was_written_and_closed_by_number(self):
        self.check("os.close(fd)\n" + NUMBERS + """
for i in range(20):
    fd = os.open('data.bin', os.O_RDWR)
    call(PWRITE, fd, b'%04d' % i, 4, 0)
    assert call(CLOSE, fd) == 0
assert os.open('data.bin', os.O_RDONLY) == fd
""", b"0019")

    def test_forked_children_end_while_another_thread_commits(self):
        self.check("""
import threading
def commit():
    while True:
        os.pwrite(fd, b'left', 0)
        os.fsync(fd)
threading.Thread(target=commit, daemon=True).start()
signal.alarm(60)  # a child that waits for ever
for _ in range(200):
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)
os._exit(0)
""")

    def test_exec(self):
        done = self.check("os.execvp('cat', ['cat', 'data.bin'])")
        self.assertEqual(done.stdout, "left")

    def test_close_and_another_program(self):
        done = self.check("os.close(fd)\nsubprocess.run(['cat', 'data.bin'], check=True)")
        self.assertEqual(done.stdout, "left")

    def test_an_exec_that_fails_goes_on(self):
        self.check("""
try:
    os.execv('/nowhere', ['nowhere'])
except FileNotFoundError:
    os.write(fd, b' and right')
""", b"left and right")

    def test_report(self):
        done = self.python("fd = os.open('data.bin', os.O_RDWR | os.O_CREAT)\nos.write(fd, b'1')\nos.fsync(fd)\n",
                           options=["--report"])
        self.assertIn("data.bin: 1 commits, ", done.stderr)
        self.assertNotIn("committed nothing", done.stderr)

    def test_report_names_what_was_never_committed(self):
        done = self.python("fd = os.open('data.bin', os.O_RDWR | os.O_CREAT)\nos.write(fd, b'1')\n",
                           options=["--report"])
        self.assertIn("the program committed nothing", done.stderr)
        done = self.python("os.read(os.open('data.bin', os.O_RDWR), 1)\n", options=["--report"])
        self.assertNotIn("committed nothing", done.stderr)


@unittest.skipUnless(shutil.which("strace"), "strace is missing")
class Flushes(Folder):
    """How many flushes a program costs that opens a matching file, uses it and closes it."""

    def test_without_a_change_there_are_none(self):
        (self.folder / "data.bin").write_bytes(b"there")
        self.assertEqual(self.flushes("""
fd = os.open('data.bin', os.O_RDWR | os.O_CREAT)
assert os.read(fd, 9) == b'there'
os.close(fd)
fd = os.open('data.bin', os.O_WRONLY)
os.utime(fd, (5, 5))
os.close(fd)
os.close(os.open('data.bin', os.O_RDONLY))
os.close(os.open('empty.bin', os.O_WRONLY | os.O_CREAT | os.O_TRUNC))
with open('data.bin', 'r+b') as file:
    assert file.read() == b'there'
"""), 0)
        self.assertEqual((self.folder / "data.bin").stat().st_mtime, 5)

    def test_one_append(self):
        (self.folder / "data.bin").write_bytes(b"there")
        count = self.flushes("""
fd = os.open('data.bin', os.O_WRONLY | os.O_APPEND)
os.write(fd, b', and more')
os.close(fd)
""")
        self.assertEqual((self.folder / "data.bin").read_bytes(), b"there, and more")
        # Six make a log, two commit with it, four bring the commit home and end the log.
        self.assertLessEqual(count, 12)

    def test_fsync_without_a_change_flushes_what_others_wrote(self):
        (self.folder / "data.bin").write_bytes(b"there")
        self.assertEqual(self.flushes("os.fsync(os.open('data.bin', os.O_RDWR))"), 1)


class Refused(Folder):
    """Files that cannot be taken over are refused, or told."""

    def refused(self, command, sentence, code=126):
        done = self.run_with("*.bin", *command, check=False)
        self.assertEqual(done.returncode, code, done.stderr)
        self.assertIn(sentence, done.stderr)

    def test_a_static_program(self):
        source = self.folder / "static.c"
        source.write_text("int main(void) { return 0; }\n")
        built = subprocess.run(["cc", "-static", "-o", str(self.folder / "static"), str(source)], check=False,
                               capture_output=True)
        if built.returncode != 0:
            self.skipTest("cc makes no static program")
        self.refused(["./static"], "is statically linked")
        done = self.run_with("*.bin", "sh", "-c", "./static; true")
        self.assertIn("is statically linked", done.stderr)

    def test_a_go_program(self):
        go = shutil.which("go") or "/usr/local/go/bin/go"
        if not os.access(go, os.X_OK):
            self.skipTest("there is no Go")
        # The compiler itself is a static Go program; BoltDB's command would be another.
        self.refused([go, "version"], "is a Go program")

    def test_a_set_user_id_program(self):
        program = self.folder / "uid"
        shutil.copy("/bin/true", program)
        program.chmod(0o4755)
        self.refused(["./uid"], "set-user-ID")

    def test_no_program(self):
        self.refused(["no-such-program"], "there is no program", 127)

    def test_nothing_to_match(self):
        done = subprocess.run([MEMLITH, "run", "--", "true"], capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 1)
        self.assertIn("--match", done.stderr)

    def test_a_second_process(self):
        done = self.python(OPEN + """
other = subprocess.run([sys.executable, '-c', "import os; os.open('data.bin', os.O_RDWR)"], capture_output=True,
                       text=True)
print(other.returncode, 'busy' in other.stderr)
""")
        self.assertEqual(done.stdout, "1 True\n", done.stderr)

    def test_a_forked_child_reads_and_does_not_write(self):
        done = self.python(OPEN + """
os.write(fd, b'parent')
memory = mmap.mmap(fd, 8192)
if os.fork() == 0:
    print(os.pread(fd, 6, 0), memory[:6])
    for call in (lambda: os.write(fd, b'child'), lambda: os.fsync(fd), lambda: os.ftruncate(fd, 1)):
        try:
            call()
            print('went through')
        except OSError as error:
            print(error.errno)
    sys.stdout.flush()
    os._exit(0)
os.wait()
os.pwrite(fd, b'P', 0)
os.fsync(fd)
""")
        self.assertEqual(done.stdout, "b'parent' b'parent'\n5\n5\n5\n")
        self.assertIn("forked child", done.stderr)
        self.assertEqual(self.recovered()[:6], b"Parent")

    def test_a_forked_child_that_stores_dies_with_a_sentence(self):
        done = self.python(OPEN + """
memory = mmap.mmap(fd, 8192)
if os.fork() == 0:
    memory[5] = 1
    os._exit(0)
print(os.waitstatus_to_exitcode(os.wait()[1]) == -signal.SIGSEGV)
memory[6] = 1
os.fsync(fd)
""")
        self.assertEqual(done.stdout, "True\n")
        self.assertIn("data.bin: a forked child cannot store to the mapping", done.stderr)
        self.assertEqual(self.recovered()[5:7], b"\0\1")

    def test_a_process_without_memlith_that_writes_is_told_of(self):
        if subprocess.run([PYTHON, "-c", "import ctypes\nexit(ctypes.CDLL(None).fanotify_init(0x200, 0) < 0)"],
                          check=False).returncode != 0:
            self.skipTest("there is no fanotify for this user")
        for change in ("os.write(fd, b'x')", "mmap.mmap(fd, 8192)[9] = 1"):
            with self.subTest(change):
                (self.folder / "data.bin").write_bytes(bytes(8192))
                program = subprocess.Popen([MEMLITH, "run", "--match", "*.bin", "--", PYTHON, "-c", """
import os, sys
fd = os.open('data.bin', os.O_RDWR)
os.pwrite(fd, b'1', 100)
os.fsync(fd)
print('open', flush=True)
sys.stdin.read()
os.fsync(fd)
"""], cwd=self.folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
                self.assertEqual(program.stdout.readline(), "open\n")
                subprocess.run([PYTHON, "-c", "import mmap, os\nfd = os.open('data.bin', os.O_RDWR)\n" + change],
                               cwd=self.folder, check=True)
                _, said = program.communicate()
                self.assertEqual(program.returncode, 0, said)
                if "another process wrote to this file" not in said:
                    self.skipTest("this file system has no events for fanotify")

    def test_a_descriptor_for_another_program(self):
        done = self.run_with("*.bin", "sh", "-c", "cat /etc/hostname > data.bin", check=False)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("would inherit", done.stderr)
        with open(self.folder / "given.bin", "wb") as given:
            done = subprocess.run([MEMLITH, "run", "--match", "*.bin", "--", "cat", "/etc/hostname"], stdout=given,
                                  stderr=subprocess.PIPE, text=True, check=False)
        self.assertEqual(done.returncode, 126)
        self.assertIn("opened for writing by another program", done.stderr)

    def test_a_descriptor_for_a_program_that_the_c_library_starts(self):
        done = self.python(OPEN + """
child = os.posix_spawn('/bin/cat', ['cat', '/etc/hostname'], os.environ, file_actions=[(os.POSIX_SPAWN_DUP2, fd, 1)])
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
""")
        self.assertEqual(done.stdout, "126\n", done.stderr)
        self.assertIn("keeps with memlith", done.stderr)

    def test_a_descriptor_that_is_sent(self):
        done = self.python(OPEN + """
import array, errno, socket
one, other = socket.socketpair()
try:
    socket.send_fds(one, [b'x'], [fd])
except OSError as error:
    print(error.errno == errno.EPERM)
with open('other.txt', 'w') as other_file:
    socket.send_fds(one, [b'x'], [other_file.fileno()])
""")
        self.assertEqual(done.stdout, "True\n")
        self.assertIn("cannot be sent to another process", done.stderr)

    def test_hard_links(self):
        done = self.python(OPEN + """
try:
    os.link('data.bin', 'second.bin')
except PermissionError:
    print('refused')
os.close(fd)
""")
        self.assertEqual(done.stdout, "refused\n")
        os.link(self.folder / "data.bin", self.folder / "second.bin")
        self.assertNotEqual(self.python("os.open('data.bin', os.O_RDWR)", check=False).returncode, 0)

    def test_rings_are_refused_with_a_sentence(self):
        done = self.python(NUMBERS + """
print(call(IO_URING_SETUP, 8, ctypes.create_string_buffer(128)), ctypes.get_errno())
""")
        self.assertEqual(done.stdout, f"-1 {errno.ENOSYS}\n")
        self.assertIn("io_uring", done.stderr)

    def test_dup2_to_a_descriptor_of_memlith(self):
        done = self.python(OPEN + """
import errno
try:
    os.dup2(fd, 512)
except OSError as error:
    print(error.errno == errno.EBUSY)
""")
        self.assertEqual(done.stdout, "True\n")
        self.assertIn("descriptor 512", done.stderr)

    def test_few_descriptors_are_enough_for_many_files(self):
        self.python("""
import resource
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
files = [os.open(f'{i}.bin', os.O_RDWR | os.O_CREAT) for i in range(8)]
for each in files:
    os.write(each, b'written')
    os.fsync(each)
""")
        self.assertEqual({each.read_bytes() for each in self.folder.iterdir()}, {b"written"})

    def test_a_program_cannot_close_what_memlith_has_open(self):
        self.python(OPEN + """
os.closerange(fd + 1, 2000)
os.write(fd, b'kept')
os.fsync(fd)
""")
        self.assertEqual(self.recovered()[:4], b"kept")


class NeverTaken(Folder):
    """A pattern that matches everything takes files, and nothing else."""

    def started(self, stdin, stdout):
        program = "cat /proc/self/comm; exec 3<>/dev/null; echo x >&3"
        done = subprocess.run([MEMLITH, "run", "--match", "*", "--", "sh", "-c", program], cwd=self.folder, stdin=stdin,
                              stdout=stdout, stderr=subprocess.PIPE, text=True, timeout=HANG_S, check=False)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        return done.stdout

    def test_pipes_devices_sockets_and_terminals(self):
        self.assertEqual(self.started(subprocess.DEVNULL, subprocess.PIPE), "cat\n")
        self.started(subprocess.PIPE, subprocess.DEVNULL)
        (one, other) = socket.socketpair()
        with one, other:
            self.started(one, other)
            self.assertEqual(one.recv(99), b"cat\n")
        (master, slave) = pty.openpty()
        self.started(slave, slave)
        self.assertEqual(os.read(master, 99), b"cat\r\n")
        os.close(master)
        os.close(slave)

    def test_files_without_a_name(self):
        with open(self.folder / "gone.bin", "w+b") as gone:
            os.remove(self.folder / "gone.bin")
            self.started(subprocess.DEVNULL, gone)
            self.assertEqual(os.pread(gone.fileno(), 99, 0), b"cat\n")

    def test_a_program_that_opens_such_things_itself(self):
        done = self.run_with("*", PYTHON, "-c", """
import ctypes, os
os.mkfifo('fifo')
os.link('fifo', 'second')
fifo = os.open('fifo', os.O_RDWR)
os.write(fifo, b'through')
print(os.read(fifo, 99), len(open('/proc/self/maps').read()) > 0)
libc = ctypes.CDLL(None)
libc.freopen.restype = libc.fopen.restype = ctypes.c_void_p
file = libc.fopen(b'/dev/zero', b'r')
print(libc.freopen(b'/dev/null', b'w', ctypes.c_void_p(file)) is not None)
fd = os.open('kept.bin', os.O_RDWR | os.O_CREAT)
again = os.open(f'/proc/self/fd/{fd}', os.O_RDWR)
os.write(again, b'both')
print(os.pread(fd, 9, 0))
""")
        self.assertEqual(done.stdout, "b'through' True\nTrue\nb'both'\n", done.stderr)


class Large(Folder):
    def test_a_mapping_larger_than_memory_and_sigbus(self):
        done = self.python(OPEN + """
import ctypes
memory = mmap.mmap(fd, 8192)
libc = ctypes.CDLL(None)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
huge = libc.mmap(None, 1 << 44, 3, mmap.MAP_SHARED, fd, 0)
ctypes.memset(huge + 8191, 65, 1)
os.fsync(fd)
child = os.fork()
if child == 0:
    ctypes.memset(huge + 8192, 65, 1)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) in (-signal.SIGBUS, -signal.SIGSEGV))
""")
        self.assertEqual(done.stdout, "True\n")
        self.assertEqual(self.recovered()[8191:], b"A")


    def test_a_file_larger_than_memory_and_disk_is_refused(self):
        with open(self.folder / "data.bin", "wb") as file:
            file.truncate(1 << 42)
        done = self.python("""
import errno
try:
    os.open('data.bin', os.O_RDWR)
except OSError as error:
    print(error.errno in (errno.ENOMEM, errno.ENOSPC))
""")
        self.assertEqual(done.stdout, "True\n", done.stderr)
        self.assertRegex(done.stderr, "has to fit into memory|has no space")
        self.assertEqual((self.folder / "data.bin").stat().st_size, 1 << 42)
        self.assertEqual([each.name for each in self.folder.iterdir()], ["data.bin"])


class Sandboxed(Folder):
    """As under the seccomp profile of a container: there is no userfaultfd."""

    def test_files_that_are_mapped_are_compared(self):
        done = self.python(WITHOUT_USERFAULTFD + """
os.execv(sys.executable, ['python3', '-c', '''
import mmap, os, signal
fd = os.open('data.bin', os.O_RDWR | os.O_CREAT, 0o644)
os.ftruncate(fd, 8192)
os.pwrite(fd, b'written', 0)
os.fsync(fd)
memory = mmap.mmap(fd, 8192)
memory[5000:5006] = b'stored'
os.fsync(fd)
memory[6000:6004] = b'lost'
os.kill(os.getpid(), signal.SIGKILL)
'''])
""", check=False)
        self.assertEqual(done.returncode, -signal.SIGKILL, done.stderr)
        self.assertIn("each commit will compare the whole file", done.stderr)
        self.assertIn("seccomp profile", done.stderr)
        found = self.recovered()
        self.assertEqual((found[:7], found[5000:5006], found[6000:6004]), (b"written", b"stored", bytes(4)))


class Threads(Folder):
    def test_threads_that_are_ended_are_unwound(self):
        source = self.folder / "ended.cpp"
        source.write_text("""
#include <cstdio>
#include <pthread.h>
#include <unistd.h>
struct Unwound { ~Unwound() { std::puts("unwound"); } };
void* leaves(void*) { Unwound here; pthread_exit(nullptr); }
void* waits(void*) { Unwound here; for (;;) pause(); }
int main() {
  pthread_t thread;
  pthread_create(&thread, nullptr, leaves, nullptr);
  pthread_join(thread, nullptr);
  pthread_create(&thread, nullptr, waits, nullptr);
  pthread_cancel(thread);
  pthread_join(thread, nullptr);
}
""")
        subprocess.run(["c++", "-pthread", "-o", str(self.folder / "ended"), str(source)], check=True)
        # The second may be cancelled before it begins.
        self.assertIn(self.run_with("*.bin", "./ended").stdout, ("unwound\n", "unwound\nunwound\n"))


if __name__ == "__main__":
    unittest.main()
