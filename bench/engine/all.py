#!/usr/bin/env python3
"""Runs every benchmark of docs/performance.md once and writes the figures as one section of Markdown, each table below
the command that repeats it.

    ./dev bench all [--out FILE.md] [--plot FILE.png] [--report FILE.html] [--seconds N] [--quick]

Takes ten to twenty minutes; --quick, seconds, with figures that mean nothing. A benchmark that fails leaves its message
where its table would be, the others go on, and the exit code is 1.
"""
import json
import pathlib
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "kit"))
import machine  # noqa: E402
from machine import table  # noqa: E402


class Report(machine.Report):
    title, blank = "", False

    def line(self, text=""):
        if text or not self.blank:
            super().line(text)
        self.blank = not text

    def run(self, *words):
        """The JSON objects of `memlith bench WORDS`."""
        said = {"section": self.title, "words": words}
        try:
            said["rows"] = machine.run("memlith bench", [self.arguments.bench, "bench"], words, self.arguments.dir)
        except machine.Failed as failure:
            said["failed"] = str(failure)
            raise
        finally:
            self.note(said)
        return said["rows"]

    def note(self, record):
        if self.arguments.rows is not None:
            with open(self.arguments.rows, "a", encoding="utf-8") as file:
                print(json.dumps(record), file=file)

    def section(self, title, body):
        """A section, whose lines `body` yields."""
        self.title = title
        self.line(f"\n## {title}\n")
        try:
            for text in body:
                self.line(text)
        except machine.Failed as failure:
            self.failures += 1
            self.line(f"FAILED: {failure}")


# ---- tables --------------------------------------------------------------------------------------------------------


def command_lines(commands):
    for words in commands:
        yield "    ./dev bench " + " ".join(words)
    yield ""


def us(value):
    return f"{value:,.1f}"


class Sizes:
    """How much of everything: sane, or so little that a test can afford it."""

    def __init__(self, arguments):
        quick = arguments.quick
        self.line = ["--rounds", "5"] if quick else ["--seconds", arguments.seconds]
        self.phases = ["--rounds", "2"] if quick else ["--seconds", arguments.seconds]
        self.rounds = "3" if quick else "2000"
        self.same_rounds = "50" if quick else "1000"
        self.tail = ["--phases", "1", "--rounds", "5"] if quick else ["--seconds", str(2 * float(arguments.seconds))]
        self.large_mib = "2" if quick else "1024"
        self.default_mib = "2" if quick else "64"
        self.tail_mib = "2" if quick else "256"
        self.thread_mib = "1" if quick else "16"
        self.again_mib = "1" if quick else "16"  # of a region that is committed over and over
        self.open_mib = "2" if quick else "4096"
        # Amounts that stay below half of the log: no checkpoint runs beside them.
        self.large_log = ["--log-mib", "64", "--rounds", "5"] if quick else ["--log-mib", "4000", "--rounds", "1500"]
        self.recovery = ["--log-mib", "16"] if quick else []
        self.scattered = ["--region-mib", "2"] if quick else []  # else as the benchmark has it: wider than the log
        self.steps_pages = "1,4" if quick else "1,16,256"
        self.small_log = ["--log-mib", "8"] if quick else []
        self.threads = ["1", "2"] if quick else ["1", "2", "4", "8", "16"]
        self.pages = "1,4" if quick else "1,4,16,64,256,1024"


# ---- the sections --------------------------------------------------------------------------------------------------

PERSIST_TITLES = ["tracker", "region MiB", "log MiB", "pages", "bytes in each", "p50 µs", "p99 µs", "p99.9 µs",
                  "raw p50 µs", "raw p99.9 µs", "p50/raw", "p50/raw alone", "logged a persist", "raw bytes",
                  "checkpoints beside"]


def persist_cells(row):
    return [row["tracker"], row["region_mib"], row["log_mib"] or "default", row["pages"], row["bytes_per_page"],
            us(row["p50_us"]),
            us(row["p99_us"]), us(row["p999_us"]), us(row["raw_p50_us"]), us(row["raw_p999_us"]),
            f"{row['ratio_p50']:.2f}", f"{row['ratio_alone_p50']:.2f}", f"{row['bytes_logged']:,.0f}",
            f"{row['raw_bytes']:,}", row["checkpoints_beside"]]


def persist_section(runner, commands, titles=None, cells=persist_cells):
    yield from command_lines(commands)
    if titles is None:
        yield ('"p50/raw" is over raw in turns with memlith, whose checkpoints slow it too; "alone" over raw just '
               'before '
               'there was a store.')
        yield ""
    yield from table(titles or PERSIST_TITLES, [cells(row) for words in commands for row in runner.run(*words)])


def one_thread(runner, sizes):
    region = ["--region-mib", sizes.default_mib]
    return persist_section(runner, [
        ["persist", "--tracker", "explicit", "--pages", "1,16,256", *region, *sizes.line, *sizes.small_log],
        ["persist", "--tracker", "explicit", "--pages", "256", *region, *sizes.large_log],
        ["persist", "--tracker", "scan", "--pages", "16", *region, *sizes.line, *sizes.small_log]])


def small_changes(runner, sizes):
    small = ["--bytes-per-page", "64", "--raw", "pages", *sizes.line, *sizes.small_log]
    large, default = ["--region-mib", sizes.large_mib], ["--region-mib", sizes.default_mib]
    return persist_section(runner, [
        ["persist", "--tracker", "explicit", "--pages", "1,16,256", *large, *small],
        ["persist", "--tracker", "fault", "--pages", "1,16,256", *large, *small],
        ["persist", "--tracker", "scan", "--pages", "16", *default, *small],
        ["persist", "--tracker", "auto", "--pages", "16", *large, *small]])


def asynchronous(runner, sizes):
    words = ["persist", "--tracker", "explicit,fault,scan", "--pages", "16", "--bytes-per-page", "64", "--async",
             "--raw", "pages", "--region-mib", sizes.default_mib, *sizes.line, *sizes.small_log]
    cells = lambda row: [row["tracker"], us(row["p50_us"]), us(row["p99_us"]), us(row["p999_us"])]
    yield from persist_section(runner, [words], ["tracker", "captured after p50 µs", "p99 µs", "p99.9 µs"], cells)
    words = ["persist", "--breakdown", "--tracker", "explicit,fault,scan", "--pages", sizes.steps_pages,
             "--bytes-per-page", "64", "--region-mib", sizes.default_mib, *sizes.line, *sizes.small_log]
    step = lambda row, name: us(row["steps"][name]["p50_us"]) if row["steps"][name] else ""
    yield "The steps, medians in µs:"
    yield ""
    yield from command_lines([words])
    yield from table(["tracker", "pages", "persist", "stores", "touch", "call", "wait"],
                     [[row["tracker"], row["pages"], row["persist"].replace("_", " "),
                       *(step(row, name) for name in ("stores", "touch", "call", "wait"))]
                      for row in runner.run(*words)])


def group_commit(runner, sizes):
    commands = [["persist", "--pages", "1", "--threads", count, "--region-mib", sizes.thread_mib, *sizes.phases]
                for count in sizes.threads]
    cells = lambda row: [row["threads"], f"{row['commits_per_s']:,.0f}", f"{row['raw_commits_per_s']:,.0f}",
                         f"{row['ratio_commits']:.2f}", f"{row['ratio_alone_commits']:.2f}", us(row["p50_us"]),
                         us(row["p99_us"]), us(row["raw_p50_us"]), us(row["raw_p99_us"])]
    return persist_section(runner, commands, ["threads", "commits/s", "raw/s", "ratio", "ratio to raw alone", "p50 µs",
                                              "p99 µs", "raw p50 µs", "raw p99 µs"], cells)


def bytes_written(runner, sizes):
    both = ["--tracker", "explicit,fault", "--pages", "16", "--region-mib", sizes.default_mib]
    commands = [["persist", *both, "--bytes-per-page", "200", *sizes.line, *sizes.small_log],
                ["persist", *both, "--rounds", sizes.same_rounds, "--same-pages", *(sizes.small_log)]]
    times = lambda row: f"{row['home_writes_each']:.2f} times each, by {row['checkpoints']} checkpoints"
    each = lambda row: times(row) if row["same_pages"] else ""
    cells = lambda row: [row["tracker"], f"{row['rounds']:,} persists of "
                                         f"{'the same' if row['same_pages'] else 'random'} 16 × "
                                         f"{row['bytes_per_page']} bytes",
                         f"{row['bytes_changed']:,}", f"{row['bytes_logged']:,.0f}",
                         f"{row['write_amplification']:.2f}", f"{row['home_share']:.3f}", each(row)]
    return persist_section(runner, commands, ["tracker", "what", "changed a persist", "logged", "logged/changed",
                                              "home/changed", "same pages written home"], cells)


def tail(runner, sizes):
    commands = [["tail", "--tracker", tracker, "--region-mib", sizes.tail_mib, *sizes.tail, *sizes.small_log]
                for tracker in ("explicit", "fault")]
    yield from command_lines(commands)
    lines = []
    for words in commands:
        row = runner.run(*words)[0]
        for name in "memlith", "raw_loaded", "raw_quiet":
            side = row[name]
            lines.append([f"{name.replace('_', ' ')}{', ' + row['tracker'] if name == 'memlith' else ''}",
                          us(side["p50_us"]), us(side["p99_us"]),
                          us(side["p999_us"]), us(side["max_us"]), f"{side['counted']:,}", side["checkpoints"],
                          f"{side['home_bytes'] / side['rounds']:,.0f}", ""])
            if name == "memlith":
                lines[-1][-1] = f"p50 {row['ratio_p50']:.2f}, p99 {row['ratio_p99']:.2f}, p99.9 {row['ratio_p999']:.2f}"
            if name == "raw_loaded" and row["raw_waits"]:
                lines[-1][-1] = f"waited {row['raw_waits']} times; counted: p99.9 {us(row['raw_with_waits_p999_us'])}"
    yield from table(["side", "p50 µs", "p99 µs", "p99.9 µs", "max µs", "counted", "checkpoints", "home bytes a round",
                      "over raw loaded"], lines)


def peers(runner, sizes):
    arguments = runner.arguments
    words = ["persist", "--peers", "--pages", sizes.pages, "--rounds", sizes.rounds, "--region-mib", sizes.default_mib,
             *sizes.small_log]
    yield from command_lines([words])
    further = [word for folder in arguments.fsync_dir for word in ("--fsync-dir", folder)]
    record = [] if arguments.record is None else ["--record", arguments.record]
    rows = runner.run(*words, *further, *record)
    by_side = {}
    for row in rows:
        name = row["side"] if row["atomic"] or row["side"] == "raw" else f"{row['side']}, {row['file_system']}"
        by_side.setdefault(name, []).append(row)
    yield "Medians in µs, with the 99th and 99.9th percentile behind it; in brackets the median over raw's."
    yield ""
    size = lambda kib: f"{kib} KiB" if kib < 1024 else f"{kib // 1024} MiB"
    times = lambda row: f"{us(row['p50_us'])} / {us(row['p99_us'])} / {us(row['p999_us'])} ({row['ratio_p50']:.2f})"
    yes = lambda value: "yes" if value else "no"
    yield from table(["side", "durable", "atomic", *(size(row["kib"]) for row in next(iter(by_side.values())))],
                     [[name, yes(of[0]["durable"]), yes(of[0]["atomic"]), *map(times, of)]
                      for name, of in by_side.items()])
    yield "The peers alone, with nothing of memlith's beside them, medians in µs:"
    yield ""
    yield from table(["side", *(size(row["kib"]) for row in next(iter(by_side.values())))],
                     [[name, *(us(row["alone_p50_us"]) for row in of)] for name, of in by_side.items()
                      if not of[0]["atomic"]])
    for note in sorted({row["detail"] for row in rows if not row["atomic"] and row["detail"]}):
        yield note[0].upper() + note[1:] + "."
    if "pwrite+fsync, xfs" not in by_side:
        yield "No XFS: `./dev bench` makes one where it runs as root and finds `mkfs.xfs`."


def recovery(runner, sizes):
    commands = [["recovery", *sizes.scattered, *sizes.recovery],
                ["recovery", "--region-mib", sizes.again_mib, *sizes.recovery]]
    yield from command_lines(commands)
    yield from table(["region MiB", "log MB", "recovery s", "MB/s", "raw sequential write MB/s",
                      "raw sequential read MB/s", "recovery/write"],
                     [[row["region_mib"], f"{row['log_bytes'] / 1e6:,.0f}", f"{row['recovery_s']:.3f}",
                       f"{row['recovery_mb_per_s']:,.0f}", f"{row['write_mb_per_s']:,.0f}",
                       f"{row['read_mb_per_s']:,.0f}", f"{row['ratio']:.2f}"]
                      for words in commands for row in runner.run(*words)])
    commands = [["open", "--region-mib", sizes.open_mib, "--tracker", tracker] for tracker in ("auto", "scan")]
    yield from command_lines(commands)
    yield from table(["region MiB", "tracker", "store ms", "region ms", "first byte ms", "together ms"],
                     [[row["region_mib"], row["tracker"],
                       *(f"{row[key]:.2f}" for key in ("store_open_ms", "region_open_ms", "first_read_ms", "total_ms"))]
                      for words in commands for row in runner.run(*words)])


SECTIONS = [("persist, one thread", one_thread), ("Small changes, against whole pages", small_changes),
            ("Bytes written", bytes_written),
            ("The slowest ones", tail), ("Beside the other ways to make memory durable", peers),
            ("Asynchronous persist, and the steps", asynchronous),
            ("Group commit", group_commit), ("Recovery and opening", recovery)]


def head(report):
    arguments = report.arguments
    if arguments.rows is not None:
        pathlib.Path(arguments.rows).unlink(missing_ok=True)
    version = subprocess.run([arguments.bench, "--version"], capture_output=True, text=True,
                             check=True).stdout.split()[-1]
    measured = list(machine.measured("./dev bench all", arguments.dir, f"memlith {version}"))
    report.note({"measured": [*measured, *([machine.QUICK] if arguments.quick else [])]})
    for text in ("# Figures", "", *measured):
        report.line(text)


def sections(report):
    sizes = Sizes(report.arguments)
    for title, body in SECTIONS:
        report.section(title, body(report, sizes))


def main():
    parser = machine.report_arguments(__doc__, "performance")
    parser.add_argument("--record", help="JSON lines of the comparison with peers, for peers/plot.py")
    parser.add_argument("--rows", help="JSON lines of every command, for report.py")
    parser.add_argument("--fsync-dir", action="append", default=[],
                        help="a folder on another file system for pwrite + fsync")
    parser.add_argument("--seconds", default="5", help="time of a line (5)")
    return machine.write_report(Report, parser.parse_args(), head, sections)


if __name__ == "__main__":
    sys.exit(main())
