#!/usr/bin/env python3
"""`./dev bench paper` (docs/performance.md): its list of rows is whole, its smallest section writes results and the
page, a result that is valid is not made again, and one from before a change of its path is marked.

Usage: bench_paper_test.py MEMLITH BENCH_FOLDER
"""
import contextlib
import io
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest
import unittest.mock

MEMLITH, BENCH = map(pathlib.Path, sys.argv[1:3])
sys.path.insert(0, str(BENCH / "papers"))
import page  # noqa: E402
import paper  # noqa: E402
from experiments import EXPERIMENTS, PAPERS, RUNS, Ratio  # noqa: E402

SECTION_MINUTES_MAX = 120
SUBJECTS = ("persist", "sqlite", "rocksdb", "postgres", "files", "heap", "ycsb", "dbbench", "pmdk", "instrumented",
            "redis", "replica", "protect")


class List(unittest.TestCase):
    def test_each_row_has_a_command_or_a_reason(self):
        runs = {run.name: run for run in RUNS}
        self.assertEqual(len(runs), len(RUNS))
        for row in EXPERIMENTS:
            self.assertIn(row.paper, PAPERS)
            self.assertNotEqual(bool(row.run), bool(row.missing), row)
            self.assertIn(row.run, [*runs, ""], row)
            if row.run:  # a command whose lines are read has a ratio
                self.assertEqual(bool(row.ratios), runs[row.run].words[0] == "bench", row)
            if row.at_least is not None:
                self.assertNotEqual(row.theirs, "unknown", row)
        self.assertEqual({row.run for row in EXPERIMENTS} - {""}, set(runs))
        self.assertEqual(len({(row.paper, row.number) for row in EXPERIMENTS}), len(EXPERIMENTS))

    def test_sections_are_short_and_their_paths_are_there(self):
        for section in paper.sections():
            self.assertLessEqual(sum(run.minutes for run in RUNS if run.section == section), SECTION_MINUTES_MAX)
        for run in RUNS:
            self.assertIn(run.words[0], ("bench", "soak", "test"))
            if run.words[0] == "bench":
                self.assertIn(run.words[1], SUBJECTS)
            for path in run.paths:
                self.assertTrue((BENCH.parent / path).exists(), path)

    def test_the_plan_has_what_the_sections_need(self):
        def plan(*words):
            return subprocess.run([sys.executable, "-B", BENCH / "run.py", "--plan", "paper", *words],
                                  capture_output=True, text=True, check=True).stdout.splitlines()
        self.assertEqual(plan("memsnap-persist"), ["bin/memlith", "btrfs-progs xfsprogs"])
        self.assertEqual(plan("--dry"), ["bin/memlith", ""])
        self.assertIn("libleveldb-dev", plan("acikv-weak")[1])
        self.assertGreater(len(plan()[0].split()), 10)


class Ratios(unittest.TestCase):
    LINES = [{"side": "memlith", "kib": 4, "p50_us": 10.0, "ops_per_s": 90, "in": {"us": 5}},
             {"side": "memlith", "kib": 16, "p50_us": 40.0, "ops_per_s": 50, "in": {"us": 6}},
             {"side": "a", "kib": 4, "p50_us": 20.0, "ops_per_s": 30}, {"side": "b", "kib": 4, "p50_us": 15.0},
             {"side": "a", "kib": 16, "p50_us": 20.0, "ops_per_s": 100}]

    def ratios(self, *arguments, **options):
        return [(each["label"], each.get("ratio", each["ours"]), each.get("base_side")) for each in
                paper.ratios_of(Ratio(*arguments, **options), self.LINES)]

    def test_the_best_of_the_other_sides_counts(self):
        ours, base = {"side": ("memlith",)}, {"side": ("a", "b")}
        self.assertEqual(self.ratios("p50_us", ours, base, by=("kib",), less_is_better=True),
                         [("4", 1.5, "b"), ("16", 0.5, "a")])
        self.assertEqual(self.ratios("ops_per_s", ours, base, by=("kib",)), [("4", 3.0, "a"), ("16", 0.5, "a")])

    def test_fields_that_the_other_sides_lack_only_label(self):
        lines = [{"side": "memlith", "backend": "file", "ops_per_s": 4}, {"side": "a", "ops_per_s": 2}]
        ratio = Ratio("ops_per_s", {"side": ("memlith",)}, {"side": ("a",)}, by=("backend",), label="x")
        self.assertEqual([(each["label"], each["ratio"]) for each in paper.ratios_of(ratio, lines)], [("x, file", 2.0)])

    def test_both_numbers_of_one_line_and_figures_alone(self):
        own = {"side": ("memlith",)}
        self.assertEqual(self.ratios("in.us", own, base_field="p50_us", by=("kib",), less_is_better=True),
                         [("4", 2.0, ""), ("16", round(40 / 6, 4), "")])
        self.assertEqual(self.ratios("in.us", own, by=("kib",)), [("4", 5, None), ("16", 6, None)])
        self.assertEqual(self.ratios("nothing", own, by=("kib",)), [])


class Page(unittest.TestCase):
    FOUND = [{"label": "12", "field": "ops_per_s", "ours": 105, "base": 100, "base_side": "stock", "ratio": 1.05},
             {"label": "1", "field": "ops_per_s", "ours": 12.0, "base": 10.0, "base_side": "stock", "ratio": 1.2}]

    def row(self, number):
        return next(row for row in EXPERIMENTS if row.number == number)

    def test_the_least_and_the_greatest_stand_in_the_row_and_a_missed_ratio_is_bold(self):
        row = self.row("Table 9")
        self.assertEqual(page.summary(row, self.FOUND), "**1.05** to 1.2")
        self.assertEqual(page.summary(row, self.FOUND[1:]), "1.2")

    def test_each_ratio_of_a_row_has_its_own_ends_and_figures_alone_have_a_name(self):
        row = self.row("Vulnerability window")
        waits = [{"label": f"write, {ms}", "field": "weak_wait_p50_ms", "ours": ms + 0.5} for ms in (1, 10)]
        longest = [{"label": f"window over the longest, write, {ms}", "field": "weak_wait_max_ms", "ours": ms * 2,
                    "base": ms, "base_side": "", "ratio": 0.5} for ms in (1, 10)]
        self.assertEqual(page.summary(row, [*waits, *longest]),
                         "weak wait p50 in ms: 1.5 to 10.5; window over the longest: 0.5 to 0.5")
        self.assertEqual(list(page.figures(row, [*waits, *longest])), [
            "", "| workload | window in ms |  | ours |", "|---|---|---|---|",
            "| write | 1 | weak wait p50 in ms | 1.5 |", "| write | 10 | weak wait p50 in ms | 10.5 |",
            "", "| workload | window in ms |  | ours | other side | its figure | times as good |",
            "|---|---|---|---|---|---|---|",
            "| write | 1 | weak wait max in ms, window over the longest | 2 | window in ms | 1 | 0.5 |",
            "| write | 10 | weak wait max in ms, window over the longest | 20 | window in ms | 10 | 0.5 |"])

    def test_all_figures_of_a_row_are_told_with_both_sides(self):
        self.assertEqual(list(page.figures(self.row("Table 9"), self.FOUND)), [
            "", "| threads |  | ours | other side | its figure | times as good |", "|---|---|---|---|---|---|",
            "| 12 | ops per s | 105 | stock | 100 | **1.05** |", "| 1 | ops per s | 12 | stock | 10 | 1.2 |"])

    def test_a_ratio_that_the_row_has_no_more_is_left_out(self):
        row = self.row("Retwis, recovery")
        own = {"label": "empty, over raft-wal", "field": "empty_seconds", "ours": 2, "base": 1, "base_side": "raft-wal",
               "ratio": 0.5}
        former = own | {"label": "full, over raft-wal"}
        results = {row.run: {"rows": {f"{row.paper}: {row.number}": [former, own]}}}
        self.assertEqual(page.found_of(row, results), [own])
        results = {row.run: {"rows": {f"{row.paper}: {row.number}": [former]}}}
        self.assertIsNone(page.found_of(row, results))

    def test_only_the_first_value_of_a_label_may_have_a_comma(self):
        ratio = Ratio("p50_us", by=("workload", "threads"), label="over x")
        self.assertEqual(page.values_of(ratio, {"label": "over x, list, insert, 4"}), ["list, insert", "4"])
        self.assertEqual(page.values_of(Ratio("p50_us", label="over x"), {"label": "over x"}), [])


class Runner(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory(dir=os.environ.get("MEMLITH_TEST_DIR") or None)
        self.addCleanup(temporary.cleanup)
        self.folder = pathlib.Path(temporary.name)
        self.results = self.folder / "results/papers"
        self.changed = ""  # what git says of changes since a result
        patch = unittest.mock.patch.object(paper, "git", self.git)
        patch.start()
        self.addCleanup(patch.stop)

    def git(self, *words):
        return {"rev-parse": "1" * 40, "cat-file": "commit", "log": self.changed, "status": ""}[words[0]]

    def run_it(self, *words):
        """The exit code, and what was said."""
        said = io.StringIO()
        with contextlib.redirect_stderr(said), contextlib.redirect_stdout(said):
            code = paper.main(["--bin", str(MEMLITH.parent), "--dir", str(self.folder), "--results", str(self.results),
                               *words])
        return code, said.getvalue()

    def rows_of_the_page(self):
        text, _ = (self.folder / "results/papers.md").read_text(encoding="utf-8").split("\n## Figures\n")
        rows = [line.split(" | ") for line in text.splitlines() if line.startswith("| ")]
        return {(row[0].removeprefix("| "), row[1]): row[3] for row in rows if len(row) == 6}

    def test_cheap_rows(self):
        code, said = self.run_it("memsnap-persist", "--quick")
        self.assertEqual(code, 0, said)
        names = {run.name for run in RUNS if run.quick}
        self.assertEqual({file.stem for file in self.results.iterdir()}, names)
        for name in names:
            result = json.loads((self.results / f"{name}.json").read_text(encoding="utf-8"))
            self.assertEqual(set(result), {"run", "command", "commit", "dirty", "date", "seconds", "kernel",
                                           "processor", "device", "file_system", "load", "rows"})
            for found in result["rows"].values():
                self.assertTrue(found and all(each["ours"] > 0 for each in found), result)
        rows = self.rows_of_the_page()
        self.assertEqual(len(rows), len(EXPERIMENTS) + 1)  # and the titles, alike for each paper
        steps = "[Table 5](#memsnap-table-5)", "the steps of a persist of 64 KiB"
        self.assertIn("steps call p50 in µs", rows[steps])
        text = (self.folder / "results/papers.md").read_text(encoding="utf-8")
        self.assertIn("\n### MemSnap, Table 5\n\n    ./dev bench persist --breakdown ", text)
        self.assertEqual(sum(text == "not yet run" for text in rows.values()),
                         sum(bool(row.run) and row.run not in names for row in EXPERIMENTS))

        times = {file: file.stat().st_mtime_ns for file in self.results.iterdir()}
        code, said = self.run_it("memsnap-persist", "--quick")  # goes on: nothing is left to run
        self.assertEqual((code, said.count("which is valid")), (0, len(names)))
        self.assertEqual(times, {file: file.stat().st_mtime_ns for file in self.results.iterdir()})

        self.changed = "abc1234"
        code, said = self.run_it("--dry")
        self.assertEqual(code, 0, said)
        self.assertIn("memsnap-persist: about", said)
        rows = self.rows_of_the_page()
        self.assertIn("*old* (older than the last change of its path, abc1234)", rows[steps])

    def test_a_result_of_another_command_is_old(self):
        run = next(run for run in RUNS if run.quick)
        result = {"command": f"./dev {' '.join(run.words)}", "dirty": False, "commit": "1" * 40}
        self.assertEqual(paper.stale(result, run), "")
        self.assertEqual(paper.stale(result | {"command": f"./dev {' '.join(run.quick)}"}, run), "")
        self.assertIn("command", paper.stale(result | {"command": result["command"] + " --keys 7"}, run))

    def test_what_fails_is_told_and_the_next_is_run(self):
        two = [run for run in RUNS if run.name in ("persist-async", "persist-steps")]
        with unittest.mock.patch.object(paper, "RUNS", two), \
             unittest.mock.patch.object(paper, "lines_of", side_effect=[paper.Failed("broken"), [
                 {"tracker": "explicit", "persist": "asynchronous", "steps": {"call": {"p50_us": 1.0}}}]]):
            code, said = self.run_it("--quick")
        self.assertEqual(code, 1)
        self.assertIn("FAILED: broken", said)
        self.assertEqual([file.stem for file in self.results.iterdir()], ["persist-steps"])

    def test_what_makes_no_sense_is_refused(self):
        with contextlib.redirect_stderr(io.StringIO()) as said, self.assertRaises(SystemExit):
            paper.main(["--bin", ".", "--dir", ".", "nothing"])
        self.assertIn("there is no section nothing", said.getvalue())
        with contextlib.redirect_stderr(io.StringIO()) as said, self.assertRaises(SystemExit):
            paper.main(["--bin", ".", "--dir", ".", "--quick"])
        self.assertIn("--results", said.getvalue())


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0]], verbosity=2)
