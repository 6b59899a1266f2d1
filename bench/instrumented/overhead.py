#!/usr/bin/env python3
"""What recording stores costs: a key-value store in memory, built with clang 19 alone and with memlith-cc, in turns;
and SQLite's speedtest1, a program that never opens a region, in a database in memory.

Usage: overhead.py --bin FOLDER --dir FOLDER [--rounds N] [--operations N] [--size N] [--json]
Prints the time of an operation of each side, and its ratio to the side without recording. Nothing is persisted. The
source of SQLite is Debian's; it stays in the folder. Also prints which share of the stores is recorded.
"""
import argparse
import json
import os
import pathlib
import re
import resource
import shutil
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
# A workload: where the table lies, and the percentage of updates.
WORKLOADS = {"heap, YCSB A": ("heap", 50), "heap, YCSB C": ("heap", 0), "region, YCSB A": ("region", 50),
             "region, YCSB C": ("region", 0)}
SIDES = {"clang": "clang-19", "memlith-cc": "memlith-cc"}


def percentile(times, part):
    return times[min(len(times) - 1, int(len(times) * part))]


def command_of(options, side):
    return options.bin / side if side == "memlith-cc" else SIDES[side]


def build(options, command, what):
    """Compiles; of memlith-cc, tells which share of the stores it records."""
    done = subprocess.run(command, stderr=subprocess.PIPE, text=True, check=False,
                          env={**os.environ, "MEMLITH_TRACK_STATS": "1"})
    if done.returncode != 0:
        sys.exit(done.stderr)
    counts = [tuple(map(int, found)) for found in
              re.findall(r"(\d+) stores recorded by (\d+) checks, (\d+) go to no region", done.stderr)]
    if not counts:
        return
    recorded, checks, skipped = map(sum, zip(*counts))
    print(f"{what}: {recorded} stores are recorded by {checks} checks, {skipped} go to no region "
          f"({100 * skipped / (recorded + skipped):.0f} %)", file=sys.stderr if options.json else sys.stdout)


def sqlite_sources(folder):
    """sqlite3.c and speedtest1.c, made of Debian's source package."""
    sys.path.insert(0, str(HERE.parent / "kit"))
    from debian_source import call, get_debian_source  # pylint: disable=import-outside-toplevel
    folder.mkdir(parents=True, exist_ok=True)
    if not list(folder.glob("sqlite3-*/made/sqlite3.c")):
        get_debian_source(folder, "sqlite3")
        place = next(folder.glob("sqlite3-*/configure")).parent / "made"
        place.mkdir(exist_ok=True)
        call(["../configure", "--disable-tcl"], cwd=place)
        call(["make", "sqlite3.c"], cwd=place)
    made = next(folder.glob("sqlite3-*/made"))
    return made / "sqlite3.c", made.parent / "test/speedtest1.c"


def speedtest(options, folder):
    """The seconds of each run, by side."""
    sources = sqlite_sources(options.dir / "sqlite")
    for side in SIDES:
        build(options, [command_of(options, side), "-O2", "-w", "-DSQLITE_THREADSAFE=0",
                        "-DSQLITE_OMIT_LOAD_EXTENSION", f"-I{sources[0].parent}", *sources, "-o",
                        folder / f"speedtest1-{side}", "-lm"], "speedtest1 and SQLite")
    times = {side: [] for side in SIDES}
    for _ in range(options.rounds):
        for side in SIDES:
            before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
            subprocess.run([folder / f"speedtest1-{side}", "--memdb", "--size", str(options.size)], check=True,
                           stdout=subprocess.DEVNULL)
            times[side].append(resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before)
    return times


def show_speedtest(options, times):
    base = percentile(sorted(times["clang"]), 0.5)
    for side, each in times.items():
        each.sort()
        p50, p99, p999 = (percentile(each, part) for part in (0.5, 0.99, 0.999))
        if options.json:
            print(json.dumps({"suite": "instrumented", "side": side, "workload": "speedtest1", "durability": "none",
                              "threads": 1, "ops_per_s": round(1 / p50, 3), "p50_us": 1e6 * p50, "p99_us": 1e6 * p99,
                              "p999_us": 1e6 * p999}))
        else:
            print(f"{'speedtest1':16} {side:11} p50 {p50:7.2f} s, least {each[0]:7.2f} s, {p50 / base:5.3f} of clang")


def main():
    options = argparse.ArgumentParser()
    options.add_argument("--bin", required=True, type=pathlib.Path)
    options.add_argument("--dir", required=True, type=pathlib.Path)
    options.add_argument("--rounds", type=int, default=5)
    options.add_argument("--operations", type=int, default=2_000_000)
    options.add_argument("--size", type=int, default=50, help="of speedtest1; 0 leaves it out")
    options.add_argument("--json", action="store_true")
    options = options.parse_args()
    if not (options.bin / "memlith-cc").exists() or not shutil.which("clang-19"):
        sys.exit("memlith-cc is not built: it needs the Debian packages clang-19, lld-19 and llvm-19-dev")
    options.dir.mkdir(parents=True, exist_ok=True)
    folder = pathlib.Path(tempfile.mkdtemp(prefix="instrumented-", dir=options.dir))
    library = (options.bin.parent / "lib").resolve()
    for side in SIDES:
        command = [command_of(options, side), "-O2", f"-I{HERE.parents[1]}/include",
                   HERE / "ycsb.c", "-o", folder / side, f"-L{library}", "-lmemlith", f"-Wl,-rpath,{library}"]
        build(options, command, "key-value store")
    try:
        for workload, (place, percent) in WORKLOADS.items():
            times = {side: [] for side in SIDES}
            for _ in range(options.rounds):
                for side in SIDES:
                    records = "records" if side == "memlith-cc" else "nothing"
                    done = subprocess.run([folder / side, place, folder / "store", str(options.operations),
                                           str(percent), records], capture_output=True, text=True, check=True)
                    times[side] += map(float, done.stdout.split())
                    shutil.rmtree(folder / "store", ignore_errors=True)
            base = percentile(sorted(times["clang"]), 0.5)
            for side, each in times.items():
                each.sort()
                p50, p99, p999 = (percentile(each, part) for part in (0.5, 0.99, 0.999))
                if options.json:
                    print(json.dumps({"suite": "instrumented", "side": side, "workload": workload, "durability": "none",
                                      "threads": 1, "ops_per_s": round(1e9 * len(each) / sum(each)),
                                      "p50_us": p50 / 1000, "p99_us": p99 / 1000, "p999_us": p999 / 1000}))
                else:
                    print(f"{workload:16} {side:11} p50 {p50:7.1f} ns  p99 {p99:7.1f} ns  p99.9 {p999:7.1f} ns  "
                          f"{p50 / base:5.3f} of clang")
        if options.size > 0:
            show_speedtest(options, speedtest(options, folder))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


main()
