#!/usr/bin/env python3
"""bbolt's own tests on memlith: ./dev soak bbolt-suite.

Gets the source of go.etcd.io/bbolt by Go's module cache, and builds its tests twice: with that source, and with
integrations/bbolt in its place. Runs each test with both, and holds what differs against known.txt, which says why.
Tests of bbolt's pages, nodes and freelist do not build with integrations/bbolt and are left out (LEFT_OUT). Exit code
0: nothing else passes with plain bbolt and not with memlith.
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
ROOT = HERE.parents[2]
sys.path.insert(0, str(ROOT / "integrations/sqlite/tests/suite"))
sys.path.insert(0, str(ROOT / "integrations/etcd"))
from build import copy, go  # noqa: E402
from beside_plain import ending, report, run_for  # noqa: E402

VERSION = "v1.4.3"
TEST_SECONDS = 600
KINDS = ("plain", "memlith")
# Random keys are no longer than ours may be, in both kinds; a key that is too long would end the test at once.
QUICK = ("-quick.maxksize=1000",)
ADAPTED = [(name, "min, max = 1, 1024", "min, max = 1, 1000") for name in ("movebucket_test.go", "simulation_test.go")]
# Files of tests that use the inside of bbolt, and what of it.
LEFT_OUT = {"allocate_test.go": "the freelist", "node_test.go": "nodes of the tree",
            "db_whitebox_test.go": "the freelist and pages", "tx_check_test.go": "pages, which the test overwrites"}


def make_plain(source, folder):
    copy(source, folder)
    for name in LEFT_OUT:
        (folder / name).unlink()


def make_memlith(source, folder):
    """Our package with the tests of the source, and what these import: helpers, and constants of pages."""
    for path in source.glob("*_test.go"):
        if path.name not in LEFT_OUT:
            (folder / path.name).write_bytes(path.read_bytes())
    for each in ("internal/btesting", "internal/common"):
        copy(source / each, folder / each)
    for path in (ROOT / "integrations/bbolt").glob("*.go"):
        if not path.name.endswith("_test.go"):
            (folder / path.name).write_bytes(path.read_bytes())
    copy(ROOT / "integrations/bbolt/errors", folder / "errors")
    for each in ("go.mod", "go.sum"):
        (folder / each).write_bytes((source / each).read_bytes())
    go(folder, "mod", "edit", "-require=memlith.org/memlith@v0.0.0", f"-replace=memlith.org/memlith={ROOT / 'go'}")


def adapt(folder):
    for name, from_text, to_text in ADAPTED:
        text = (folder / name).read_text(encoding="utf-8")
        if from_text not in text:
            sys.exit(f"{name} of bbolt {VERSION} has no {from_text!r}")
        (folder / name).write_text(text.replace(from_text, to_text), encoding="utf-8")


def build(work):
    """The programs of tests by kind. Test files of bbolt that are new in its version build or fail loudly."""
    work.mkdir(parents=True, exist_ok=True)
    source = pathlib.Path(json.loads(go(work, "mod", "download", "-json", f"go.etcd.io/bbolt@{VERSION}"))["Dir"])
    programs = {}
    for kind, make in (("plain", make_plain), ("memlith", make_memlith)):
        folder = work / kind
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        make(source, folder)
        adapt(folder)
        go(folder, "test", "-c", "-o", "suite", ".", flags="-mod=mod")
        programs[kind] = folder / "suite"
    return programs


def outcome_of(code, text):
    if code == 0:
        return "skipped" if re.search(r"^--- SKIP", text, re.M) else "ok"
    return "failed" if re.search(r"^--- FAIL", text, re.M) else ending(code)


def run_test(programs, name, given):
    """{kind: (outcome, what it said)}"""
    outcomes = {}
    for kind in KINDS:
        place = given.work / "run" / f"{name}-{kind}"
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir(parents=True)
        command = [str(programs[kind]), "-test.v", f"-test.run=^{name}$", *QUICK]
        if given.short:
            command.append("-test.short")
        code, text = run_for(TEST_SECONDS, command, cwd=programs[kind].parent,
                             env={**os.environ, "TMPDIR": str(place)})
        outcome = outcome_of(code, text)
        logs = given.work / f"logs-{kind}"
        logs.mkdir(exist_ok=True)
        if outcome not in ("ok", "skipped"):
            (logs / f"{name}.log").write_text(f"{text}\nexit code {code}\n", encoding="utf-8")
        outcomes[kind] = (outcome, text[-600:] if outcome != "ok" else "")
        shutil.rmtree(place, ignore_errors=True)
    return outcomes


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--work", required=True, type=lambda text: pathlib.Path(text).resolve())
    options.add_argument("--minutes", type=float, default=0, help="accepted like by every soak program")
    options.add_argument("--only", default="", help="a regular expression for the test's name")
    options.add_argument("--jobs", type=int, default=os.cpu_count())
    options.add_argument("--short", action="store_true", help="leave out what bbolt's tests leave out with -short")
    given = options.parse_args()
    programs = build(given.work)
    names = subprocess.run([programs["plain"], "-test.list", "^Test"], capture_output=True, text=True,
                           check=True).stdout.split()
    names = [name for name in names if name.startswith("Test") and re.search(given.only, name)]
    with concurrent.futures.ThreadPoolExecutor(given.jobs) as pool:
        outcomes = dict(zip(names, pool.map(lambda name: run_test(programs, name, given), names)))
    (given.work / "outcomes.json").write_text(json.dumps(outcomes), encoding="utf-8")
    for name, what in LEFT_OUT.items():
        print(f"left out {name}: needs {what}")
    plain, ours = ({name: each[kind] for name, each in outcomes.items()} for kind in KINDS)
    return report(plain, ours, HERE / "known.txt", whole=not given.only and not given.short)


if __name__ == "__main__":
    sys.exit(main())
