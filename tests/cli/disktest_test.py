#!/usr/bin/env python3
"""`memlith disktest`: a witness, and each kind of loss planted by hand.

Usage: disktest_test.py MEMLITH
"""
import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest

MEMLITH = sys.argv[1]
BLOCK, SECTOR, BLOCKS = 4096, 512, 256


def newest_round(content):
    return max(int.from_bytes(content[at + 16:at + 24], "little") for at in range(0, BLOCKS * BLOCK, BLOCK))


class DiskTest(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory(dir=os.environ.get("MEMLITH_TEST_DIR") or None, prefix="disktest-")
        self.addCleanup(temporary.cleanup)
        self.work = pathlib.Path(temporary.name)
        self.folder = self.work / "disk"
        self.folder.mkdir()
        self.data = self.folder / "memlith-disktest.data"
        self.told = self.work / "told"

    def run_memlith(self, *words):
        return subprocess.run([MEMLITH, "disktest", *map(str, words)], capture_output=True, text=True, check=False)

    def listen(self):
        """A witness, and its port."""
        witness = subprocess.Popen([MEMLITH, "disktest", "listen", "0", self.told], stdout=subprocess.PIPE, text=True)
        self.addCleanup(witness.stdout.close)
        self.addCleanup(witness.wait)
        self.addCleanup(witness.kill)
        return witness, witness.stdout.readline().split()[-1]

    def write(self, rounds):
        witness, port = self.listen()
        done = self.run_memlith("write", self.folder, "--tell", f"localhost:{port}", "--size", 1, "--rounds", rounds)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn(f"{rounds} rounds durable", done.stdout)
        self.assertEqual(witness.wait(), 0)

    def check(self, code):
        done = self.run_memlith("check", self.folder, "--told", self.told, "--json")
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return json.loads(done.stdout.splitlines()[0])

    def round_of(self, place):
        """The round in the sector with this number."""
        return int.from_bytes(self.data.read_bytes()[place * SECTOR + 16:place * SECTOR + 24], "little")

    def put(self, offset, content):
        with self.data.open("r+b") as file:
            file.seek(offset)
            file.write(content)

    def newest_block(self):
        return max(range(BLOCKS), key=lambda block: self.round_of(block * 8))

    def forget_newest(self, count):
        """The witness loses its last lines."""
        lines = self.told.read_text().splitlines(keepends=True)
        self.told.write_text("".join(lines[:-count]))

    def test_nothing_is_lost(self):
        self.write(60)
        verdict = self.check(0)
        self.assertTrue(verdict["honest"])
        self.assertEqual((verdict["told"], verdict["newest"]), (60, 60))

    def test_what_was_told_is_missed(self):
        self.write(20)
        before = self.data.read_bytes()
        self.told.unlink()
        self.data.unlink()
        self.write(20)
        block = self.newest_block()
        for content in (bytes(BLOCK), before[block * BLOCK:(block + 1) * BLOCK]):  # nothing, and another run's
            whole = self.data.read_bytes()
            self.put(block * BLOCK, content)
            verdict = self.check(2)
            self.assertEqual((verdict["lost_told"], verdict["lost_out_of_order"]), (1, 0))
            self.assertEqual(sum(verdict["lost_by"].values()), 1)
            self.data.write_bytes(whole)
        self.data.unlink()
        self.assertEqual(self.check(2)["lost_told"], BLOCKS)

    def test_a_later_round_proves_the_earlier_ones(self):
        self.write(30)
        self.forget_newest(20)  # 10 are told, 30 are there
        self.assertEqual(self.check(0)["told"], 10)
        late = next(block for block in range(BLOCKS) if 10 < self.round_of(block * 8) < 30)
        self.put(late * BLOCK, bytes(BLOCK))
        verdict = self.check(2)
        self.assertEqual((verdict["lost_told"], verdict["lost_out_of_order"]), (0, 1))

    def test_damaged_and_misplaced_sectors(self):
        self.write(40)
        block = self.newest_block()
        self.put(block * BLOCK + 3 * SECTOR + 100, b"\xff\xff")
        self.put((block + 1) % BLOCKS * BLOCK, self.data.read_bytes()[(block + 2) % BLOCKS * BLOCK:][:2 * SECTOR])
        verdict = self.check(2)
        self.assertEqual((verdict["damaged_sectors"], verdict["misplaced_sectors"]), (1, 2))

    def stopped(self, writer, seconds):
        """The file after the writer went on for so long; the writer stands still."""
        writer.send_signal(signal.SIGCONT)
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            pass  # a sleep takes as long as several rounds
        writer.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, writer.pid, os.WSTOPPED)
        return self.data.read_bytes()

    def torn_between(self, before, later):
        """Tears each block of the round between two moments, and returns what the check says of the honest ones."""
        newest = newest_round(later)
        folder, told = self.work / "torn", self.work / "torn-told"
        folder.mkdir(exist_ok=True)
        while len(lines := self.told.read_text().splitlines(keepends=True)) < newest + 1:
            time.sleep(0.001)  # the witness is a process of its own
        told.write_text("".join(lines[:newest + 1]))  # the header, and the rounds before the newest
        said = set()
        for at in range(0, BLOCKS * BLOCK, BLOCK):
            if int.from_bytes(later[at + 16:at + 24], "little") != newest:
                continue
            for sectors in (1, 4):  # pieces of 512, and of 2,048 bytes
                content = bytearray(later)
                content[at:at + sectors * SECTOR] = before[at:at + sectors * SECTOR]
                (folder / self.data.name).write_bytes(content)
                done = self.run_memlith("check", folder, "--told", told, "--json")
                verdict = json.loads(done.stdout.splitlines()[0])
                if verdict["honest"]:  # else the moment before lies inside the round before
                    said.add((verdict["torn_blocks"], verdict["torn_piece_bytes"] == sectors * SECTOR))
        return said

    def test_the_round_in_flight_may_be_torn(self):
        witness, port = self.listen()
        writer = subprocess.Popen([MEMLITH, "disktest", "write", self.folder, "--tell", f"localhost:{port}",
                                   "--size", "1"], stdout=subprocess.PIPE)
        self.addCleanup(writer.stdout.close)
        writer.stdout.readline()
        later = self.data.read_bytes()
        torn = set()
        for attempt in range(5000):  # until the writer stopped twice with one round in between
            before, later = later, self.stopped(writer, attempt % 20 * 20e-6)
            if newest_round(later) == newest_round(before) + 1:
                torn |= self.torn_between(before, later)
            if (1, True) in torn:
                break
        writer.kill()
        writer.wait()
        witness.wait()
        self.assertIn((1, True), torn)
        self.assertTrue(self.check(0)["honest"])

    def test_the_record_itself(self):
        self.write(3)
        lines = self.told.read_text()
        self.told.write_text(lines + "4")  # cut off: does not count
        self.assertEqual(self.check(0)["told"], 3)
        for content in ("", "something else\n", lines + "17\n", lines.splitlines(keepends=True)[0]):
            self.told.write_text(content)
            self.assertEqual(self.run_memlith("check", self.folder, "--told", self.told).returncode, 1, content)

    def test_refusals(self):
        same = self.run_memlith("write", self.folder, "--tell", self.told)
        self.assertEqual(same.returncode, 1)
        self.assertIn("lies on the disk that is tested", same.stderr)
        with socket.socket() as free:
            free.bind(("localhost", 0))
            port = free.getsockname()[1]
        gone = self.run_memlith("write", self.folder, "--tell", f"localhost:{port}")
        self.assertEqual(gone.returncode, 1)
        self.assertIn("disktest listen", gone.stderr)
        self.told.write_text("")
        self.assertIn("new file", self.run_memlith("listen", 0, self.told).stderr)

    def test_a_writer_without_its_witness_stops(self):
        witness, port = self.listen()
        writer = subprocess.Popen([MEMLITH, "disktest", "write", self.folder, "--tell", f"localhost:{port}",
                                   "--size", "1"], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        self.addCleanup(writer.stderr.close)
        while self.told.stat().st_size < 100:
            time.sleep(0.01)
        witness.kill()
        self.assertEqual(writer.wait(), 1)
        self.assertIn("localhost", writer.stderr.read())


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
