#!/usr/bin/env python3
"""Data structures that are durable after each operation: memlith on byte-addressable memory beside PMDK's libpmemobj,
the same structures on both (structures.hpp), on tmpfs; in turns.

Usage: pmdk.py --bin FOLDER --dir FOLDER [--suite list,btree,kv,allocate] [--operations N] [--records N] [--rounds N]
               [--slow-ns N --cache-mib N] [--msync FOLDER] [--json]
       pmdk.py lines --bin FOLDER --dir FOLDER [--json]     stores past the cache against clwb, and orders of fences

Sides: `pmdk` (PMEM_IS_PMEM_FORCE=1), `memlith instrumented` (built with memlith-c++), `memlith explicit`. --slow-ns
puts their files on an emulated slow medium (slow_medium.hpp). With --msync also a mapped file in a folder on a disk
with msync after each operation, which is not atomic: with pages of 4 KiB and of 2 MiB, and, as root, with pages of
4 KiB on an ext4 with data=journal on a loop device. What the machine cannot do is left out with a line on standard
error. All sides are built with clang 19 at -O2.

YCSB's mixes, keys by Zipf: A 50 % reads and 50 % updates; B 95 % reads; C reads only; D 95 % reads of new records and
5 % inserts; E 50 % reads and 50 % read-modify-write (YCSB's own F); F 95 % scans of 1 to 100 records and 5 % inserts
(YCSB's own E); G updates only.
"""
import argparse
import contextlib
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "kit"))
from loop_device import loop_device  # noqa: E402 pylint: disable=wrong-import-position

HUGE, JOURNAL = "msync 2 MiB", "msync data=journal"
MSYNC = ["msync 4 KiB", HUGE, JOURNAL]
LEFT_OUT = 77  # what a program ends with if the machine lacks something
SUITES = ["list", "btree", "kv", "allocate"]


def build(options, folder):
    """The programs, by side: each with the compiler and what it needs."""
    library = (options.bin.parent / "lib").resolve()
    ours = [f"-L{library}", "-lmemlith", f"-Wl,-rpath,{library}"]
    clang = ["clang++-19"]
    sides = {"pmdk": (clang, ["-DPMDK_SIDE"], ["-lpmemobj"]),
             "memlith instrumented": ([options.bin / "memlith-c++"], ["-DMEMLITH_INSTRUMENTED"], ours),
             "memlith explicit": (clang, [], ours)}
    for side in MSYNC if options.msync else []:
        sides[side] = (clang, [f'-DMSYNC_SIDE="{side}"', *(["-DMSYNC_HUGE"] if side == HUGE else [])], [])
    programs = {}
    for number, (side, (compiler, defines, libraries)) in enumerate(sides.items()):
        programs[side] = folder / f"side-{number}"
        subprocess.run([*compiler, "-std=c++20", "-O2", "-Wall", "-Wextra", *defines, f"-I{HERE.parents[1]}/include",
                        HERE / "main.cpp", "-o", programs[side], *libraries, "-lpthread"], check=True)
    return programs


def run_side(options, side, program, suite, journal):
    """The lines of one run; none if the machine lacks what the side needs."""
    on_disk = side in MSYNC
    parent = journal if side == JOURNAL else options.msync if on_disk else options.memory
    folder = pathlib.Path(tempfile.mkdtemp(prefix="memlith-pmdk-", dir=parent))
    slow = [] if options.slow_ns == 0 or on_disk else [str(options.slow_ns), str(options.cache_mib)]
    try:
        done = subprocess.run([program, folder, suite, str(options.operations), str(options.records), *slow],
                              stdout=subprocess.PIPE, text=True, check=False,
                              env={**os.environ, "PMEM_IS_PMEM_FORCE": "1"})
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    if done.returncode == LEFT_OUT and on_disk:
        return []
    if done.returncode != 0:
        sys.exit(f"{side}, {suite}: ended with {done.returncode}")
    return [json.loads(line) for line in done.stdout.splitlines()]


def journal_of(options):
    """A folder on an ext4 with data=journal that has room for the file of main.cpp; None without --msync, or where the
    machine has no such thing."""
    if not options.msync:
        return contextlib.nullcontext()
    mib = 512 + (options.operations + options.records) // 2048
    return loop_device(options.msync, mib, ["mkfs.ext4", "-q", "-F", "-J", "size=128"], "loop,data=journal",
                       lambda text: print(text, file=sys.stderr))


def compare(options, programs, journal):
    if journal is None:
        programs.pop(JOURNAL, None)
    for suite in options.suite.split(","):
        found = {}
        for _ in range(options.rounds):
            for side, program in list(programs.items()):
                lines = run_side(options, side, program, suite, journal)
                if not lines:
                    print(f"({side} is left out)", file=sys.stderr)
                    del programs[side]
                for line in lines:
                    found.setdefault(line["workload"], {}).setdefault(side, []).append(line)
        for workload, sides in found.items():
            base, p50 = (statistics.median(line[field] for line in sides["pmdk"]) for field in ("ops_per_s", "p50_us"))
            for side, lines in sides.items():
                lines.sort(key=lambda line: line["ops_per_s"])
                line = lines[len(lines) // 2]
                if options.json:
                    print(json.dumps(line), flush=True)
                    continue
                print(f"{workload:28} {side:22} {line['ops_per_s']:12,.0f}/s  p50 {line['p50_us']:8.2f} us  "
                      f"p99 {line['p99_us']:8.2f} us  {line['ops_per_s'] / base:6.2f} of pmdk's rate, "
                      f"{line['p50_us'] / p50:5.2f} of its p50", flush=True)


def lines_of(options, folder):
    program = folder / "lines"
    subprocess.run(["clang++-19", "-std=c++20", "-O2", "-Wall", "-Wextra", HERE / "lines.cpp", "-o", program],
                   check=True)
    place = pathlib.Path(tempfile.mkdtemp(prefix="memlith-lines-", dir=options.memory))
    try:
        done = subprocess.run([program, place / "file"], stdout=subprocess.PIPE, text=True, check=True)
    finally:
        shutil.rmtree(place, ignore_errors=True)
    for text in done.stdout.splitlines():
        if options.json:
            print(text)
            continue
        line = json.loads(text)
        print(f"{line['workload']:24} {line['side']:28} p50 {line['p50_us'] * 1000:8.0f} ns  "
              f"p99 {line['p99_us'] * 1000:8.0f} ns  {line['ops_per_s']:12,.0f}/s")


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("what", nargs="?", choices=["structures", "lines"], default="structures")
    options.add_argument("--bin", required=True, type=pathlib.Path)
    options.add_argument("--dir", required=True, type=pathlib.Path, help="for the programs that are built")
    options.add_argument("--memory", default="/dev/shm", help="a folder on tmpfs")
    options.add_argument("--suite", default=",".join(SUITES))
    options.add_argument("--operations", type=int, default=100_000)
    options.add_argument("--records", type=int, default=100_000)
    options.add_argument("--rounds", type=int, default=3)
    options.add_argument("--slow-ns", type=int, default=0)
    options.add_argument("--cache-mib", type=int, default=2)
    options.add_argument("--msync", help="a folder on a disk")
    options.add_argument("--json", action="store_true")
    options = options.parse_args()
    if not shutil.which("clang++-19") or not (options.bin / "memlith-c++").exists():
        sys.exit("memlith-c++ is not built: it needs the Debian packages clang-19, lld-19 and llvm-19-dev")
    options.dir.mkdir(parents=True, exist_ok=True)
    folder = pathlib.Path(tempfile.mkdtemp(prefix="pmdk-", dir=options.dir))
    try:
        if options.what == "lines":
            lines_of(options, folder)
        else:
            programs = build(options, folder)
            with journal_of(options) as journal:
                compare(options, programs, journal)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


main()
