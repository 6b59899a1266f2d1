#!/usr/bin/env python3
"""Every line of refused.cpp that constructs a type which cannot live in a heap is refused, with the reason.

Usage: refused.py SOURCE INCLUDE COMPILER
"""
import pathlib
import re
import subprocess
import sys

source, include, compiler = sys.argv[1:]
lines = pathlib.Path(source).read_text(encoding="utf-8").splitlines()
wanted = {number for number, line in enumerate(lines, 1) if "construct<" in line and not line.startswith("//")}
assert len(wanted) >= 15, "refused.cpp has lost its lines"
limit = "-ferror-limit=0" if "clang" in compiler else "-fmax-errors=0"
done = subprocess.run([compiler, "-std=c++20", f"-I{include}", "-fsyntax-only", limit, source], capture_output=True,
                      text=True, check=False)
reason = "an object of this type cannot live in a heap"
# The compiler names the line before the assertion (gcc) or after it (clang).
found, place, pending = set(), None, False
for line in done.stderr.splitlines():
    at = re.match(rf"{re.escape(source)}:(\d+):", line)
    if at and int(at.group(1)) in wanted:
        place = int(at.group(1))
        if "clang" in compiler and pending:
            found.add(place)
    if "static assertion failed" in line or "static_assert failed" in line:
        pending = reason in line
        if "clang" not in compiler and pending and place is not None:
            found.add(place)
for number in sorted(wanted - found):
    print(f"{source}:{number}: compiles, or is refused for another reason: {lines[number - 1]}")
sys.exit(1 if done.returncode == 0 or wanted != found else 0)
