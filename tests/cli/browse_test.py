#!/usr/bin/env python3
"""`memlith browse` on a terminal of 24 lines: what is on the screen after each key, beside a writer and without.

Usage: browse_test.py MEMLITH GOLDEN_STORE ORDER DUMP_TYPES
"""
import os
import pathlib
import pty
import select
import subprocess
import sys
import tempfile
import time
import unittest

import pyte

MEMLITH, GOLDEN_STORE, ORDER, DUMP_TYPES = sys.argv[1:5]
LINES, COLUMNS = 24, 100
# As the terminal "linux" says them, whose every sequence pyte knows.
UP, DOWN, END, HOME, NEXT_PAGE, ESCAPE = "\x1b[A", "\x1b[B", "\x1b[4~", "\x1b[1~", "\x1b[6~", "\x1b"
PATIENCE = 60  # seconds


class Terminal:
    """A program on a terminal, and what is on its screen."""

    def __init__(self, *command):
        self.screen = pyte.Screen(COLUMNS, LINES)
        self.stream = pyte.ByteStream(self.screen)
        self.process, self.side = pty.fork()
        if self.process == 0:
            os.environ.update(TERM="linux", LINES=str(LINES), COLUMNS=str(COLUMNS))
            os.execv(command[0], [str(word) for word in command])
        self.status = None

    def read(self, seconds):
        if not select.select([self.side], [], [], seconds)[0]:
            return False
        try:
            got = os.read(self.side, 1 << 16)
        except OSError:  # the other side is closed
            return False
        self.stream.feed(got)
        return bool(got)

    def text(self):
        return "\n".join(self.screen.display)

    def until(self, wanted, without=None):
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            if wanted in self.text() and (without is None or without not in self.text()) and not self.read(0.1):
                return self.screen.display  # nothing more comes
            self.read(0.1)
        raise AssertionError(f"{wanted} is not on the screen:\n{self.text()}")

    def press(self, keys):
        os.write(self.side, keys.encode())

    def end(self):
        while self.read(5):
            pass
        _, status = os.waitpid(self.process, 0)
        os.close(self.side)
        return os.waitstatus_to_exitcode(status)


class Browse(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory(dir=os.environ.get("MEMLITH_TEST_DIR") or None, prefix="browse-test-")
        self.addCleanup(temporary.cleanup)
        self.store = pathlib.Path(temporary.name) / "store"

    def load(self, **maps):
        """A kv store with these maps of records."""
        for name, records in maps.items():
            text = "".join(f"{key}\t{value}\n" for key, value in records.items())
            subprocess.run([MEMLITH, "kv", "put", self.store, name, "--in", "-"], check=True, capture_output=True,
                           input=text.encode())

    def open(self):
        terminal = Terminal(MEMLITH, "browse", self.store)
        terminal.until("Enter opens")
        return terminal

    def test_a_map_of_many_records(self):
        records = {f"key{number:04}": f"value {number}" for number in range(1000)}
        self.load(many={**records, "key0000": "the first"}, other={"long": "v" * 100_000})
        terminal = self.open()
        terminal.until("kv  ")
        terminal.press("\n")
        terminal.until("about ")
        self.assertRegex(terminal.text(), r"many +about [0-9]+ records")
        terminal.press("\n")
        display = terminal.until("the first")
        self.assertIn("> kv > many", display[0])
        self.assertTrue(display[LINES - 2].startswith("key0021"), display)
        terminal.press(END)
        terminal.until("key0999")
        terminal.press(DOWN)  # nothing follows
        terminal.press(HOME)
        terminal.until("the first")
        terminal.press(NEXT_PAGE)
        terminal.until("key0042", without="the first")
        terminal.press("/key05\n")
        display = terminal.until("key0500")
        self.assertTrue(display[1].startswith("key0500"), display)
        terminal.press(UP)
        display = terminal.until("key0499")
        self.assertTrue(display[1].startswith("key0499"), display)
        terminal.press("/z\n")
        terminal.until("> kv > many", without="key0499")
        terminal.press("/key0007\n")
        terminal.until("value 7 ")
        terminal.press("\n")
        display = terminal.until("00000000")
        self.assertIn("> key0007", display[0])
        self.assertIn("76 61 6c 75 65 20 37", display[1])
        terminal.press("qq" + DOWN + "\n\n")
        display = terminal.until("the first 65536 of 100000 bytes")
        terminal.press("/0x100\n")
        self.assertTrue(terminal.until("00000100  76")[0])
        terminal.press("/0x100000\n")
        terminal.until("there are only 65536 bytes")
        terminal.press("Q")
        self.assertEqual(terminal.end(), 0)

    def test_an_application_log(self):
        subprocess.run([GOLDEN_STORE, "make", "applog", self.store], check=True)
        terminal = self.open()
        terminal.until("log ")
        terminal.press("\n")
        display = terminal.until("> log")
        first = display[1].split()
        terminal.press("\n")
        display = terminal.until(f"> log > {first[0]}")
        self.assertTrue(display[1].startswith("00000000  "), display)
        terminal.press(ESCAPE)
        terminal.until("> log ", without="> log >")
        terminal.press("/0\n")
        terminal.until("there are entries ")
        terminal.press("Q")
        self.assertEqual(terminal.end(), 0)

    def test_durable_runs(self):
        subprocess.run([ORDER, self.store, "a"], check=True, capture_output=True)
        subprocess.run([ORDER, self.store, "keyless", "kill"], check=False, capture_output=True)
        terminal = self.open()
        terminal.until(".records ")
        terminal.press("\n")
        terminal.until("durable runs")
        terminal.press("\n")
        display = terminal.until("> runs")
        self.assertRegex(display[1], "a +done +2 ")
        self.assertRegex(display[2], "keyless +ready +1 ")
        terminal.press("/k\n\n")
        display = terminal.until("> keyless")
        self.assertRegex(display[1], "0  step +done .* reserve")
        self.assertRegex(display[2], "1  effect +unknown .* charge")
        terminal.press("\n")
        terminal.until("00000000  08 00 00 00")
        terminal.press("Q")
        self.assertEqual(terminal.end(), 0)

    def test_the_objects_of_a_heap(self):
        subprocess.run([DUMP_TYPES, "make", self.store], check=True)
        terminal = self.open()
        terminal.press("\n")
        terminal.until("names  ")
        self.assertRegex(terminal.text(), r"plain +.*Plain \{bool, long")
        down = [line.split()[0] for line in terminal.screen.display[1:] if line.strip()].index("names")
        terminal.press(DOWN * down + "\n")
        display = terminal.until("> names")
        self.assertTrue(display[1].startswith("       0  "), display)
        terminal.press("\n")
        terminal.until("> names > 0")
        terminal.press("Q")
        self.assertEqual(terminal.end(), 0)

    def test_the_bytes_of_a_region(self):
        subprocess.run([GOLDEN_STORE, "make", "folder", self.store], check=True)
        terminal = self.open()
        terminal.until("numbers ")
        terminal.press(DOWN + "\n")
        terminal.until("> numbers")
        terminal.press("/8\n")
        terminal.until("00000000  00 00 00 00 00 00 00 00  07 00 00 00 00 00 00 00")
        terminal.press(END)
        terminal.until("0000fff0")
        terminal.press("Q")
        self.assertEqual(terminal.end(), 0)

    def test_beside_a_writer(self):
        self.load(many={"a": "1"})
        writer = subprocess.Popen([MEMLITH, "kv", "put", self.store, "many", "--in", "-"], stdin=subprocess.PIPE,
                                  stdout=subprocess.PIPE, text=True)
        writer.stdin.write("b\t2\n")
        writer.stdin.flush()
        terminal = self.open()
        terminal.press("\n\n")
        terminal.until("> kv > many")
        terminal.press("r")
        terminal.until("as of commit")
        writer.communicate()
        self.assertEqual(writer.returncode, 0)
        terminal.press("r")
        terminal.press(HOME)
        terminal.until("b    ")
        terminal.press("Q")
        self.assertEqual(terminal.end(), 0)

    def test_mistakes_are_told(self):
        done = subprocess.run([MEMLITH, "browse", self.store], capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 1)
        self.assertIn("needs a terminal", done.stderr)
        terminal = Terminal(MEMLITH, "browse", self.store)
        terminal.until("store")
        self.assertEqual(terminal.end(), 1)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
