#!/usr/bin/env python3
"""Python's own tests of its sqlite3 module with memlith as the default VFS: ./dev soak sqlite-python.

Gets them from Debian's source of the system's Python (no package has them), runs each class of tests in a process and a folder of its own,
with plain SQLite and with the plugin preloaded, and holds what differs against known_python.txt, which says why.
Exit code 0: nothing else passes on plain SQLite and not on memlith.
"""
import argparse
import collections
import concurrent.futures
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile
import time

from run_suite import SOURCES, call

HERE = pathlib.Path(__file__).resolve().parent
PYTHON = "/usr/bin/python3"  # the system's, for which Debian has the source, and whose SQLite is Debian's
PACKAGE = "test.test_sqlite3"
CLASS_SECONDS = 120
# Runs the tests that are named, or lists them all, and prints {name: outcome} behind what they print themselves.
INSIDE = """
import json, sqlite3, sys, unittest
def flat(suite):
    for each in suite:
        yield from flat(each) if isinstance(each, unittest.TestSuite) else [each]
class Result(unittest.TestResult):
    def __init__(self):
        super().__init__()
        self.told = {}
    def note(self, test, outcome, why=""):
        name = test.test_case.id() if hasattr(test, "test_case") else test.id()
        if self.told.get(name, ["ok"])[0] in ("ok", "skipped"):
            self.told[name] = [outcome, why]
    def addSuccess(self, test): self.note(test, "ok")
    def addExpectedFailure(self, test, err): self.note(test, "ok")
    def addSkip(self, test, reason): self.note(test, "skipped", reason)
    def addUnexpectedSuccess(self, test): self.note(test, "failed", "unexpected success")
    def addFailure(self, test, err): self.note(test, "failed", self._exc_info_to_string(err, test))
    def addError(self, test, err): self.note(test, "failed", self._exc_info_to_string(err, test))
    def addSubTest(self, test, subtest, err):
        if err is not None: self.note(test, "failed", self._exc_info_to_string(err, test))
db = sqlite3.connect("probe.db")
answer = db.execute("pragma memlith_durability").fetchone()
db.close()
assert answer == (("full",) if sys.argv[1] == "memlith" else None), f"pragma memlith_durability says {answer}"
if len(sys.argv) > 2:
    result = Result()
    unittest.defaultTestLoader.loadTestsFromNames(sys.argv[2:]).run(result)
    told = result.told
else:
    import importlib, pathlib
    package = importlib.import_module("test.test_sqlite3")
    modules = sorted(path.stem for path in pathlib.Path(package.__path__[0]).glob("test_*.py"))
    told = {each.id(): [] for each in flat(unittest.defaultTestLoader.loadTestsFromNames(f"test.test_sqlite3.{name}" for name in modules))}
print("\\nTOLD " + json.dumps(told))
"""


def get_source(work):
    """The folder to import Python's `test` from: what its package test_sqlite3 needs, out of Debian's source."""
    library = work / "Lib"
    if (library / "test" / "test_sqlite3").exists():
        return library
    version = call([PYTHON, "-c", "import sys; print('python%d.%d' % sys.version_info[:2])"]).strip()
    (work / "lists" / "partial").mkdir(parents=True, exist_ok=True)
    (work / "source.sources").write_text(SOURCES, encoding="utf-8")
    options = ["-o", f"Dir::Etc::sourcelist={work}/source.sources", "-o", "Dir::Etc::sourceparts=/dev/null",
               "-o", f"Dir::State::lists={work}/lists", "-o", "APT::Sandbox::User=root"]
    call(["apt-get", *options, "update"], cwd=work)
    call(["apt-get", *options, "--download-only", "source", version], cwd=work)
    wanted = re.compile(r"[^/]+/Lib/(test/(?:__init__\.py|support/.*|test_sqlite3/.*))")
    with tarfile.open(next(work.glob(f"{version}_*.orig.tar.*"))) as archive:
        for member in archive:
            if member.isfile() and (match := wanted.fullmatch(member.name)) and ".." not in member.name:
                target = work / "Lib.part" / match[1]
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(archive.extractfile(member).read())
    (work / "Lib.part").rename(library)  # whole, or not there
    return library


def known():
    lines = (HERE / "known_python.txt").read_text(encoding="utf-8").splitlines()
    return {line.split(None, 1)[0]: line.split(None, 1)[1] for line in lines if line and not line.startswith("#")}


class Run:
    def __init__(self, plugin, library, work):
        self.plugin, self.library, self.work = plugin, library, work

    def start(self, kind, names, label):
        """{name: [outcome, why]} of the tests named; of a process that ended early, {}."""
        folder = self.work / "run" / f"{label}-{kind}"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        # Nothing of the caller's is to reach the plain run.
        environment = {name: value for name, value in os.environ.items() if not name.startswith(("MEMLITH_", "LD_", "PYTHON"))}
        environment |= {"PYTHONPATH": str(self.library), "PYTHONDONTWRITEBYTECODE": "1"}
        if kind == "memlith":
            environment |= {"LD_PRELOAD": self.plugin, "MEMLITH_SQLITE_LOG_MIB": "1"}
        try:
            done = subprocess.run([PYTHON, "-c", INSIDE, kind, *names], cwd=folder, env=environment, text=True, errors="replace",
                                  stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=CLASS_SECONDS,
                                  check=False)
            text, code = done.stdout, done.returncode
        except subprocess.TimeoutExpired as late:
            text, code = (late.stdout or b"").decode(errors="replace"), "timeout"
        told = re.search(r"^TOLD (.*)$", text, re.M)
        logs = self.work / f"logs-{kind}"
        logs.mkdir(exist_ok=True)
        outcomes = json.loads(told[1]) if told else {}
        failures = "".join(f"\n== {name}\n{why}" for name, (outcome, why) in outcomes.items() if outcome == "failed") if names else ""
        (logs / f"{label}.log").write_text(text + f"\nexit code {code}\n" + failures, encoding="utf-8")
        shutil.rmtree(folder, ignore_errors=True)
        return outcomes

    def both(self, group):
        label, names = group
        plain, ours = ({**dict.fromkeys(names, ["ended", ""]), **self.start(kind, names, label)} for kind in ("plain", "memlith"))
        return plain, ours


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--plugin", required=True)
    options.add_argument("--work", required=True, type=pathlib.Path, help="where the tests and logs go")
    options.add_argument("--minutes", type=float, default=0, help="accepted like by every soak program; the tests run once")
    options.add_argument("--only", default="", help="a regular expression for the names of tests")
    options.add_argument("--jobs", type=int, default=os.cpu_count())
    given = options.parse_args()
    work = given.work.resolve()
    work.mkdir(parents=True, exist_ok=True)
    run = Run(str(pathlib.Path(given.plugin).resolve()), get_source(work), work)
    began, classes = time.monotonic(), collections.defaultdict(list)
    for name in run.start("plain", [], "list"):
        if re.search(given.only, name):
            classes[name.rpartition(".")[0].removeprefix(PACKAGE + ".")].append(name)
    if not run.start("memlith", [], "list-memlith"):
        sys.exit(f"the plugin is not the default VFS of {PYTHON}: see {work / 'logs-memlith' / 'list-memlith.log'}")
    plain, ours = {}, {}
    with concurrent.futures.ThreadPoolExecutor(given.jobs) as pool:
        for each_plain, each_ours in pool.map(run.both, classes.items()):
            plain |= each_plain
            ours |= each_ours
    for kind, outcomes in (("plain SQLite", plain), ("memlith", ours)):
        counts = collections.Counter(outcome for outcome, _ in outcomes.values())
        print(f"{kind}: {len(outcomes)} tests, " + ", ".join(f"{count} {outcome}" for outcome, count in sorted(counts.items())))
    # A test that is skipped only here was not passed here.
    differing = [name for name in plain if plain[name][0] == "ok" != ours[name][0]]
    reasons, unknown = known(), []
    for name in differing:
        short = name.removeprefix(PACKAGE + ".")
        reason = next((why for pattern, why in reasons.items() if re.fullmatch(pattern, short)), None)
        print(f"{'known' if reason else 'NEW  '} {short}: {ours[name][0]}; {reason or ours[name][1].strip().rpartition(chr(10))[2]}")
        if not reason:
            unknown.append(name)
    for pattern in reasons:
        if not given.only and not any(re.fullmatch(pattern, name.removeprefix(PACKAGE + ".")) for name in differing):
            print(f"known_python.txt names {pattern}, which does not differ")
    print(f"{len(differing)} pass on plain SQLite and not on memlith, {len(differing) - len(unknown)} of them as known_python.txt says; "
          f"{time.monotonic() - began:.0f} s; logs in {work / 'logs-memlith'}")
    sys.exit(1 if unknown or not any(outcome == "ok" for outcome, _ in ours.values()) else 0)


if __name__ == "__main__":
    main()
