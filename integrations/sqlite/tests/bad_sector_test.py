#!/usr/bin/env python3
"""A page that the disk cannot read fails the statement that meets it. The process, the other rows and a second database
go on.

Usage: bad_sector_test.py PLUGIN BAD_SECTOR_SO FOLDER
"""
import os
import pathlib
import sqlite3
import subprocess
import sys
import tempfile
import unittest

PLUGIN, PRELOADED, FOLDER = sys.argv[1:4]
BAD_PAGE = 100
PROGRAM = f"""
import ctypes, sqlite3, sys
assert ctypes.CDLL({PLUGIN!r}).memlith_sqlite_register(0) == 0
def database(name): return sqlite3.connect(f"file:{{name}}?vfs=memlith&share=0", uri=True, isolation_level=None)
bad, sound = database("bad.db"), database("sound.db")
bad.execute(f"pragma mmap_size = {{sys.argv[1]}}")
failed = []
for row in range(1, 201):
    try:
        assert bad.execute("select length(body) from t where id = ?", [row]).fetchone() == (4000,)
        bad.execute("update t set body = zeroblob(4000) where id = ?", [row])
    except sqlite3.OperationalError as error:
        failed.append((row, str(error)))
        sound.execute("update t set body = 'beside' where id = 1")
assert sound.execute("select body from t where id = 1").fetchone() == ("beside",)
print(failed)
print(bad.execute("select memlith_error()").fetchone()[0])
"""


class BadSectors(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory(dir=FOLDER, prefix="bad-sector-")
        self.addCleanup(temporary.cleanup)
        self.folder = pathlib.Path(temporary.name).resolve()
        (self.folder / "empty").touch()
        for name in ("bad.db", "sound.db"):
            made = sqlite3.connect(self.folder / name)
            made.execute("create table t(id integer primary key, body)")
            made.executemany("insert into t values(?, zeroblob(4000))", [(row,) for row in range(1, 201)])
            made.commit()
            made.close()

    def run_with(self, mmap_bytes):
        return subprocess.run([sys.executable, "-c", PROGRAM, str(mmap_bytes)], capture_output=True, text=True,
                              check=False, cwd=self.folder, env={
                                  **os.environ, "LD_PRELOAD": PRELOADED, "BAD_FILE": "/bad.db",
                                  "BAD_PAGE": str(BAD_PAGE), "BAD_EMPTY": str(self.folder / "empty")})

    def test_one_row_fails(self):
        for mmap_bytes in (0, 1 << 30):
            with self.subTest(mmap_bytes):
                done = self.run_with(mmap_bytes)
                self.assertEqual(done.returncode, 0, done.stderr)
                failed, told = done.stdout.splitlines()
                self.assertEqual(len(eval(failed)), 1, failed)  # pylint: disable=eval-used
                self.assertIn("disk I/O error", failed)
                self.assertIn(f"the page at offset {BAD_PAGE * 4096} of the database cannot be read", told)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
