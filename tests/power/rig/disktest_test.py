#!/usr/bin/env python3
"""`memlith disktest` on disks that lose their power: an honest one, one that lies, and a kernel that does not flush.

Usage: disktest_test.py MEMLITH PROGRAMS WORK
"""
import json
import os
import pathlib
import random
import shutil
import subprocess
import sys
import unittest

from common import RigError, Unable, wait_for
from lossy_folder import LossyFolder

MEMLITH, PROGRAMS, WORK = sys.argv[1], pathlib.Path(sys.argv[2]), pathlib.Path(sys.argv[3])
CUTS = 6
SESSION_S = 20.0


class OnLossyDisks(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        shutil.rmtree(WORK, ignore_errors=True)
        cls.folder = LossyFolder(PROGRAMS, WORK)
        cls.rng = random.Random(int(os.environ.get("MEMLITH_SEED", "7")))

    @classmethod
    def tearDownClass(cls):
        cls.folder.remove()

    def one_cut(self, operations, environment=None):
        """The check's verdict after a power cut."""
        told = WORK / "told"
        told.unlink(missing_ok=True)
        self.folder.make()
        disk = self.folder.mount()
        writer = subprocess.Popen(
            [MEMLITH, "disktest", "write", self.folder.target, "--tell", told, "--size", "1"],
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env={**os.environ, **(environment or {})})
        try:
            if not writer.stdout.readline():
                raise RigError("disktest write has ended by itself")
            disk.arm(operations)
            while not disk.frozen and wait_for([disk.fileno()], SESSION_S):
                disk.heard()
            disk.cut(self.rng.getrandbits(63))
        finally:
            writer.kill()
            writer.wait()
            writer.stdout.close()
            self.folder.unmount_after_cut(disk)
        disk = self.folder.mount()
        try:
            done = subprocess.run([MEMLITH, "disktest", "check", self.folder.target, "--told", told, "--json"],
                                  capture_output=True, text=True, check=False)
        finally:
            self.folder.unmount(disk)
        verdict = json.loads(done.stdout.splitlines()[0])
        self.assertEqual(done.returncode, 0 if verdict["honest"] else 2, done.stdout + done.stderr)
        return verdict

    def cuts(self, environment=None):
        return [self.one_cut(self.rng.randrange(20, 400), environment) for _ in range(CUTS)]

    def test_an_honest_disk_loses_nothing(self):
        verdicts = self.cuts()
        self.assertTrue(all(each["honest"] for each in verdicts), verdicts)
        self.assertGreater(sum(each["told"] for each in verdicts), 0)

    def test_a_disk_that_lies_is_found(self):
        self.folder.settings.sabotage = "lying-disk"
        self.addCleanup(setattr, self.folder.settings, "sabotage", "")
        verdicts = self.cuts()
        lost = [each["lost_told"] + each["lost_out_of_order"] for each in verdicts]
        self.assertGreater(sum(count > 0 for count in lost), CUTS // 2, verdicts)

    def test_flushes_that_never_reach_the_disk_are_found(self):
        verdicts = self.cuts({"LD_PRELOAD": str(PROGRAMS / "power-no-flush.so")})
        self.assertGreater(sum(each["lost_by"]["flush"] for each in verdicts), 0, verdicts)


if __name__ == "__main__":
    try:
        LossyFolder(PROGRAMS, WORK)
    except Unable as reason:
        print(f"skipped: {reason}")
        sys.exit(77)
    unittest.main(argv=sys.argv[:1])
