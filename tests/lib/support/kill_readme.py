#!/usr/bin/env python3
"""Kills README.md's program at random moments, again and again: each run has changed everything or nothing.

Every run is given a word of its own, and counts itself under "*". So at any time the words that are there, without
"*", must be as many as the runs counted, and each run that printed its lines must be among them.

Usage: kill_readme.py PROGRAM
"""
import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import time

LIVES = 120
KILLED_MIN = 12

program = str(pathlib.Path(sys.argv[1]).resolve())
folder = pathlib.Path(program).parent / "killed"
shutil.rmtree(folder, ignore_errors=True)
folder.mkdir()
seed = int(os.environ.get("MEMLITH_SEED", random.randrange(1 << 32)))
print(f"seed {seed}")
draw = random.Random(seed)


def counts(output):
    """The program's output, as a word's number of runs."""
    return {word: int(rest.split()[0]) for word, rest in (line.split(": ") for line in output.splitlines())}


def check(found, acknowledged, started):
    words = set(found) - {"*"}
    assert found["*"] == len(words), f"{found['*']} runs are counted, and {len(words)} words are there"
    assert acknowledged <= words, f"lost: {sorted(acknowledged - words)}"
    assert words <= started, f"never given: {sorted(words - started)}"
    assert all(found[word] == 1 for word in words), found


acknowledged, started = set(), set()
killed = 0
usual_seconds = 0.01
for life in range(LIVES):
    word = f"word-{life}-" + "x" * draw.randrange(100)
    started.add(word)
    began = time.monotonic()
    with subprocess.Popen([program, word], cwd=folder, stdout=subprocess.PIPE, text=True) as run:
        if life % 4 != 0:
            time.sleep(draw.random() * 1.2 * usual_seconds)
            run.send_signal(signal.SIGKILL)
        output = run.stdout.read()
    if run.returncode == 0:
        usual_seconds += (time.monotonic() - began - usual_seconds) / 4
        acknowledged.add(word)
        check(counts(output), acknowledged, started)
    else:
        assert run.returncode == -signal.SIGKILL, f"life {life} ended with {run.returncode} and printed {output}"
        killed += 1
assert killed >= KILLED_MIN, f"only {killed} of {LIVES} runs were killed before their end"
print(f"{killed} of {LIVES} runs were killed; {len(acknowledged)} were acknowledged, {len(started)} started")
