#!/usr/bin/env python3
"""`./dev soak crash`: explores crash states for as long as it is told, with new seeds, and adds up.

Each run is recorded, a line of JSON, in the working folder; --table sums all of them, as docs/testing.md has it.
Exit code: that of `memlith-crashlab run`, so 0 only if there was no violation and every planned fault struck.
"""
from __future__ import annotations

import argparse
import json
import pathlib
import secrets
import subprocess
import sys
import time

RECORD = "results.jsonl"
SUMS = ["states", "distinct_states", "recoveries", "violations", "faults_planned", "faults_fired", "seconds"]


def line_of(rows: list[dict[str, float]]) -> str:
    """The sums, for docs/testing.md. States of two runs may be the same ones: they are distinct in each."""
    total = {name: sum(row[name] for row in rows) for name in SUMS}
    return (f"| {len(rows)} | {total['distinct_states']:,.0f} | {total['states']:,.0f} | {total['recoveries']:,.0f} | "
            f"{total['faults_planned']:,.0f} | {total['violations']:,.0f} | {total['seconds'] / 3600:.1f} h |")


HEAD = ("| runs | distinct states | states | recoveries | faults planned, all struck | violations | took |\n|"
        + "---:|" * 7)


def main() -> int:
    parser = argparse.ArgumentParser(prog="crash_soak", description=(__doc__ or "").split("\n\n", maxsplit=1)[0])
    parser.add_argument("--minutes", type=float, default=10, help="(10)")
    parser.add_argument("--seed", type=int, help="of the first round (drawn, and printed)")
    parser.add_argument("--plot", type=pathlib.Path, metavar="FILE.png", help="draw the report")
    parser.add_argument("--table", action="store_true", help="print what all runs so far came to, and end")
    parser.add_argument("--lab", type=pathlib.Path, required=True, help="memlith-crashlab")
    parser.add_argument("--work", type=pathlib.Path, required=True, help="where results go")
    options, rest = parser.parse_known_args()
    options.work.mkdir(parents=True, exist_ok=True)
    record = options.work / RECORD
    if options.table:
        rows = [json.loads(line) for line in record.read_text(encoding="utf-8").splitlines()] if record.exists() else []
        print(f"{HEAD}\n{line_of(rows)}\n\nseeds: {', '.join(str(row['seed']) for row in rows)}")
        return 0
    # Far from those of the tests, which begin at 1, and of any other soak.
    seed = options.seed if options.seed is not None else 1_000_000 + secrets.randbelow(1 << 40)
    print(f"seed {seed}, {options.minutes:g} minutes", file=sys.stderr)
    command = [str(options.lab), "run", "--minutes", str(options.minutes), "--seed", str(seed), "--json", *rest]
    if options.plot:
        command += ["--plot", str(options.plot)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    if not done.stdout:
        return done.returncode or 1
    report = json.loads(done.stdout)
    row = {"seed": seed, "day": time.strftime("%Y-%m-%d", time.gmtime()), **{name: report[name] for name in SUMS}}
    with record.open("a", encoding="utf-8") as file:
        file.write(json.dumps(row) + "\n")
    print(f"{HEAD}\n{line_of([row])}\n")
    print(json.dumps(row))
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
