#!/usr/bin/env python3
"""Every golden store (README.md) opens, holds what was stored, and takes changes.

Usage: golden_test.py GOLDEN_STORE MEMLITH [SQLITE_PLUGIN]
"""
import os
import pathlib
import subprocess
import sys
import tarfile
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "lib" / "support"))
from loop_device import NoLoopDevice, loop_device  # noqa: E402 pylint: disable=wrong-import-position

HERE = pathlib.Path(__file__).resolve().parent
GOLDEN_STORE, MEMLITH = sys.argv[1:3]
PLUGIN = sys.argv[3] if len(sys.argv) > 3 else None
CHECKED_ELSEWHERE = {"python", "redis"}  # test_golden.py, golden_redis.py
SQL_CHECK = """
pragma integrity_check;
select count(*), sum(id), sum(length(text)) from notes;
select text from notes where id in (1, 51) order by id;
select count(*) from notes indexed by by_text where text >= 'note 5' and text < 'note 6';
"""
SQL_FOUND = "ok\n100|10000|895\nnote 1 again\nnote 51\n6\n"


def golden():
    for path in sorted(HERE.glob("*/*.tar.xz")):
        kind = path.name.removesuffix(".tar.xz")
        yield path, kind.removesuffix("-crashed"), kind.endswith("-crashed")


class Golden(unittest.TestCase):
    def run_ok(self, *command, **options):
        done = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False, **options)
        self.assertEqual(done.returncode, 0, f"{command}: {done.stdout}{done.stderr}")
        return done.stdout

    def test_there_is_each_kind(self):
        found = {(kind, crashed) for _, kind, crashed in golden()}
        kinds = {"folder", "blocks", "file", "heap", "kv", "applog", "raw", "sqlite", "python", "redis"}
        self.assertLessEqual({(kind, crashed) for kind in kinds for crashed in (False, True)}, found)

    def test_each_opens_and_holds_what_was_stored(self):
        for path, kind, crashed in golden():
            if kind in CHECKED_ELSEWHERE or (kind == "sqlite" and PLUGIN is None):
                continue
            with self.subTest(path.relative_to(HERE)), \
                    tempfile.TemporaryDirectory(dir=os.environ.get("MEMLITH_TEST_DIR") or None) as name:
                folder = pathlib.Path(name)
                with tarfile.open(path) as archive:
                    archive.extractall(folder)
                getattr(self, f"check_{kind}", self.check_store)(folder, kind, crashed)

    def check_store(self, folder, kind, crashed):
        # The files are copies, which a store that was not closed knows if it says which files it had.
        done = subprocess.run([MEMLITH, "verify", folder / "store"], capture_output=True, text=True, check=False)
        if crashed and done.returncode != 0:
            self.assertIn("these files are copies of a store that was not closed", done.stderr)
            self.run_ok(MEMLITH, "recover", "--accept-copy", folder / "store")
        else:
            self.assertIn("not closed" if crashed else "closed cleanly", done.stdout, done.stderr)
        self.run_ok(GOLDEN_STORE, "check", kind, folder / "store")
        self.run_ok(MEMLITH, "verify", folder / "store")

    def check_raw(self, folder, kind, crashed):
        try:
            with loop_device(folder / "image") as device:
                said = self.run_ok(MEMLITH, "verify", device)
                self.assertIn("not closed" if crashed else "closed cleanly", said)
                self.run_ok(GOLDEN_STORE, "check", kind, device)
                self.run_ok(MEMLITH, "verify", device)
        except NoLoopDevice as why:
            self.skipTest(f"skip: no loop device (losetup needs root): {why}")

    def check_archive(self, folder, *_):
        self.run_ok(MEMLITH, "restore", folder / "archive", folder / "store")
        self.run_ok(GOLDEN_STORE, "check", "kv", folder / "store")

    def check_sqlite(self, folder, _, crashed):
        on_memlith = dict(os.environ, LD_PRELOAD=PLUGIN, MEMLITH_SQLITE_SHARE="0")
        if crashed:
            plain = subprocess.run(["sqlite3", folder / "app.db", "select count(*) from notes"], capture_output=True,
                                   text=True, check=False)
            self.assertNotEqual(plain.returncode, 0, "the log of this database is not needed")
        self.assertEqual(self.run_ok("sqlite3", folder / "app.db", input=SQL_CHECK, env=on_memlith), SQL_FOUND)
        self.run_ok("sqlite3", folder / "app.db", "insert into notes values(1000, 'new')", env=on_memlith)
        self.assertEqual(self.run_ok("sqlite3", folder / "app.db", "select text from notes where id = 1000"), "new\n")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
