"""Settings for Django's own tests in the runs beside plain SQLite: databases in files, of which one process has
connections.

`runtests.py --settings=django_settings` with the environment variables TOLD, as in pytest_recorder.py, and DATABASES, a
folder.
"""
import json
import os
import unittest

from django.test.runner import DiscoverRunner
from pytest_recorder import connections

DATABASES = {name: {"ENGINE": "django.db.backends.sqlite3",
                    "TEST": {"NAME": os.path.join(os.environ["DATABASES"], name + ".sqlite3")}}
             for name in ("default", "other")}
SECRET_KEY = "of no account"
PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
DEFAULT_AUTO_FIELD = "django.db.models.AutoField"
USE_TZ = False
TEST_RUNNER = "django_settings.Runner"


class Recorder(unittest.TextTestResult):
    """The result of each test; the worst of its subtests."""
    def __init__(self, *args, **more):
        super().__init__(*args, **more)
        self.told = {}

    def note(self, test, outcome, why=""):
        # A class or a module that cannot be set up has no tests, but an error that names it.
        name = test.test_case.id() if hasattr(test, "test_case") else test.id()
        if self.told.get(name, ["ok"])[0] in ("ok", "skipped"):
            self.told[name] = [outcome, why]

    def addSuccess(self, test):
        super().addSuccess(test)
        self.note(test, "ok")

    def addExpectedFailure(self, test, err):
        super().addExpectedFailure(test, err)
        self.note(test, "ok")

    def addSkip(self, test, reason):
        super().addSkip(test, reason)
        self.note(test, "skipped", reason)

    def addUnexpectedSuccess(self, test):
        super().addUnexpectedSuccess(test)
        self.note(test, "failed", "unexpected success")

    def addFailure(self, test, err):
        super().addFailure(test, err)
        self.note(test, "failed", self._exc_info_to_string(err, test))

    def addError(self, test, err):
        super().addError(test, err)
        self.note(test, "failed", self._exc_info_to_string(err, test))

    def addSubTest(self, test, subtest, err):
        super().addSubTest(test, subtest, err)
        if err is not None:
            self.note(test, "failed", self._exc_info_to_string(err, test))


class Runner(DiscoverRunner):
    def get_resultclass(self):
        return Recorder

    def suite_result(self, suite, result, **more):
        with open(os.environ["TOLD"], "w", encoding="utf-8") as file:
            json.dump({"outcomes": result.told, "connections": connections}, file)
        return super().suite_result(suite, result, **more)
