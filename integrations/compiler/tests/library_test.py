#!/usr/bin/env python3
"""Stores of the C library to a region are recorded, for each function that docs/compiler-pass.md promises."""
import re
import subprocess

from common import HERE, SOURCE, build, end, expect, run, silent

wrapped = re.findall(r"^MEMLITH_WRAPPED\((\w+)\)", (HERE.parent / "runtime" / "wrapped.inc").read_text(), re.M)
page = (SOURCE / "docs" / "compiler-pass.md").read_text()
for level in "-O0", "-O2":
    program, _ = build(HERE / "library.c", "library", level, "-fno-builtin", "-latomic", "-lm", "-Wno-atomic-alignment")
    silent(f"library functions, {level}", run(program))
    names = subprocess.run([program], capture_output=True, text=True, check=True).stdout.split()
    missing = [name for name in wrapped if not name.startswith("_Z") and name not in names]
    expect("each function has a case", not missing, " ".join(missing))
missing = [name for name in wrapped if not name.startswith("_") and f"`{name}`" not in page]
expect("docs/compiler-pass.md lists each function", not missing, " ".join(missing))
program, _ = build(HERE / "library.c", "library", "-O2", "-latomic", "-lm", "-Wno-atomic-alignment")
silent("library functions, as the optimiser knows them", run(program))
end()
