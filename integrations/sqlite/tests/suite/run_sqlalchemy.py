#!/usr/bin/env python3
"""SQLAlchemy's tests on database files, with memlith as the default VFS: ./dev soak sqlite-sqlalchemy.

Gets SQLAlchemy's source and pytest from PyPI into an environment of the system's Python, runs its suite for dialects,
the tests of SQLite's dialect, and those of engines, statements and sessions that need a database, with plain SQLite and
with the plugin preloaded, each group of files in a process and a folder of its own, and holds what differs against
known_sqlalchemy.txt, which says why. Exit code 0: nothing else passes on plain SQLite and not on memlith, and every
database file was where it should be.
"""
import sys

from beside_plain import RecordedRun, arguments, compare_recorded, get_pypi_source

VERSION = "2.0.58"
# Needed by the tests; SQLAlchemy itself runs from its source.
PACKAGES = ["pytest==9.2.0", "greenlet==3.5.6", "typing_extensions==4.16.0", "aiosqlite==0.22.1"]
GROUPS = ["dialect/sqlite", "dialect/test_suite.py", "engine",
          "sql/test_query.py sql/test_resultset.py sql/test_insert_exec.py",
          "sql/test_returning.py sql/test_defaults.py sql/test_types.py sql/test_functions.py", "ext/asyncio",
          "orm/test_transaction.py orm/test_session.py orm/test_unitofwork.py orm/test_unitofworkv2.py "
          "orm/test_versioning.py"]
GROUP_SECONDS = 3600


class Run(RecordedRun):
    def __init__(self, given):
        super().__init__(given.plugin, given.work, GROUP_SECONDS)
        self.source, self.python = get_pypi_source(given.work, "sqlalchemy", VERSION, PACKAGES)

    def __call__(self, kind, group):
        files = [str(self.source / "test" / file) for file in group.split()]
        command = [self.python, "-m", "pytest", "-c", self.source / "pyproject.toml", "--rootdir", self.source, "-p",
                   "pytest_recorder", "-p", "no:cacheprovider", "--db", "sqlite_file", "--dbdriver", "sqlite",
                   "--dbdriver", "aiosqlite", "--maxfail", "1000000", *files]
        outcomes = self.start(kind, group, command, self.source / "lib")
        return {name.removeprefix("test/"): outcome for name, outcome in outcomes.items()}


def main():
    given = arguments(__doc__)
    sys.exit(compare_recorded(given, GROUPS, Run(given), "known_sqlalchemy.txt"))


if __name__ == "__main__":
    main()
