#!/usr/bin/env python3
"""etcd's own tests on memlith: ./dev soak etcd-suite.

Gets the sources of etcd's server and of its tests by Go's module cache, and builds the tests of their packages twice:
as they come, and with integrations/bbolt and integrations/etcd/wal in their places. Runs each package with both, and
each test that did not pass once more by itself. Holds what differs against known.txt, which says why. Tests of the
files of etcd's write-ahead log do not build with another one and are left out (LEFT_OUT). Exit code 0: nothing else
passes with plain etcd and not with memlith.
"""
import argparse
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
import build  # noqa: E402
from beside_plain import report, run_for  # noqa: E402

KINDS = ("plain", "memlith")
PACKAGE_SECONDS, TEST_SECONDS = 1800, 300
TESTS = "go.etcd.io/etcd/tests/v3"
# Module: its packages, as `go list` takes them, and the tags of their files.
SERVER_PACKAGES = ("./auth", "./lease/...", "./storage/...", "./etcdserver/...", "./embed", "./verify")
TESTS_PACKAGES = ("./integration/...", "./common")
SUITES = {"server": (build.SERVER, SERVER_PACKAGES, ""), "tests": (TESTS, TESTS_PACKAGES, "integration")}
# Tests of the write-ahead log that use the inside of etcd's: by file, and the reason.
FILES = "etcd's files, their names and their encoding"
LEFT_OUT = {
    "wal_test.go": ("TestNew", "TestCreateNewWALFile", "TestWalCleanup", "TestCreateFailFromNoSpaceLeft",
                    "TestOpenAtIndex", "TestVerify", "TestCut", "TestSaveWithCut", "TestSearchIndex",
                    "TestScanWalName", "TestRecoverAfterCut", "TestSaveEmpty", "TestReleaseLockTo",
                    "TestTailWriteNoSlackSpace", "TestOpenOnTornWrite", "TestRenameFail",
                    "TestValidSnapshotEntriesAfterPurgeWal", "TestLastRecordLengthExceedFileEnd"),
    "file_pipeline_test.go": None, "record_test.go": None, "repair_test.go": None, "wal_bench_test.go": None,
}
# For the tests that stay: our log has one file, of one name, and begins no other.
SUPPORT = """package wal

func (w *WAL) cut() error { return nil }

func walName(_, _ uint64) string { return guardName }
"""


def adapt_wal_tests(source, folder):
    """etcd's tests of the write-ahead log, without those that are left out."""
    for path in source.glob("*_test.go"):
        left_out = LEFT_OUT.get(path.name, ())
        if left_out is None:
            continue
        text = path.read_text(encoding="utf-8")
        for name in left_out:
            text, count = re.subn(rf"\nfunc {name}\(.*?\n}}\n", "\n", text, flags=re.S)
            if count != 1:
                sys.exit(f"{path.name} of etcd has no test {name}")
        if left_out:
            imports = re.search(r"\nimport \((.*?)\n\)\n", text, re.S)
            body = text[imports.end():]
            kept = [line for line in imports[1].splitlines() if '"' not in line or re.search(
                rf"\b{re.sub(r'/v[0-9]+$', '', line.strip().strip(chr(34))).rsplit('/', 1)[-1]}\.", body)]
            text = text[:imports.start(1)] + "\n".join(kept) + text[imports.end(1):]
        (folder / path.name).write_text(text, encoding="utf-8")
    (folder / "support_test.go").write_text(SUPPORT, encoding="utf-8")


def make(kind, work):
    """The sources of both modules, ready to be built."""
    server, tests = work / "server", work / "tests"
    source = build.source_of(build.SERVER)
    build.copy(source, server)
    build.copy(build.source_of(TESTS), tests)
    if kind == "memlith":
        build.put_wal(server)
        adapt_wal_tests(source / build.WAL, server / build.WAL)
        build.name_memlith(server)
        build.name_memlith(tests, server)
        return
    for folder in (server, tests):
        build.drop_replaced(folder)


def packages_of(folder, wanted, tags):
    listed = build.go(folder, "list", f"-tags={tags}", "-f",
                      "{{if or .TestGoFiles .XTestGoFiles}}{{.Dir}}{{end}}", *wanted, flags="-mod=mod")
    return sorted(str(pathlib.Path(line).relative_to(folder)) for line in listed.split())


def outcomes_of(text):
    """{test: ok, failed or skipped}, of the tests that ended."""
    words = {"PASS": "ok", "FAIL": "failed", "SKIP": "skipped"}
    return {name: words[word] for word, name in re.findall(r"^--- (PASS|FAIL|SKIP): (\w+) ", text, re.M)}


def run(program, folder, pattern, seconds, given):
    place = given.work / "run"
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    command = [str(program), "-test.v", f"-test.run={pattern}", f"-test.timeout={seconds}s"]
    if given.short:
        command.append("-test.short")
    _, text = run_for(seconds + 60, command, cwd=folder, env={**os.environ, "TMPDIR": str(place)})
    shutil.rmtree(place, ignore_errors=True)
    return text


def run_package(kind, suite, package, given):
    """{test: outcome}"""
    module, tags = given.work / kind / suite, SUITES[suite][2]
    name = f"{suite}-{package.replace('/', '-')}"
    logs = given.work / f"logs-{kind}"
    logs.mkdir(exist_ok=True)
    program = given.work / kind / "bin" / name
    try:
        build.go(module, "test", "-c", f"-tags={tags}", "-o", program, f"./{package}", flags="-mod=mod")
    except subprocess.CalledProcessError:
        return {"build": "failed"}
    listed = subprocess.run([program, "-test.list", "^Test"], cwd=module / package, capture_output=True, text=True,
                            check=False).stdout.split()
    wanted = [each for each in listed if each.startswith("Test") and re.search(given.only, each)]
    if not wanted:
        return {}
    pattern = ".*" if not given.only else f"^({'|'.join(wanted)})$"
    text = run(program, module / package, pattern, PACKAGE_SECONDS, given)
    (logs / f"{name}.log").write_text(text, encoding="utf-8")
    found = {test: word for test, word in outcomes_of(text).items() if test in wanted}
    for test in wanted:
        if found.get(test) in ("ok", "skipped"):
            continue
        text = run(program, module / package, f"^{test}$", TEST_SECONDS, given)
        found[test] = outcomes_of(text).get(test, "ended")
        (logs / f"{name}-{test}.log").write_text(text, encoding="utf-8")
    return found


def drop_left_out(outcomes):
    """Tests of the write-ahead log that were run with plain etcd alone are not compared."""
    package = f"server {build.WAL}"
    ours = outcomes["memlith"].get(package, {})
    if "build" not in ours:
        outcomes["plain"][package] = {test: each for test, each in outcomes["plain"].get(package, {}).items()
                                      if test in ours}
    for file, names in LEFT_OUT.items():
        print(f"left out {file}: {'all' if names is None else ', '.join(names)}: {FILES}")


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--work", required=True, type=lambda text: pathlib.Path(text).resolve())
    options.add_argument("--minutes", type=float, default=0, help="accepted like by every soak program")
    options.add_argument("--packages", default="", help="a regular expression: of \"server storage/wal\" and the like")
    options.add_argument("--only", default="", help="a regular expression for the test's name")
    options.add_argument("--short", action="store_true", help="leave out what etcd's tests leave out with -short")
    given = options.parse_args()
    outcomes = {kind: {} for kind in KINDS}
    for kind in KINDS:
        make(kind, given.work / kind)
    for suite, (_, wanted, tags) in SUITES.items():
        for package in packages_of(given.work / "plain" / suite, wanted, tags):
            if re.search(given.packages, f"{suite} {package}"):
                for kind in KINDS:
                    found = outcomes[kind][f"{suite} {package}"] = run_package(kind, suite, package, given)
                    print(f"{kind} {suite} {package}: {len(found)} tests", flush=True)
    (given.work / "outcomes.json").write_text(json.dumps(outcomes), encoding="utf-8")
    drop_left_out(outcomes)
    plain, ours = ({f"{package} {test}": (outcome, "") for package, tests in outcomes[kind].items()
                    for test, outcome in tests.items()} for kind in KINDS)
    return report(plain, ours, HERE / "known.txt", whole=not (given.only or given.packages or given.short))


if __name__ == "__main__":
    sys.exit(main())
