#!/usr/bin/env python3
"""Programs from Debian under `memlith run`, unchanged. Programs that this machine lacks are named and left out.

Usage: programs_test.py MEMLITH
"""
import os
import shutil
import signal
import sqlite3
import subprocess
import unittest

from folder import Folder, KILL, MEMLITH, PYTHON, have_module


class Sqlite(Folder):
    """A SQLite database whose program was killed: its own first bytes say nothing about the log beside it."""

    def test_recover_and_verify(self):
        with sqlite3.connect(self.folder / "data.db") as database:
            database.execute("create table t(a)")
        database.close()
        done = self.run_with("*.db", PYTHON, "-c", """
import os, signal, sqlite3
database = sqlite3.connect('data.db')
for i in range(50):
    with database:
        database.execute('insert into t values (?)', (i,))
print(i, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
""", check=False)
        self.assertEqual((done.returncode, done.stdout), (-signal.SIGKILL, "49\n"), done.stderr)
        file = str(self.folder / "data.db")
        subprocess.run([MEMLITH, "verify", file], check=True, capture_output=True)
        subprocess.run([MEMLITH, "recover", file], check=True, capture_output=True)
        (self.folder / "data.db.memlith").unlink()
        with sqlite3.connect(file) as database:
            self.assertEqual(database.execute("select count(*) from t").fetchone(), (50,))
            self.assertEqual(database.execute("pragma integrity_check").fetchone(), ("ok",))


class Programs(Folder):
    """From Debian, unchanged: they work, and are whole after a kill."""

    def killed(self, program, match):
        done = self.run_with(match, PYTHON, "-c", "import os, signal\n" + program + KILL, check=False)
        self.assertEqual(done.returncode, -signal.SIGKILL, done.stdout + done.stderr)

    @unittest.skipUnless(have_module("lmdb"), "python3-lmdb is missing")
    def test_lmdb_with_a_writable_map(self):
        opening = "import lmdb\ne = lmdb.open('db', writemap=True, map_async=True, map_size=1 << 26)\n"
        self.killed(opening + """
for i in range(200):
    with e.begin(write=True) as t:
        t.put(b'%d' % i, b'v' * (i * 7 % 3000))
    if i == 150:
        e.sync(True)
""", "data.mdb")
        done = self.run_with("data.mdb", PYTHON, "-c", opening + """
with e.begin() as t:
    found = {k: len(v) for k, v in t.cursor()}
n = len(found)
assert n >= 151 and found == {b'%d' % i: i * 7 % 3000 for i in range(n)}, n
""")
        self.assertEqual(done.stdout, "")

    @unittest.skipUnless(shutil.which("gdbmtool"), "gdbmtool is missing")
    def test_gdbm(self):
        stores = "".join(f"store key{i} value{i}\n" for i in range(300))
        self.run_with("*.gdbm", "gdbmtool", "-n", "data.gdbm", input=stores + "sync\n")
        done = self.run_with("*.gdbm", "gdbmtool", "data.gdbm", input="count\nfetch key299\n")
        self.assertIn("300", done.stdout)
        self.assertIn("value299", done.stdout)
        self.assertEqual([each.name for each in self.folder.iterdir()], ["data.gdbm"])
        # It calls fsync when it makes the database, and from then on only msync.
        done = self.run_with("*.gdbm", "gdbmtool", "-n", "data.gdbm", input=stores + "sync\nstore a b\nsync\n")
        self.assertIn("--commit msync makes it durable", done.stderr)

    @unittest.skipUnless(shutil.which("gdbmtool"), "gdbmtool is missing")
    def test_gdbm_that_is_killed(self):
        def stores(start, end):
            return "".join(f"store key{i} value{i}\n" for i in range(start, end))
        master, terminal = os.openpty()  # or what it prints would stay in its buffer
        program = subprocess.Popen([MEMLITH, "run", "--match", "*.gdbm", "--commit", "msync", "--", "gdbmtool", "-n",
                                    "data.gdbm"], cwd=self.folder, stdin=subprocess.PIPE, stdout=terminal, text=True)
        program.stdin.write(stores(0, 300) + "sync\n" + stores(300, 400) + "count\n")
        program.stdin.flush()
        said = b""
        while b"400" not in said:
            said += os.read(master, 1000)
        program.kill()
        program.wait()
        program.stdin.close()
        os.close(terminal)
        os.close(master)
        self.recovered("data.gdbm")
        done = subprocess.run(["gdbmtool", "data.gdbm"], cwd=self.folder, input="count\nfetch key299\n", check=True,
                              capture_output=True, text=True)
        self.assertIn("300", done.stdout)
        self.assertIn("value299", done.stdout)

    @unittest.skipUnless(have_module("tdb"), "python3-tdb is missing")
    def test_tdb(self):
        opening = "import os, tdb\nd = tdb.open('data.tdb', flags=os.O_RDWR | os.O_CREAT)\n"
        self.killed(opening + """
for i in range(40):
    d.transaction_start()
    for k in range(10):
        d.store(b'%d' % k, b'%d' % i)
    d.transaction_prepare_commit()
    d.transaction_commit()
""", "*.tdb")
        done = self.run_with("*.tdb", PYTHON, "-c", opening + "print({d.get(b'%d' % k) for k in range(10)})\n")
        self.assertEqual(done.stdout, "{b'39'}\n")

    @unittest.skipUnless(have_module("numpy"), "python3-numpy is missing")
    def test_numpy_memmap(self):
        self.killed("""
import numpy
a = numpy.memmap('array.npy', dtype='int64', mode='w+', shape=(100000,))
for n in range(1, 6):
    a += n
    a.flush()
a[::1000] = -1
""", "*.npy")
        found = self.recovered("array.npy")
        self.assertEqual(set(found[i:i + 8] for i in range(0, len(found), 8)), {(15).to_bytes(8, "little")})

    @unittest.skipUnless(shutil.which("kchashtest"), "kyotocabinet-utils is missing")
    def test_kyoto_cabinets_own_checkers(self):
        for command in ("kchashtest order -rnd t.kch 2000", "kchashtest order -msiz 100000 t.kch 2000",
                        "kchashtest queue t.kch 1500", "kchashtest wicked -it 2 t.kch 700",
                        "kchashtest tran -it 2 -hard t.kch 120", "kctreetest order -rnd t.kct 2000",
                        "kctreetest queue t.kct 1500", "kctreetest wicked -it 2 t.kct 700",
                        "kctreetest tran -it 2 -hard t.kct 120", "kcgrasstest order 1000", "kcdirtest order t.kcd 200",
                        "kcdirtest queue t.kcd 200", "kcdirtest wicked t.kcd 200", "kcdirtest tran t.kcd 60"):
            with self.subTest(command):
                done = self.run_with("*.kc[ht]", *command.split(), options=["--commit", "fsync"])
                self.assertTrue(done.stdout.rstrip().endswith("ok"), done.stdout[-500:] + done.stderr)


if __name__ == "__main__":
    unittest.main()
