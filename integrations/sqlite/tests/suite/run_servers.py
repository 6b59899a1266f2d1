#!/usr/bin/env python3
"""Web servers of several processes on a database in mode shared: ./dev soak sqlite-servers.

gunicorn, uvicorn, PHP's server and Puma, with four processes each, answer clients that add to counters; workers are
killed meanwhile where the server starts new ones. Beside them `sqlite3 app.db .backup` makes copies, and a follower of
the write-ahead log like Litestream's, on plain SQLite, copies the log's frames and makes the database from them.
Everything that was answered with 200 has to be there, in the database and at the end in the follower's copy; each
backup is whole.
"""
import argparse
import collections
import http.client
import os
import pathlib
import random
import shutil
import signal
import socket
import sqlite3
import struct
import subprocess
import sys
import threading
import time

from beside_plain import SYSTEM_PYTHON

HERE = pathlib.Path(__file__).resolve().parent
SERVERS = HERE.parent / "servers"
ROWS, CLIENTS, WORKERS = 20, 8, 4
LOCKED_MAX = 0.02  # refused transactions: the first ones of each kind, before foresight knows them


class Follower(threading.Thread):
    """Copies the log's frames as Litestream does: a read transaction keeps SQLite from restarting the log, the frames
    up to the newest commit are taken, and then the log is checkpointed."""

    def __init__(self, path, target):
        super().__init__(daemon=True)
        self.path, self.target, self.over = path, target, threading.Event()
        self.frames, self.wrong = 0, ""

    def run(self):
        try:
            self.follow()
        except Exception as error:  # pylint: disable=broad-exception-caught
            self.wrong = repr(error)

    def follow(self):
        now, before = [sqlite3.connect(f"file:{self.path}?vfs=unix", uri=True, timeout=30, isolation_level=None)
                       for _ in range(2)]
        begin_to_read(before)
        # Not by this process: closing the file would release the locks of its connections.
        subprocess.run(["cp", self.path, self.target], check=True)
        with open(self.target, "r+b") as copy:
            place, last = None, False  # salt, offset
            while not last:
                last = self.over.is_set()
                # There is always a transaction whose frames were copied, so that none is overwritten before.
                begin_to_read(now)
                place = self.copy_frames(copy, place)
                before.execute("rollback")
                before.execute("pragma wal_checkpoint(passive)").fetchall()
                now, before = before, now
                time.sleep(0.02)
        before.execute("rollback")
        for each in (now, before):
            each.close()

    def copy_frames(self, copy, place):
        if not os.path.exists(f"{self.path}-wal"):
            return place
        with open(f"{self.path}-wal", "rb") as log:
            head = log.read(32)
            if len(head) < 32:
                return place
            page = struct.unpack(">I", head[8:12])[0]
            salt = head[16:24]
            at = place[1] if place is not None and place[0] == salt else 32
            log.seek(at)
            pending = []
            while True:
                frame = log.read(24 + page)
                if len(frame) < 24 + page or frame[8:16] != salt:
                    return salt, at
                number, size = struct.unpack(">II", frame[:8])
                pending.append((number, frame[24:]))
                if size == 0:
                    continue
                for number, content in pending:
                    copy.seek((number - 1) * page)
                    copy.write(content)
                copy.truncate(size * page)
                self.frames += len(pending)
                pending = []
                at = log.tell()


def begin_to_read(db):
    db.execute("begin")
    db.execute("select count(*) from counter").fetchone()


class Backups(threading.Thread):
    def __init__(self, path):
        super().__init__(daemon=True)
        self.path, self.over, self.count, self.wrong = path, threading.Event(), 0, ""

    def run(self):
        copy = f"{self.path}-backup"
        while not self.over.is_set():
            done = subprocess.run(["sqlite3", "-cmd", ".timeout 30000", self.path, f".backup {copy}"],
                                  capture_output=True, text=True, check=False)
            if done.returncode != 0:
                self.wrong = done.stderr
                return
            db = sqlite3.connect(copy)
            verdict = db.execute("pragma integrity_check").fetchone()[0]
            db.close()
            if verdict != "ok":
                self.wrong = verdict
                return
            self.count += 1
            time.sleep(0.05)


class Client(threading.Thread):
    def __init__(self, port, requests, number):
        super().__init__(daemon=True)
        self.port, self.requests, self.choose = port, requests, random.Random(number)
        self.answers, self.added, self.unknown = collections.Counter(), 0, 0

    def run(self):
        while self.added < self.requests:
            try:
                # Told only once where the connection breaks: whether the row was added is not known then.
                code, text = ask(self.port, f"/add/{self.choose.randrange(ROWS)}")
            except (OSError, http.client.HTTPException):
                self.unknown += 1
                time.sleep(0.05)
                continue
            self.answers[code if code == 200 else f"{code}: {text[:60]}"] += 1
            self.added += code == 200


def ask(port, path):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    connection.request("GET", path)
    answer = connection.getresponse()
    text = answer.read().decode()
    connection.close()
    return answer.status, text


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def commands(port, plugin):
    preload = {"LD_PRELOAD": plugin}
    return {
        "gunicorn": (["gunicorn", "-w", str(WORKERS), "-b", f"127.0.0.1:{port}", "counter:application"], preload, True),
        "uvicorn": ([SYSTEM_PYTHON, "-m", "uvicorn", "--workers", str(WORKERS), "--port", str(port), "--log-level",
                     "warning", "counter:asgi"], preload, False),
        "php": (["php", "-d", f"sqlite3.extension_dir={os.path.dirname(plugin)}", "-S", f"127.0.0.1:{port}",
                 "counter.php"],
                {"PHP_CLI_SERVER_WORKERS": str(WORKERS), "MEMLITH_SQLITE_DEFAULT": "1",
                 "MEMLITH_EXTENSION": os.path.basename(plugin)}, False),
        "puma": (["puma", "-w", str(WORKERS), "-t", "2:2", "-b", f"tcp://127.0.0.1:{port}", "config.ru"], preload,
                 True),
    }


def workers_of(process):
    done = subprocess.run(["pgrep", "-P", str(process)], capture_output=True, text=True, check=False)
    return [int(number) for number in done.stdout.split()]


def run_server(name, given):
    folder = given.work / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    path = folder / "app.db"
    db = sqlite3.connect(path)
    db.execute("pragma journal_mode=wal")
    db.execute("create table counter(id integer primary key, v int, pad)")
    db.executemany("insert into counter values(?, 0, zeroblob(300))", [(i,) for i in range(ROWS)])
    db.commit()
    db.close()
    port = free_port()
    command, settings, may_kill = commands(port, str(given.plugin.resolve()))[name]
    if shutil.which(command[0]) is None:
        return [f"there is no {command[0]}"]
    environment = {**os.environ, **settings, "MEMLITH_SQLITE_SHARE": "1", "DATABASE": str(path),
                   "PYTHONDONTWRITEBYTECODE": "1"}
    with open(folder / "server.log", "wb") as log:
        server = subprocess.Popen(command, cwd=SERVERS, env=environment, stdout=log, stderr=log,
                                  start_new_session=True)
    follower, backups, kills, wrong = Follower(path, folder / "followed.db"), Backups(path), 0, []
    try:
        mode = wait_for_mode(port, server)
        if mode != "shared":
            return [f"it is on {mode}: {(folder / 'server.log').read_text(errors='replace')[-500:]}"]
        follower.start()
        backups.start()
        clients = [Client(port, given.requests // CLIENTS, i) for i in range(CLIENTS)]
        for each in clients:
            each.start()
        while any(each.is_alive() for each in clients):
            time.sleep(0.25)
            workers = workers_of(server.pid)
            if may_kill and workers and random.random() < 0.2:
                os.kill(random.choice(workers), signal.SIGKILL)
                kills += 1
    finally:
        for each in (backups, follower):
            each.over.set()
            if each.is_alive():
                each.join(60)
        end(server)
    added, unknown = sum(each.added for each in clients), sum(each.unknown for each in clients)
    answers = sum((each.answers for each in clients), collections.Counter())
    refused = sum(answers.values()) - added
    wrong += [f"{what}: {each.wrong}" for what, each in (("backup", backups), ("follower", follower)) if each.wrong]
    for what, file in (("database", path), ("follower's copy", folder / "followed.db")):
        db = sqlite3.connect(file)
        total = db.execute("select sum(v) from counter").fetchone()[0]
        verdict = db.execute("pragma integrity_check").fetchone()[0]
        db.close()
        if not added <= total <= added + unknown or verdict != "ok":
            wrong.append(f"{what}: {added} answered, {unknown} unknown, {total} there, integrity {verdict}")
    if refused > LOCKED_MAX * added:
        wrong.append(f"{refused} refused: {answers}")
    print(f"{name}: {added} answered, {unknown} broken off, {refused} refused, {kills} workers killed, "
          f"{backups.count} backups, {follower.frames} frames followed, {len(wrong)} faults", flush=True)
    return wrong


def end(server):
    if server.poll() is None:
        os.killpg(server.pid, signal.SIGTERM)
    try:
        server.wait(30)
    except subprocess.TimeoutExpired:
        os.killpg(server.pid, signal.SIGKILL)
        server.wait()


def wait_for_mode(port, server):
    end = time.monotonic() + 60
    while time.monotonic() < end and server.poll() is None:
        try:
            return ask(port, "/mode")[1]
        except (OSError, http.client.HTTPException):
            time.sleep(0.1)
    return "no answer"


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--plugin", required=True, type=pathlib.Path)
    options.add_argument("--work", required=True, type=pathlib.Path)
    options.add_argument("--minutes", type=float, default=0, help="accepted like by every soak program")
    options.add_argument("--requests", type=int, default=4000, help="for each server")
    options.add_argument("--only", default="gunicorn,uvicorn,php,puma")
    given = options.parse_args()
    faults = 0
    for name in given.only.split(","):
        for text in run_server(name, given):
            print(f"FAULT: {name}: {text}", flush=True)
            faults += 1
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
