#!/usr/bin/env python3
"""The example `counter`: killed again and again, it finds each acknowledged increment counted exactly once.

An increment that was under way at the kill may be counted or not; each client has one under way at most.

Usage: counter_test.py COUNTER
"""
import collections
import os
import random
import subprocess
import sys
import tempfile
import time
import unittest

COUNTER = sys.argv[1]
CLIENTS = [f"client{number}" for number in range(3)]


class Counter(unittest.TestCase):
    def found(self, lines):
        """The count that the server told each client at its start."""
        told = dict(line.split()[1:] for line in lines if line.startswith("found "))
        self.assertEqual(sorted(told), CLIENTS)
        return {client: int(count) for client, count in told.items()}

    def test_kills(self):
        with tempfile.TemporaryDirectory(dir=os.environ.get("MEMLITH_TEST_DIR") or None,
                                         prefix="counter-test-") as folder:
            store, output = os.path.join(folder, "store"), os.path.join(folder, "output")
            least = dict.fromkeys(CLIENTS, 0)
            most = dict.fromkeys(CLIENTS, 0)
            for _ in range(15):
                # A file has what was said before the kill; a line that the kill cut was not said.
                with open(output, "wb") as said:
                    counter = subprocess.Popen([COUNTER, store, "600"], stdout=said, stderr=subprocess.STDOUT)
                time.sleep(random.uniform(0.02, 0.25))
                self.assertIsNone(counter.poll(), text_of(output))
                counter.kill()
                counter.wait()
                lines = text_of(output).rpartition("\n")[0].splitlines()
                if sum(line.startswith("found ") for line in lines) < len(CLIENTS):
                    continue  # killed while it opened: nothing was counted
                for client, count in self.found(lines).items():
                    self.assertTrue(least[client] <= count <= most[client], (client, least, count, most))
                    counted = collections.Counter(lines)[f"counted {client}"]
                    least[client], most[client] = count + counted, count + counted + 1
            done = subprocess.run([COUNTER, store, "0.1"], capture_output=True, text=True, check=False)
            self.assertEqual(done.returncode, 0, done.stderr)
            for client, count in self.found(done.stdout.splitlines()).items():
                self.assertTrue(least[client] <= count <= most[client], (client, least, count, most))
            before, counted = self.found(done.stdout.splitlines()), collections.Counter(done.stdout.splitlines())
            again = subprocess.run([COUNTER, store, "0"], capture_output=True, text=True, check=False)
            self.assertEqual(self.found(again.stdout.splitlines()),
                             {client: before[client] + counted[f"counted {client}"] for client in CLIENTS})


def text_of(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
