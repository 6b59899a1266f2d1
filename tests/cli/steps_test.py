#!/usr/bin/env python3
"""`memlith steps`: lists the runs of a store, shows their steps, lets one go on and ends one. The runs are those of
examples/order.cpp, which is killed while it charges.

Usage: steps_test.py MEMLITH ORDER
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

MEMLITH, ORDER = sys.argv[1:3]


class Steps(unittest.TestCase):
    def setUp(self):
        self.temporary = tempfile.TemporaryDirectory(dir=os.environ.get("MEMLITH_TEST_DIR") or None,
                                                     prefix="steps-test-")
        self.addCleanup(self.temporary.cleanup)
        self.store = pathlib.Path(self.temporary.name) / "store"

    def order(self, *words):
        return subprocess.run([ORDER, self.store, *words], capture_output=True, text=True, check=False)

    def steps(self, command, *words, status=0):
        done = subprocess.run([MEMLITH, "steps", command, self.store, *words], capture_output=True, text=True,
                              check=False)
        self.assertEqual(done.returncode, status, done.stdout + done.stderr)
        return done.stdout if status == 0 else done.stderr

    def rows(self, command, *words):
        return [json.loads(line) for line in self.steps(command, *words, "--json").splitlines()]

    def test_a_killed_effect_with_a_key_is_called_again(self):
        self.assertEqual(self.order("a", "kill").returncode, -9)
        self.assertEqual(self.order("a").stdout, "charge with key 18 bytes\nreceipt for 500, 9 left\n")
        self.assertEqual(self.order("a").stdout, "receipt for 500, 9 left\n")

    def test_runs_are_listed_shown_and_decided(self):
        self.assertEqual(self.order("done").returncode, 0)
        self.assertEqual(self.order("keyless", "kill").returncode, -9)
        self.assertIn("unknown whether effect charge has happened", self.order("keyless").stderr)
        self.assertEqual([(row["id"], row["status"], row["steps"]) for row in self.rows("list")],
                         [("done", "done", 2), ("keyless", "ready", 1)])
        self.assertEqual([row["id"] for row in self.rows("list", "--status", "done")], ["done"])
        self.assertEqual([row["id"] for row in self.rows("list", "--begin", "key")], ["keyless"])
        self.assertEqual(self.steps("list").splitlines()[0].split()[:3], ["run", "status", "steps"])
        self.assertIn("keyless", self.steps("list"))
        [shown] = self.rows("show", "keyless")
        self.assertEqual([(call["kind"], call["name"], call["state"]) for call in shown["calls"]],
                         [("step", "reserve", "done"), ("effect", "charge", "unknown")])
        self.assertRegex(self.steps("show", "keyless"), "1  effect  unknown .* charge")
        self.assertEqual(self.rows("retry", "keyless")[0]["status"], "ready")
        self.assertEqual(self.order("keyless").stdout, "charge with key 0 bytes\nreceipt for 500, 8 left\n")

    def test_a_run_is_ended(self):
        self.order("keyless", "kill")
        self.assertEqual(self.steps("cancel", "keyless"), "keyless: cancelled\n")
        self.assertIn("was cancelled", self.order("keyless").stderr)
        self.assertIn("has ended: it is cancelled", self.steps("cancel", "keyless", status=1))
        self.steps("retry", "keyless")
        self.assertEqual(self.order("keyless").returncode, 0)
        self.assertIn("is done", self.steps("retry", "keyless", status=1))

    def test_mistakes(self):
        self.assertIn(str(self.store), self.steps("list", status=1))
        subprocess.run([MEMLITH, "kv", "put", self.store, "map", "key", "value"], check=True)
        self.assertIn("has no durable runs", self.steps("list", status=1))
        self.order("a")
        self.assertIn('no run "b"', self.steps("show", "b", status=1))
        self.assertIn("running", self.steps("list", "--status", "none", status=1))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
