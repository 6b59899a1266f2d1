"""Processes that work on one database in mode shared and on plain SQLite: what shared_processes_test.py kills and
shared_power_test.py cuts the power under.

Each writer moves an amount between two accounts and counts its commits in a row of its own. The accounts' sum is 0 in
every snapshot, and the counts in it are not older than what was acknowledged when the snapshot began, and not newer
than what was begun when it ended. The board in memory that all processes share says what was begun, acknowledged and
shown.
"""
import ctypes
import mmap
import os
import random
import sqlite3
import threading
import time

# Each letter is a process: s shared, o shared with a connection for each transaction, c shared with checkpoints,
# d shared with transactions that read before they write, t shared with a second thread that reads, n shared with
# synchronous=NORMAL, p plain, r a shared reader, q a plain reader.
PLAIN, READERS, WEAK = "pq", "rq", "n"
ACCOUNTS = 200
SECOND = 1_000_000_000
# For each process: begun, acknowledged, operations, faults; the longest time that an operation was blocked, the
# same while a process was stopped, how many were blocked for longer than a second while none was; how many SQLite
# refused because they had read before they wrote.
BEGUN, ACKNOWLEDGED, DONE, FAULTS, BLOCKED, BLOCKED_BY_STOP, BLOCKED_LONG, REFUSED, FIELDS = range(9)


class Board:
    """Numbers that all processes share."""

    def __init__(self, kinds):
        self.kinds = kinds
        # Struct.pack_into() would show a zero in between.
        self.numbers = memoryview(mmap.mmap(-1, 8 * (1 + len(kinds) * (FIELDS + len(kinds))))).cast("Q")

    def load(self, worker, what):
        return self.numbers[1 + FIELDS * worker + what]

    def store(self, worker, what, value):
        self.numbers[1 + FIELDS * worker + what] = value

    def column(self, what):
        return [self.load(worker, what) for worker in range(len(self.kinds))]

    def _seen(self, reader, worker):
        return 1 + len(self.kinds) * (FIELDS + reader) + worker

    def show(self, reader, counts):
        """A result that a reader was shown, which is durable therefore."""
        for worker, count in enumerate(counts):
            at = self._seen(reader, worker)
            self.numbers[at] = max(self.numbers[at], count)

    def shown(self, worker):
        return max(self.numbers[self._seen(reader, worker)] for reader in range(len(self.kinds)))

    def reset(self, counts):
        """The counts are known: nothing is under way."""
        for worker, count in enumerate(counts):
            self.store(worker, BEGUN, count)
            self.store(worker, ACKNOWLEDGED, count)
            for reader in range(len(self.kinds)):
                self.numbers[self._seen(reader, worker)] = 0

    # How often a process was stopped or continued; odd while one is stopped.
    @property
    def stops(self):
        return self.numbers[0]

    def note_stop(self):
        self.numbers[0] += 1

    def describe_blocked(self):
        lines = []
        for name, group in (("shared", [i for i, kind in enumerate(self.kinds) if kind not in PLAIN]),
                            ("plain", [i for i, kind in enumerate(self.kinds) if kind in PLAIN])):
            lines.append(f"{name}: blocked for {max(self.load(i, BLOCKED) for i in group) / 1e6:.0f} ms at most, "
                         f"{sum(self.load(i, BLOCKED_LONG) for i in group)} of "
                         f"{sum(self.load(i, DONE) for i in group)} operations longer than a second; "
                         f"{max(self.load(i, BLOCKED_BY_STOP) for i in group) / 1e6:.0f} ms beside a stopped process")
        return "\n".join(lines)


def clock():
    """This thread's times in nanoseconds: in all, and how much of it the thread ran or waited for a processor."""
    with open("/proc/thread-self/schedstat", encoding="ascii") as file:
        ran, waited, _ = file.read().split()
    return time.monotonic_ns(), int(ran) + int(waited)


class Blocked:
    """Notes how long the operation inside was blocked."""

    def __init__(self, board, me):
        self.board, self.me = board, me

    def __enter__(self):
        self.stops = self.board.stops
        self.begun = clock()

    def __exit__(self, *_):
        now = clock()
        blocked = max(0, (now[0] - self.begun[0]) - (now[1] - self.begun[1]))
        quiet = self.stops % 2 == 0 and self.board.stops == self.stops
        what = BLOCKED if quiet else BLOCKED_BY_STOP
        self.board.store(self.me, what, max(self.board.load(self.me, what), blocked))
        if quiet and blocked > SECOND:
            self.board.store(self.me, BLOCKED_LONG, self.board.load(self.me, BLOCKED_LONG) + 1)


def make(path, kinds):
    """The database, with plain SQLite."""
    db = sqlite3.connect(path)
    db.execute("pragma journal_mode=wal")
    db.execute("create table account(id integer primary key, v int, pad)")
    db.execute("create table worker(id integer primary key, n int)")
    db.executemany("insert into account values(?, 0, zeroblob(200))", [(i,) for i in range(ACCOUNTS)])
    db.executemany("insert into worker values(?, 0)", [(i,) for i in range(len(kinds))])
    db.commit()
    db.close()


def look(db):
    """The sum of the accounts, and the counts of the workers."""
    total = db.execute("select sum(v) from account").fetchone()[0]
    return total, [row[0] for row in db.execute("select n from worker order by id")]


class Worker:
    def __init__(self, board, me, plugin, path):
        self.board, self.me, self.kind, self.plugin, self.path = board, me, board.kinds[me], plugin, path
        self.choose = random.Random(os.getpid())

    def connect(self):
        shared = self.kind not in PLAIN
        uri = f"file:{self.path}?vfs=memlith&share=1" if shared else f"file:{self.path}?vfs=unix"
        db = sqlite3.connect(uri, uri=True, timeout=30, isolation_level=None)
        db.execute(f"pragma synchronous={'normal' if self.kind in WEAK else 'full'}")
        if self.kind == "s":
            db.execute("pragma wal_autocheckpoint=100")
        return db

    def fault(self, text):
        print(f"FAULT: process {self.me} ({self.kind}): {text}", flush=True)
        self.board.store(self.me, FAULTS, self.board.load(self.me, FAULTS) + 1)

    def read(self, db):
        low = self.board.column(ACKNOWLEDGED)
        db.execute("begin")
        total, counts = look(db)
        db.execute("commit")
        high = self.board.column(BEGUN)
        if total != 0:
            self.fault(f"the sum is {total}")
        for i, count in enumerate(counts):
            if not low[i] <= count <= high[i]:
                self.fault(f"worker {i} ({self.board.kinds[i]}) acknowledged {low[i]}, began {high[i]}, and is shown "
                           f"as {count}")
        if self.kind == "r":
            self.board.show(self.me, counts)

    def write(self, db):
        board, me = self.board, self.me
        next_one = board.load(me, ACKNOWLEDGED) + 1
        # A commit whose process was killed may be in the log although no reader sees it: a power cut brings it back.
        board.store(me, BEGUN, max(board.load(me, BEGUN), next_one))
        one, other = self.choose.randrange(ACCOUNTS), self.choose.randrange(ACCOUNTS)
        try:
            if self.kind == "d":  # foresight keeps it from being refused, but for the first ones after all have gone
                db.execute("begin")
                db.execute("select v from account where id = ?", (one,)).fetchall()
            else:
                db.execute("begin immediate")
            db.execute("update account set v = v - 1 where id = ?", (one,))
            db.execute("update account set v = v + 1 where id = ?", (other,))
            db.execute("update worker set n = ? where id = ?", (next_one, me))
            db.execute("commit")
        except sqlite3.OperationalError as error:
            if self.kind == "d" and error.sqlite_errorname in ("SQLITE_BUSY", "SQLITE_BUSY_SNAPSHOT"):
                board.store(me, REFUSED, board.load(me, REFUSED) + 1)
            else:
                self.fault(f"{error.sqlite_errorname}: {error}")
            if db.in_transaction:
                db.execute("rollback")
            return
        board.store(me, ACKNOWLEDGED, next_one)

    def find_place(self, db):
        """Where it was killed."""
        found = db.execute("select n from worker where id = ?", (self.me,)).fetchone()[0]
        low, high = self.board.load(self.me, ACKNOWLEDGED), self.board.load(self.me, BEGUN)
        if not low <= found <= high:
            self.fault(f"acknowledged {low}, began {high}, found {found}")
        self.board.store(self.me, ACKNOWLEDGED, found)

    def read_on(self):
        """The second thread of a process."""
        db = self.connect()
        while True:
            try:
                self.read(db)
            except sqlite3.Error as error:
                self.fault(f"{error.sqlite_errorname}: {error}")

    def act(self, db):
        if self.kind == "o":
            db.close()
            db = self.connect()
        if self.kind in READERS:
            self.read(db)
        else:
            self.write(db)
        if self.kind == "c" and self.choose.random() < 0.05:
            how = self.choose.choice(["passive", "full", "restart", "truncate"])
            db.execute(f"pragma wal_checkpoint({how})").fetchall()
        return db

    def run(self):
        if self.kind not in PLAIN:
            assert ctypes.CDLL(self.plugin).memlith_sqlite_register(0) == 0
        db = self.connect()
        if self.kind not in READERS:
            self.find_place(db)
        if self.kind == "t":
            threading.Thread(target=self.read_on, daemon=True).start()
        while True:
            with Blocked(self.board, self.me):
                db = self.act(db)
            if self.kind in "pn":  # without this they have the write lock nearly always
                time.sleep(self.choose.random() * 0.005)
            self.board.store(self.me, DONE, self.board.load(self.me, DONE) + 1)
            if self.choose.random() < 0.002:
                db.close()
                os._exit(0)


def start(board, me, plugin, path):
    """The number of a new process."""
    number = os.fork()
    if number == 0:
        worker = Worker(board, me, plugin, path)
        try:
            worker.run()
        except BaseException as error:  # pylint: disable=broad-exception-caught
            worker.fault(repr(error))
        os._exit(1)
    return number


def judge(board, path, is_cut):
    """The faults of the database, opened with plain SQLite while no process works: a list of sentences."""
    db = sqlite3.connect(path)
    wrong = []
    verdict = db.execute("pragma integrity_check").fetchone()[0]
    if verdict != "ok":
        wrong.append(f"integrity_check: {verdict}")
    total, counts = look(db)
    if total != 0:
        wrong.append(f"the sum is {total}")
    for i, count in enumerate(counts):
        kind = board.kinds[i]
        # A power cut may take back what synchronous=NORMAL acknowledged, but not what a reader was shown.
        low = board.shown(i) if is_cut and kind in WEAK else max(board.load(i, ACKNOWLEDGED), board.shown(i))
        if not low <= count <= board.load(i, BEGUN):
            wrong.append(f"process {i} ({kind}): acknowledged {board.load(i, ACKNOWLEDGED)}, shown {board.shown(i)}, "
                         f"began {board.load(i, BEGUN)}, has {count}")
    db.close()
    return wrong, counts
