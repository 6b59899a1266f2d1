#!/usr/bin/env python3
"""docs/sqlite.md, "Several processes": processes that write to one database, and are killed.

Usage: processes_test.py PLUGIN FOLDER [KILLS]
Workers transfer between accounts and count their commits in the database; each tells what was acknowledged. Any of them
is killed at any time. What was acknowledged is there afterwards, the accounts add up in every state that a reader sees,
and when all have ended, plain SQLite finds an ordinary database. KILLS is the number of kills in all (default 50); the
soak gives 500. MEMLITH_SEED repeats the random choices.
"""
import os
import pathlib
import random
import select
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time

plugin = str(pathlib.Path(sys.argv[1]).resolve())
kills = int(sys.argv[3]) if len(sys.argv) > 3 else 50
if b"__asan_init" in pathlib.Path(plugin).read_bytes() or b"__tsan_init" in pathlib.Path(plugin).read_bytes():
    print("skipped: a sanitizer's runtime has to be the first library of a process")
    sys.exit(77)
pathlib.Path(sys.argv[2]).mkdir(parents=True, exist_ok=True)
folder = pathlib.Path(tempfile.mkdtemp(dir=sys.argv[2]))
seed = int(os.environ.get("MEMLITH_SEED") or random.SystemRandom().randrange(1 << 32))
print(f"MEMLITH_SEED={seed}")
chance = random.Random(seed)
ACCOUNTS, SUM = 20, 20000
failures = []

COMMON = """
import ctypes, random, sqlite3, sys, time
plugin, path, number, seed = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
assert ctypes.CDLL(plugin).memlith_sqlite_register(0) == 0
chance = random.Random(seed)
def connect(mode="rwc"):
    return sqlite3.connect(f"file:{path}?vfs=memlith&mode={mode}&open_wait_ms=60000", uri=True, timeout=60,
                           isolation_level=None)
def set_mode(db, mode):  # that of a rollback journal belongs to the connection
    if mode != "wal": assert db.execute(f"pragma journal_mode = {mode}").fetchone() == (mode,)
"""
WORKER = COMMON + """
db = connect()
set_mode(db, sys.argv[5])
while True:
    db.execute("begin immediate")
    a, b = chance.sample(range(20), 2)
    amount = chance.randrange(10)
    db.execute("update account set money = money - ? where id = ?", (amount, a))
    db.execute("update account set money = money + ? where id = ?", (amount, b))
    db.execute("update worker set commits = commits + 1 where id = ?", (number,))
    (count,) = db.execute("select commits from worker where id = ?", (number,)).fetchone()
    db.execute("commit")
    sys.stdout.write(f"{count}\\n")
    sys.stdout.flush()
    if chance.randrange(50) == 0: time.sleep(chance.random() * 0.02)
"""
READER = COMMON + """
db = connect(sys.argv[5])
last = {}
while True:
    db.execute("begin")
    (money,) = db.execute("select sum(money) from account").fetchone()
    commits = dict(db.execute("select id, commits from worker"))
    db.execute("commit")
    assert money == 20000, money
    assert all(commits[each] >= last.get(each, 0) for each in commits), (last, commits)
    last = commits
    sys.stdout.write("seen\\n")
    sys.stdout.flush()
    time.sleep(chance.random() * 0.01)
"""


def check(name, condition, told=""):
    print(f"{'ok  ' if condition else 'FAIL'} {name}", flush=True)
    if not condition:
        failures.append(name)
        print(told, flush=True)


class Process:
    """A worker or reader, and the newest number that it told."""

    def __init__(self, source, path, number, *more):
        self.source, self.path, self.number, self.more = source, path, number, more
        self.told = 0
        self.lines = 0
        self.start()

    def start(self):
        self.process = subprocess.Popen(
            [sys.executable, "-c", self.source, plugin, str(self.path), str(self.number),
             str(chance.randrange(1 << 30)), *self.more], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        os.set_blocking(self.process.stdout.fileno(), False)
        self.rest = b""

    def listen(self):
        while True:
            try:
                got = os.read(self.process.stdout.fileno(), 65536)
            except BlockingIOError:
                return
            if not got:
                return
            *lines, self.rest = (self.rest + got).split(b"\n")
            self.lines += len(lines)
            if lines and lines[-1].isdigit():
                self.told = int(lines[-1])

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        self.listen()
        self.process.stdout.close()
        self.process.stderr.close()


def listen(processes, seconds):
    """Hears all of them for a while; False if one has ended by itself."""
    until = seconds + time.monotonic()
    while (left := until - time.monotonic()) > 0:
        ready, _, _ = select.select([each.process.stdout for each in processes], [], [], left)
        for each in processes:
            if each.process.stdout in ready:
                each.listen()
        for each in processes:
            if each.process.poll() is not None:
                check(f"process {each.number} goes on", False, each.process.stderr.read().decode())
                return False
    return True


def wait_for_progress(processes, lines):
    """Until each has told so many lines more; a minute without any says that one hangs."""
    wanted = {each: each.lines + lines for each in processes}
    waits = 0
    while any(each.lines < wanted[each] for each in processes):
        before = sum(each.lines for each in processes)
        if not listen(processes, 0.2):
            return False
        waits = 0 if sum(each.lines for each in processes) > before else waits + 1
        if waits > 300:
            check("all go on", False, [(each.number, each.lines, wanted[each]) for each in processes])
            return False
    return True


def plain(path, query):
    connection = sqlite3.connect(path)
    try:
        rows = connection.execute(query).fetchall()
        verdict = connection.execute("pragma integrity_check").fetchone()[0]
        return rows if verdict == "ok" else verdict
    finally:
        connection.close()


def make(path, mode, workers):
    connection = sqlite3.connect(path)
    connection.execute(f"pragma journal_mode = {'wal' if mode == 'wal' else 'delete'}")
    connection.execute("create table account(id integer primary key, money integer)")
    connection.execute("create table worker(id integer primary key, commits integer)")
    connection.executemany("insert into account values(?, ?)", [(i, SUM // ACCOUNTS) for i in range(ACCOUNTS)])
    connection.executemany("insert into worker values(?, 0)", [(i,) for i in range(workers)])
    connection.commit()
    connection.close()


END = COMMON + """
db = connect()
print(dict(db.execute("select id, commits from worker")), db.execute("select sum(money) from account").fetchone()[0],
      db.execute("pragma integrity_check").fetchone()[0])
db.close()
"""


def finish(name, path, workers):
    """Opens the database once more by memlith, then by plain SQLite."""
    answer = subprocess.run([sys.executable, "-c", END, plugin, str(path), "0", "0"], capture_output=True, text=True,
                            timeout=120, check=False)
    check(f"{name}: opens afterwards", answer.stdout.endswith(" 20000 ok\n"), answer)
    found = dict(plain(path, "select id, commits from worker"))
    # What was acknowledged is there; of each worker at most the commit that was under way may be there, too.
    told = {each.number: each.told for each in workers}
    check(f"{name}: acknowledged commits are there", all(told[i] <= found[i] for i in told), (told, found))
    beside = sorted(each.name for each in folder.glob(path.name + "*"))
    check(f"{name}: nothing is left beside it", beside == [path.name], beside)


def transfers(mode, count, kills_here, readers):
    name = f"{count} processes, {mode}"
    path = folder / f"{mode}{count}.db"
    make(path, mode, count)
    workers = [Process(WORKER, path, i, mode) for i in range(count)]
    others = [Process(READER, path, count + i, how) for i, how in enumerate(readers)]
    everyone = workers + others
    going = wait_for_progress(everyone, 3)
    for _ in range(kills_here):
        if not going:
            break
        going = listen(everyone, chance.random() * 0.12)
        victims = [chance.choice(everyone)] if chance.randrange(10) else everyone
        for victim in victims:
            victim.kill()
        for victim in victims:
            victim.start()
    going = going and wait_for_progress(everyone, 3)
    for each in everyone:
        each.kill()
    check(f"{name}: {kills_here} kills, all go on; {sum(each.told for each in workers)} commits", going)
    finish(name, path, workers)


# diskcache starts its workers at once, each of which creates the tables where they are missing.
START = COMMON + """
db = connect()
db.execute("pragma journal_mode = wal")
db.execute("create table if not exists Settings(key text primary key, value)")
for i in range(100):
    with db:
        db.execute("begin immediate")
        db.execute("insert or replace into Settings values(?, ?)", (f"{number}-{i}", i))
        db.execute("commit")
db.close()
"""


def all_at_once():
    path = folder / "start.db"
    started = [subprocess.Popen([sys.executable, "-c", START, plugin, str(path), str(i), "0"], stderr=subprocess.PIPE)
               for i in range(3)]
    told = [each.communicate(timeout=120)[1].decode() for each in started]
    check("three start at once", all(each.returncode == 0 for each in started), told)
    check("three start at once: all is there", plain(path, "select count(*) from Settings") == [(300,)])


# A process that has the database open, and reads now and then, does not make a writer fail, and sees what it commits.
CALM = COMMON + """
db = connect(sys.argv[5])
print(db.execute("select count(*) from t").fetchone()[0], flush=True)
for line in sys.stdin:
    print(db.execute(line).fetchone()[0], flush=True)
"""


def calm(mode, how):
    name = f"{mode}, an idle process with mode={how}"
    path = folder / f"calm-{mode}-{how}.db"
    connection = sqlite3.connect(path)
    connection.execute(f"pragma journal_mode = {mode}")
    connection.execute("create table t(a)")
    connection.commit()
    connection.close()
    pair = [subprocess.Popen([sys.executable, "-c", CALM, plugin, str(path), str(i), "0", which], text=True,
                             stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            for i, which in enumerate((how, "rw"))]

    def ask(process, text):
        process.stdin.write(text + "\n")
        process.stdin.flush()
        return process.stdout.readline().strip()

    for each in pair:
        each.stdout.readline()
    rounds = []
    for i in range(1, 11):
        rounds.append((ask(pair[1], f"insert into t values({i}) returning a"), ask(pair[0], "select count(*) from t"),
                       ask(pair[1], "select count(*) from t")))
    check(f"{name}: both see each commit", rounds == [(str(i), str(i), str(i)) for i in range(1, 11)], rounds)
    if mode == "wal":
        # As in plain SQLite, a connection in WAL mode keeps others from changing the mode.
        answer = ask(pair[1], "pragma journal_mode")
        check(f"{name}: still in WAL mode", answer == "wal", answer)
    for each in pair:
        each.stdin.close()
        told = each.stderr.read()
        check(f"{name}: ends", each.wait(60) == 0, told)
        each.stdout.close()
        each.stderr.close()
    check(f"{name}: plain SQLite afterwards", plain(path, "select count(*) from t") == [(10,)])
    check(f"{name}: no log is left", not path.with_name(path.name + ".memlith").exists())


for mode in "wal", "delete":
    for how in "rw", "ro":
        calm(mode, how)
all_at_once()
transfers("wal", 2, kills * 3 // 10, ["rw"])
transfers("delete", 2, kills * 2 // 10, ["ro"])
transfers("wal", 4, kills * 3 // 10, ["rw", "ro"])
transfers("persist", 4, kills - 2 * (kills * 3 // 10) - kills * 2 // 10, [])
print(f"{len(failures)} failures" if failures else "all passed")
sys.exit(1 if failures else 0)
