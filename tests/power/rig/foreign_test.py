#!/usr/bin/env python3
"""The rig of foreign programs notices what is wrong: foreign.py, without a disk."""
import contextlib
import io
import unittest
import unittest.mock

from common import RigError
from foreign import PowerCuts, Trial, Unanswered, Wrong, hold, until


class Kills(Trial):
    name = "kills"

    def __init__(self, changes, wrong=""):
        self.changes, self.wrong, self.given_up = changes, wrong, False

    def run(self, number):
        self.number, self.acknowledged = number, self.changes
        if self.wrong:
            raise Wrong(self.wrong)

    def give_up(self):
        self.given_up = True


class Disk:
    """Freezes when it was asked for so many times."""

    def __init__(self, asked=1 << 30):
        self.asked, self.frozen, self.calls = asked, False, []

    def fileno(self):
        return 0

    def arm(self, operations):
        self.calls.append("arm")

    def cut(self, seed):
        self.calls.append("cut")

    def ask(self):
        self.asked -= 1
        self.frozen = self.asked <= 0


class Cuts(PowerCuts):
    """A program that ends by itself after some looks at it."""

    def __init__(self, disk, looks=1 << 30):  # pylint: disable=super-init-not-called
        self.disk, self.looks, self.calls, self.chance, self.folder = disk, looks, [], self, self

    def mount(self):
        return self.disk

    def unmount(self, disk):
        self.calls.append("unmount")

    def unmount_after_cut(self, disk):
        self.calls.append("unmount after cut")

    def random(self):
        return 0.5  # no cut at a start

    def randint(self, least, most):
        return most

    def getrandbits(self, bits):
        return bits

    def check(self, last):
        self.calls.append("check")

    def work(self):
        self.calls.append("work")

    def last_words(self):
        self.disk.ask()
        self.looks -= 1
        return "the end" if self.looks <= 0 else None

    def kill(self):
        self.calls.append("kill")

    def reap(self):
        self.calls.append("reap")


def held(*trials):
    with contextlib.redirect_stdout(io.StringIO()) as said:
        return hold([(trial, 4) for trial in trials], "kills", 5), said.getvalue()


class Foreign(unittest.TestCase):
    def setUp(self):
        patch = unittest.mock.patch("foreign.wait_for", lambda descriptors, seconds: [])
        patch.start()
        self.addCleanup(patch.stop)

    def test_a_trial_that_is_right_is_counted(self):
        code, said = held(Kills(20), Kills(20))
        self.assertEqual(code, 0)
        self.assertIn("8 kills, 40 acknowledged changes", said)

    def test_one_wrong_trial_fails_the_test(self):
        wrong = Kills(20, "a row is gone")
        code, said = held(Kills(20), wrong)
        self.assertEqual((code, wrong.given_up), (1, True))
        self.assertIn("a row is gone", said)

    def test_too_few_changes_test_nothing(self):
        self.assertEqual(held(Kills(19), Kills(20))[0], 1)

    def test_waiting_asks_again_and_ends(self):
        answers = iter([Unanswered(), 0, 7])

        def ask():
            answer = next(answers)
            if isinstance(answer, Unanswered):
                raise answer
            return answer

        self.assertEqual(until(ask, "an answer"), 7)
        with self.assertRaisesRegex(Wrong, "not within 0 s: an answer, late"):
            until(lambda: False, lambda: "an answer, late", 0.01)

    def test_a_session_checks_works_and_cuts(self):
        cuts = Cuts(Disk(3))
        cuts.session()
        self.assertEqual(cuts.calls, ["check", "work", "kill", "reap", "unmount after cut"])
        self.assertEqual((cuts.disk.calls, cuts.number, cuts.at_start), (["arm", "cut"], 1, 0))

    def test_a_program_that_ends_before_the_cut_is_wrong(self):
        cuts = Cuts(Disk(5), looks=2)
        with self.assertRaisesRegex(Wrong, "the end"):
            cuts.session()
        self.assertEqual(cuts.calls[-3:], ["kill", "reap", "unmount"])
        self.assertEqual(cuts.number, 0)

    def test_the_last_session_only_looks(self):
        cuts = Cuts(Disk())
        cuts.session(last=True)
        self.assertNotIn("work", cuts.calls)
        self.assertEqual(cuts.disk.calls, [])

    def test_a_disk_that_never_freezes_is_the_rigs_fault(self):
        cuts = Cuts(Disk())
        with unittest.mock.patch("foreign.PATIENCE_S", 0.05), self.assertRaises(RigError):
            cuts.session()


if __name__ == "__main__":
    unittest.main()
