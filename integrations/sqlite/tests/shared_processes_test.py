#!/usr/bin/env python3
"""Processes in mode shared, plain SQLite beside them, and kill -9, SIGSTOP and ends at random (shared_workers.py).

Usage: shared_processes_test.py PLUGIN FOLDER [KILLS [SEED]]
What was acknowledged has to be there, what was not begun must not, and each worker goes on within the time that its
busy timeout gives it, whichever process was killed.

How long operations were blocked is reported, and not judged: the time from begin to end, without that in which the
thread ran or waited for a processor (/proc/thread-self/schedstat). It contains flushes, and the waits for other
processes, also where these wait for a processor.
"""
import os
import pathlib
import random
import signal
import sys
import tempfile
import time

from shared_workers import ACKNOWLEDGED, DONE, FAULTS, REFUSED, Board, judge, make, start

plugin, kills_wanted = str(pathlib.Path(sys.argv[1]).resolve()), int(sys.argv[3]) if len(sys.argv) > 3 else 40
seed = int(sys.argv[4]) if len(sys.argv) > 4 else int(os.environ.get("MEMLITH_SEED", "0")) or random.randrange(1 << 30)
print(f"seed {seed}: MEMLITH_SEED={seed} replays the choices", flush=True)
random.seed(seed)
if b"__asan_init" in pathlib.Path(plugin).read_bytes() or b"__tsan_init" in pathlib.Path(plugin).read_bytes():
    print("skipped: a sanitizer's runtime has to be the first library of a process")
    sys.exit(77)
pathlib.Path(sys.argv[2]).mkdir(parents=True, exist_ok=True)
folder = pathlib.Path(tempfile.mkdtemp(dir=sys.argv[2]))
path = folder / "app.db"
board = Board("ssocdtnprq")
everyone = range(len(board.kinds))


def await_progress(before, patience=60):
    """Every process has done something since; those that ended are started again."""
    end = time.monotonic() + patience
    while any(now == then for now, then in zip(board.column(DONE), before)) and time.monotonic() < end:
        for i, number in enumerate(numbers):
            if os.waitpid(number, os.WNOHANG)[0] != 0:
                numbers[i] = start(board, i, plugin, path)
        time.sleep(0.001)
    stuck = [f"{i} ({board.kinds[i]})" for i in everyone if board.load(i, DONE) == before[i]]
    if stuck:
        raise SystemExit(f"FAULT: these processes do not go on: {', '.join(stuck)}")


make(path, board.kinds)
numbers = [start(board, i, plugin, path) for i in everyone]
await_progress([0] * len(numbers))
stops, said = 0, time.monotonic()
for kill in range(kills_wanted):
    victims = everyone if kill % 20 == 19 else [random.randrange(len(numbers))]
    time.sleep(random.random() * 0.02)
    if random.random() < 0.1:
        stops += 1
        board.note_stop()
        os.kill(numbers[victims[0]], signal.SIGSTOP)
        before = board.column(DONE)
        time.sleep(0.3)
        os.kill(numbers[victims[0]], signal.SIGCONT)
        board.note_stop()
        await_progress(before)
    before = board.column(DONE)
    for victim in victims:
        os.kill(numbers[victim], signal.SIGKILL)
        os.waitpid(numbers[victim], 0)
    for victim in victims:
        numbers[victim] = start(board, victim, plugin, path)
    if kill % 4 == 3:
        await_progress(before)
    if time.monotonic() > said + 60:
        said = time.monotonic()
        print(f"  {kill + 1} of {kills_wanted} kills, {sum(board.column(FAULTS))} faults", flush=True)
for number in numbers:
    os.kill(number, signal.SIGKILL)
    os.waitpid(number, 0)
wrong, _ = judge(board, path, is_cut=False)
for text in wrong:
    print(f"FAULT: {text}")
print(board.describe_blocked())
print(f"{sum(board.column(REFUSED))} refused because they had read before they wrote")
done = " ".join(f"{kind}:{count}" for kind, count in zip(board.kinds, board.column(DONE)))
faults = sum(board.column(FAULTS)) + len(wrong)
print(f"{kills_wanted} kills, {stops} stops, {done}; {sum(board.column(ACKNOWLEDGED))} commits acknowledged, "
      f"{faults} faults")
sys.exit(0 if faults == 0 else 1)
