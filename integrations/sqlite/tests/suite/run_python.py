#!/usr/bin/env python3
"""Python's own tests of its sqlite3 module with memlith as the default VFS: ./dev soak sqlite-python.

Gets them from Debian's source of the system's Python (no package has them), runs each class of tests in a process and a
folder of its own, with plain SQLite and with the plugin preloaded, and holds what differs against known_python.txt,
which says why. Exit code 0: nothing else passes on plain SQLite and not on memlith.
"""
import collections
import json
import re
import shutil
import sys
import tarfile

from beside_plain import SYSTEM_PYTHON, arguments, call, compare, ending, environment_of, get_debian_source, run_for

PACKAGE = "test.test_sqlite3"
CLASS_SECONDS = 600
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
    names = [f"test.test_sqlite3.{name}" for name in modules]
    told = {each.id(): [] for each in flat(unittest.defaultTestLoader.loadTestsFromNames(names))}
print("\\nTOLD " + json.dumps(told))
"""


def get_source(work):
    """The folder to import Python's `test` from: what its package test_sqlite3 needs, out of Debian's source."""
    library = work / "Lib"
    if (library / "test" / "test_sqlite3").exists():
        return library
    version = call([SYSTEM_PYTHON, "-c", "import sys; print('python%d.%d' % sys.version_info[:2])"]).strip()
    get_debian_source(work, version, "--download-only")
    wanted = re.compile(r"[^/]+/Lib/(test/(?:__init__\.py|support/.*|test_sqlite3/.*))")
    with tarfile.open(next(work.glob(f"{version}_*.orig.tar.*"))) as archive:
        for member in archive:
            if member.isfile() and (match := wanted.fullmatch(member.name)) and ".." not in member.name:
                target = work / "Lib.part" / match[1]
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(archive.extractfile(member).read())
    (work / "Lib.part").rename(library)  # whole, or not there
    return library


class Run:
    def __init__(self, plugin, library, work):
        self.plugin, self.library, self.work = plugin, library, work

    def start(self, kind, names, label):
        """{name: outcome} of the tests named, or of no names, a list of all; None of a process that ended before it
        told, and how."""
        folder = self.work / "run" / f"{label}-{kind}"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        environment = environment_of(self.plugin if kind == "memlith" else None, PYTHONPATH=str(self.library))
        code, text = run_for(CLASS_SECONDS, [SYSTEM_PYTHON, "-c", INSIDE, kind, *names], cwd=folder, env=environment)
        shutil.rmtree(folder, ignore_errors=True)
        told = re.search(r"^TOLD (.*)$", text, re.M)
        outcomes = json.loads(told[1]) if told else None
        failures = "".join(f"\n== {name}\n{each[1]}" for name, each in (outcomes or {}).items() if each
                           and each[0] == "failed")
        logs = self.work / f"logs-{kind}"
        logs.mkdir(exist_ok=True)
        (logs / f"{label}.log").write_text(text + f"\nexit code {code}\n" + failures, encoding="utf-8")
        return outcomes, ending(code)

    def __call__(self, kind, group):
        label, names = group
        told, ended = self.start(kind, names, label)
        outcomes = {**dict.fromkeys(names, ["not reached" if told is not None else ended, ""]), **(told or {})}
        return {name.removeprefix(PACKAGE + "."): outcome for name, outcome in outcomes.items()}


def main():
    given = arguments(__doc__)
    run = Run(given.plugin, get_source(given.work), given.work)
    listed, _ = run.start("plain", [], "list")
    if listed is None or run.start("memlith", [], "list")[0] is None:
        sys.exit(f"the plugin is not the default VFS of {SYSTEM_PYTHON}, or is without it: see "
                 f"{given.work}/logs-*/list.log")
    classes = collections.defaultdict(list)
    for name in listed:
        if re.search(given.only, name):
            classes[name.rpartition(".")[0].removeprefix(PACKAGE + ".")].append(name)
    sys.exit(compare(given, classes.items(), run, "known_python.txt"))


if __name__ == "__main__":
    main()
