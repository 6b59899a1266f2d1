#!/usr/bin/env python3
"""The benchmarks of the command `memlith`, with the least that they do (docs/performance.md): each side was measured as
often as the others, what is printed has the documented shape, and nothing stays behind. The figures are not
checked.

Usage: bench_test.py MEMLITH FOLDER_OF_BENCH
"""
import argparse
import html
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest
import unittest.mock
import xml.dom.minidom

MEMLITH = sys.argv[1]
SCRIPTS = pathlib.Path(sys.argv[2])
sys.path.insert(0, str(SCRIPTS / "kit"))
import contest  # noqa: E402
import machine  # noqa: E402

SMALL = ["--region-mib", "1", "--log-mib", "1"]
PERCENTILES = ["p50_us", "p99_us", "p999_us"]


def run(folder, *arguments):
    """The lines of a run that must succeed."""
    done = subprocess.run([MEMLITH, "bench", *arguments, "--dir", str(folder)], capture_output=True, text=True,
                          check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.splitlines()


def pythons():
    """This one and the system's, which may differ; True for those that have matplotlib."""
    for python in sys.executable, "/usr/bin/python3":
        if os.access(python, os.X_OK):
            probe = subprocess.run([python, "-c", "import matplotlib"], capture_output=True, check=False)
            yield python, probe.returncode == 0


class Bench(unittest.TestCase):
    def setUp(self):
        parent = os.environ.get("MEMLITH_TEST_DIR") or None
        self.temporary = tempfile.TemporaryDirectory(dir=parent, prefix="bench-test-")
        self.addCleanup(self.temporary.cleanup)
        self.folder = pathlib.Path(self.temporary.name)

    def check_rising(self, row, names):
        values = [row[name] for name in names]
        self.assertGreater(values[0], 0, row)
        self.assertEqual(values, sorted(values), row)

    def check_nothing_left(self, *expected):
        self.assertEqual(sorted(path.name for path in self.folder.iterdir()), sorted(expected))


class Persist(Bench):
    def test_a_line_has_the_documented_fields(self):
        rows = [json.loads(line) for line in run(self.folder, "persist", "--json", "--pages", "1,4", "--rounds", "5",
                                                 *SMALL, "--tracker", "explicit,fault")]
        self.assertEqual([(row["tracker"], row["pages"]) for row in rows],
                         [(name, pages) for name in ("explicit", "fault") for pages in (1, 4)])
        for row in rows:
            self.check_rising(row, PERCENTILES)
            self.check_rising(row, ["raw_" + name for name in PERCENTILES])
            self.assertEqual(row["rounds"], 5)
            self.assertIsNone(row["home_writes_each"])
        self.check_nothing_left()

    def test_amplification_is_counted_in_sectors(self):
        for tracker in "explicit", "fault":
            row = json.loads(run(self.folder, "persist", "--json", "--pages", "16", "--bytes-per-page", "200",
                                 "--rounds", "5", "--tracker", tracker, *SMALL)[0])
            self.assertEqual(row["bytes_changed"], 3200)
            self.assertEqual(row["bytes_logged"] % 512, 0)
            self.assertAlmostEqual(row["write_amplification"], row["bytes_logged"] / 3200, places=2)
            self.assertLessEqual(row["write_amplification"], 1.5)

    def test_against_each_raw_side(self):
        for raw, size in ("bytes", 4 * 512), ("pages", 4 * 4096), ("captured", 4 * 512):
            row = json.loads(run(self.folder, "persist", "--json", "--pages", "4", "--bytes-per-page", "512",
                                 "--rounds", "5", "--raw", raw, *SMALL)[0])
            self.assertEqual((row["raw"], row["raw_bytes"], row["bytes_changed"]), (raw, size, 2048))
            self.check_rising(row, ["raw_" + name for name in PERCENTILES])
        rows = [json.loads(line) for line in run(self.folder, "persist", "--json", "--pages", "1,4", "--threads", "2",
                                                 "--rounds", "2", "--raw", "captured", *SMALL)]
        self.assertEqual([row["raw_bytes"] for row in rows], [4096, 16384])
        self.check_nothing_left()

    def test_the_same_pages_go_home_a_few_times(self):
        arguments = ["persist", "--pages", "4", "--rounds", "50", "--same-pages", "--region-mib", "1", "--log-mib", "4"]
        row = json.loads(run(self.folder, *arguments, "--json")[0])
        self.assertGreaterEqual(row["checkpoints"], 1)
        self.assertEqual(row["home_bytes"], row["home_writes_each"] * row["bytes_changed"])
        self.assertGreaterEqual(row["home_writes_each"], 1)
        self.assertLessEqual(row["home_writes_each"], row["checkpoints"])
        self.assertTrue(any("written home" in line for line in run(self.folder, *arguments)))

    def test_a_checkpoint_beside_the_run_is_told(self):
        # 100 times 4 pages fill a log of 1 MiB more than once; 40 times, with the warm-up, are too few for idle time.
        for log, rounds, beside in (1, 100, True), (64, 20, False):
            arguments = ["persist", "--pages", "4", "--region-mib", "1", "--rounds", str(rounds), "--log-mib", str(log)]
            row = json.loads(run(self.folder, *arguments, "--json")[0])
            self.assertEqual(row["checkpoints_beside"] > 0, beside, row)
            self.assertEqual(any("ran beside it" in line for line in run(self.folder, *arguments)), beside)


class Interrupted(Bench):
    def test_nothing_stays_behind(self):
        # Twice at once, as timeout(1) does; the second must not find the folder half removed.
        for pause in 0, 0.002, 0.02:
            bench = subprocess.Popen([MEMLITH, "bench", "persist", "--seconds", "600", "--dir", str(self.folder)],
                                     stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            try:
                while not any(self.folder.glob("*/store")):
                    self.assertIsNone(bench.poll(), "the benchmark has ended")
                    time.sleep(0.01)
                bench.send_signal(signal.SIGTERM)
                time.sleep(pause)
                bench.send_signal(signal.SIGTERM)
                self.assertEqual(bench.wait(), 130)
            finally:
                bench.kill()
                bench.wait()
            self.check_nothing_left()


class Peers(Bench):
    SIDES = ["explicit", "fault", "scan", "pwrite+fsync", "msync", "raw"]

    def test_every_side_at_every_size(self):
        lines = run(self.folder, "persist", "--peers", "--json", "--pages", "1,4", "--rounds", "3", *SMALL)
        rows = [json.loads(line) for line in lines]
        self.assertEqual([(row["kib"], row["side"]) for row in rows],
                         [(kib, side) for kib in (4, 16) for side in self.SIDES])
        for row in rows:
            self.assertEqual(row["rounds"], 3, row)
            self.check_rising(row, PERCENTILES)
            self.assertTrue(row["durable"], row)
            ours = row["side"] in self.SIDES[:3]
            self.assertEqual(row["atomic"], ours, row)
            self.assertEqual(row["alone_p50_us"] is None, ours, row)
            # Whatever was changed went through the log, and only memlith has one.
            self.assertEqual(row["bytes_logged"] >= 3 * row["kib"] * 1024, ours, row)
        self.check_nothing_left()

    def test_another_file_system_is_a_side_of_its_own(self):
        other = self.folder / "other"
        other.mkdir()
        lines = run(self.folder, "persist", "--peers", "--json", "--pages", "1", "--rounds", "2", *SMALL, "--tracker",
                    "explicit", "--fsync-dir", str(other))
        self.assertEqual([json.loads(line)["side"] for line in lines],
                         ["explicit", "pwrite+fsync", "pwrite+fsync", "msync", "raw"])
        self.check_nothing_left("other")
        self.assertEqual(list(other.iterdir()), [])

    def test_pages_one_behind_the_other(self):
        rows = [json.loads(line) for line in run(self.folder, "persist", "--peers", "--sequential", "--json", "--pages",
                                                 "1,256", "--rounds", "3", *SMALL)]  # 256 pages: the whole region
        self.assertEqual([(row["kib"], row["side"]) for row in rows],
                         [(kib, side) for kib in (4, 1024) for side in self.SIDES])
        self.assertEqual({(row["order"], row["rounds"]) for row in rows}, {("sequential", 3)})
        for row in rows[:3]:
            self.assertGreaterEqual(row["bytes_logged"], 3 * row["kib"] * 1024)

    def test_the_text_states_durability_and_atomicity(self):
        text = run(self.folder, "persist", "--peers", "--pages", "1", "--rounds", "2", *SMALL)
        titles = next(line.split() for line in text if line.startswith("side"))
        columns = [titles.index(title) for title in ("durable", "atomic")]
        found = {words[0]: [words[column] for column in columns] for words in map(str.split, text)
                 if words[0] in self.SIDES}
        self.assertEqual(found, {side: ["yes", "yes" if side in self.SIDES[:3] else "no"] for side in self.SIDES})

    def test_what_does_not_go_with_it_is_refused(self):
        for arguments in ["--peers", "--threads", "2"], ["--peers", "--async"], ["--record", "x"], ["--sequential"], \
                ["--fsync-dir", "."]:
            done = subprocess.run([MEMLITH, "bench", "persist", *arguments], capture_output=True, text=True,
                                  check=False)
            self.assertEqual(done.returncode, 1, arguments)

    def test_the_record_can_be_drawn(self):
        record, picture = self.folder / "peers.jsonl", self.folder / "peers.png"
        lines = run(self.folder, "persist", "--peers", "--json", "--pages", "1,4", "--rounds", "2", *SMALL, "--record",
                    str(record))
        self.assertEqual(record.read_text(encoding="utf-8").splitlines(), lines)
        for python, has_matplotlib in pythons():
            done = subprocess.run([python, SCRIPTS / "peers/plot.py", record, picture], capture_output=True, text=True,
                                  check=False)
            if has_matplotlib:
                self.assertEqual(done.returncode, 0, done.stderr)
                self.assertEqual(picture.read_bytes()[:8], b"\x89PNG\r\n\x1a\n")
                return
            self.assertEqual(done.returncode, 1)
            self.assertIn("python3-matplotlib", done.stderr)
        self.skipTest("no Python with matplotlib: nothing was drawn, and the script said so")


class Checkpoints(Bench):
    def test_every_side_has_a_pause(self):
        done = subprocess.run([MEMLITH, "bench", "persist", "--checkpoints", "--json", "--pages", "1,200", "--threads",
                               "1,2", "--rounds", "3", *SMALL, "--dir", self.folder], capture_output=True, text=True,
                              check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        rows = [json.loads(line) for line in done.stdout.splitlines()]
        sides = [side for side in ("explicit", "fault", "region", "process", "raw")
                 if f"# {side} is left out" not in done.stderr]
        self.assertEqual([(row["threads"], row["pages"], row["side"]) for row in rows],
                         [(threads, pages, side) for threads in (1, 2) for pages in (1, 200) for side in sides])
        for row in rows:
            self.check_rising(row, PERCENTILES)
            self.check_rising(row, ["pause_us", "pause_p99_us"])
            self.assertEqual(row["rounds"], 3)
        self.check_nothing_left()

    def test_what_does_not_fit_is_refused(self):
        for arguments in ["--pages", "255", "--threads", "2"], ["--tracker", "scan"], ["--async"], ["--peers"]:
            done = subprocess.run([MEMLITH, "bench", "persist", "--checkpoints", *arguments, *SMALL, "--dir",
                                   self.folder], capture_output=True, text=True, check=False)
            self.assertEqual(done.returncode, 1, arguments)
        self.check_nothing_left()


class Protect(Bench):
    WAYS = ["mprotect, all", "mprotect, each", "uffd, all", "uffd, each", "uffd async, all", "uffd async, each", "scan"]

    def test_every_way_has_its_stores(self):
        done = subprocess.run([MEMLITH, "bench", "protect", "--json", "--region-mib", "1", "--pages", "1,256",
                               "--rounds", "3"], capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        rows = [json.loads(line) for line in done.stdout.splitlines()]
        ways = [way for way in self.WAYS if f"# {way} is left out" not in done.stderr]
        self.assertEqual([(row["side"], row["pages"]) for row in rows], [(way, pages) for way in ways
                                                                          for pages in (1, 256)])
        for row in rows:
            self.assertEqual(row["rounds"], 3)
            for what in "protect", "store", "together":
                self.check_rising(row, [f"{what}_p50_us", f"{what}_p99_us"])
            self.assertGreaterEqual(row["together_p50_us"], row["protect_p50_us"])
        self.assertEqual(subprocess.run([MEMLITH, "bench", "protect", "--region-mib", "1", "--pages", "257"],
                                        capture_output=True, check=False).returncode, 1)


class OneRegion(Bench):
    def test_thread_scope_beside_process_scope(self):
        rows = [json.loads(line) for line in run(self.folder, "persist", "--one-region", "--json", "--pages", "1",
                                                 "--threads", "1,3", "--tracker", "fault,explicit", "--rounds", "1",
                                                 *SMALL)]
        self.assertEqual([(row["tracker"], row["threads"], row["whose"]) for row in rows],
                         [(tracker, threads, whose) for tracker in ("fault", "explicit") for threads in (1, 3)
                          for whose in ("thread", "process")])
        for row in rows:
            self.check_rising(row, PERCENTILES)
            self.assertGreaterEqual(row["rounds"], row["threads"])
            self.assertGreater(row["ratio_commits"], 0)
        rows = [json.loads(line) for line in run(self.folder, "persist", "--one-region", "--json", "--pages", "1",
                                                 "--whose", "thread", "--tracker", "auto", "--rounds", "1", *SMALL)]
        self.assertEqual([(row["whose"], row["ratio_commits"]) for row in rows], [("thread", 0)])
        self.check_nothing_left()

    def test_a_tracker_that_does_not_know_threads(self):
        done = subprocess.run([MEMLITH, "bench", "persist", "--one-region", "--tracker", "scan", *SMALL, "--dir",
                               str(self.folder)], capture_output=True, text=True, check=False)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("the scan tracker does not tell threads apart", done.stderr)
        self.check_nothing_left()


class Breakdown(Bench):
    def test_each_step_of_each_kind_of_persist(self):
        for tracker in "explicit", "fault":
            lines = run(self.folder, "persist", "--breakdown", "--json", "--pages", "1,4", "--rounds", "5",
                        "--tracker", tracker, *SMALL)
            rows = [json.loads(line) for line in lines]
            kinds = ["synchronous", "asynchronous", "within_window"]
            self.assertEqual([(row["pages"], row["persist"]) for row in rows],
                             [(pages, kind) for pages in (1, 4) for kind in kinds])
            for row in rows:
                self.assertEqual(row["rounds"], 5)
                self.assertEqual(list(row["steps"]), ["stores", "touch", "call", "wait"])
                for name, step in row["steps"].items():
                    if name == "wait" and row["persist"] == "synchronous":
                        self.assertIsNone(step)
                    elif name != "touch" or tracker == "explicit":
                        self.check_rising(step, ["p50_us", "p99_us"])
        self.check_nothing_left()


class Transparent(Bench):
    def test_all_sides_take_turns(self):
        rows = [json.loads(line) for line in run(self.folder, "transparent", "--region-mib", "1,3", "--filled-mib", "2",
                                                 "--pages", "0,4", "--rounds", "20", "--json")]
        ours = ["auto", "auto, grown", "explicit", "instrumented"]
        beside = ["pwrite+fsync", "captured", "raw"]
        self.assertEqual([row["side"] for row in rows], 2 * (ours + 2 * (ours + beside)))
        self.assertEqual([(row["pages"], row["bytes_per_page"]) for row in rows if row["side"] == "auto"],
                         2 * [(0, 0), (4, 4), (4, 4096)])
        for row in rows:
            self.assertEqual(row["samples"], 20)
            self.check_rising(row, PERCENTILES)
            self.assertEqual(row["tracker"] == "none", row["side"] in beside)
            if row["side"] in ("explicit", "instrumented"):
                self.assertEqual(row["tracker"], row["side"])
            if row["side"] == "raw":
                self.assertEqual(row["ratio_per_turn"], 1)
        self.check_nothing_left()

    def test_pages_that_do_not_fit_are_refused(self):
        done = subprocess.run([MEMLITH, "bench", "transparent", "--pages", "300", "--region-mib", "1"],
                              capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 1)
        self.assertIn("--region-mib", done.stderr)


class Tail(Bench):
    ARGUMENTS = ["tail", "--region-mib", "1", "--log-mib", "1", "--pages", "4", "--phases", "2", "--rounds", "20"]

    def test_the_sides_do_the_same_work(self):
        for tracker in "explicit", "fault":
            row = json.loads(run(self.folder, *self.ARGUMENTS, "--tracker", tracker, "--json")[0])
            for side in "memlith", "raw_loaded", "raw_quiet":
                self.check_rising(row[side], PERCENTILES + ["max_us"])
                self.assertEqual(row[side]["counted"], 40)
            ours, raw = row["memlith"], row["raw_loaded"]
            # Half a log of rounds that do not count begins each phase, and every page of both sides went home.
            self.assertEqual(ours["rounds"], raw["rounds"])
            self.assertGreaterEqual(row["raw_with_waits_p999_us"], raw["p999_us"])
            self.assertGreaterEqual(ours["rounds"], 40 + 2 * 512 // 16)
            for side in ours, raw:
                self.assertGreaterEqual(side["checkpoints"], 2)
                self.assertGreaterEqual(side["home_bytes"], 2 * 100 * 4096)  # of 256 pages, each phase
            self.assertEqual(row["raw_quiet"]["checkpoints"], 0)
            self.assertAlmostEqual(row["ratio_p999"], ours["p999_us"] / raw["p999_us"], places=2)
        self.check_nothing_left()

    def test_the_text_names_the_ratio(self):
        lines = run(self.folder, *self.ARGUMENTS)
        self.assertTrue(any(line.startswith("memlith / raw loaded: p50 ") and "p99.9 " in line for line in lines),
                        lines)

    def test_a_log_too_small_is_refused(self):
        done = subprocess.run([MEMLITH, "bench", "tail", "--pages", "100", "--log-mib", "1"], capture_output=True,
                              text=True, check=False)
        self.assertEqual(done.returncode, 1)
        self.assertIn("--log-mib", done.stderr)


class Dev(Bench):
    def test_its_output_can_be_piped(self):
        # A ./dev with nothing to install and nothing to build.
        installed = 'shift 2; for each; do echo "$each installed"; done'
        for name, text in ("dpkg-query", installed), ("cmake", "echo building"), ("ccache", ""):
            program = self.folder / "programs" / name
            program.parent.mkdir(exist_ok=True)
            program.write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
            program.chmod(0o755)
        for name in "dev", "cmake/packages.sh", "tests/soak/soaks.sh", "bench/run.py", "bench/kit/loop_device.py":
            (self.folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(SCRIPTS.parent / name, self.folder / name)
        (self.folder / "build/release/bin").mkdir(parents=True)
        (self.folder / "build/release/bin/memlith").symlink_to(MEMLITH)
        environment = dict(os.environ, PATH=f"{self.folder / 'programs'}:{os.environ['PATH']}")
        done = subprocess.run([self.folder / "dev", "bench", "persist", "--pages", "1", "--rounds", "2", *SMALL,
                               "--json"], env=environment,
                              capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertEqual(len([json.loads(line) for line in done.stdout.splitlines()]), 1)
        self.assertIn("building", done.stderr)


class Recovery(Bench):
    def test_logs_of_every_size_are_filled(self):
        # After a checkpoint a log begins in the middle of a segment, and is full before 90 % of it are in use.
        for log, region in (16, 16), (20, 1), (32, 16), (48, 1):
            row = json.loads(run(self.folder, "recovery", "--log-mib", str(log), "--region-mib", str(region),
                                 "--json")[0])
            self.assertEqual((row["log_mib"], row["region_mib"]), (log, region))
            self.assertGreater(row["log_bytes"], 0.65 * log * 2**20)
            self.assertLess(row["log_bytes"], log * 2**20)
            self.assertGreater(row["replayed_frames"], 0)
        self.check_nothing_left()


class Contest(unittest.TestCase):
    def test_sides_take_turns(self):
        order = []
        runs = contest.in_turns(3, ["a", "b"], lambda side: order.append(side) or len(order))
        self.assertEqual((order, runs), (["a", "b"] * 3, {"a": [1, 3, 5], "b": [2, 4, 6]}))
        order.clear()
        contest.in_turns(2, ["a", "b", "c"], order.append, rotate=True)
        self.assertEqual(order, ["a", "b", "c", "b", "c", "a"])

    def test_figures(self):
        runs = [{"us": us} for us in (7, 1, 9, 3)]
        self.assertEqual(contest.middle(runs, "us"), {"us": 3})
        self.assertEqual(contest.middle(runs[:3], "us"), {"us": 7})
        self.assertEqual(contest.percentiles(range(1000, 0, -1)), {"p50_us": 501, "p99_us": 991, "p999_us": 1000})
        self.assertEqual(contest.percentiles([5]), {"p50_us": 5, "p99_us": 5, "p999_us": 5})

    def test_unknown_names_are_refused(self):
        self.assertEqual(contest.names(["a", "b"])("b,a"), ["b", "a"])
        with self.assertRaisesRegex(argparse.ArgumentTypeError, "c: there are a, b"):
            contest.names(["a", "b"])("a,c")

    def test_a_program_that_fails_is_named(self):
        with self.assertRaisesRegex(contest.Failed, "false ended with 1"):
            contest.said_by(["false"])


class All(Bench):
    def test_every_section_has_its_tables(self):
        out, record, kept = (self.folder / name for name in ("figures.md", "peers.jsonl", "rows.jsonl"))
        done = subprocess.run([sys.executable, "-B", SCRIPTS / "engine/all.py", "--bench", MEMLITH, "--dir",
                               self.folder, "--out", out, "--record", record, "--rows", kept, "--quick"],
                              capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stderr + (out.read_text(encoding="utf-8") if out.exists() else ""))
        sections = out.read_text(encoding="utf-8").split("\n## ")
        self.assertIn("Measured 20", sections[0])
        self.assertEqual(len(sections), 9)
        for section in sections[1:]:
            rows = [line for line in section.splitlines() if line.startswith("|")]
            self.assertGreaterEqual(len(rows), 4, section)
            self.assertIn("    ./dev bench ", section)
        titles, _, *rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in sections[1].splitlines()
                            if line.startswith("|")]
        # The row whose log holds all of the run; on a busy machine a store between rounds may look idle.
        self.assertEqual(len([row for row in rows if row[titles.index("log MiB")] == "64"]), 1)
        self.check_report(kept, [section.split("\n")[0] for section in sections[1:]])
        self.check_nothing_left("figures.md", "peers.jsonl", "rows.jsonl", "report.html")

    def check_report(self, rows, sections):
        report = self.folder / "report.html"
        done = subprocess.run([sys.executable, "-B", SCRIPTS / "engine/report.py", rows, report], capture_output=True,
                              text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        page = report.read_text(encoding="utf-8")
        pictures = re.findall(r"<h2>([^<]*)</h2>\n<p>[^<]+</p>(<svg.*?</svg>)", page, re.DOTALL)
        self.assertEqual([html.unescape(title) for title, _ in pictures], sections)
        for title, picture in pictures:
            xml.dom.minidom.parseString(picture)
            self.assertGreaterEqual(picture.count("<rect"), 2, title)
        self.assertNotIn("http", page)

    def test_the_heading_warns_of_what_no_commit_has(self):
        for name, warned in ("0123abc", False), ("0123abc-dirty", True):
            with unittest.mock.patch.object(machine, "commit", lambda _, name=name: name):
                heading = "\n".join(machine.measured("it", self.folder, "memlith"))
            self.assertIn(f"({name})", heading)
            self.assertEqual("changes that no commit has" in heading, warned, heading)

    def test_a_benchmark_that_fails_does_not_stop_the_others(self):
        out = self.folder / "figures.md"
        broken = self.folder / "memlith"
        broken.write_text(f'#!/bin/sh\ncase $2 in recovery) exec "{MEMLITH}" "$@";; --*|"") exec "{MEMLITH}" "$@";; '
                          f'esac\n'
                          'echo "memlith: it does not work" >&2; exit 1\n', encoding="utf-8")
        broken.chmod(0o755)
        done = subprocess.run([sys.executable, "-B", SCRIPTS / "engine/all.py", "--bench", broken, "--dir",
                               self.folder, "--out", out, "--quick"], capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 1)
        text = out.read_text(encoding="utf-8")
        self.assertEqual(text.count("FAILED: memlith: it does not work"), 8)
        self.assertIn("recovery/write", text)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
