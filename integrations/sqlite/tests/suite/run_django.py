#!/usr/bin/env python3
"""Django's own tests on database files, with memlith as the default VFS: ./dev soak sqlite-django.

Gets Django's source from PyPI, and what its tests need into an environment of the system's Python, runs groups of its
tests that are about the database, with plain SQLite and with the plugin preloaded, each group in a process and a folder
of its own, and holds what differs against known_django.txt, which says why. Exit code 0: nothing else passes on plain
SQLite and not on memlith, and every database file was where it should be.
"""
import sys

from beside_plain import RecordedRun, arguments, compare_recorded, get_pypi_source

VERSION = "5.2.19"
# Needed by the tests; Django itself runs from its source.
PACKAGES = ["asgiref==3.13.0", "sqlparse==0.6.1"]
GROUPS = ["backends", "basic bulk_create constraints delete force_insert_update update",
          "transactions transaction_hooks", "schema introspection inspectdb", "migrations migrations2",
          "queries expressions annotations aggregation lookup", "model_fields field_defaults db_functions",
          "fixtures fixtures_regress serializers multiple_database"]
GROUP_SECONDS = 3600


class Run(RecordedRun):
    def __init__(self, given):
        super().__init__(given.plugin, given.work, GROUP_SECONDS)
        self.source, self.python = get_pypi_source(given.work, "django", VERSION, PACKAGES)

    def __call__(self, kind, group):
        command = [self.python, self.source / "tests" / "runtests.py", "--settings", "django_settings", "--parallel",
                   "1", "--noinput", *group.split()]
        return self.start(kind, group, command, self.source)


def main():
    given = arguments(__doc__)
    sys.exit(compare_recorded(given, GROUPS, Run(given), "known_django.txt"))


if __name__ == "__main__":
    main()
