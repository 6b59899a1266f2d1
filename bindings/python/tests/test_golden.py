"""Golden stores of the Python package, which earlier builds wrote (tests/golden): opened, compared, and changed."""

import os
import pathlib
import subprocess
import sys
import tarfile

import pytest

GOLDEN = pathlib.Path(__file__).resolve().parents[3] / "tests" / "golden"
PACKED = sorted(GOLDEN.glob("*/python*.tar.xz"))


def test_there_are_a_clean_and_a_crashed_one() -> None:
    assert {"python.tar.xz", "python-crashed.tar.xz"} <= {path.name for path in PACKED}


@pytest.mark.parametrize("packed", PACKED, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_it_holds_what_was_stored(folder: pathlib.Path, packed: pathlib.Path) -> None:
    with tarfile.open(packed) as archive:
        archive.extractall(folder)
    if "crashed" in packed.name:  # the files are copies of a store that was not closed
        command = os.environ.get("MEMLITH_COMMAND")
        if command is None:
            pytest.skip("MEMLITH_COMMAND does not name the command `memlith`")
        for store in "store", "checkpoint":
            subprocess.run([command, "recover", "--accept-copy", folder / store], capture_output=True, check=True)
    ended = subprocess.run([sys.executable, GOLDEN / "golden_python.py", "check", folder], capture_output=True,
                           text=True, check=False)
    assert ended.returncode == 0, ended.stderr
