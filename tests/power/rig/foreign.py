"""A program of another project on memlith, killed again and again, or on a disk whose power is cut: what the tests of
Redis, RocksDB and PostgreSQL share.
"""
from __future__ import annotations

import argparse
import os
import pathlib
import random
import sys
import time

from common import PATIENCE_S, Deadline, RigError, Unable, wait_for
from lossy_folder import LossyFolder


class Wrong(AssertionError):
    """The program, or what it has kept, is not as it has to be."""


class Unanswered(Exception):
    """A server has refused, or has gone: until() asks again."""


def skip_without(*programs):
    """Ends the test if a program is missing."""
    missing = [str(each) for each in programs if not pathlib.Path(each).exists()]
    if missing:
        skip(f"{', '.join(missing)} is missing")


def skip(why):
    print(f"skipped: {why}")
    sys.exit(77)


def seeded_random(replayed):
    """Random numbers. Says their seed, and what MEMLITH_SEED replays of the run."""
    seed = int(os.environ.get("MEMLITH_SEED") or random.randrange(1 << 30))
    print(f"seed {seed} (MEMLITH_SEED={seed} replays {replayed})", flush=True)
    return random.Random(seed)


def until(condition, sentence, seconds=60.0):
    """Waits until `condition()` is true, and returns what it returned; servers may come and go meanwhile. The sentence
    may be a function, which is called at the end."""
    deadline = Deadline(seconds)
    while deadline.left > 0:
        try:
            if found := condition():
                return found
        except Unanswered:
            pass
        time.sleep(0.02)
    raise Wrong(f"not within {seconds:.0f} s: {sentence() if callable(sentence) else sentence}")


def options_of(description, *paths):
    """The parser of a test: options that name files, and --work."""
    options = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in (*paths, "work"):
        options.add_argument(f"--{name}", required=True, type=lambda text: pathlib.Path(text).resolve())
    return options


class Trial:
    """Counts of a program under kills or cuts: how many, how many while it started, changes it acknowledged."""

    name, number, at_start, acknowledged = "", 0, 0, 0


class PowerCuts(Trial):
    """A program on a disk that loses at a power cut what was not flushed. A class below it says what the program does:

    begin()           starts it and does not wait
    check(last)       starts it and compares what it has with what it had acknowledged, or raises Wrong; if `last`,
                      stops it, too
    work()            lets it change things, and returns while it goes on
    last_words()      what it said if it has ended by itself, else None
    kill(), reap()    before and after the cut: a process that waits for the disk ends only then
    give_up()         ends what a failed session has left
    """

    operations_max, operations_of_a_start, start_share = 1000, 150, 0.25

    def __init__(self, given, chance, name):
        self.chance, self.name = chance, name
        self.folder = LossyFolder(given.bin, given.work / name)
        self.folder.make()

    def work(self):
        pass

    def give_up(self):
        self.kill()
        self.reap()

    def _wait_until_frozen(self, disk, seconds):
        """At a start, at most for so long: then the power goes all the same."""
        deadline = Deadline(PATIENCE_S if seconds is None else seconds)
        while not disk.frozen:
            if deadline.left < 0:
                if seconds is None:
                    raise RigError("the power never went")
                return
            if wait_for([disk.fileno()], min(deadline.left, 0.5 if seconds is None else 0.05)):
                disk.heard()
            words = None if disk.frozen else self.last_words()
            if words is not None:
                raise Wrong(f"the program has ended by itself: {words}")

    def session(self, last=False):
        """Starts the program, compares, and lets it change things until the power goes."""
        disk, is_cut = self.folder.mount(), False
        try:
            at_start = not last and self.chance.random() < self.start_share
            if at_start:
                disk.arm(self.chance.randint(1, self.operations_of_a_start))
                self.begin()
            else:
                self.check(last)
                if last:
                    return
                self.work()
                disk.arm(self.chance.randint(1, self.operations_max))
            self._wait_until_frozen(disk, self.chance.random() * 2 if at_start else None)
            self.kill()
            disk.cut(self.chance.getrandbits(63))
            is_cut = True
            self.reap()
            self.number, self.at_start = self.number + 1, self.at_start + at_start
        finally:
            if is_cut:
                self.folder.unmount_after_cut(disk)
            else:
                self.give_up()
                self.folder.unmount(disk)

    def run(self, number):
        for done in range(number):
            self.session()
            if done % 20 == 19:
                print(f"{self.name}: {done + 1} power cuts, {self.acknowledged} acknowledged changes", flush=True)
        self.session(last=True)
        self.folder.remove()


def hold(trials, what, changes_least):
    """Runs the trials, (trial, how many) each. The exit code of the test: 1 if one is wrong, or all together made fewer
    changes for each kill or cut than that."""
    began = time.monotonic()
    for trial, number in trials:
        try:
            trial.run(number)
        except (Wrong, Unanswered) as wrong:
            print(f"FAILED, {trial.name}, after {trial.number} {what}: {wrong!r}"[:4000])
            trial.give_up()
            return 1
    total, at_start, changes = (sum(getattr(trial, count) for trial, _ in trials)
                                for count in ("number", "at_start", "acknowledged"))
    if changes < changes_least * total:
        print(f"FAILED: only {changes} changes in {total} {what}; this tests nothing")
        return 1
    of_start = f", {at_start} of them while it started" if at_start else ""
    print(f"{total} {what}{of_start}, {changes} acknowledged changes, all there; {time.monotonic() - began:.0f} s",
          flush=True)
    return 0


def hold_power_cuts(chance, make, changes_least, beside, cuts_max):
    """`make(chance)`: the trials of hold(). `beside(chance)`: a program that is known to lose something, which it has
    to within so many cuts, or the test would show nothing."""
    try:
        trials = make(chance)
    except Unable as unable:
        skip(unable)
    if hold(trials, "power cuts", changes_least) != 0:
        return 1
    plain = beside(chance)
    for _ in range(cuts_max):
        try:
            plain.session()
        except Wrong as wrong:
            print(f"{plain.name}: lost something after {plain.number} cuts: {' '.join(str(wrong).split())[:200]}")
            plain.folder.remove()
            return 0
    print(f"FAILED: {cuts_max} cuts of {plain.name} lost nothing: the test shows nothing")
    return 1
