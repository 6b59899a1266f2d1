#!/usr/bin/env python3
"""Processes in mode shared, plain SQLite beside them, and kill -9, SIGSTOP and ends at random.

Usage: shared_processes_test.py PLUGIN FOLDER [KILLS [SEED]]
Each worker moves an amount between two accounts and counts its commits in a row of its own. What was acknowledged has
to be there, what was not begun must not, the accounts' sum is 0 in every read, and each worker goes on within the time
that its busy timeout gives it, whoever was killed.
"""
import ctypes
import mmap
import os
import pathlib
import random
import signal
import sqlite3
import sys
import tempfile
import time

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

# Each letter is a process: s shared, o shared with a connection for each transaction, c shared with checkpoints,
# p plain, r a shared reader, q a plain reader.
KINDS = "ssocprqs"
ACCOUNTS = 200
# For each process: begun, acknowledged, operations, faults. (struct.pack_into() would show a zero in between.)
board = memoryview(mmap.mmap(-1, 8 * 4 * len(KINDS))).cast("Q")
BEGUN, ACKNOWLEDGED, DONE, FAULTS = range(4)


def load(worker, what):
    return board[4 * worker + what]


def store(worker, what, value):
    board[4 * worker + what] = value


def connect(kind):
    shared = kind not in "pq"
    uri = f"file:{path}?vfs=memlith&share=1" if shared else f"file:{path}?vfs=unix"
    db = sqlite3.connect(uri, uri=True, timeout=30, isolation_level=None)
    db.execute("pragma synchronous=full")
    if kind == "s":
        db.execute("pragma wal_autocheckpoint=100")
    return db


def fault(me, text):
    print(f"FAULT: process {me} ({KINDS[me]}): {text}", flush=True)
    store(me, FAULTS, load(me, FAULTS) + 1)


def read(me, db):
    low = [load(i, ACKNOWLEDGED) for i in range(len(KINDS))]
    db.execute("begin")
    total = db.execute("select sum(v) from account").fetchone()[0]
    counts = [row[0] for row in db.execute("select n from worker order by id")]
    db.execute("commit")
    high = [load(i, BEGUN) for i in range(len(KINDS))]
    if total != 0:
        fault(me, f"the sum is {total}")
    for i, count in enumerate(counts):
        if not low[i] <= count <= high[i]:
            fault(me, f"worker {i} ({KINDS[i]}) acknowledged {low[i]}, began {high[i]}, and is shown as {count}")


def write(me, db, choose):
    next_one = load(me, BEGUN) + 1
    store(me, BEGUN, next_one)
    one, other = choose.randrange(ACCOUNTS), choose.randrange(ACCOUNTS)
    try:
        db.execute("begin immediate")
        db.execute("update account set v = v - 1 where id = ?", (one,))
        db.execute("update account set v = v + 1 where id = ?", (other,))
        db.execute("update worker set n = ? where id = ?", (next_one, me))
        db.execute("commit")
    except sqlite3.OperationalError as error:
        fault(me, f"{error}")
        if db.in_transaction:
            db.execute("rollback")
        return
    store(me, ACKNOWLEDGED, next_one)


def work(me):
    kind = KINDS[me]
    if kind not in "pq":
        assert ctypes.CDLL(plugin).memlith_sqlite_register(0) == 0
    choose = random.Random(os.getpid())
    db = connect(kind)
    if kind not in "rq":  # where it was killed
        found = db.execute("select n from worker where id = ?", (me,)).fetchone()[0]
        if not load(me, ACKNOWLEDGED) <= found <= load(me, BEGUN):
            fault(me, f"acknowledged {load(me, ACKNOWLEDGED)}, began {load(me, BEGUN)}, found {found}")
        store(me, BEGUN, found)
        store(me, ACKNOWLEDGED, found)
    while True:
        if kind == "o":
            db.close()
            db = connect(kind)
        if kind in "rq":
            read(me, db)
        else:
            write(me, db, choose)
        if kind == "c" and choose.random() < 0.05:
            db.execute(f"pragma wal_checkpoint({choose.choice(['passive', 'full', 'restart', 'truncate'])})").fetchall()
        store(me, DONE, load(me, DONE) + 1)
        if choose.random() < 0.002:
            db.close()
            os._exit(0)


def start(me):
    number = os.fork()
    if number == 0:
        try:
            work(me)
        except BaseException as error:  # pylint: disable=broad-exception-caught
            fault(me, repr(error))
        os._exit(1)
    return number


def await_progress(before, patience=60):
    """Every process has done something since; those that ended are started again."""
    end = time.monotonic() + patience
    while any(load(i, DONE) == before[i] for i in range(len(KINDS))) and time.monotonic() < end:
        for i, number in enumerate(numbers):
            if os.waitpid(number, os.WNOHANG)[0] != 0:
                numbers[i] = start(i)
        time.sleep(0.001)
    stuck = [f"{i} ({KINDS[i]})" for i in range(len(KINDS)) if load(i, DONE) == before[i]]
    if stuck:
        raise SystemExit(f"FAULT: these processes do not go on: {', '.join(stuck)}")


db = sqlite3.connect(path)
db.execute("pragma journal_mode=wal")
db.execute("create table account(id integer primary key, v int, pad)")
db.execute("create table worker(id integer primary key, n int)")
db.executemany("insert into account values(?, 0, zeroblob(200))", [(i,) for i in range(ACCOUNTS)])
db.executemany("insert into worker values(?, 0)", [(i,) for i in range(len(KINDS))])
db.commit()
db.close()

numbers = [start(i) for i in range(len(KINDS))]
await_progress([0] * len(KINDS))
stops = 0
for kill in range(kills_wanted):
    victims = range(len(KINDS)) if kill % 20 == 19 else [random.randrange(len(KINDS))]
    time.sleep(random.random() * 0.02)
    if random.random() < 0.2:
        stops += 1
        os.kill(numbers[victims[0]], signal.SIGSTOP)
        before = [load(i, DONE) for i in range(len(KINDS))]
        time.sleep(0.3)
        os.kill(numbers[victims[0]], signal.SIGCONT)
        await_progress(before)
    before = [load(i, DONE) for i in range(len(KINDS))]
    for victim in victims:
        os.kill(numbers[victim], signal.SIGKILL)
        os.waitpid(numbers[victim], 0)
    for victim in victims:
        numbers[victim] = start(victim)
    if kill % 4 == 3:
        await_progress(before)
for number in numbers:
    os.kill(number, signal.SIGKILL)
    os.waitpid(number, 0)
faults = sum(load(i, FAULTS) for i in range(len(KINDS)))
db = sqlite3.connect(path)
verdict = db.execute("pragma integrity_check").fetchone()[0]
total = db.execute("select sum(v) from account").fetchone()[0]
for i, (count,) in enumerate(db.execute("select n from worker order by id")):
    if not load(i, ACKNOWLEDGED) <= count <= load(i, BEGUN):
        faults += 1
        print(f"LOST: process {i} acknowledged {load(i, ACKNOWLEDGED)}, began {load(i, BEGUN)}, has {count}")
db.close()
done = " ".join(f"{KINDS[i]}:{load(i, DONE)}" for i in range(len(KINDS)))
print(f"{kills_wanted} kills, {stops} stops, {done}, faults {faults}, sum {total}, integrity {verdict}")
sys.exit(0 if faults == 0 and total == 0 and verdict == "ok" else 1)
