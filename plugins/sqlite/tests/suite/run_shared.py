#!/usr/bin/env python3
"""Processes in mode shared, killed and stopped 2,000 times: ./dev soak sqlite-shared [--kills N]."""
import argparse
import pathlib
import subprocess
import sys

options = argparse.ArgumentParser(description=__doc__)
options.add_argument("--plugin", required=True)
options.add_argument("--work", required=True)
options.add_argument("--minutes", type=float, default=0, help="accepted like by every soak program; --kills counts")
options.add_argument("--kills", type=int, default=2000)
given = options.parse_args()
test = pathlib.Path(__file__).resolve().parents[1] / "shared_processes_test.py"
sys.exit(subprocess.run([sys.executable, "-B", test, given.plugin, given.work, str(given.kills)],
                        check=False).returncode)
