#!/usr/bin/env python3
"""A store on a file system that another program or machine serves: every opening says so, or is refused.

Usage: mounts_test.py MEMLITH HELLO_C
HELLO_C makes a store in the folder that it is given, persists to it and closes it. Takes root, FUSE, bindfs and sshfs
(Debian's), whose server runs here.
"""
import ctypes
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

MEMLITH, HELLO = sys.argv[1:3]
SFTP_SERVER = "/usr/lib/openssh/sftp-server"
CLONE_NEWNS = 0x00020000


def can_mount():
    """In a mount namespace of its own, which ends with the process."""
    if os.geteuid() != 0 or not os.access("/dev/fuse", os.R_OK | os.W_OK):
        return False
    return ctypes.CDLL(None).unshare(CLONE_NEWNS) == 0 and \
        subprocess.run(["mount", "--make-rprivate", "/"], check=False).returncode == 0


CAN_MOUNT = can_mount()


def run(*command, **environment):
    return subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False,
                          env={**os.environ, **environment})


class Mounts(unittest.TestCase):
    def setUp(self):
        if not CAN_MOUNT:
            self.skipTest("mounting takes root and /dev/fuse")
        self.temporary = tempfile.TemporaryDirectory(dir=os.environ.get("MEMLITH_TEST_DIR") or None,
                                                     prefix="mounts-test-")
        self.addCleanup(self.temporary.cleanup)
        self.folder = pathlib.Path(self.temporary.name)
        self.below, self.mount = self.folder / "below", self.folder / "mount"
        self.below.mkdir()
        self.mount.mkdir()

    def mounted(self, *command):
        done = run(*command)
        if done.returncode != 0:
            self.skipTest(f"{command[0]}: {done.stderr}")
        self.addCleanup(run, "umount", "--lazy", self.mount)

    def info(self, **environment):
        done = run(MEMLITH, "info", "--json", self.mount / "store", **environment)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return json.loads(done.stdout), done.stderr

    @unittest.skipUnless(shutil.which("bindfs"), "bindfs is missing")
    def test_a_program_below_the_store_is_told_at_every_opening(self):
        self.mounted("bindfs", self.below, self.mount)
        for _ in range(2):
            done = run(HELLO, self.mount / "store")
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            self.assertIn("which another program or the host of this machine serves", done.stderr)
        found, _ = self.info()
        self.assertEqual((found["medium"], found["file_system"]), ("program", "fuse"))
        text = run(MEMLITH, "info", self.mount / "store")
        self.assertIn("medium    fuse: another program", text.stdout)
        # The same store where it lies.
        done = run(HELLO, self.below / "store")
        self.assertEqual((done.returncode, done.stderr), (0, ""))

    @unittest.skipUnless(shutil.which("sshfs") and os.path.exists(SFTP_SERVER), "sshfs is missing")
    def test_a_network_file_system_is_refused_unless_it_is_allowed(self):
        server = self.folder / "ssh"
        server.write_text(f"#!/bin/sh\nexec {SFTP_SERVER}\n", encoding="utf-8")
        server.chmod(0o755)
        self.mounted("sshfs", "-o", f"ssh_command={server}", f"here:{self.below}", self.mount)
        done = run(HELLO, self.mount / "store")
        self.assertNotEqual(done.returncode, 0)
        for words in "lies on a network file system (fuse.sshfs)", "MEMLITH_ALLOW_NETWORK=1":
            self.assertIn(words, done.stdout + done.stderr)
        self.assertEqual([str(each) for each in self.below.rglob("*") if each.is_file()], [], "something was left")
        done = run(HELLO, self.mount / "store", MEMLITH_ALLOW_NETWORK="1")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn("commits may not survive a power loss of either machine", done.stderr)
        found, told = self.info(MEMLITH_ALLOW_NETWORK="1")
        self.assertEqual((found["medium"], found["file_system"]), ("network", "fuse.sshfs"))
        self.assertIn("network file system", told)
        refused = run(MEMLITH, "info", self.mount / "store")
        # A backup may lie there: no program uses it as a store.
        local = self.folder / "local"
        self.assertEqual(run(HELLO, local).returncode, 0)
        copied = run(MEMLITH, "copy", local, self.mount / "copy")
        self.assertEqual(copied.returncode, 0, copied.stdout + copied.stderr)
        archived = run(MEMLITH, "archive", local, self.mount / "archive", "--once")
        self.assertEqual(archived.returncode, 0, archived.stdout + archived.stderr)
        restored = run(MEMLITH, "restore", self.mount / "archive", self.mount / "restored")
        self.assertEqual(restored.returncode, 0, restored.stdout + restored.stderr)
        for name in "copy", "restored":
            verified = run(MEMLITH, "verify", self.below / name)
            self.assertEqual(verified.returncode, 0, verified.stdout + verified.stderr)
        self.assertEqual(refused.returncode, 1, refused.stdout)
        self.assertIn("MEMLITH_ALLOW_NETWORK=1", refused.stderr)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
