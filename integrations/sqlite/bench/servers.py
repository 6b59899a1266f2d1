#!/usr/bin/env python3
"""Programs of four processes on SQLite, on memlith and on plain SQLite in turns: ./dev bench sqlite servers [NAME ...].

NAME is django (under gunicorn), fastapi (with SQLAlchemy, under uvicorn), datasette (the same while Datasette serves
the database to two readers) or huey (a queue and its tasks); none: all. A request or task reads and changes a row, and
adds one. The packages come from PyPI; memlith is preloaded, and nothing else is set.
"""
import collections
import http.client
import pathlib
import random
import shutil
import sqlite3
import subprocess
import sys
import threading
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parents[2] / "bench/kit"), str(HERE.parent / "tests/suite")]
import contest  # noqa: E402 pylint: disable=wrong-import-position
from beside_plain import environment_of, python_with  # noqa: E402 pylint: disable=wrong-import-position
from run_servers import end, free_port  # noqa: E402 pylint: disable=wrong-import-position

PACKAGES = ["datasette==0.65.5", "Django==5.2.19", "fastapi==0.165.0", "gunicorn==27.0.1", "huey==3.5.4",
            "SQLAlchemy==2.1.9", "uvicorn==0.54.0"]
WORKERS, CLIENTS, READERS, ROWS = 4, 8, 2, 20


class Client(threading.Thread):
    """Asks for one path after the other, and notes how long each answer took."""

    def __init__(self, port, choose):
        super().__init__(daemon=True)
        self.port, self.choose, self.counts, self.over = port, choose, False, False
        self.times, self.refused, self.failed = [], collections.Counter(), ""

    def run(self):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        while not self.over and not self.failed:
            begin = time.perf_counter_ns()
            try:
                connection.request("GET", self.choose())
                answer = connection.getresponse()
                text = answer.read().decode()
            except (OSError, http.client.HTTPException) as error:
                self.failed = repr(error)
                break
            took = time.perf_counter_ns() - begin
            if answer.status == 503 and "locked" in text:
                self.refused["locked"] += self.counts
            elif answer.status != 200:
                self.failed = f"{answer.status}: {text[:300]}"
            elif self.counts:
                self.times.append(took / 1000)


class Servers:
    """The programs of one turn, which end with it."""

    def __init__(self, folder, environment):
        self.folder, self.environment, self.running = folder, environment, []

    def __enter__(self):
        return self

    def start(self, *command):
        log = open(self.folder / f"log-{len(self.running)}", "wb")  # pylint: disable=consider-using-with
        self.running.append((subprocess.Popen([str(word) for word in command], cwd=HERE / "programs",
                                              env=self.environment, stdout=log, stderr=log, start_new_session=True),
                             log))

    def wait_for(self, port, path):
        for _ in range(600):
            try:
                connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
                connection.request("GET", path)
                status = connection.getresponse().status
                connection.close()
                if status in (200, 503):
                    return
            except (OSError, http.client.HTTPException):
                pass
            time.sleep(0.1)
        raise contest.Failed(f"no answer: {self.logs()[-2000:]}")

    def logs(self):
        return "".join(each.read_text(errors="replace") for each in sorted(self.folder.glob("log-*")))

    def __exit__(self, *_):
        for process, log in self.running:
            end(process)
            log.close()


def make_database(path, journal):
    db = sqlite3.connect(path)
    db.execute(f"pragma journal_mode = {journal}")
    db.execute("create table counter(id integer primary key, value integer not null)")
    db.execute("create table visit(id integer primary key, counter_id integer not null, text text not null)")
    db.executemany("insert into counter values(?, 0)", [(number,) for number in range(1, ROWS + 1)])
    db.commit()
    db.close()


def sum_of(path):
    db = sqlite3.connect(path, timeout=60)
    try:
        return db.execute("select sum(value) from counter").fetchone()[0]
    finally:
        db.close()


def ask(given, servers, port, reader_port=None):
    """The answers that clients get in the time of a turn."""
    draw = random.Random(1)
    writers = [Client(port, lambda: f"/add/{draw.randrange(ROWS) + 1}") for _ in range(CLIENTS)]
    query = "/app.json?_shape=array&sql=select+count(*),+max(id)+from+visit"
    readers = [Client(reader_port, lambda: query) for _ in range(READERS if reader_port else 0)]
    for each in writers + readers:
        each.start()
    time.sleep(given.warm_up)
    for each in writers + readers:
        each.counts = True
    begin = time.monotonic()
    time.sleep(given.seconds)
    seconds = time.monotonic() - begin
    for each in writers + readers:
        each.counts = False
        each.over = True
    for each in writers + readers:
        each.join(120)
        if each.failed:
            raise contest.Failed(f"{each.failed}\n{servers.logs()[-2000:]}")
    times = [took for each in writers for took in each.times]
    told = {"ops_per_s": len(times) / seconds, **contest.percentiles(times), "longest_us": max(times),
            "locked": sum(each.refused["locked"] for each in writers)}
    if readers:
        told["reads_per_s"] = sum(len(each.times) for each in readers) / seconds
    return told


def serve(given, servers, name, database):
    port = free_port()
    if name == "django":
        servers.start(given.python, "-m", "gunicorn", "-w", WORKERS, "-b", f"127.0.0.1:{port}", "--log-level",
                      "warning", "django_app:application")
    else:
        servers.start(given.python, "-m", "uvicorn", "--workers", WORKERS, "--port", port, "--log-level", "warning",
                      "fastapi_app:app")
    servers.wait_for(port, "/add/1")
    reader_port = free_port() if name == "datasette" else None
    if reader_port:
        servers.start(given.python, "-m", "datasette", "serve", database, "--port", reader_port)
        servers.wait_for(reader_port, "/app.json")
    return ask(given, servers, port, reader_port)


def work_off(given, servers, database):
    """Puts tasks into the queue, and has four processes do them."""
    begin = time.monotonic()
    subprocess.run([given.python, "-c", "import sys, huey_app\n"
                                        f"for i in range({given.tasks}): huey_app.add(i % {ROWS} + 1)"],
                   cwd=HERE / "programs", env=servers.environment, check=True)
    filled = time.monotonic() - begin
    servers.start(given.python, "-m", "huey.bin.huey_consumer", "huey_app.huey", "-k", "process", "-w", WORKERS, "-q")
    began = None
    for _ in range(60000):
        done = sum_of(database)
        now = time.monotonic()
        if done > 0 and began is None:
            began, first = now, done
        if done >= given.tasks:
            return {"ops_per_s": (done - first) / (now - began), "enqueues_per_s": given.tasks / filled,
                    "locked": servers.logs().count("database is locked")}
        time.sleep(0.01)
    raise contest.Failed(f"{done} of {given.tasks} tasks were done in 10 minutes: {servers.logs()[-2000:]}")


def turn(given, name, journal, side):
    folder = given.dir / "turn"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    database = folder / "app.db"
    make_database(database, journal)
    environment = environment_of(None, DATABASE=str(database), JOURNAL=journal)
    if side == "memlith":
        environment["LD_PRELOAD"] = str(given.bin.parent / "lib/memlith_sqlite.so")
    with Servers(folder, environment) as servers:
        told = work_off(given, servers, database) if name == "huey" else serve(given, servers, name, database)
    shutil.rmtree(folder)
    return told


def main():
    names = ("django", "fastapi", "datasette", "huey")
    parser = contest.options_of(__doc__, folder="where the databases go", rounds=3, suites=names)
    parser.add_argument("--journals", type=contest.names(("wal", "delete")), default=["wal", "delete"])
    parser.add_argument("--seconds", type=float, default=5, help="of a turn")
    parser.add_argument("--warm-up", type=float, default=1, help="seconds before a turn counts")
    parser.add_argument("--tasks", type=int, default=1000, help="of huey")
    given = parser.parse_args()
    given.dir = given.dir / "sqlite-servers"
    given.dir.mkdir(parents=True, exist_ok=True)
    given.python = python_with(given.dir, PACKAGES)
    for name in contest.chosen(given):
        for journal in given.journals:
            runs = contest.in_turns(given.rounds, ("plain", "memlith"),
                                    lambda side, name=name, journal=journal: turn(given, name, journal, side), True)
            plain = contest.middle(runs["plain"], "ops_per_s")["ops_per_s"]
            for side, told in runs.items():
                line = {"suite": "sqlite-servers", "workload": f"{name}, {journal}", "side": side,
                        **contest.middle(told, "ops_per_s"), "locked": sum(each["locked"] for each in told)}
                contest.say(given, line, of_plain=line["ops_per_s"] / plain)


if __name__ == "__main__":
    main()
