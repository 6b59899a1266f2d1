#!/usr/bin/env python3
"""Kyoto Cabinet compiled with memlith-c++, beside its own transactions: `./dev bench instrumented kyoto`.

Each transaction replaces 1 to 128 records of a HashDB or a TreeDB and is durable when it returns. Sides, in turns:

    transactions          Kyoto Cabinet's own, hard ones, with its log of old bytes (begin_transaction(true))
    memlith instrumented  Kyoto Cabinet's source compiled with memlith-c++; its mapping is a region over the file, and
                          synchronize(true) is a persist of the recorded bytes (kyoto_files.cpp)
    memlith run           the program of the first side under `memlith run --commit fsync`, with synchronize(true):
                          no compiler, tracking by pages

All of them run the same source, Debian's, compiled by clang 19 at -O2. After each run all records are compared with
what was written, in the file as the program closed it.

Media: `disk`, the folder. `memory` is tmpfs, where the rates are no comparison of durable transactions: memlith
instrumented uses DAX and stores its log past the cache there, the other sides call msync and fsync, which do nothing.

--json prints one object a line. Of a side's turns, the one with the median rate is shown.
"""
import argparse
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "kit"))
from debian_source import get_debian_source  # noqa: E402 pylint: disable=wrong-import-position

PARTS = ["kcutil", "kcthread", "kcfile", "kccompress", "kccompare", "kcmap", "kcregex", "kcdb", "kchashdb", "kcplantdb"]
# Of Kyoto Cabinet's configure; the last ones only tell its tools where they are installed.
DEFINES = ["-DNDEBUG", "-D_GNU_SOURCE=1", "-D_FILE_OFFSET_BITS=64", "-D_REENTRANT", "-D__EXTENSIONS__",
           "-D_MYGCCATOMIC", *(f'-D_KC_{name}=""' for name in ("PREFIX", "INCLUDEDIR", "LIBDIR", "BINDIR", "LIBEXECDIR",
                                                               "APPINC", "APPLIBS"))]
# What kyoto_files.cpp takes over.
CALLS = ["open64", "close", "fcntl64", "fsync", "ftruncate64", "mmap64", "msync", "munmap", "pwrite64"]
KINDS = {"hash": "data.kch", "tree": "data.kct"}


def source_of(folder):
    """Debian's source of Kyoto Cabinet; it stays in the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    if not list(folder.glob("kyotocabinet-*/kchashdb.cc")):
        get_debian_source(folder, "kyotocabinet")
    source = next(folder.glob("kyotocabinet-*/kchashdb.cc")).parent
    # Two casts, without which clang does not take the file.
    threads = source / "kcthread.cc"
    text = threads.read_text(encoding="utf-8")
    threads.write_text(text.replace("swap(&opq_, 0, 1)", "swap(&opq_, (void*)0, (void*)1)"), encoding="utf-8")
    return source


def build(options, folder):
    """The programs, by name."""
    programs = {name: folder / name for name in ("plain", "instrumented")}
    if all(program.exists() for program in programs.values()):
        return programs
    source = source_of(options.dir / "kyotocabinet")
    library = (options.bin.parent / "lib").resolve()
    include = f"-I{HERE.parents[1]}/include"
    common = ["-std=c++17", "-O2", "-fsigned-char", f"-I{source}", include, *DEFINES]
    for name, compiler, more in (("plain", "clang++-19", []), ("instrumented", options.bin / "memlith-c++", [
            HERE / "kyoto_files.cpp", f"-L{library}", "-lmemlith", f"-Wl,-rpath,{library}",
            *(f"-Wl,--wrap={call}" for call in CALLS)])):
        objects = []
        for part in PARTS:
            objects.append(folder / f"{name}-{part}.o")
            subprocess.run([compiler, *common, "-w", "-c", source / f"{part}.cc", "-o", objects[-1]], check=True)
        subprocess.run([compiler, *common, f"-isystem{source}", "-Wall", "-Wextra", HERE / "kyoto.cpp", *objects, *more,
                        "-o", programs[name], "-lpthread"], check=True)
        for each in objects:
            each.unlink()
    return programs


def sides_of(options, folder):
    """Of each side: the program, and how it makes a transaction durable."""
    programs = build(options, folder)
    sides = {"transactions": ([programs["plain"]], "transactions"),
             "memlith instrumented": ([programs["instrumented"]], "synchronize")}
    if (options.bin.parent / "lib/libmemlith_run.so").exists():
        under = [options.bin / "memlith", "run", "--match", "data.kc*", "--commit", "fsync", "--"]
        sides["memlith run"] = ([*under, programs["plain"]], "synchronize")
    return sides


def turn(options, side, kind, medium, updates):
    parent = options.dir if medium == "disk" else pathlib.Path(options.memory)
    place = pathlib.Path(tempfile.mkdtemp(prefix="memlith-kyoto-", dir=parent))
    prefix, how = side
    environment = {**os.environ, **({"MEMLITH_KYOTO_IO": "dax"} if medium == "memory" else {})}
    command = [*prefix, "run", place / KINDS[kind], how, updates, options.seconds, options.records,
               options.value_bytes]
    try:
        done = subprocess.run(list(map(str, command)), stdout=subprocess.PIPE, text=True, check=False, env=environment)
    finally:
        shutil.rmtree(place, ignore_errors=True)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(map(str, command))} ended with {done.returncode}")
    return json.loads(done.stdout)


def durability_of(side, medium):
    if medium == "disk":
        return "sync"
    return "emulated" if side == "memlith instrumented" else "none"


def compare(options, sides, kind, medium, updates):
    found = {name: [] for name in sides}
    for _ in range(options.rounds):
        for name, side in sides.items():
            found[name].append(turn(options, side, kind, medium, updates))
    middle = {}
    for name, turns in found.items():
        turns.sort(key=lambda each: each["ops_per_s"])
        middle[name] = turns[(len(turns) - 1) // 2]
    base = middle["transactions"]["ops_per_s"]
    workload = f"{kind} on {medium}, {updates} update{'s' if updates > 1 else ''}"
    for name, line in middle.items():
        if options.json:
            print(json.dumps({"suite": "instrumented-kyoto", "side": name, "workload": workload,
                              "durability": durability_of(name, medium), "threads": 1, "medium": medium,
                              "updates": updates, **line}), flush=True)
        else:
            print(f"{workload:30} {name:21} {line['ops_per_s']:10,.0f}/s  p50 {line['p50_us']:9.1f} us  "
                  f"p99 {line['p99_us']:9.1f} us  p99.9 {line['p999_us']:9.1f} us  "
                  f"{line['ops_per_s'] / base:6.2f} of transactions", flush=True)


def words_of(known):
    def check(text):
        words = text.split(",")
        if set(words) - set(known):
            raise argparse.ArgumentTypeError(f"{text}: of {', '.join(known)}")
        return words
    return check


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--bin", required=True, type=pathlib.Path, help=argparse.SUPPRESS)
    options.add_argument("--dir", required=True, type=pathlib.Path, help="the folder on a disk; default build/bench")
    options.add_argument("--memory", default="/dev/shm", help="a folder on tmpfs")
    options.add_argument("--media", type=words_of(["disk", "memory"]), default=["disk"])
    options.add_argument("--kinds", type=words_of(list(KINDS)), default=list(KINDS))
    options.add_argument("--updates", type=lambda text: [int(word) for word in text.split(",")],
                         default=[1, 2, 4, 8, 16, 32, 64, 128], help="of a transaction")
    options.add_argument("--records", type=int, default=100_000)
    options.add_argument("--value-bytes", type=int, default=100)
    options.add_argument("--seconds", type=float, default=1, help="of each turn")
    options.add_argument("--rounds", type=int, default=3)
    options.add_argument("--programs", type=pathlib.Path, help="where the programs are kept, and built if they are not "
                         "there; by default each run builds them")
    options.add_argument("--json", action="store_true")
    options = options.parse_args()
    if not shutil.which("clang++-19") or not (options.bin / "memlith-c++").exists():
        sys.exit("memlith-c++ is not built: it needs the Debian packages clang-19, lld-19 and llvm-19-dev")
    options.dir.mkdir(parents=True, exist_ok=True)
    temporary = pathlib.Path(tempfile.mkdtemp(prefix="instrumented-kyoto-", dir=options.dir))
    folder = options.programs or temporary
    folder.mkdir(parents=True, exist_ok=True)
    try:
        sides = sides_of(options, folder)
        for medium in options.media:
            for kind in options.kinds:
                for updates in options.updates:
                    compare(options, sides, kind, medium, updates)
    except RuntimeError as failure:
        sys.exit(str(failure))
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


if __name__ == "__main__":
    main()
