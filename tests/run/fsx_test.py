#!/usr/bin/env python3
"""Random calls on one file under `memlith run`, in every way that a program has, beside a model and a plain file.

Usage: fsx_test.py MEMLITH RUN_FSX [--rounds N] [--calls N] [--seed N]
Each round runs to its end once, and is killed once: then the file is as its last commit left it. MEMLITH_SEED replays a
run.
"""
import argparse
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile

HANG_S = 300
FILES = {"plain.bin", "committed.bin", "side.bin"}


def folder_for_tests():
    """In memory if there is room: bytes are compared after kills, and no disk loses power."""
    shared = pathlib.Path("/dev/shm")
    usable = shared.is_dir() and os.access(shared, os.W_OK) and shutil.disk_usage(shared).free > 1 << 28
    return str(shared) if usable else os.environ.get("MEMLITH_TEST_DIR")


class Wrong(Exception):
    pass


def run(options, folder, seed, *words):
    command = [options.memlith, "run", "--match", "*.fsx", "--commit", "msync", "--", options.program, str(folder),
               str(seed), str(options.calls), *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=HANG_S, check=False)
    return done.returncode, done.stdout + done.stderr


def the_file(folder):
    found = [each for each in folder.iterdir() if each.name in ("data.fsx", "other.fsx")]
    if len(found) != 1:
        raise Wrong(f"expected one file, found {sorted(each.name for each in folder.iterdir())}")
    return found[0]


def difference(found, expected):
    at = next((i for i, (a, b) in enumerate(zip(found, expected)) if a != b), min(len(found), len(expected)))
    wrong = sum(a != b for a, b in zip(found, expected))
    return f"{wrong} wrong bytes, the first at {at}; {len(found)} bytes instead of {len(expected)}"


def round_to_the_end(options, folder, seed, *words):
    code, said = run(options, folder, seed, *words)
    if code != 0:
        raise Wrong(f"exit code {code}: {said}")
    file = the_file(folder)
    left = {each.name for each in folder.iterdir()} - FILES - {file.name}
    if left:
        raise Wrong(f"left behind: {sorted(left)}")
    found, expected = file.read_bytes(), (folder / "plain.bin").read_bytes()
    if found != expected:
        raise Wrong(f"after a clean end: {difference(found, expected)}")
    return said


def round_to_a_kill(options, folder, seed, *words):
    code, said = run(options, folder, seed, "kill", *words)
    if code != -signal.SIGKILL:
        raise Wrong(f"exit code {code}: {said}")
    file = the_file(folder)
    if (folder / (file.name + ".memlith")).exists():
        done = subprocess.run([options.memlith, "recover", str(file)], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise Wrong(f"memlith recover: {done.stderr}")
    found, expected = file.read_bytes(), (folder / "committed.bin").read_bytes()
    if found != expected:
        raise Wrong(f"after a kill: {difference(found, expected)}")


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("memlith")
    parser.add_argument("program")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--calls", type=int, default=700)
    parser.add_argument("--seed", type=int, default=int(os.environ.get("MEMLITH_SEED", os.getpid())))
    parser.add_argument("--raw", action="store_true", help="with writes that memlith cannot see, which a kill may lose")
    options = parser.parse_args()
    print(f"MEMLITH_SEED={options.seed}", flush=True)
    for number in range(options.rounds):
        seed = options.seed + number
        for kind in (round_to_the_end,) if options.raw else (round_to_the_end, round_to_a_kill):
            with tempfile.TemporaryDirectory(dir=folder_for_tests(), prefix="memlith-fsx-") as folder:
                try:
                    kind(options, pathlib.Path(folder), seed, *(["raw"] if options.raw else []))
                except Wrong as wrong:
                    print(f"seed {seed}, {options.calls} calls, {kind.__name__}: {wrong}")
                    return 1
    print(f"{options.rounds} rounds, {options.calls} calls each: no difference")
    return 0


if __name__ == "__main__":
    sys.exit(main())
