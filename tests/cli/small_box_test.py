#!/usr/bin/env python3
"""Commands work in a control group that allows less memory than the store has (docs/how-to/sizing.md).

Usage: small_box_test.py MEMLITH
"""
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

MEMLITH = sys.argv[1]
LIMIT = 96 << 20
RECORDS = 120_000


class Group:
    """A control group with a limit and no swap, in whichever hierarchy has memory control."""

    def __init__(self):
        self.path = None
        for root in (pathlib.Path("/sys/fs/cgroup/memory"), pathlib.Path("/sys/fs/cgroup")):
            if not root.exists():
                continue
            first = (root / "memory.limit_in_bytes").exists()
            path = root / f"memlith-cli-{os.getpid()}"
            try:
                if not first:
                    (root / "cgroup.subtree_control").write_text("+memory", encoding="ascii")
                path.mkdir()
            except OSError:
                continue
            try:
                (path / ("memory.limit_in_bytes" if first else "memory.max")).write_text(str(LIMIT), encoding="ascii")
            except OSError:
                path.rmdir()
                continue
            self.path = path
            return

    def enter(self):
        (self.path / "cgroup.procs").write_text(str(os.getpid()), encoding="ascii")


class SmallBox(unittest.TestCase):
    def setUp(self):
        self.group = Group()
        if self.group.path is None:
            self.skipTest("no control group can be made here (it takes root)")
        self.addCleanup(self.group.path.rmdir)
        temporary = tempfile.TemporaryDirectory(dir=os.environ.get("MEMLITH_TEST_DIR") or None, prefix="box-")
        self.addCleanup(temporary.cleanup)
        self.folder = pathlib.Path(temporary.name).resolve()

    def run_memlith(self, *words):
        done = subprocess.run([MEMLITH, *map(str, words)], capture_output=True, text=True, check=False,
                              preexec_fn=self.group.enter)
        self.assertEqual(done.returncode, 0, (words, done.stderr))
        return done.stdout

    def test_a_store_that_is_larger_than_the_box(self):
        text = self.folder / "records"
        with open(text, "w", encoding="ascii") as file:
            for number in range(RECORDS):
                file.write(f"{number * 7919 % RECORDS:07}\t{number * 7919 % RECORDS:07}{'v' * 1000}\n")
        store = self.folder / "store"
        copy = self.folder / "copy"
        self.run_memlith("kv", "put", store, "m", "--in", text)
        text.unlink()
        self.assertGreater(sum(each.stat().st_size for each in (store / "objects").iterdir()), LIMIT)
        self.assertEqual(self.run_memlith("kv", "get", store, "m", "0077777"), "0077777" + "v" * 1000 + "\n")
        self.run_memlith("verify", store)
        self.run_memlith("kv", "stats", store)
        dump = self.folder / "dump"
        self.run_memlith("dump", store, "--out", dump)
        self.run_memlith("load", copy, "--in", dump)
        self.assertEqual(self.run_memlith("kv", "count", copy, "m"), f"{RECORDS}\n")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
