#!/usr/bin/env python3
"""`./dev bench pmdk` with the least that it does: every side has its lines, and what the machine lacks is left out with
a line that says so; on the slow medium, each side waits for pages. No test looks at a time.

Usage: pmdk_test.py BUILD SOURCE
Ends with 77 without libpmemobj-dev.
"""
import json
import pathlib
import shutil
import subprocess
import sys

from common import BUILD, FOLDER, SOURCE, end, expect

FIELDS = ["suite", "side", "workload", "durability", "threads", "medium", "ops_per_s", "p50_us", "p99_us", "p999_us"]
SIDES = ["pmdk", "memlith instrumented", "memlith explicit", "msync 4 KiB"]
MAYBE = ["msync 2 MiB", "msync data=journal"]

if not pathlib.Path("/usr/include/libpmemobj.h").exists():
    print("left out: libpmemobj-dev is not installed")
    shutil.rmtree(FOLDER, ignore_errors=True)
    sys.exit(77)


def bench(*words):
    done = subprocess.run([sys.executable, "-B", SOURCE / "bench/run.py", "--bin", BUILD / "bin", "pmdk", "--suite",
                           "list", "--operations", "20", "--records", "20", "--rounds", "1", "--dir", FOLDER, *words,
                           "--json"], capture_output=True, text=True, check=False)
    return done, done.stdout + done.stderr


done, said = bench("--msync", FOLDER)
expect("the benchmark ends well", done.returncode == 0, said)
rows = [json.loads(line) for line in done.stdout.splitlines()]
here = SIDES + [side for side in MAYBE if any(row["side"] == side for row in rows)]
expect("each side has its lines", [(row["workload"], row["side"]) for row in rows] == [
    (f"list, {what}", side) for what in ("insert", "read all", "delete") for side in here], said)
expect("each line has its fields", all(list(row) == FIELDS and row["ops_per_s"] > 0 for row in rows), said)
expect("what is left out is said", (len(here) == len(SIDES + MAYBE)) == ("left out" not in done.stderr), said)
done, said = bench("--slow-ns", "1000", "--cache-mib", "1", "--sides", "instrumented")
if "no slow medium: userfaultfd" in said:
    print("left out: the slow medium, which takes root and Linux 5.14")
else:
    expect("the slow medium ends well", done.returncode == 0, said)
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    expect("each side waits for pages", [row["side"] for row in rows if row["workload"] == "list, insert" and
                                         row["medium"] == "slow" and row["slow_pages"] > 0] == SIDES[:2], said)
expect("nothing stays in the folder", not list(FOLDER.iterdir()), str(list(FOLDER.iterdir())))
end()
