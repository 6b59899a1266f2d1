#!/usr/bin/env python3
"""The example `bank`: killed again and again, it finds the sum right and x < y in every pair each time.

Usage: bank_test.py BANK
"""
import os
import random
import subprocess
import sys
import tempfile
import time
import unittest

BANK = sys.argv[1]
GOOD = "the sum is right, and x < y in every pair"


class Bank(unittest.TestCase):
    def test_kills(self):
        with tempfile.TemporaryDirectory(dir=os.environ.get("MEMLITH_TEST_DIR") or None, prefix="bank-test-") as folder:
            store = os.path.join(folder, "store")
            for _ in range(12):
                bank = subprocess.Popen([BANK, store, "600"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                        text=True)
                self.assertEqual(bank.stdout.readline(), f"found: {GOOD}\n")
                time.sleep(random.uniform(0, 0.2))
                bank.kill()
                bank.communicate()
                self.assertEqual(bank.returncode, -9)
            done = subprocess.run([BANK, store, "0.1"], capture_output=True, text=True, check=False)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIn(f"left: {GOOD}", done.stdout)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
