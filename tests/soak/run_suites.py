#!/usr/bin/env python3
"""Other projects' programs and tests under `memlith run`, beside the same without it (./dev soak run-suites).

Usage: run_suites.py MEMLITH RUN_FSX RUN_CALLS [--rounds N] [--seed N] [--python PROGRAM] [--only NAME]
  fsx      tests/run/fsx_test.py: random calls in every way that a program has, to the end and to a kill
  calls    tests/run/calls_test.py: random calls compared with the same calls without memlith
  node     node_fs.js: Node's fs, synchronous and with promises
  python   Python's own tests of os, io, mmap, dbm and more; their temporary files match
A suite whose programs this machine lacks is named and left out. MEMLITH_SEED replays a run.
"""
import argparse
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
RUN = HERE.parent / "run"
HANG_S = 3600
# Python's tests, whose temporary files are called @test_PID_tmp...
PYTHON_TESTS = ("test_os", "test_io", "test_mmap", "test_dbm", "test_dbm_dumb", "test_dbm_gnu", "test_dbm_ndbm",
                "test_file", "test_fileio", "test_posix", "test_shelve", "test_shutil", "test_tempfile", "test_zipfile",
                "test_gzip")
# Tests that may fail under `memlith run`: docs/failure-atomic-files.md says that each is refused or different.
REFUSED = {
    r"ExtendedAttributeTests": "extended attributes of an open file are those of a file in memory",
    r"TestPosixSpawn": "another program inherits a descriptor",
    r"test_large_file_ops": "a file has to fit into memory",
}


def say(text):
    print(text, flush=True)


def run_fsx(options, folder):
    for words in ([], ["--raw"]):
        done = subprocess.run([sys.executable, "-B", RUN / "fsx_test.py", options.memlith, options.fsx, "--rounds",
                               str(options.rounds), "--calls", "4000", "--seed", str(options.seed), *words],
                              check=False)
        if done.returncode != 0:
            return "see above"
    return ""


def run_calls(options, folder):
    done = subprocess.run([sys.executable, "-B", RUN / "calls_test.py", options.memlith, options.calls,
                           str(options.rounds * 100_000), str(options.seed)], check=False)
    return "" if done.returncode == 0 else "see above"


def run_node(options, folder):
    node = shutil.which("node") or shutil.which("nodejs")
    if node is None:
        return None
    for number in range(options.rounds):
        part = pathlib.Path(tempfile.mkdtemp(dir=folder))
        done = subprocess.run([options.memlith, "run", "--match", "*.kept", "--", node, HERE / "node_fs.js", part,
                               str(options.seed + number), "200"], capture_output=True, text=True, timeout=HANG_S,
                              check=False)
        if done.returncode != 0:
            return f"seed {options.seed + number}: {done.stdout[-500:]}{done.stderr[-3000:]}"
        left = [each.name for each in part.iterdir() if ".memlith" in each.name]
        if left:
            return f"seed {options.seed + number}: left behind: {left}"
    return ""


def python_with_tests(wanted):
    for each in [wanted] if wanted else ["python3", "/usr/bin/python3"]:
        found = shutil.which(each)
        if found and subprocess.run([found, "-c", "import test.test_os"], capture_output=True,
                                    check=False).returncode == 0:
            return found
    return None


def failures(prefix, python, test, folder):
    """The names of the tests that fail, and the whole text."""
    part = tempfile.mkdtemp(dir=folder)
    command = [*prefix, python, "-m", "test", "-v", "--tempdir", part, test]
    done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=HANG_S, check=False,
                          cwd=part)
    text = done.stdout + done.stderr
    found = set(re.findall(r"^(?:FAIL|ERROR): (.*)$", text, re.MULTILINE))
    if done.returncode != 0 and not found:
        found = {f"{test} ends with {done.returncode}"}
    return found, text


def run_python(options, folder):
    python = python_with_tests(options.python)
    if python is None:
        return None
    wrong = []
    for test in PYTHON_TESTS:
        before, _ = failures([], python, test, folder)
        after, text = failures([options.memlith, "run", "--match", "@test_*", "--"], python, test, folder)
        new = after - before
        refused = {each for each in new if any(re.search(pattern, each) for pattern in REFUSED)}
        say(f"  {test}: {len(before)} fail without memlith, {len(refused)} more are refused as documented, "
            f"{len(new - refused)} more fail")
        if options.verbose:
            for each in sorted(refused):
                say(f"    refused: {each}")
        for each in sorted(new - refused):
            say(f"    fails: {each}")
            at = text.find(each + "\n------")
            say(text[at:at + 1500] if at >= 0 else text[-1500:])
        wrong += sorted(new - refused)
    return ", ".join(wrong)


SUITES = {"fsx": run_fsx, "calls": run_calls, "node": run_node, "python": run_python}


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("memlith")
    parser.add_argument("fsx")
    parser.add_argument("calls")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--seed", type=int, default=int(os.environ.get("MEMLITH_SEED", os.getpid())))
    parser.add_argument("--python")
    parser.add_argument("--only", choices=SUITES)
    parser.add_argument("--verbose", action="store_true")
    options = parser.parse_args()
    for name in ("memlith", "fsx", "calls"):
        setattr(options, name, os.path.abspath(getattr(options, name)))
    say(f"MEMLITH_SEED={options.seed}")
    failed = False
    with tempfile.TemporaryDirectory(dir=os.environ.get("MEMLITH_TEST_DIR"), prefix="memlith-suites-") as folder:
        for name, suite in SUITES.items():
            if options.only not in (None, name):
                continue
            wrong = suite(options, folder)
            failed = failed or bool(wrong)
            say(f"{name}: " + ("left out, its programs are not here" if wrong is None else wrong or "no difference"))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
