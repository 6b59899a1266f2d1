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
import os
import pathlib
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "kit"))
import contest  # noqa: E402 pylint: disable=wrong-import-position
from debian_source import get_debian_source  # noqa: E402 pylint: disable=wrong-import-position

PARTS = ["kcutil", "kcthread", "kcfile", "kccompress", "kccompare", "kcmap", "kcregex", "kcdb", "kchashdb", "kcplantdb"]
# Options of Kyoto Cabinet's configure; the last ones only tell its tools where they are installed.
DEFINES = ["-DNDEBUG", "-D_GNU_SOURCE=1", "-D_FILE_OFFSET_BITS=64", "-D_REENTRANT", "-D__EXTENSIONS__",
           "-D_MYGCCATOMIC", *(f'-D_KC_{name}=""' for name in ("PREFIX", "INCLUDEDIR", "LIBDIR", "BINDIR", "LIBEXECDIR",
                                                               "APPINC", "APPLIBS"))]
# The calls that kyoto_files.cpp takes over.
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
    include = f"-I{HERE.parents[1]}/include"
    common = ["-std=c++17", "-O2", "-fsigned-char", f"-I{source}", include, *DEFINES]
    for name, compiler, more in (("plain", "clang++-19", []), ("instrumented", options.bin / "memlith-c++", [
            HERE / "kyoto_files.cpp", *contest.linked_to(options), *(f"-Wl,--wrap={call}" for call in CALLS)])):
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
    """Each side's program, and how it makes a transaction durable."""
    programs = build(options, folder)
    sides = {"transactions": ([programs["plain"]], "transactions"),
             "memlith instrumented": ([programs["instrumented"]], "synchronize")}
    if (options.bin.parent / "lib/libmemlith_run.so").exists():
        under = [options.bin / "memlith", "run", "--match", "data.kc*", "--commit", "fsync", "--"]
        sides["memlith run"] = ([*under, programs["plain"]], "synchronize")
    return sides


def turn(options, side, kind, medium, updates):
    prefix, how = side
    environment = {**os.environ, **({"MEMLITH_KYOTO_IO": "dax"} if medium == "memory" else {})}
    with contest.own_folder(options.dir if medium == "disk" else options.memory, "memlith-kyoto-") as place:
        return contest.told_by([*prefix, "run", place / KINDS[kind], how, updates, options.seconds, options.records,
                                options.value_bytes], env=environment)


def durability_of(side, medium):
    if medium == "disk":
        return "sync"
    return "emulated" if side == "memlith instrumented" else "none"


def compare(options, sides, kind, medium, updates):
    runs = contest.in_turns(options.rounds, sides, lambda name: turn(options, sides[name], kind, medium, updates))
    base = contest.middle(runs["transactions"], "ops_per_s")["ops_per_s"]
    for name, each in runs.items():
        line = contest.middle(each, "ops_per_s")
        contest.say(options, {
            "suite": "instrumented-kyoto", "side": name,
            "workload": f"{kind} on {medium}, {updates} update{'s' if updates > 1 else ''}",
            "durability": durability_of(name, medium), "threads": 1, "medium": medium, "updates": updates, **line,
        }, over_transactions=line["ops_per_s"] / base)


def main():
    options = contest.options_of(__doc__, folder="the folder on a disk", rounds=3)
    options.add_argument("--memory", default="/dev/shm", help="a folder on tmpfs")
    options.add_argument("--media", type=contest.names(["disk", "memory"]), default=["disk"])
    options.add_argument("--kinds", type=contest.names(KINDS), default=list(KINDS))
    options.add_argument("--updates", type=contest.numbers, default=[1, 2, 4, 8, 16, 32, 64, 128],
                         help="of a transaction")
    options.add_argument("--records", type=int, default=100_000)
    options.add_argument("--value-bytes", type=int, default=100)
    options.add_argument("--seconds", type=float, default=1, help="of each turn")
    options.add_argument("--programs", type=pathlib.Path, help="where the programs are kept, and built if they are not "
                         "there; by default each run builds them")
    options = options.parse_args()
    contest.need_compiler(options)
    with contest.own_folder(options.dir, "instrumented-kyoto-") as temporary:
        folder = options.programs or temporary
        folder.mkdir(parents=True, exist_ok=True)
        sides = sides_of(options, folder)
        for medium in options.media:
            for kind in options.kinds:
                for updates in options.updates:
                    compare(options, sides, kind, medium, updates)


if __name__ == "__main__":
    main()
