#!/usr/bin/env python3
"""SQLAlchemy's tests on database files, with memlith as the default VFS: ./dev soak sqlite-sqlalchemy.

Gets SQLAlchemy's source and pytest from PyPI into an environment of the system's Python, runs its suite for dialects, the tests of SQLite's
dialect, and those of engines, statements and sessions that need a database, with plain SQLite and with the plugin preloaded, each group of
files in a process and a folder of its own, and holds what differs against known_sqlalchemy.txt, which says why.
Exit code 0: nothing else passes on plain SQLite and not on memlith, and every database file was where it should be.
"""
import json
import re
import shutil
import sys
import threading

from beside_plain import HERE, SYSTEM_PYTHON, arguments, call, compare, ending, environment_of, run_for

VERSION = "2.0.58"
# What the tests need; SQLAlchemy itself runs from its source.
PACKAGES = ["pytest==9.2.0", "greenlet==3.5.6", "typing_extensions==4.16.0", "aiosqlite==0.22.1"]
GROUPS = ["dialect/sqlite", "dialect/test_suite.py", "engine", "sql/test_query.py sql/test_resultset.py sql/test_insert_exec.py",
          "sql/test_returning.py sql/test_defaults.py sql/test_types.py sql/test_functions.py", "ext/asyncio",
          "orm/test_transaction.py orm/test_session.py orm/test_unitofwork.py orm/test_unitofworkv2.py orm/test_versioning.py"]
GROUP_SECONDS = 3600


def get_source(work):
    """SQLAlchemy's source, and the Python that has what its tests need."""
    python = work / "venv" / "bin" / "python"
    done = work / "venv" / "packages.txt"
    if not done.exists() or done.read_text(encoding="utf-8").split() != PACKAGES:
        call([SYSTEM_PYTHON, "-m", "venv", "--clear", str(work / "venv")])
        call([python, "-m", "pip", "install", "--quiet", *PACKAGES])
        done.write_text("\n".join(PACKAGES), encoding="utf-8")
    source = work / f"sqlalchemy-{VERSION}"
    if not source.exists():
        call([python, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", "sqlalchemy", f"sqlalchemy=={VERSION}"], cwd=work)
        (work / "unpacked").mkdir(exist_ok=True)
        call(["tar", "-xf", work / f"sqlalchemy-{VERSION}.tar.gz", "-C", work / "unpacked"])
        (work / "unpacked" / source.name).rename(source)  # whole, or not there
    return source, python


class Run:
    def __init__(self, plugin, source, python, work):
        self.plugin, self.source, self.python, self.work = plugin, source, python, work
        self.lock, self.connections = threading.Lock(), {}

    def __call__(self, kind, group):
        label = re.sub(r"\W+", "-", group)
        folder = self.work / "run" / f"{label}-{kind}"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        told = folder / "told.json"
        environment = environment_of(self.plugin if kind == "memlith" else None, TOLD=str(told),
                                     PYTHONPATH=f"{self.source / 'lib'}:{HERE}")
        files = [str(self.source / "test" / file) for file in group.split()]
        command = [self.python, "-m", "pytest", "-c", self.source / "pyproject.toml", "--rootdir", self.source, "-p", "pytest_recorder",
                   "-p", "no:cacheprovider", "--db", "sqlite_file", "--dbdriver", "sqlite", "--dbdriver", "aiosqlite", "--maxfail", "1000000", *files]
        code, text = run_for(GROUP_SECONDS, command, cwd=folder, env=environment)
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
        return {name.removeprefix("test/"): outcome for name, outcome in result["outcomes"].items()} | {f"({group})": ["ok", ""]}

    def misplaced(self):
        """Whether connections to files were not where they should be, or there were none; says how many were where."""
        counts = {kind: {place: self.connections.get((kind, place), 0) for place in ("memlith", "plain", "memory", "unasked")}
                  for kind in ("plain", "memlith")}
        for kind, places in counts.items():
            print(f"{kind}: connections: " + ", ".join(f"{count} {place}" for place, count in places.items()))
        return counts["plain"]["memlith"] or counts["memlith"]["plain"] or not counts["memlith"]["memlith"] or \
            counts["plain"]["unasked"] or counts["memlith"]["unasked"]


def main():
    given = arguments(__doc__)
    source, python = get_source(given.work)
    run = Run(given.plugin, source, python, given.work)
    groups = [group for group in GROUPS if re.search(given.only, group)]
    status = compare(given, groups, run, "known_sqlalchemy.txt")
    if not given.judge and run.misplaced():
        sys.exit("database files were not where they should be: on memlith in the one run, and in the other not")
    sys.exit(status)


if __name__ == "__main__":
    main()
