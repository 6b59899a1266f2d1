#!/usr/bin/env python3
"""examples/webapp: what its server acknowledged survives kill -9 on memlith, once, and plain SQLite reads it in the
end.

Usage: webapp_test.py PLUGIN FOLDER
MEMLITH_SEED=N repeats when the server is killed. Exit code 77: no Python on the machine has Flask, or the plugin cannot
be loaded into one.
"""
import collections
import http.client
import json
import os
import pathlib
import random
import select
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
import urllib.parse

APP = pathlib.Path(__file__).resolve().parents[3] / "examples" / "webapp" / "links.py"
ROUNDS, CLIENTS = 6, 4
SECONDS_MAX = 60  # for anything that has to happen at all
MEMLITH = "file:links.db?vfs=memlith&share=0"
LOOK = """
import ctypes, json, sqlite3, sys
assert ctypes.CDLL(sys.argv[1]).memlith_sqlite_register(0) == 0
a = sqlite3.connect("file:links.db?vfs=memlith&share=0&mode=ro", uri=True)
verdict = [row[0] for row in a.execute("pragma integrity_check")]
print(json.dumps([verdict, [list(row) for row in a.execute("select name, url, hits from links order by id")]]))
a.close()
"""

plugin = pathlib.Path(sys.argv[1]).resolve()
seed = int(os.environ.get("MEMLITH_SEED") or time.time_ns() % 1_000_000)
failures = []


def check(name, condition, told=""):
    print(f"{'ok  ' if condition else 'FAIL'} {name}", flush=True)
    if not condition:
        failures.append(name)
        print(told, flush=True)


def python_with_flask():
    for candidate in [sys.executable, "/usr/bin/python3", shutil.which("python3")]:
        if candidate and subprocess.run([candidate, "-c", "import flask, sqlite3; sqlite3.SQLITE_BUSY"],
                                        capture_output=True, check=False).returncode == 0:
            return candidate
    return None


class Server:
    """The application, as it is started by hand, on a port that is free."""

    def __init__(self, uri, **environment):
        self.log = open(folder / "server.log", "ab")  # pylint: disable=consider-using-with
        self.process = subprocess.Popen(  # pylint: disable=consider-using-with
            [python, str(APP), uri, "--port", "0"], stdout=subprocess.PIPE, stderr=self.log, cwd=folder,
            env={**os.environ, "MEMLITH_SQLITE_LOG_MIB": "1", "MEMLITH_PLUGIN": str(plugin),
                 "PYTHONDONTWRITEBYTECODE": "1", **environment})
        ready = select.select([self.process.stdout], [], [], SECONDS_MAX)[0]
        line = self.process.stdout.readline().decode() if ready else ""
        self.port = int(line.rstrip("/\n").rpartition(":")[2]) if line else 0

    def ask(self, method, path, form=None, headers=None):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=SECONDS_MAX)
        try:
            body = urllib.parse.urlencode(form) if form else None
            kind = {"Content-Type": "application/x-www-form-urlencoded"} if form else {}
            connection.request(method, path, body, {**kind, **(headers or {})})
            answer = connection.getresponse()
            return answer.status, answer.read().decode(), answer.headers
        finally:
            connection.close()

    def links(self):
        rows = []
        while page := json.loads(self.ask("GET", f"/links.json?after={rows[-1]['id'] if rows else 0}")[1]):
            rows += page
        return [[row["name"], row["url"], row["hits"]] for row in rows]

    def end(self, how):
        self.process.send_signal(how)
        self.process.stdout.close()
        code = self.process.wait(SECONDS_MAX)
        self.log.close()
        return code


def plain():
    connection = sqlite3.connect(folder / "links.db")
    rows = [list(row) for row in connection.execute("select name, url, hits from links order by id")]
    verdict = [row[0] for row in connection.execute("pragma integrity_check")]
    connection.close()
    return verdict, rows


def try_pages(name, uri, engine):
    """Every page of the application, with what a good and a bad visitor send."""
    server = Server(uri)
    try:
        status, text, _ = server.ask("GET", "/engine.txt")
        check(f"{name}: it is {engine}", status == 200 and text.startswith(engine), text)
        check(f"{name}: which does not tell where the database is", ".db" not in text and "database" not in text, text)
        before = server.links()
        status, text, _ = server.ask("POST", "/", {"url": "https://example.org/a"})
        check(f"{name}: a link is made", status == 201 and text.startswith(f"http://127.0.0.1:{server.port}/"),
              (status, text))
        status, text, headers = server.ask("GET", "/" + text.strip().rpartition("/")[2])
        check(f"{name}: and followed", status == 302 and headers["Location"] == "https://example.org/a", (status, text))
        evil = "https://example.org/<script>'; drop table links; --"
        status, text, _ = server.ask("POST", "/", {"url": evil, "name": f"evil-{name}"})
        check(f"{name}: a link of a given name", status == 201 and text.endswith(f"/evil-{name}\n"), (status, text))
        check(f"{name}: a name is given once", server.ask("POST", "/", {"url": evil, "name": f"evil-{name}"})[0] == 409)
        status, text, _ = server.ask("GET", "/")
        check(f"{name}: the page is escaped", status == 200 and "&lt;script&gt;" in text and "<script>" not in text,
              text)
        refused = [server.ask("POST", "/", form)[0] for form in (
            {"url": "javascript:alert(1)"}, {"url": "https://[", "name": "a"}, {"name": "a"},
            {"url": evil, "name": "engine.txt"})]
        check(f"{name}: what is no link is refused", refused == [400] * 4, refused)
        check(f"{name}: names are no SQL", server.ask("GET", "/x'%20or%20'1'='1")[0] == 404)
        check(f"{name}: a browser is sent back to the page",
              server.ask("POST", "/", {"url": "https://example.org/b"}, {"Accept": "text/html,*/*;q=0.8"})[0] == 303)
        after = [row[1:] for row in server.links()]
        check(f"{name}: all of it is in the list", after == [row[1:] for row in before] + [
            ["https://example.org/a", 1], [evil, 0], ["https://example.org/b", 0]], after)
    finally:
        code = server.end(signal.SIGTERM)
    check(f"{name}: a clean stop", code == 0, (folder / "server.log").read_text())
    verdict, rows = plain()
    check(f"{name}: plain SQLite afterwards", verdict == ["ok"] and [row[1:] for row in rows] == after, (verdict, rows))


class Ledger:
    """The clients' requests and the acknowledged ones, over all servers."""

    def __init__(self):
        self.lock = threading.Lock()
        self.posts, self.unsure_posts = {}, set()  # url: name; url
        self.hits, self.unsure_hits = collections.Counter(), collections.Counter()  # url: how often
        self.strange = []
        self.acknowledged = 0

    def judge(self, rows):
        """Violations of: acknowledged is there once, not acknowledged at most once, nothing else is."""
        found = collections.Counter(url for _, url, _ in rows)
        wrong = [("lost", url) for url in self.posts if found[url] == 0]
        wrong += [("more than once", url) for url, count in found.items() if count > 1]
        wrong += [("from nowhere", url) for url in found if url not in self.posts and url not in self.unsure_posts]
        for name, url, hits in rows:
            if self.posts.get(url, name) != name:
                wrong.append(("another name", url))
            if not self.hits[url] <= hits <= self.hits[url] + self.unsure_hits[url]:
                wrong.append((f"{hits} hits, {self.hits[url]} acknowledged and {self.unsure_hits[url]} not", url))
        return wrong


def visit(server, ledger, who, acknowledged_max):
    """One client: makes links and follows its own until the server is gone, which it kills itself when its time has
    come."""
    mine, number = [], 0
    while True:
        number += 1
        follow = mine and number % 3 == 0
        name, url = mine[number % len(mine)] if follow else ("", f"https://example.org/{who}/{number}")
        with ledger.lock:  # unsure until told otherwise
            if follow:
                ledger.unsure_hits[url] += 1
            else:
                ledger.unsure_posts.add(url)
        try:
            status, text, headers = server.ask("GET", f"/{name}") if follow else server.ask("POST", "/", {"url": url})
        except (OSError, http.client.HTTPException):
            return
        with ledger.lock:
            if follow and status == 302 and headers["Location"] == url:
                ledger.unsure_hits[url] -= 1
                ledger.hits[url] += 1
            elif not follow and status == 201:
                ledger.unsure_posts.discard(url)
                ledger.posts[url] = text.strip().rpartition("/")[2]
                mine.append((ledger.posts[url], url))
            else:
                ledger.strange.append((status, text))
                return
            ledger.acknowledged += 1
            if ledger.acknowledged == acknowledged_max:
                server.process.send_signal(signal.SIGKILL)


def round_of_kill(number, ledger, generator):
    before = ledger.acknowledged
    server = Server(MEMLITH)
    rows = server.links()
    check(f"round {number}: the server has all", not ledger.judge(rows), ledger.judge(rows))
    last = before + generator.randint(5, 60)
    threads = [threading.Thread(target=visit, args=(server, ledger, f"{number}-{client}", last))
               for client in range(CLIENTS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    code = server.end(signal.SIGKILL)
    check(f"round {number}: killed after {ledger.acknowledged - before} were acknowledged",
          code == -signal.SIGKILL and ledger.acknowledged >= last and not ledger.strange,
          (code, ledger.strange, (folder / "server.log").read_text()[-3000:]))
    check(f"round {number}: the file is marked", not (folder / "links.db").read_bytes().startswith(b"SQLite format 3"))
    looked = subprocess.run([python, "-c", LOOK, str(plugin)], capture_output=True, text=True, cwd=folder,
                            timeout=SECONDS_MAX, check=False)
    verdict, rows = json.loads(looked.stdout) if looked.returncode == 0 else (looked.stderr, [])
    check(f"round {number}: integrity_check", verdict == ["ok"], verdict)
    check(f"round {number}: acknowledged once, the rest at most once", not ledger.judge(rows), ledger.judge(rows))
    return rows


def test_kills():
    generator, ledger, rows = random.Random(seed), Ledger(), []
    for number in range(ROUNDS):
        rows = round_of_kill(number, ledger, generator)
    server = Server(MEMLITH)
    check("after the last kill: the server has what a reader saw", server.links() == rows)
    check("clean stop", server.end(signal.SIGTERM) == 0)
    check("plain SQLite finds the same", plain() == (["ok"], rows), plain())
    # The check itself has to find what it looks for.
    url = next(iter(ledger.posts))
    row = next(row for row in rows if row[1] == url)
    others = [each for each in rows if each is not row]
    planted = [others, rows + [["twice", url, 0]], rows + [["new", "https://example.org/new", 0]],
               others + [["renamed", *row[1:]]], others + [[*row[:2], ledger.hits[url] + ledger.unsure_hits[url] + 1]]]
    check("planted mistakes are noticed", all(ledger.judge(each) for each in planted))
    print(f"{ledger.acknowledged} acknowledged, {len(ledger.unsure_posts)} posts and {ledger.unsure_hits.total()} "
          f"visits not, "
          f"{len(rows) - len(ledger.posts)} of those posts kept")


if any(name in plugin.read_bytes() for name in (b"__asan_init", b"__tsan_init")):
    print("skip everything: the plugin is built with a sanitizer, which a program that is not cannot load")
    sys.exit(77)
python = python_with_flask()
if not python:
    print("skip everything: no Python here has Flask (Debian: python3-flask)")
    sys.exit(77)
print(f"MEMLITH_SEED={seed}, {python}")
base = pathlib.Path(sys.argv[2])
base.mkdir(parents=True, exist_ok=True)
folder = pathlib.Path(tempfile.mkdtemp(dir=base))
answer = subprocess.run([python, str(APP), MEMLITH, "--port", "0"], capture_output=True, text=True, cwd=folder,
                        timeout=SECONDS_MAX, env={name: value for name, value in os.environ.items()
                                                  if name != "MEMLITH_PLUGIN"}, check=False)
check("without the plugin it says what to set", answer.returncode == 1 and "MEMLITH_PLUGIN" in answer.stderr, answer)
try_pages("plain", "file:links.db", "plain SQLite")
try_pages("memlith", MEMLITH, "memlith: ")
try_pages("plain-again", "file:links.db", "plain SQLite")
(folder / "links.db").unlink()
(folder / "links.db.memlith").unlink(missing_ok=True)
test_kills()
shutil.rmtree(folder)
print(f"{len(failures)} failed")
sys.exit(1 if failures else 0)
