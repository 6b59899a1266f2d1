#!/usr/bin/env python3
"""Thread scope on instrumented regions: side by side, with threads that end, signal handlers and forked children."""
from common import FOLDER, HERE, build, end, run, silent

for level in "-O0", "-O2", "-O3":
    program, _ = build(HERE / "threads.c", "threads", level)
    for part in "contend", "end", "end-all", "signals", "meanwhile", "fork":
        (FOLDER / "store.notes").unlink(missing_ok=True)
        silent(f"{part}, {level}", run(program, part, verify=False))
        silent(f"{part}, {level}, what was persisted", run(program, part, "check", keep=True, verify=False))
end()
