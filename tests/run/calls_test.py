#!/usr/bin/env python3
"""Compares random calls on files under `memlith run` with the same calls without it: every result and every file.

Usage: calls_test.py MEMLITH RUN_CALLS [CALLS [SEED]]
On a difference the first call that differs is printed, and the seed. MEMLITH_SEED replays it.
"""
import concurrent.futures
import filecmp
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

CALLS = 1_000_000
PARTS = 4
HANG_S = 900
NAMES = ("a.dat", "b.dat", "c.dat", "d.dat", "s.dat", "threads.dat", "plain.txt")


def folder_for_tests():
    """In memory if there is room: the calls are compared, not the disk."""
    shared = pathlib.Path("/dev/shm")
    usable = shared.is_dir() and os.access(shared, os.W_OK) and shutil.disk_usage(shared).free > 1 << 28
    return str(shared) if usable else os.environ.get("MEMLITH_TEST_DIR")


class Difference(Exception):
    pass


def run(prefix, program, folder, seed, calls, *trace):
    folder.mkdir()
    try:
        done = subprocess.run([*prefix, program, str(folder), str(seed), str(calls), *map(str, trace)],
                              capture_output=True, text=True, timeout=HANG_S, check=False)
    except subprocess.TimeoutExpired as hanging:
        raise Difference(f"{'with' if prefix else 'without'} memlith the program does not end") from hanging
    return done.returncode, done.stdout.splitlines(), done.stderr


def compare(memlith, program, folder, seed, calls):
    prefix = [memlith, "run", "--match", "*.dat", "--commit", "auto", "--"]
    code, expected, told = run([], program, folder / "without", seed, calls)
    if code != 0:
        raise Difference(f"without memlith the program ends with {code}: {told}")
    code, found, told = run(prefix, program, folder / "with", seed, calls)
    if found != expected:
        at = next((i for i, (a, b) in enumerate(zip(expected, found)) if a != b), min(len(found), len(expected)))
        trace = (at * 1000, at * 1000 + 1000)
        _, one, _ = run([], program, folder / "without-traced", seed, calls, *trace)
        _, other, _ = run(prefix, program, folder / "with-traced", seed, calls, *trace)
        where = next((f"{a!r} without memlith, {b!r} with it" for a, b in zip(one, other) if a != b), "no call differs")
        raise Difference(f"after call {trace[0]}: {where}; exit code {code}; {told[-2000:]}")
    if code != 0:
        raise Difference(f"under memlith run the program ends with {code}: {told}")
    for name in NAMES:
        one, other = folder / "without" / name, folder / "with" / name
        if one.exists() != other.exists() or (one.exists() and not filecmp.cmp(one, other, shallow=False)):
            raise Difference(f"the file {name} differs")
    left = [each.name for each in (folder / "with").iterdir() if each.name not in NAMES]
    if left:
        raise Difference(f"left behind: {left}")


def run_part(memlith, program, seed, calls):
    """The differences; empty if there are none."""
    with tempfile.TemporaryDirectory(dir=folder_for_tests(), prefix="memlith-calls-") as folder:
        try:
            compare(memlith, program, pathlib.Path(folder), seed, calls)
        except Difference as difference:
            return f"seed {seed}, {calls} calls: {difference}"
    return ""


def main():
    memlith, program = sys.argv[1:3]
    calls = int(sys.argv[3]) if len(sys.argv) > 3 else CALLS
    seed = int(sys.argv[4] if len(sys.argv) > 4 else os.environ.get("MEMLITH_SEED", os.getpid()))
    print(f"MEMLITH_SEED={seed}", flush=True)
    with concurrent.futures.ThreadPoolExecutor(max_workers=2) as pool:
        differences = list(pool.map(lambda part: run_part(memlith, program, seed + part, calls // PARTS), range(PARTS)))
    for difference in filter(None, differences):
        print(difference)
    if any(differences):
        return 1
    print(f"{calls} calls, no difference")
    return 0


if __name__ == "__main__":
    sys.exit(main())
