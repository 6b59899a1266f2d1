#!/usr/bin/env python3
"""diskcache's own tests, with memlith as the default VFS: ./dev soak sqlite-diskcache.

Gets diskcache's source and pytest from PyPI into an environment of the system's Python and runs the tests of its
caches, deques, indexes and recipes, with their threads and processes, with plain SQLite and with the plugin preloaded,
and holds what differs against known_diskcache.txt. Exit code 0: nothing else passes on plain SQLite and not on memlith.
"""
import sys

from beside_plain import SETTINGS, RecordedRun, arguments, compare_recorded, get_pypi_source

VERSION = "5.6.3"
PACKAGES = ["pytest==9.2.0"]
GROUPS = [f"test_{name}.py" for name in ("core", "deque", "fanout", "index", "recipes")]
GROUP_SECONDS = 1800


class Run(RecordedRun):
    def __init__(self, given):
        super().__init__(given.plugin, given.work, GROUP_SECONDS)
        self.source, self.python = get_pypi_source(given.work, "diskcache", VERSION, PACKAGES)

    def __call__(self, kind, group):
        # diskcache puts its caches into folders of tempfile's.
        command = ["sh", "-c", 'TMPDIR=$PWD exec "$@"', "sh", self.python, "-m", "pytest", "--rootdir", self.source,
                   "-p", "pytest_recorder", "-p", "no:cacheprovider", "-o", "addopts=", self.source / "tests" / group]
        outcomes = self.start(kind, group, command, self.source)
        return {name.removeprefix("tests/"): outcome for name, outcome in outcomes.items()}


def main():
    given = arguments(__doc__)
    del SETTINGS["MEMLITH_SQLITE_SHARE"]  # the default: its databases are in WAL mode, and used by processes
    sys.exit(compare_recorded(given, GROUPS, Run(given), "known_diskcache.txt"))


if __name__ == "__main__":
    main()
