#!/usr/bin/env python3
"""A program that has a database open in mode shared and forks: each process with connections of its own.

Usage: fork_test.py PLUGIN FOLDER [URI-PARAMETERS]
Children of a parent that keeps its connection open (as multiprocessing's Pool does) write to the database; what they
inherited is refused with a sentence; a parent that is killed leaves nothing locked, however long its children live.
"""
import ctypes
import os
import pathlib
import signal
import sqlite3
import sys
import tempfile
import time

if b"__asan_init" in pathlib.Path(sys.argv[1]).read_bytes() or b"__tsan_init" in pathlib.Path(sys.argv[1]).read_bytes():
    print("skipped: a sanitizer's runtime has to be the first library of a process")
    sys.exit(77)
pathlib.Path(sys.argv[2]).mkdir(parents=True, exist_ok=True)
folder = pathlib.Path(tempfile.mkdtemp(dir=sys.argv[2]))
parameters = sys.argv[3] if len(sys.argv) > 3 else "vfs=memlith&share=1"
os.environ.pop("MEMLITH_SQLITE_SHARE", None)
library = ctypes.CDLL(str(pathlib.Path(sys.argv[1]).resolve()))
assert library.memlith_sqlite_register(0) == 0
failures = []


def check(what, good, told=""):
    print(f"{'ok  ' if good else 'FAIL'} {what} {told if not good else ''}", flush=True)
    if not good:
        failures.append(what)


def connect(name):
    return sqlite3.connect(f"file:{folder / name}?{parameters}", uri=True, timeout=15)


def child(body, seconds=0):
    """Runs `body` in a child, which ends with 0 if it returned without an exception, within the seconds."""
    number = os.fork()
    if number == 0:
        signal.alarm(seconds)
        code = 1
        try:
            body()
            code = 0
        except BaseException as error:  # pylint: disable=broad-exception-caught
            print(f"child: {error!r}", flush=True)
        os._exit(code)
    return number


def ended_well(numbers):
    return all(os.waitstatus_to_exitcode(os.waitpid(number, 0)[1]) == 0 for number in numbers)


def insert(name, first, count):
    db = connect(name)
    for i in range(first, first + count):
        with db:
            db.execute("insert into t values(?)", (i,))
    db.close()


def all_rows(name):
    db = connect(name)
    rows = sorted(row[0] for row in db.execute("select a from t"))
    verdict = db.execute("pragma integrity_check").fetchone()[0]
    db.close()
    return rows if verdict == "ok" else verdict


def set_wal(db):
    """SQLite's change of the mode waits for no lock, whatever the timeout, because that could be a deadlock."""
    give_up = time.monotonic() + 15
    while True:
        try:
            return db.execute("pragma journal_mode = wal")
        except sqlite3.OperationalError as busy:
            if "locked" not in str(busy) or time.monotonic() > give_up:
                raise
            time.sleep(0.01)


def start(number):
    """One of several that start at once, each of which makes what is missing."""
    db = connect("start.db")
    set_wal(db)
    db.execute("create table if not exists t(a unique)")
    for i in range(50):
        with db:
            db.execute("insert into t values(?)", (1000 * number + i,))
    db.close()


check("four start at once", ended_well([child(lambda i=i: start(i)) for i in range(4)]))
check("four start at once: all is there", all_rows("start.db") == [1000 * i + j for i in range(4) for j in range(50)])

# The engine, which is the default in rollback modes, is for one process.
for mode in ("delete", "wal") if "share=1" in parameters else ("wal",):
    name = f"{mode}.db"
    parent = connect(name)
    parent.execute(f"pragma journal_mode = {mode}")
    parent.execute("create table t(a unique)")
    parent.commit()
    children = [child(lambda i=i: insert(name, 100 * i, 20)) for i in range(1, 5)]
    for i in range(20):
        with parent:
            parent.execute("insert into t values(?)", (i,))
    check(f"{mode}: children open connections while the parent has one", ended_well(children))
    wanted = sorted(100 * i + j for i in range(5) for j in range(20))
    check(f"{mode}: what parent and children committed is there", all_rows(name) == wanted)

    def grandchild():
        """A child with a connection forks again."""
        db = connect(name)
        assert db.execute("select count(*) from t").fetchone()[0] == 100
        assert ended_well([child(lambda: insert(name, 900, 3))])
        assert db.execute("select count(*) from t").fetchone()[0] == 103

    check(f"{mode}: a child of a child", ended_well([child(grandchild)]))

    def inherited():
        """The parent's connection, in a child: an error, and a sentence that says what to do."""
        for statement in "select count(*) from t", "insert into t values(1000)":
            try:
                parent.execute(statement).fetchall()
                raise AssertionError(f"{statement} was accepted")
            except sqlite3.OperationalError:
                pass
        told = sqlite3.connect(":memory:").execute("select memlith_error()").fetchone()[0]
        assert "open another one after the fork" in told, told
        parent.close()
        insert(name, 2000, 1)

    check(f"{mode}: an inherited connection is refused", ended_well([child(inherited)]))
    check(f"{mode}: the parent goes on", parent.execute("select count(*) from t").fetchone()[0] == 104)
    with parent:
        parent.execute("insert into t values(3000)")
    parent.close()
    plain = sqlite3.connect(folder / name)
    check(f"{mode}: plain SQLite finds all", plain.execute("select count(*) from t").fetchone()[0] == 105)
    plain.close()

    # The parent is killed in the middle, and a child that has a connection of its own lives on.
    says, hears = os.pipe(), os.pipe()

    def doomed():
        """Has the database open, and a child that has it open as well, and is killed."""
        db = connect(name)
        with db:
            db.execute("insert into t values(4000)")

        def survivor():
            mine = connect(name)
            assert mine.execute("select count(*) from t").fetchone()[0] >= 106
            os.write(says[1], b"x")
            os.close(hears[1])
            os.read(hears[0], 1)
            os._exit(0)

        child(survivor)
        with db:
            db.execute("insert into t values(4001)")
        signal.pause()

    number = child(doomed)
    os.close(says[1])
    os.close(hears[0])
    os.read(says[0], 1)
    os.kill(number, signal.SIGKILL)
    os.waitpid(number, 0)
    check(f"{mode}: a killed parent leaves no lock to its child", ended_well([child(lambda: insert(name, 5000, 1))]))
    os.close(hears[1])
    os.close(says[0])

# A helper that a program has forked, and that opens nothing, outlives the program.
for share in 0, 1:
    says, hears = os.pipe(), os.pipe()
    name = f"helper{share}.db"

    def connect_beside_helper():
        return sqlite3.connect(f"file:{folder / name}?vfs=memlith&share={share}", uri=True, timeout=1)

    def program():
        """Has the database open, and a helper, and is killed."""
        db = connect_beside_helper()
        if share:
            db.execute("pragma journal_mode = wal")
        with db:
            db.execute("create table t(a unique)")
            db.execute("insert into t values(1)")

        def helper():
            os.write(says[1], b"x")
            os.close(hears[1])
            os.read(hears[0], 1)
            os._exit(0)

        child(helper)
        signal.pause()

    def after_it():
        """Closes the database as its last user, who removes the files beside it."""
        db = connect_beside_helper()
        with db:
            db.execute("insert into t values(2)")
        db.close()
        left = [path.name for path in folder.glob(name + "*")]
        assert left == [name], left

    number = child(program)
    os.close(says[1])
    os.close(hears[0])
    os.read(says[0], 1)
    os.kill(number, signal.SIGKILL)
    os.waitpid(number, 0)
    check(f"share={share}: a killed program leaves no lock to its helper", ended_well([child(after_it)]))
    os.close(hears[1])
    os.close(says[0])

# The parent forks while its thread makes a checkpoint with SQLite, whose mutexes the child has as they are then.
parent = connect("behind.db")
parent.execute("pragma journal_mode = wal")
parent.execute("pragma wal_autocheckpoint = 50")
parent.execute("create table big(a)")
parent.execute("create table t(a unique)")
parent.commit()
ROUNDS = 40
for i in range(ROUNDS):
    with parent:
        parent.executemany("insert into big values(zeroblob(4000))", [()] * 100)
    time.sleep(i % 4 * 0.0005)
    if not ended_well([child(lambda: insert("behind.db", i, 1), seconds=60)]):
        check(f"a child opens the database beside a checkpoint, round {i}", False)
        break
stats = parent.execute("pragma memlith_stats").fetchone()[0]
check("the parent's thread made checkpoints", int(stats.split("checkpoints_behind=")[1].split()[0]) > 0, stats)
parent.close()
check("what parent and children committed beside checkpoints is there", all_rows("behind.db") == list(range(ROUNDS)))

sys.exit(1 if failures else 0)
