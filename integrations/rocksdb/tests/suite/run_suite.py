#!/usr/bin/env python3
"""RocksDB's own tests on memlith: ./dev soak rocksdb-suite.

Gets Debian's source of RocksDB, builds its unit tests of the log and db_stress, and links them to Debian's library.
Runs each unit test on the plain file system and on memlith (TEST_FS_URI), and holds what differs against known.txt,
which says why. Then runs RocksDB's crash test on memlith: db_stress is killed over and over, and each next run checks
the database against the file of expected values. Exit code 0: nothing else passes on plain RocksDB and not on memlith,
and no crash test fails.
"""
import argparse
import concurrent.futures
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[2] / "sqlite/tests/suite"))
from beside_plain import call, ending, get_debian_source, report, run_for  # noqa: E402

# Those that use the file system of TEST_FS_URI and write a log.
PROGRAMS = ("db_basic_test", "db_wal_test", "db_write_test", "db_log_iter_test", "db_flush_test", "db_secondary_test",
            "repair_test", "obsolete_files_test", "db_test", "db_test2")
TEST_SECONDS = 600
KINDS = ("plain", "memlith")
LIBRARIES = ("gflags", "snappy", "z", "bz2", "lz4", "zstd", "pthread", "dl")


def build(work):
    """The folder of the programs, and that of the source."""
    if not list(work.glob("rocksdb-7.*/db")):
        get_debian_source(work, "rocksdb")
    source = next(work.glob("rocksdb-7.*/db")).parent
    folder = work / "build"
    if not (folder / "build.ninja").exists():
        # Debug, or there are no targets for tests; like Debian's library they are compiled with assertions.
        switches = [f"-DWITH_{name}=ON" for name in ("BZ2", "LZ4", "ZLIB", "ZSTD", "SNAPPY", "TOOLS", "TESTS")]
        call(["cmake", "-S", source, "-B", folder, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Debug",
              "-DCMAKE_CXX_FLAGS_DEBUG=-O0", "-DCMAKE_CXX_FLAGS=-w", *switches, "-DPORTABLE=ON",
              "-DFAIL_ON_WARNINGS=OFF"])
    known = subprocess.run(["ninja", "-C", folder, "-t", "targets", "all"], capture_output=True, text=True,
                           check=True).stdout
    shared = re.findall(r"^(?:CMakeFiles/(?:testutillib|testharness)\.dir|third-party/gtest)\S*\.o(?=:)", known, re.M)
    stress = re.findall(r"^db_stress_tool/CMakeFiles/db_stress\.dir\S*\.o(?=:)", known, re.M)
    objects = {name: [f"CMakeFiles/{name}.dir/db/{name}.cc.o", *shared] for name in PROGRAMS} | {"db_stress": stress}
    call(["ninja", "-C", folder, "--quiet", *sorted({each for group in objects.values() for each in group})])
    for name, group in objects.items():
        if not (folder / name).exists():
            call(["g++", *group, "-o", name, "-lrocksdb", *(f"-l{each}" for each in LIBRARIES)], cwd=folder)
    return folder, source


def environment_of(kind, given, folder):
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("MEMLITH_", "LD_"))}
    environment["TEST_TMPDIR"] = str(folder)
    if kind == "memlith":
        environment |= {"LD_PRELOAD": str(given.plugin), "TEST_FS_URI": "memlith://"}
    return environment


def tests_in(program):
    listing = subprocess.run([program, "--gtest_list_tests"], capture_output=True, text=True, check=True).stdout
    names, group = [], ""
    for line in listing.splitlines():
        line = line.split("#")[0].rstrip()
        if line and not line.startswith(" "):
            group = line
        elif line:
            names.append(group + line.strip())
    return [name for name in names if "DISABLED_" not in name]


def run_test(program, name, given):
    """{kind: (outcome, why)}"""
    outcomes = {}
    for kind in KINDS:
        folder = given.work / "run" / re.sub(r"\W+", "-", f"{program.name}-{name}-{kind}")
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        code, text = run_for(TEST_SECONDS, [program, f"--gtest_filter={name}"], cwd=folder,
                             env=environment_of(kind, given, folder))
        outcome = "ok"
        if code != 0 or "[  PASSED  ] 1 test" not in text:
            outcome = "failed" if "[  FAILED  ]" in text else ending(code)
        elif "[  SKIPPED ]" in text or "BYPASSED" in text:
            outcome = "skipped"
        if outcome not in ("ok", "skipped"):
            logs = given.work / f"logs-{kind}"
            logs.mkdir(exist_ok=True)
            (logs / f"{folder.name}.log").write_text(f"{text}\nexit code {code}\n", encoding="utf-8")
        outcomes[kind] = (outcome, text[-400:] if outcome != "ok" else "")
        shutil.rmtree(folder, ignore_errors=True)
    return outcomes


def run_tests(folder, given):
    tests = [(program, name) for program in PROGRAMS for name in tests_in(folder / program)
             if re.search(given.only, f"{program} {name}")]
    with concurrent.futures.ThreadPoolExecutor(given.jobs) as pool:
        told = pool.map(lambda each: run_test(folder / each[0], each[1], given), tests)
        return {f"{program} {name}": each for (program, name), each in zip(tests, told)}


def crash_test(folder, source, given):
    """True if db_stress, killed this many times, found what it expected every time."""
    place = given.work / "crash"
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir()
    seconds = 3
    command = [sys.executable, source / "tools/db_crashtest.py", "blackbox", "--simple", "--stress_cmd",
               folder / "db_stress", "--interval", str(seconds), "--duration", str(seconds * given.kills),
               "--max_key", "100000", "--sync", "1", "--fs_uri=memlith://"]
    environment = environment_of("memlith", given, place)
    code, text = run_for(seconds * given.kills * 10 + 600, [str(each) for each in command], cwd=place, env=environment)
    (given.work / "crash.log").write_text(text, encoding="utf-8")
    kills = len(re.findall(r"^KILLED", text, re.M))
    print(f"crash test: {kills} kills, exit code {code}")
    if code != 0:
        print(text[-2000:])
    return code == 0 and kills > 0


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--plugin", required=True, type=lambda text: pathlib.Path(text).resolve())
    options.add_argument("--work", required=True, type=lambda text: pathlib.Path(text).resolve())
    options.add_argument("--minutes", type=float, default=0, help="accepted like by every soak program")
    options.add_argument("--only", default="", help="a regular expression for PROGRAM TEST")
    options.add_argument("--jobs", type=int, default=os.cpu_count())
    options.add_argument("--kills", type=int, default=200, help="of the crash test; 0: none")
    given = options.parse_args()
    given.work.mkdir(parents=True, exist_ok=True)
    folder, source = build(given.work)
    outcomes = run_tests(folder, given)
    (given.work / "outcomes.json").write_text(json.dumps(outcomes), encoding="utf-8")
    plain, ours = ({name: each[kind] for name, each in outcomes.items()} for kind in KINDS)
    status = report(plain, ours, HERE / "known.txt", whole=not given.only)
    held = given.kills == 0 or crash_test(folder, source, given)
    return status if held else 1


if __name__ == "__main__":
    sys.exit(main())
