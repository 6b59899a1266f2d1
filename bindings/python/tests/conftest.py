import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import textwrap
from typing import Iterator

import hypothesis
import pytest

# MEMLITH_SEED replays a run. No deadline: a busy machine fails no test.
hypothesis.settings.register_profile("memlith", deadline=None, derandomize="MEMLITH_SEED" not in os.environ,
                                     suppress_health_check=list(hypothesis.HealthCheck))
hypothesis.settings.load_profile("memlith")


@pytest.fixture
def folder() -> Iterator[pathlib.Path]:
    """A folder on a disk: temporary folders can lie in memory."""
    parent = os.environ.get("MEMLITH_TEST_DIR")
    if parent:
        os.makedirs(parent, exist_ok=True)
    made = pathlib.Path(tempfile.mkdtemp(prefix="python.", dir=parent))
    yield made
    shutil.rmtree(made, ignore_errors=True)


class Program:
    """A Python program in a process of its own."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.folder = folder

    def start(self, text: str, *arguments: object) -> "subprocess.Popen[str]":
        return subprocess.Popen([sys.executable, "-c", textwrap.dedent(text), *map(str, arguments)], cwd=self.folder,
                                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def run(self, text: str, *arguments: object) -> "subprocess.CompletedProcess[str]":
        process = self.start(text, *arguments)
        out, err = process.communicate()
        return subprocess.CompletedProcess(process.args, process.returncode, out, err)


def kill(process: "subprocess.Popen[str]") -> "list[str]":
    """Kills a program, and returns the whole lines that were not read yet. (communicate() loses what readline() had
    read ahead.)"""
    assert process.stdout is not None
    process.kill()
    lines = process.stdout.read().split("\n")[:-1]  # what follows the last newline was cut off
    process.communicate()
    return lines


@pytest.fixture
def program(folder: pathlib.Path) -> Program:
    return Program(folder)
