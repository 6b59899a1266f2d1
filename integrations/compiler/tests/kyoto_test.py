#!/usr/bin/env python3
"""Kyoto Cabinet compiled with memlith-c++, as `./dev bench instrumented kyoto` builds it: each side of the benchmark
has its lines; every change is recorded; killed at any moment, a database has whole transactions only, and all of those
that were reported.

Usage: kyoto_test.py BUILD SOURCE
Ends with 77 if Debian's source of Kyoto Cabinet cannot be had.
"""
import json
import os
import pathlib
import random
import shutil
import subprocess
import sys
import time

from common import BUILD, FOLDER, SOURCE, end, expect

WORK = pathlib.Path(os.environ.get("MEMLITH_TEST_DIR", BUILD)) / "kyoto"  # the source stays there
PROGRAMS = FOLDER / "programs"
FIELDS = ["suite", "side", "workload", "durability", "threads", "medium", "updates", "ops_per_s", "p50_us", "p99_us",
          "p999_us"]
RECORDS, VALUE_BYTES = 200, 100
MEMORY = pathlib.Path("/dev/shm")
KILLS = 8
CONTROL_KILLS_MAX = 60
SEED = int(os.environ.get("MEMLITH_SEED", random.SystemRandom().randrange(1 << 32)))
chance = random.Random(SEED)


def bench(*words):
    return subprocess.run([sys.executable, "-B", SOURCE / "bench/instrumented/kyoto.py", "--bin", BUILD / "bin",
                           "--dir", WORK, "--programs", PROGRAMS, "--seconds", "0.05", "--records", str(RECORDS),
                           "--rounds", "1", *words], capture_output=True, text=True, check=False)


def every_line():
    done = bench("--updates", "1,8", "--json")
    if done.returncode != 0 and "apt-get" in done.stderr:
        print(f"left out: Debian's source of Kyoto Cabinet cannot be had: {done.stderr}")
        shutil.rmtree(FOLDER, ignore_errors=True)
        sys.exit(77)
    expect("the benchmark ends well", done.returncode == 0, done.stdout + done.stderr)
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    sides = ["transactions", "memlith instrumented"]
    if (BUILD / "lib/libmemlith_run.so").exists():
        sides.append("memlith run")
    expected = [(f"{kind} on disk, {updates}", side, "sync") for kind in ("hash", "tree")
                for updates in ("1 update", "8 updates") for side in sides]
    expect("each side of the benchmark has its lines",
           [(row["workload"], row["side"], row["durability"]) for row in rows] == expected and
           all(list(row) == FIELDS and row["ops_per_s"] > 0 for row in rows), done.stdout)


def program(name, *words, **more):
    return subprocess.run([PROGRAMS / name, *map(str, words)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True, check=False, **more)


def everything_is_recorded(kind):
    folder = FOLDER / "verified"
    folder.mkdir()
    done = program("instrumented", "run", folder / f"data.{kind}", "synchronize", 5, 0.2, RECORDS, VALUE_BYTES,
                   env={**os.environ, "MEMLITH_VERIFY_TRACKING": "1"})
    expect(f"{kind}: every change is recorded", done.returncode == 0 and "not recorded" not in done.stdout,
           done.stdout)
    shutil.rmtree(folder)


def killed(name, kind, parent, environment):
    """The findings of `check` after transactions of all records were killed."""
    folder = parent / f"memlith-kyoto-test-{os.getpid()}"
    folder.mkdir()
    database = folder / f"data.{kind}"
    try:
        with subprocess.Popen([PROGRAMS / name, "run", database, "synchronize", str(RECORDS), "0", str(RECORDS),
                               str(VALUE_BYTES)], stdout=subprocess.PIPE, text=True, env=environment) as running:
            first = running.stdout.readline()
            time.sleep(chance.uniform(0, 0.05))
            running.kill()
            lines = (first + running.stdout.read()).split("\n")
        return program(name, "check", database, lines[-2], RECORDS, VALUE_BYTES, env=environment)
    finally:
        shutil.rmtree(folder)


def kills(kind):
    places = [("on disk", FOLDER, dict(os.environ))]
    if os.access(MEMORY, os.W_OK):
        places.append(("on memory, by DAX", MEMORY, {**os.environ, "MEMLITH_KYOTO_IO": "dax"}))
    for where, parent, environment in places:
        done = None
        for _ in range(KILLS):
            done = killed("instrumented", kind, parent, environment)
            if done.returncode != 0:
                break
        expect(f"{kind} {where}: whole transactions after {KILLS} kills", done.returncode == 0, done.stdout)


def the_check_has_teeth():
    """Without memlith, synchronize() leaves half of a transaction behind."""
    parent = MEMORY if os.access(MEMORY, os.W_OK) else FOLDER
    expect("hash without memlith: half of a transaction is noticed",
           any(killed("plain", "kch", parent, dict(os.environ)).returncode != 0 for _ in range(CONTROL_KILLS_MAX)))


print(f"MEMLITH_SEED={SEED}")
every_line()
for each in ("kch", "kct"):
    everything_is_recorded(each)
    kills(each)
the_check_has_teeth()
end()
