#!/usr/bin/env python3
"""Files in handlers of signals under `memlith run`: no call of theirs may call the program's malloc (handler_main.cpp).

Usage: handler_test.py MEMLITH RUN_HANDLER
"""
import os
import sys
import unittest

from folder import Folder

RUN_HANDLER = os.path.abspath(sys.argv.pop(1))
STEPS = 14


class InAHandler(Folder):
    """Such a call would wait for ever if the signal came within malloc."""

    def calls_of_malloc(self, *options):
        done = self.run_with("*.dat*", RUN_HANDLER, "h.dat", options=options)
        steps = dict(line.split() for line in done.stdout.splitlines())
        self.assertEqual(len(steps), STEPS, done.stdout)
        self.assertEqual(list(self.folder.iterdir()), [], "the program removes its files")
        return {step: calls for step, calls in steps.items() if calls != "0"}

    def test_a_file_that_is_written_and_synced(self):
        self.assertEqual(self.calls_of_malloc(), {})

    def test_with_weak_commits(self):
        self.assertEqual(self.calls_of_malloc("--weak", "20"), {})

    def test_with_a_mark_in_the_file(self):
        self.assertEqual(self.calls_of_malloc("--guard"), {})


if __name__ == "__main__":
    unittest.main()
