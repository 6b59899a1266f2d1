#!/usr/bin/env python3
"""Processes that write to one database and are killed 500 times: ./dev soak sqlite-processes [--kills N]."""
import argparse
import pathlib
import subprocess
import sys

options = argparse.ArgumentParser(description=__doc__)
options.add_argument("--plugin", required=True)
options.add_argument("--work", required=True)
options.add_argument("--minutes", type=float, default=0, help="accepted like by every soak program; --kills counts")
options.add_argument("--kills", type=int, default=500)
given = options.parse_args()
test = pathlib.Path(__file__).resolve().parents[1] / "processes_test.py"
sys.exit(subprocess.run([sys.executable, "-B", test, given.plugin, given.work, str(given.kills)],
                        check=False).returncode)
