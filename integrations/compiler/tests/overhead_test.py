#!/usr/bin/env python3
"""`./dev bench instrumented` with the least that it does: every side has its lines, and the share of the stores that
are recorded is told. No test looks at a time.

Usage: overhead_test.py BUILD SOURCE
Ends with 77 without memlith-gcc.
"""
import json
import shutil
import subprocess
import sys

from common import BUILD, FOLDER, SOURCE, end, expect

PLACES = {"heap": ["clang", "memlith-cc", "gcc", "memlith-gcc"]}
PLACES["region"] = [*PLACES["heap"], "memlith-cc, empty calls", "memlith-cc, checks only"]

if not (BUILD / "bin/memlith-gcc").exists():
    print("left out: memlith-gcc is not built")
    shutil.rmtree(FOLDER, ignore_errors=True)
    sys.exit(77)
done = subprocess.run([sys.executable, "-B", SOURCE / "bench/run.py", "--bin", BUILD / "bin", "instrumented",
                       "--operations", "1000", "--size", "0", "--rounds", "1", "--dir", FOLDER, "--json"],
                      capture_output=True, text=True, check=False)
said = done.stdout + done.stderr
expect("the benchmark ends well", done.returncode == 0, said)
rows = [json.loads(line) for line in done.stdout.splitlines()]
shares = [row for row in rows if row["suite"] == "instrumented-stores"]
expect("the share of the stores is told once", len(shares) == 1 and shares[0]["workload"] == "key-value store" and
       0 < shares[0]["recorded_percent"] < 100 and shares[0]["checks"] > 0, said)
expect("each side has its lines", [(row["workload"], row["side"]) for row in rows if row["suite"] == "instrumented"] ==
       [(f"{place}, YCSB {mix}", side) for place, sides in PLACES.items() for mix in "AC" for side in sides], said)
expect("nothing stays in the folder", not list(FOLDER.iterdir()), str(list(FOLDER.iterdir())))
end()
