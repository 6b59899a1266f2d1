#!/usr/bin/env python3
"""`memlith format` and a store on a block device without a file system, here a loop device: what holds something is
refused by name; every command takes the device by its path; kills lose nothing; a store in use keeps others out.

Usage: raw_device_test.py MEMLITH [MEMLITH_APPLOG_BENCH [MEMLITH_DBBENCH]]
"""
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "lib" / "support"))
import loop_device  # noqa: E402 pylint: disable=wrong-import-position

MEMLITH = sys.argv[1]
KV_BENCH = sys.argv[2] if len(sys.argv) > 2 else None
MIB = 1 << 20


class RawDevice(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory(dir=os.environ.get("MEMLITH_TEST_DIR") or None, prefix="raw-device-")
        self.addCleanup(temporary.cleanup)
        self.folder = pathlib.Path(temporary.name)
        self.image = self.folder / "image"
        self.device = self.make_device(64 * MIB)

    def make_device(self, size):
        with open(self.image, "wb") as image:
            image.truncate(size)
        return self.attach()

    def attach(self, *words):
        return loop_device.attach_for(self, self.image, *words)

    def run_it(self, *words, status=0, program=MEMLITH):
        done = subprocess.run([program, *words], capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, status, done.stdout + done.stderr)
        return done.stdout if status == 0 else done.stderr

    def told(self, *words):
        return json.loads(self.run_it(*words, "--json"))

    def test_what_holds_something_is_refused(self):
        self.assertIn("is not prepared", self.run_it("info", self.device, status=1))
        self.assertEqual(self.told("format", self.device), {"path": self.device, "formatted": True})
        self.assertIn("already", self.run_it("format", self.device, status=1))
        self.run_it("format", "--force", self.device)
        self.assertIn("there is no memlith store", self.run_it("info", self.device, status=1))
        plain = self.folder / "plain"
        plain.write_bytes(b"")
        self.assertIn("not a block device", self.run_it("format", plain, status=1))
        self.assertIn("cannot open it", self.run_it("format", self.folder / "nothing", status=1))
        with open(self.device, "r+b") as device:
            device.seek(64 * MIB - 512)
            device.write(b"x")
            device.seek(0)
            device.write(bytes(MIB))
        self.assertIn("holds something", self.run_it("format", self.device, status=1))
        if shutil.which("mkfs.ext4") is None:
            return
        subprocess.run(["mkfs.ext4", "-q", "-F", self.device], check=True)
        self.assertIn("holds something", self.run_it("format", self.device, status=1))
        mount = self.folder / "mount"
        mount.mkdir()
        if subprocess.run(["mount", self.device, mount], capture_output=True, check=False).returncode != 0:
            return
        try:
            self.assertIn("mounted", self.run_it("format", "--force", self.device, status=1))
        finally:
            subprocess.run(["umount", mount], check=True)
        self.run_it("format", "--force", self.device)

    def test_every_command_takes_the_path(self):
        self.run_it("format", self.device)
        for number in range(20):
            self.run_it("kv", "put", self.device, "map", f"key{number}", "value" * number)
        self.assertEqual(self.run_it("kv", "get", self.device, "map", "key3"), "value" * 3 + "\n")
        self.run_it("kv", "put", self.device, "map", "large", "v" * 30000)
        info = self.told("info", self.device)
        self.assertEqual(info["device"]["bytes"], 64 * MIB)
        self.assertTrue(0 < info["device"]["used_bytes"] < 64 * MIB)
        self.assertTrue(info["clean"] and info["kind"] == "folder" and info["direct_io"])
        self.assertEqual(info["medium"], "disk")
        self.assertIn("a block device", self.run_it("info", self.device))
        self.assertTrue(self.told("verify", self.device)["clean"])
        self.assertTrue(self.told("recover", self.device)["clean"])
        dump = self.run_it("dump", self.device)
        # Detached and attached again, under whatever name.
        loop_device.detach(self.device)
        again = self.attach()
        self.assertEqual(self.run_it("dump", again), dump)

    def test_a_killed_writer_loses_nothing(self):
        self.run_it("format", self.device)
        known = {}
        for turn in range(6):
            self.run_it("kv", "put", self.device, "map", f"alive{turn}", "yes")
            known[f"alive{turn}"] = "yes"
            source = self.folder / "records"
            source.write_text("".join(f"key{number}\tvalue{number}\n" for number in range(2000)), encoding="utf-8")
            with subprocess.Popen([MEMLITH, "kv", "put", self.device, f"load{turn}", "--in", source],
                                  stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as load:
                try:
                    load.wait(0.004 * (turn + 1))
                except subprocess.TimeoutExpired:
                    load.send_signal(signal.SIGKILL)
            # The lock went with the process.
            for key, value in known.items():
                self.assertEqual(self.run_it("kv", "get", self.device, "map", key), value + "\n")
            self.run_it("verify", self.device)
        self.run_it("recover", self.device)
        self.assertTrue(self.told("info", self.device)["clean"])

    def test_a_cut_or_damaged_device_is_refused(self):
        self.run_it("format", self.device)
        self.run_it("kv", "put", self.device, "map", "key", "value")
        loop_device.detach(self.device)
        cut = self.attach("--sizelimit", str(32 * MIB))
        self.assertIn("was formatted with", self.run_it("verify", cut, status=2))
        loop_device.detach(cut)
        with open(self.image, "r+b") as image:
            image.write(b"\xff" * 512)
        self.assertEqual(self.run_it("kv", "get", self.attach(), "map", "key"), "value\n")

    def test_benchmarks(self):
        small = ["--backends", "raw", "--device", self.device, "--dir", str(self.folder), "--seconds", "0.01", "--json"]
        suites = [["applog", "--suites", "append", "--bytes", "100"],
                  ["dbbench", "--sides", "memlith,memlith-log", "--records", "200"]]
        for suite in suites if KV_BENCH else []:
            with open(self.image, "r+b") as image:
                image.truncate(600 * MIB)
            loop_device.see_new_size(self.device)
            lines = [json.loads(line) for line in self.run_it(*suite, *small, program=KV_BENCH).splitlines()]
            self.assertTrue(any(line.get("backend") == "raw" for line in lines))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
