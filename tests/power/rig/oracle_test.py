#!/usr/bin/env python3
"""The rig's oracle notices what it should: a commit lost, a commit from nowhere, a commit that came back. And no cut
drops out of the count."""
import argparse
import pathlib
import tempfile
import unittest

from common import Cut, Tally
from oracle import Lines, Oracle, Violation, WorkloadError
from power_soak import Soak

OPENED = ["P c 0", "P a 0", "P b 0", "P f 0", "F 0"]


def after(*lines: str) -> Oracle:
    oracle = Oracle()
    oracle.begin_life()
    for line in [*OPENED, *lines]:
        oracle.feed(line)
    oracle.begin_life()
    return oracle


class OracleTest(unittest.TestCase):
    def test_accepts_acknowledged_to_started(self) -> None:
        for found in (1, 2):
            oracle = after("S a 1", "A a 1", "S a 2")
            oracle.feed(f"P a {found}")
            self.assertEqual((oracle.acknowledged["a"], oracle.started["a"]), (found, found))

    def test_notices_a_lost_commit(self) -> None:
        with self.assertRaises(Violation):
            after("S a 1", "A a 1").feed("P a 0")

    def test_accepts_a_prefix_of_what_was_not_waited_for(self) -> None:
        started = ["S a 1", "S a 2", "S a 3", "A a 2"]
        for found in (2, 3):
            after(*started).feed(f"P a {found}")
        for found in (1, 4):
            with self.assertRaises(Violation):
                after(*started).feed(f"P a {found}")
        self.assertEqual(after(*started).commits, 2)
        with self.assertRaises(WorkloadError):
            after(*started, "A a 1")

    def test_notices_a_commit_nobody_started(self) -> None:
        with self.assertRaises(Violation):
            after("S a 1", "A a 1").feed("P a 2")

    def test_notices_a_commit_that_came_back(self) -> None:
        oracle = after("S a 1")
        oracle.feed("P a 0")
        oracle.begin_life()
        with self.assertRaises(Violation):
            oracle.feed("P a 1")

    def test_notices_a_found_commit_that_went(self) -> None:
        oracle = after("S a 1")
        oracle.feed("P a 1")
        oracle.begin_life()
        with self.assertRaises(Violation):
            oracle.feed("P a 0")

    def test_creations_are_told_modulo_four(self) -> None:
        lines = [f"{kind} c {n}" for n in range(1, 7) for kind in "SA"]
        oracle = after(*lines, "S c 7")
        oracle.feed("P c 3")
        self.assertEqual(oracle.acknowledged["c"], 7)
        oracle.feed("S c 4")
        oracle.feed("A c 4")
        self.assertEqual(oracle.acknowledged["c"], 8)
        oracle.begin_life()
        with self.assertRaises(Violation):
            oracle.feed("P c 3")

    def test_what_the_workload_says_is_a_violation(self) -> None:
        with self.assertRaises(Violation):
            after().feed("X region a0: expected 1, found 2")
        with self.assertRaises(WorkloadError):
            after().feed("E no space")

    def test_counts_a_life_when_all_was_compared(self) -> None:
        oracle = after()
        self.assertEqual(oracle.lives, 1)
        oracle.feed("P a 0")
        self.assertFalse(oracle.recovered)

    def test_half_a_line_was_not_said(self) -> None:
        lines = Lines()
        self.assertEqual(lines.add(b"A a 1\nA a"), ["A a 1"])
        self.assertEqual(lines.add(b" 2\n"), ["A a 2"])


class Stopped:
    """A rig whose user has had enough in the third session."""
    operations_max = deaths_ms_max = 10

    def begin_chain(self) -> None:
        self.sessions = 0

    def session(self, cut: Cut, oracle: Oracle, tally: Tally, check_only: bool) -> None:
        self.sessions += 1
        if self.sessions == 3:
            raise KeyboardInterrupt
        tally.cuts += 1


class TallyTest(unittest.TestCase):
    def test_every_cut_is_accounted_for(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            soak = Soak(argparse.Namespace(bin=pathlib.Path(folder), work=pathlib.Path(folder), sabotage="", minutes=0,
                                           cuts=9, seed=1))
            tally = soak.tally("loop", "ext4")
            with self.assertRaises(KeyboardInterrupt):
                soak.run_chain(Stopped(), tally, 0)  # type: ignore[arg-type]
        self.assertEqual((tally.cuts, tally.in_recovery, tally.not_looked_at), (2, 1, 1))
        self.assertEqual(tally.as_json()["not_looked_at"], 1)


if __name__ == "__main__":
    unittest.main()
