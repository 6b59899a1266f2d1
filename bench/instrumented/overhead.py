#!/usr/bin/env python3
"""The cost of recording stores: a key-value store in memory, built with clang 19 alone and with memlith-cc, with GCC
alone and with memlith-gcc, in turns; and SQLite's speedtest1, a program that never opens a region, in a database in
memory.

Prints the time of an operation of each side, and its ratio to the side without recording. Nothing is persisted. The
source of SQLite is Debian's; it stays in the folder. Also prints which share of the stores in the code is recorded
(suite `instrumented-stores`).

In a region, memlith-cc has two sides more, which show where the time goes: with `empty calls` the calls behind stores
do nothing, and with `checks only` no call is made, because the region has another tracker.
"""
import os
import pathlib
import re
import resource
import shutil
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "kit"))
import contest  # noqa: E402 pylint: disable=wrong-import-position
from debian_source import call, get_debian_source  # noqa: E402 pylint: disable=wrong-import-position

# A workload: where the table lies, and the percentage of updates.
WORKLOADS = {"heap, YCSB A": ("heap", 50), "heap, YCSB C": ("heap", 0), "region, YCSB A": ("region", 50),
             "region, YCSB C": ("region", 0)}
SIDES = {"clang": "clang-19", "memlith-cc": "memlith-cc", "gcc": "gcc", "memlith-gcc": "memlith-gcc"}
EMPTY, CHECKS = "memlith-cc, empty calls", "memlith-cc, checks only"
PLAIN = {"memlith-cc": "clang", "memlith-gcc": "gcc", EMPTY: "clang", CHECKS: "clang"}  # what a side is compared with


def command_of(options, side):
    return options.bin / side if side in PLAIN else SIDES[side]


def build(options, command, what):
    """Compiles; of memlith-cc, tells which share of the stores of `what` it records."""
    done = subprocess.run(command, stderr=subprocess.PIPE, text=True, check=False,
                          env={**os.environ, "MEMLITH_TRACK_STATS": "1"})
    if done.returncode != 0:
        sys.exit(done.stderr)
    counts = [tuple(map(int, found)) for found in
              re.findall(r"(\d+) stores recorded by (\d+) checks, (\d+) go to no region", done.stderr)]
    if not counts or not what:
        return
    recorded, checks, skipped = map(sum, zip(*counts))
    contest.say(options, {"suite": "instrumented-stores", "side": "memlith-cc", "workload": what, "durability": "none",
                          "threads": 1, "recorded_stores": recorded, "checks": checks, "other_stores": skipped,
                          "recorded_percent": round(100 * recorded / (recorded + skipped), 1)})


def sqlite_sources(folder):
    """sqlite3.c and speedtest1.c, made of Debian's source package."""
    folder.mkdir(parents=True, exist_ok=True)
    if not list(folder.glob("sqlite3-*/made/sqlite3.c")):
        get_debian_source(folder, "sqlite3")
        place = next(folder.glob("sqlite3-*/configure")).parent / "made"
        place.mkdir(exist_ok=True)
        call(["../configure", "--disable-tcl"], cwd=place)
        call(["make", "sqlite3.c"], cwd=place)
    made = next(folder.glob("sqlite3-*/made"))
    return made / "sqlite3.c", made.parent / "test/speedtest1.c"


def compare(options, workload, sides, times_of, rate_of=lambda times: round(1e6 * len(times) / sum(times))):
    """`times_of(side)`: the times in microseconds of a turn."""
    runs = contest.in_turns(options.rounds, sides, times_of)
    times = {side: [each for run in turns for each in run] for side, turns in runs.items()}
    for side, each in times.items():
        told = contest.percentiles(each)
        base = contest.percentiles(times[PLAIN.get(side, side)])["p50_us"]
        contest.say(options, {"suite": "instrumented", "side": side, "workload": workload, "durability": "none",
                              "threads": 1, "ops_per_s": rate_of(each), **told},
                    over_plain=told["p50_us"] / base)


def speedtest(options, folder):
    sources = sqlite_sources(options.dir / "sqlite")
    for side in SIDES:
        build(options, [command_of(options, side), "-O2", "-w", "-DSQLITE_THREADSAFE=0",
                        "-DSQLITE_OMIT_LOAD_EXTENSION", f"-I{sources[0].parent}", *sources, "-o",
                        folder / f"speedtest1-{side}", "-lm"], "speedtest1 and SQLite")

    def times_of(side):
        before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
        contest.said_by([folder / f"speedtest1-{side}", "--memdb", "--size", options.size])
        return [1e6 * (resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before)]

    compare(options, "speedtest1", SIDES, times_of, lambda times: round(1e6 / contest.percentiles(times)["p50_us"], 3))


def key_value_store(options, folder):
    for side in SIDES:
        build(options, [command_of(options, side), "-O2", f"-I{HERE.parents[1]}/include", HERE / "ycsb.c", "-o",
                        folder / side, *contest.linked_to(options)], "key-value store")
    build(options, [options.bin / "memlith-cc", "-O2", f"-I{HERE.parents[1]}/include", HERE / "ycsb.c",
                    HERE / "empty_calls.c", "-o", folder / EMPTY, *contest.linked_to(options)], None)
    for workload, (place, percent) in WORKLOADS.items():
        def times_of(side, place=place, percent=percent):
            records = "records" if side in PLAIN and side != CHECKS else "nothing"
            program = folder / ("memlith-cc" if side == CHECKS else side)
            said = contest.said_by([program, place, folder / "store", options.operations, percent, records])
            shutil.rmtree(folder / "store", ignore_errors=True)
            return [float(nanoseconds) / 1000 for nanoseconds in said.split()]

        compare(options, workload, [*SIDES, *((EMPTY, CHECKS) if place == "region" else ())], times_of)


def main():
    options = contest.options_of(__doc__, folder="where the programs go", rounds=5)
    options.add_argument("--operations", type=int, default=2_000_000)
    options.add_argument("--size", type=int, default=50, help="of speedtest1; 0 leaves it out")
    options = options.parse_args()
    contest.need_compiler(options)
    with contest.own_folder(options.dir, "instrumented-") as folder:
        key_value_store(options, folder)
        if options.size > 0:
            speedtest(options, folder)


main()
