"""`python -m memlith`: the version, and what this kernel supports."""

import sys

import numpy

from . import _core
from ._store import _TRACKERS


def main() -> int:
    print(f"memlith {_core.version()}, Python {sys.version.split()[0]}, NumPy {numpy.__version__}")
    for name, number in _TRACKERS.items():
        print(f"tracker {name}: {_core.describe_tracker(number)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
