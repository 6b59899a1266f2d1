"""Shared by the runs of other projects' tests on memlith: where their sources come from, and the comparison with the
same tests on plain SQLite, or on what else is under test.

An outcome of a test is a list of two texts: `ok`, `skipped`, `failed`, or how its process ended before telling (see
`ending`), and why.
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
import threading
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[3] / "bench/kit"))
from debian_source import call, get_debian_source  # noqa: E402  (found through the line above)

SYSTEM_PYTHON = "/usr/bin/python3"  # its sqlite3 is Debian's SQLite, with which the plugin is tested
NAMED = ("crashed", "hung")  # excused only by an expression that says so
SETTINGS = {"MEMLITH_SQLITE_LOG_MIB": "1"}  # of memlith, where it is used


def python_with(work, needed):
    """A Python in the folder `work` that has these packages of PyPI."""
    python = work / "venv" / "bin" / "python"
    done = work / "venv" / "packages.txt"
    if not done.exists() or done.read_text(encoding="utf-8").split() != needed:
        call([SYSTEM_PYTHON, "-m", "venv", "--clear", str(work / "venv")])
        call([python, "-m", "pip", "install", "--quiet", *needed])
        done.write_text("\n".join(needed), encoding="utf-8")
    return python


def get_pypi_source(work, package, version, needed):
    """A package's source from PyPI, in the folder `work`, and a Python that has what is needed beside it."""
    python = python_with(work, needed)
    source = work / f"{package}-{version}"
    if not source.exists():
        call([python, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", package,
              f"{package}=={version}"], cwd=work)
        (work / "unpacked").mkdir(exist_ok=True)
        call(["tar", "-xf", work / f"{package}-{version}.tar.gz", "-C", work / "unpacked"])
        (work / "unpacked" / source.name).rename(source)  # whole, or not there
    return source, python


def environment_of(plugin, **more):
    """The environment of a Python program that is to run on memlith, or with plugin None, on plain SQLite, whatever the
    caller's is."""
    environment = {name: value for name, value in os.environ.items()
                   if not name.startswith(("MEMLITH_", "LD_", "PYTHON"))}
    environment |= {"PYTHONDONTWRITEBYTECODE": "1", **more}
    if plugin:
        environment |= {"LD_PRELOAD": plugin, **SETTINGS}
    return environment


def run_for(seconds, command, **more):
    """The exit code, `timeout` if there is none after so long, and what the program printed."""
    try:
        done = subprocess.run(command, text=True, errors="replace", stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, timeout=seconds, check=False, **more)
        return done.returncode, done.stdout
    except subprocess.TimeoutExpired as late:
        return "timeout", late.stdout.decode(errors="replace") if isinstance(late.stdout, bytes) else late.stdout or ""


def ending(code):
    """How a program ended that should have told more: `hung`, `crashed` (by a signal), or just `ended`."""
    if code == "timeout":
        return "hung"
    return "crashed" if code < 0 or code >= 128 else "ended"


def arguments(description):
    """The arguments of such a run, its folder `work` there."""
    options = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--plugin", required=True)
    options.add_argument("--work", required=True, type=pathlib.Path, help="where sources, programs and logs go")
    options.add_argument("--minutes", type=float, default=0,
                         help="accepted like by every soak program; the tests run once")
    options.add_argument("--only", default="", help="a regular expression for the names of tests, or of files of them")
    options.add_argument("--jobs", type=int, default=os.cpu_count())
    options.add_argument("--judge", action="store_true",
                         help="run nothing; hold the outcomes of the last run against the reasons again")
    options.add_argument("--share", action="store_true", help="memlith in mode shared, with reasons of its own")
    given = options.parse_args()
    SETTINGS["MEMLITH_SQLITE_SHARE"] = "1" if given.share else "0"
    given.work = given.work.resolve()
    given.work.mkdir(parents=True, exist_ok=True)
    given.plugin = str(pathlib.Path(given.plugin).resolve())
    return given


def compare(given, groups, run, reasons_file):
    """Runs the groups, `run(kind, group)` giving the outcomes by name of each, both on plain SQLite and on memlith, and
    reports.

    The exit code of the program: 0 if nothing passes on plain SQLite and not on memlith, but for what the file of
    reasons says.
    """
    began, outcomes = time.monotonic(), {"plain": {}, "memlith": {}}
    kept = given.work / ("outcomes-shared.json" if given.share else "outcomes.json")
    reasons_file = reasons_of(given, reasons_file)
    if given.judge:
        outcomes = json.loads(kept.read_text(encoding="utf-8"))
    else:
        with concurrent.futures.ThreadPoolExecutor(given.jobs) as pool:
            for each in pool.map(lambda group: {kind: run(kind, group) for kind in outcomes}, groups):
                for kind, told in each.items():
                    outcomes[kind] |= told
        kept.write_text(json.dumps(outcomes), encoding="utf-8")
    status = report(outcomes["plain"], outcomes["memlith"], reasons_file, whole=not given.only)
    print(f"{time.monotonic() - began:.0f} s; logs in {given.work / 'logs-memlith'} and {given.work / 'logs-plain'}")
    return status


class RecordedRun:
    """Runs groups of tests in Python that write down themselves what became of each, and where their connections were,
    in the file TOLD."""
    def __init__(self, plugin, work, seconds):
        self.plugin, self.work, self.seconds = plugin, work, seconds
        self.lock, self.connections = threading.Lock(), {}

    def start(self, kind, group, command, python_path, **environment):
        """The outcomes by name of a group of tests, which `command` runs, in a process and a folder of its own."""
        label = re.sub(r"\W+", "-", group)
        folder = self.work / "run" / f"{label}-{kind}"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        told = folder / "told.json"
        environment |= {"TOLD": str(told), "DATABASES": str(folder), "PYTHONPATH": f"{python_path}:{HERE}"}
        if SETTINGS.get("MEMLITH_SQLITE_SHARE") == "1":
            environment["JOURNAL_MODE"] = "wal"  # on plain SQLite, too; in others mode shared is plain SQLite
        code, text = run_for(self.seconds, command, cwd=folder,
                             env=environment_of(self.plugin if kind == "memlith" else None, **environment))
        logs = self.work / f"logs-{kind}"
        logs.mkdir(exist_ok=True)
        (logs / f"{label}.log").write_text(f"{text}\nexit code {code}\n", encoding="utf-8")
        if not told.exists():
            return {f"({group})": [ending(code), text[-300:]]}
        result = json.loads(told.read_text(encoding="utf-8"))
        with self.lock:
            for place, count in result["connections"].items():
                self.connections[kind, place] = self.connections.get((kind, place), 0) + count
        shutil.rmtree(folder, ignore_errors=True)
        return result["outcomes"] | {f"({group})": ["ok", ""]}

    def misplaced(self):
        """True if connections to files were not where they should be, or there were none; says how many were where."""
        counts = {kind: {place: self.connections.get((kind, place), 0)
                         for place in ("memlith", "plain", "memory", "unasked")}
                  for kind in ("plain", "memlith")}
        for kind, places in counts.items():
            print(f"{kind}: connections: " + ", ".join(f"{count} {place}" for place, count in places.items()))
        return counts["plain"]["memlith"] or counts["memlith"]["plain"] or not counts["memlith"]["memlith"] or \
            counts["plain"]["unasked"] or counts["memlith"]["unasked"]


def compare_recorded(given, groups, run, reasons_file):
    """The same as compare() for a RecordedRun, of the groups that are asked for; says besides if connections were
    misplaced."""
    status = compare(given, [group for group in groups if re.search(given.only, group)], run, reasons_file)
    if not given.judge and run.misplaced():
        sys.exit("database files were not where they should be: on memlith in the one run, and in the other not")
    return status


def reasons_of(given, file):
    """The file of reasons: of known.txt, in mode shared, known_shared.txt."""
    return file.replace("known", "known_shared", 1) if given.share else file


def read_reasons(file):
    """[(regular expression, reason)]: a line that begins with a blank is an expression, and the reason is the last line
    that does not."""
    found, reason = [], ""
    for line in (HERE / file).read_text(encoding="utf-8").splitlines():
        if line.startswith(" "):
            found.append((line.strip(), reason))
        elif not line.startswith("#"):
            reason = line
    return found


def report(plain, ours, reasons_file, whole):
    """Tells what differs in the outcomes by name, and why. The exit code of the program, as of compare(). `whole`: all
    tests were run."""
    for kind, outcomes in (("plain", plain), ("memlith", ours)):
        counts = collections.Counter(outcome for outcome, _ in outcomes.values())
        print(f"{kind}: {len(outcomes)} tests, "
              + ", ".join(f"{count} {outcome}" for outcome, count in sorted(counts.items())))
    # A test that is skipped only here, or was not reached, was not passed here; one that is there only here has to
    # pass.
    told = {name: ours.get(name, ["not reached", ""]) for name, (outcome, _) in plain.items() if outcome == "ok"}
    told |= {name: each for name, each in ours.items() if name not in plain and each[0] != "skipped"}
    differing = {name: each for name, each in told.items() if each[0] != "ok"}
    reasons, used, unknown = read_reasons(reasons_file), set(), 0
    by_reason = collections.Counter()
    for name, (outcome, why) in differing.items():
        said = [f"{name}: {outcome}"]
        if outcome not in NAMED:
            said += [name, f"{name}: {why.splitlines()[0] if why else ''}"]
        pattern, reason = next((each for each in reasons if any(re.fullmatch(each[0], text) for text in said) and
                                (outcome not in NAMED or each[0].endswith(": " + outcome))), (None, None))
        if pattern is None:
            unknown += 1
            print(f"NEW {name}: {outcome}; {why.strip()[-300:]}")
        else:
            used.add(pattern)
            by_reason[reason] += 1
    for reason, count in by_reason.most_common():
        print(f"known {count}: {reason}")
    for pattern, _ in reasons:
        if whole and pattern not in used:
            print(f"{reasons_file} names {pattern}, which does not differ")
    print(f"{len(differing)} pass plain and not on memlith, {len(differing) - unknown} of them as {reasons_file} says")
    return 1 if unknown or not any(outcome == "ok" for outcome, _ in ours.values()) else 0
