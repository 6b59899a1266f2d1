#!/usr/bin/env python3
"""Processes in mode shared and on plain SQLite: ./dev soak sqlite-shared.

Kills and stops them 20,000 times (--kills N), then cuts the power under them 2,000 times (--cuts N), after mutants
of the plugin were noticed in the same way. With one of the two options, only that is done.
"""
import argparse
import pathlib
import subprocess
import sys

MUTANTS = ["shared_skip_commit_wait", "shared_skip_reader_wait", "shared_look_after_flush"]

options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
options.add_argument("--plugin", required=True, type=pathlib.Path)
options.add_argument("--work", required=True, type=pathlib.Path)
options.add_argument("--minutes", type=float, default=0, help="accepted like by every soak program; the counts count")
options.add_argument("--kills", type=int)
options.add_argument("--cuts", type=int)
given = options.parse_args()
if given.kills is None and given.cuts is None:
    given.kills, given.cuts = 20000, 2000
tests = pathlib.Path(__file__).resolve().parents[1]
build = given.plugin.resolve().parents[1]
code = 0
if given.kills:
    code = subprocess.run([sys.executable, "-B", tests / "shared_processes_test.py", given.plugin, given.work,
                           str(given.kills)], check=False).returncode
if given.cuts and code == 0:
    code = subprocess.run([sys.executable, "-B", tests / "shared_power_test.py", "--plugin", given.plugin,
                           "--mutant-plugin", build / "lib/mutants/memlith_sqlite.so", "--mutants", *MUTANTS,
                           "--bin", build / "bin", "--rig", tests.parents[2] / "tests/power/rig", "--work",
                           given.work / "power", "--cuts", str(given.cuts)], check=False).returncode
sys.exit(code)
