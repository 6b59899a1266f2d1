"""Golden stores of the Python package, which earlier builds wrote (tests/golden): opened, compared, and changed."""

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
    ended = subprocess.run([sys.executable, GOLDEN / "golden_python.py", "check", folder], capture_output=True,
                           text=True, check=False)
    assert ended.returncode == 0, ended.stderr
