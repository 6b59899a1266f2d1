#!/usr/bin/env python3
"""The promises of the crash laboratory about itself (docs/testing.md, "The crash laboratory").

Usage: lab_test.py MEMLITH_CRASHLAB LIBMEMLITH.so LIBMEMLITH.a
A violation's line replays it, byte for byte; a shrunken one is smaller and still wrong; a run is repeatable by its
seed; a fault that was planned and does not strike fails the run; and nothing of the mutants is in the library.
"""
import json
import subprocess
import sys
import unittest

LAB, SHARED, STATIC = sys.argv[1:4]
# A mutant that a plain power cut shows, at once and always.
MUTANT = ["--mutant", "skip_log_flush"]


def lab(*arguments):
    return subprocess.run([LAB, *arguments], capture_output=True, text=True, check=False)


def violations(*arguments):
    """The report of a run that must find something, and the line of its first violation."""
    done = lab("run", "--json", "--quick", *arguments)
    assert done.returncode == 1, done.stderr
    report = json.loads(done.stdout)  # one object, and nothing else
    return report, report["violation_list"][0]["replay"]


class Lab(unittest.TestCase):
    def test_a_clean_run_ends_with_one_json_object(self):
        done = lab("run", "--json", "--quick", "--workload", "commits")
        self.assertEqual(done.returncode, 0, done.stderr)
        report = json.loads(done.stdout)
        self.assertGreater(report["distinct_states"], 50)
        self.assertEqual(report["violations"], 0)
        self.assertGreater(report["faults_planned"], 0)
        self.assertGreaterEqual(report["faults_fired"], report["faults_planned"])
        self.assertGreater(report["seconds"], 0)

    def test_the_same_seed_sees_the_same_states(self):
        counts = []
        for jobs in "1", "2":
            done = lab("run", "--json", "--quick", "--workload", "random,reopening,group-commit,background,interleaved,"
                       "region-joined", "--seed", "7", "--jobs", jobs)
            report = json.loads(done.stdout)
            counts.append([report[key] for key in ("distinct_states", "states", "recoveries", "faults", "operations")])
        self.assertEqual(counts[0], counts[1])

    def test_a_violation_replays_from_its_line(self):
        # The last three with threads; those of the last two take drawn turns.
        for workload, mutant in ("commits", "skip_log_flush"), ("interleaved", "complete_out_of_order"), \
                                ("group-commit", "acknowledge_before_flush"), ("background", "flush_before_write"):
            report, _ = violations("--workload", workload, "--mutant", mutant)
            for violation in report["violation_list"][:2]:
                self.assertTrue(violation["replays"], violation)
                line = violation["replay"]
                done = lab("replay", "--json", line)
                self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
                answer = json.loads(done.stdout)
                self.assertTrue(answer["followed"])
                self.assertNotEqual(answer["violation"], "")
                # A process that died has none.
                self.assertEqual(answer["medium"], violation.get("medium", ""),
                                 "the medium is not the same byte for byte")
            # Without the mutant, the same crash is harmless.
            healed = lab("replay", "--json", " ".join(word for word in line.split() if not word.startswith("mutant=")))
            self.assertNotEqual(healed.returncode, 1, healed.stdout)

    def test_the_story_tells_each_operation_and_its_fate(self):
        _, line = violations("--workload", "commits", *MUTANT)
        story = lab("replay", line).stdout
        for part in "step 0: open the store", "power cut after operation", "recovered:", "expected:", "VIOLATION:":
            self.assertIn(part, story)

    def test_shrinking_leaves_a_smaller_violation(self):
        _, line = violations("--workload", "random", *MUTANT)
        done = lab("shrink", line)
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        shrunken = done.stdout.split("'")[1]
        steps = next(word for word in shrunken.split() if word.startswith("steps="))
        self.assertLess(len(steps.split(",")), 6, shrunken)
        self.assertEqual(lab("replay", shrunken).returncode, 1)

    def test_a_fault_that_never_strikes_fails_the_run(self):
        # This workload runs without failing calls.
        done = lab("run", "--json", "--quick", "--workload", "page-copies", "--faults", "flush_error")
        self.assertEqual(done.returncode, 1)
        self.assertIn("flush_error", json.loads(done.stdout)["silent_faults"])
        self.assertIn("SILENT: flush_error", done.stderr)

    def test_a_hang_or_an_abort_is_a_violation(self):
        report, line = violations("--workload", "interleaved", "--mutant", "checkpoint_beyond_durable")
        self.assertIn("assertion", report["violation_list"][0]["what"])
        self.assertTrue(line.startswith("interleaved seed=1"), line)
        self.assertTrue(report["violation_list"][0]["replays"])
        done = lab("replay", line)
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertIn("assertion", done.stdout)
        shrunken = lab("shrink", line).stdout
        self.assertIn("steps=", shrunken)
        self.assertIn("assertion", shrunken)

    def test_nonsense_is_refused(self):
        for arguments in (["replay", "no-such-workload seed=1 cut=1:k"], ["replay", "commits seed=x"],
                          ["run", "--workload", "nothing"], ["run", "--faults", "nothing"], ["nothing"], [],
                          ["run", "--states", "x"], ["run", "--nothing"], ["run", "--mutant", "nothing"],
                          ["mutants", "--only", "nothing"], ["schedule", "run", "--workload", "nothing"],
                          ["schedule", "run", "--mutant", "nothing"], ["schedule", "replay", "schedule nothing"],
                          ["schedule", "replay", "schedule two-commits choices=x"],
                          ["schedule", "replay", "schedule two-commits choices=0:99"],
                          ["schedule", "replay", "schedule two-commits choices= cut=999:all"]):
            self.assertEqual(lab(*arguments).returncode, 2, arguments)
        # A line of another run: more operations than there are, other items than there are.
        self.assertEqual(lab("replay", "commits seed=1 cut=9999:k").returncode, 2)
        self.assertEqual(lab("replay", "commits seed=1 cut=5:k99").returncode, 2)

    def test_a_schedule_replays_from_its_line(self):
        # The first needs one preemption in the right place, and nothing but the scheduler has ever shown it.
        for case, mutant, in_flight, says in ("asynchronous-window", "flusher_ends_without_a_look", 2, "deadlock"), \
                                             ("two-growths", "growth_sized_outside_lock", 2, "durable"), \
                                             ("stream-commits", "stream_beyond_in_flight_max", 1, ""), \
                                             ("flush-fails", "flushes_side_by_side", 2, "what comes back"):
            done = lab("schedule", "run", "--json", "--preemptions", "1", "--workload", case, "--mutant", mutant,
                       "--in-flight", str(in_flight))
            self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
            line = json.loads(done.stdout)["cases"][0]["violation"]["replay"]
            stories = []
            for _ in range(2):
                again = lab("schedule", "replay", "--json", line)
                self.assertEqual(again.returncode, 1, again.stdout + again.stderr)
                answer = json.loads(again.stdout)
                self.assertTrue(answer["followed"])
                self.assertIn(says, answer["violation"])
                stories.append(answer["story"])
            self.assertEqual(stories[0], stories[1])
            # Without the mutant the same decisions do no harm, though they may lead elsewhere.
            healed = lab("schedule", "replay",
                         " ".join(word for word in line.split() if not word.startswith("mutant=")))
            self.assertNotEqual(healed.returncode, 1, healed.stdout)

    def test_schedules_that_were_not_all_tried_fail_the_run_unless_asked_for(self):
        done = lab("schedule", "run", "--json", "--workload", "two-commits", "--schedules", "5")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertFalse(json.loads(done.stdout)["cases"][0]["complete"])

    def test_the_same_bound_tries_the_same_schedules(self):
        counts = []
        for jobs in "1", "2":
            done = lab("schedule", "run", "--json", "--preemptions", "1", "--jobs", jobs)
            self.assertEqual(done.returncode, 0, done.stderr)
            report = json.loads(done.stdout)
            self.assertTrue(all(case["complete"] for case in report["cases"]))
            counts.append([report[key] for key in ("schedules", "courses", "cuts", "states")])
        self.assertEqual(counts[0], counts[1])
        self.assertGreater(counts[0][0], 1000)

    def test_nothing_of_the_mutants_is_in_the_library(self):
        for library in SHARED, STATIC:
            symbols = subprocess.run(["nm", "-C", "-a", library], capture_output=True, text=True, check=True).stdout
            for word in "active_mutant", "given_identity", "Mutant", "Controller":
                self.assertNotIn(word, symbols, library)
        # The laboratory itself has them, so the search would find them.
        symbols = subprocess.run(["nm", "-C", "-a", LAB], capture_output=True, text=True, check=True).stdout
        self.assertIn("active_mutant", symbols)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
