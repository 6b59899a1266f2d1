#!/usr/bin/env python3
"""Data structures that are durable after each operation: memlith on byte-addressable memory beside PMDK's libpmemobj,
the same structures on both (structures.hpp), on tmpfs; in turns.

`lines` instead of the structures: stores past the cache against clwb, and orders of fences.

Sides: `pmdk` (PMEM_IS_PMEM_FORCE=1), `memlith instrumented` (built with memlith-c++), `memlith explicit`; --sides names
those beside pmdk. --slow-ns puts their files on an emulated slow medium (slow_medium.hpp); `slow_pages` says how many
pages took the delay, and a side without any is an error. With --msync also a mapped file in a folder on a disk
with msync after each operation, which is not atomic: with pages of 4 KiB and of 2 MiB, and, as root, with pages of
4 KiB on an ext4 with data=journal on a loop device. What the machine cannot do is left out with a line on standard
error. All sides are built with clang 19 at -O2.

YCSB's mixes, keys by Zipf: A 50 % reads and 50 % updates; B 95 % reads; C reads only; D 95 % reads of new records and
5 % inserts; E 50 % reads and 50 % read-modify-write (YCSB's own F); F 95 % scans of 1 to 100 records and 5 % inserts
(YCSB's own E); G updates only.
"""
import contextlib
import json
import os
import pathlib
import statistics
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "kit"))
import contest  # noqa: E402 pylint: disable=wrong-import-position
from loop_device import loop_device  # noqa: E402 pylint: disable=wrong-import-position

HUGE, JOURNAL = "msync 2 MiB", "msync data=journal"
MSYNC = ["msync 4 KiB", HUGE, JOURNAL]
LEFT_OUT = 77  # what a program ends with if the machine lacks something
SUITES = ["list", "btree", "kv", "allocate"]
BASE = "pmdk"
OURS = ["instrumented", "explicit"]


def build(options, folder):
    """The programs, by side: each with the compiler and what it needs."""
    ours = contest.linked_to(options)
    clang = ["clang++-19"]
    sides = {BASE: (clang, ["-DPMDK_SIDE"], ["-lpmemobj"]),
             "memlith instrumented": ([options.bin / "memlith-c++"], ["-DMEMLITH_INSTRUMENTED"], ours),
             "memlith explicit": (clang, [], ours)}
    sides = {side: sides[side] for side in (BASE, *(f"memlith {side}" for side in options.sides))}
    for side in MSYNC if options.msync else []:
        sides[side] = (clang, [f'-DMSYNC_SIDE="{side}"', *(["-DMSYNC_HUGE"] if side == HUGE else [])], [])
    programs = {}
    for number, (side, (compiler, defines, libraries)) in enumerate(sides.items()):
        programs[side] = folder / f"side-{number}"
        subprocess.run([*compiler, "-std=c++20", "-O2", "-Wall", "-Wextra", *defines, f"-I{HERE.parents[1]}/include",
                        HERE / "main.cpp", "-o", programs[side], *libraries, "-lpthread", "-rdynamic"], check=True)
    return programs


def run_side(options, side, program, suite, journal):
    """The lines of one run; none if the machine lacks what the side needs."""
    on_disk = side in MSYNC
    parent = journal if side == JOURNAL else options.msync if on_disk else options.memory
    slow = [] if options.slow_ns == 0 or on_disk else [str(options.slow_ns), str(options.cache_mib)]
    with contest.own_folder(parent, "memlith-pmdk-") as folder:
        done = subprocess.run([program, folder, suite, str(options.operations), str(options.records), *slow],
                              stdout=subprocess.PIPE, text=True, check=False,
                              env={**os.environ, "PMEM_IS_PMEM_FORCE": "1"})
    if done.returncode == LEFT_OUT and on_disk:
        return []
    if done.returncode != 0:
        sys.exit(f"{side}, {suite}: ended with {done.returncode}")
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    if slow and not any(line["slow_pages"] for line in lines):
        sys.exit(f"{side}, {suite}: no page took the delay of the slow medium")
    return lines


def journal_of(options):
    """A folder on an ext4 with data=journal that has room for the file of main.cpp; None without --msync, or where the
    machine has no such thing."""
    if not options.msync:
        return contextlib.nullcontext()
    mib = 512 + (options.operations + options.records) // 2048
    return loop_device(options.msync, mib, ["mkfs.ext4", "-q", "-F", "-J", "size=128"], "loop,data=journal",
                       contest.say_aside)


def compare(options, programs, journal):
    if journal is None:
        programs.pop(JOURNAL, None)
    for suite in options.suite:
        def lines_of_side(side, suite=suite):
            lines = run_side(options, side, programs[side], suite, journal) if side in programs else []
            if not lines and programs.pop(side, None):
                contest.say_aside(f"({side} is left out)")
            return lines

        found = {}
        for side, runs in contest.in_turns(options.rounds, programs, lines_of_side).items():
            for line in (line for run in runs for line in run):
                found.setdefault(line["workload"], {}).setdefault(side, []).append(line)
        for sides in found.values():
            base, p50 = (statistics.median(line[field] for line in sides[BASE]) for field in ("ops_per_s", "p50_us"))
            for lines in sides.values():
                line = contest.middle(lines, "ops_per_s")
                contest.say(options, line, over_pmdk=line["ops_per_s"] / base, p50_over_pmdk=line["p50_us"] / p50)


def lines_of(options, folder):
    program = folder / "lines"
    subprocess.run(["clang++-19", "-std=c++20", "-O2", "-Wall", "-Wextra", HERE / "lines.cpp", "-o", program],
                   check=True)
    with contest.own_folder(options.memory, "memlith-lines-") as place:
        for text in contest.said_by([program, place / "file"]).splitlines():
            contest.say(options, json.loads(text))


def main():
    options = contest.options_of(__doc__, folder="for the programs that are built", rounds=3)
    options.add_argument("what", nargs="?", choices=["structures", "lines"], default="structures")
    options.add_argument("--memory", default="/dev/shm", help="a folder on tmpfs")
    options.add_argument("--sides", type=contest.names(OURS), default=OURS, help="beside pmdk")
    options.add_argument("--suite", type=contest.names(SUITES), default=SUITES)
    options.add_argument("--operations", type=int, default=100_000)
    options.add_argument("--records", type=int, default=100_000)
    options.add_argument("--slow-ns", type=int, default=0)
    options.add_argument("--cache-mib", type=int, default=2)
    options.add_argument("--msync", help="a folder on a disk")
    options = options.parse_args()
    contest.need_compiler(options)
    with contest.own_folder(options.dir, "pmdk-") as folder:
        if options.what == "lines":
            return lines_of(options, folder)
        programs = build(options, folder)
        with journal_of(options) as journal:
            return compare(options, programs, journal)


main()
