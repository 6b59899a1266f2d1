#!/usr/bin/env python3
"""docs/sqlite.md, "Two lines to try it": the plugin as it is shipped, in programs that know nothing of it.

Usage: plugin_test.py PLUGIN FOLDER
The sqlite3 shell and every Python on the machine load it, get it registered, or have it preloaded; after each of them
plain SQLite finds an ordinary database. A program that is not on the machine is skipped by name. Exit code 77: nothing
at all could be tested.
"""
import concurrent.futures
import os
import pathlib
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time

plugin = str(pathlib.Path(sys.argv[1]).resolve())
pathlib.Path(sys.argv[2]).mkdir(parents=True, exist_ok=True)
folder = pathlib.Path(tempfile.mkdtemp(dir=sys.argv[2]))
environment = {**os.environ, "MEMLITH_SQLITE_LOG_MIB": "1"}
# A sanitizer's runtime has to be the first library of a process; a plugin cannot bring it along.
sanitized = b"__asan_init" in pathlib.Path(plugin).read_bytes() or b"__tsan_init" in pathlib.Path(plugin).read_bytes()
failures = []
tested = 0


def run(arguments, text="", **more):
    extra = more.pop("environment", {})
    return subprocess.run(arguments, input=text, capture_output=True, text=True, timeout=120, cwd=folder,
                          env={**environment, **extra}, check=False, **more)


def check(name, condition, told=""):
    global tested
    tested += 1
    print(f"{'ok  ' if condition else 'FAIL'} {name}")
    if not condition:
        failures.append(name)
        print(told)


def plain(name, query):
    """Plain SQLite's view of the file, in this process, which has no memlith."""
    connection = sqlite3.connect(folder / name)
    rows = connection.execute(query).fetchall()
    verdict = connection.execute("pragma integrity_check").fetchone()[0]
    connection.close()
    return rows if verdict == "ok" else verdict


ERROR = """
import ctypes, sqlite3, sys, threading
assert ctypes.CDLL(sys.argv[1]).memlith_sqlite_register(0) == 0
try: sqlite3.connect("file:missing/app.db?vfs=memlith", uri=True)
except sqlite3.OperationalError: pass
def ask(): print(sqlite3.connect(":memory:").execute("select memlith_error()").fetchone()[0], flush=True)
ask()
other = threading.Thread(target=ask); other.start(); other.join()
"""
# Ends with a handler of SIGTERM, and with a connection that nothing closes.
ENDED = """
import ctypes, os, signal, sqlite3, sys
assert ctypes.CDLL(sys.argv[1]).memlith_sqlite_register(0) == 0
db = sqlite3.connect("file:ended.db?vfs=memlith", uri=True)
ctypes.pythonapi.Py_IncRef(ctypes.py_object(db))
with db: db.execute("create table t as select 7")
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
os.kill(os.getpid(), signal.SIGTERM)
signal.pause()
"""


SHARE = """
import ctypes, sqlite3, sys
if sys.argv[1:]: assert ctypes.CDLL(sys.argv[1]).memlith_sqlite_register(0) == 0
name = sys.argv[2] if sys.argv[2:] else "shared.db"
db = sqlite3.connect(name, uri=True, isolation_level=None)
if sys.argv[3:]: print(db.execute("pragma memlith_share = 1").fetchone()[0])
db.execute("pragma journal_mode = wal")
db.execute("create table if not exists t(a)")
db.execute("insert into t values(1)")
stats = db.execute("pragma memlith_stats").fetchone()[0]
print(db.execute("pragma memlith_share").fetchone()[0], "control_block=yes" in stats)
"""


def test_ways_to_share():
    """Each way into mode shared, in the sqlite3 shell and in Python."""
    uri = "file:shared.db?vfs=memlith"
    wal = "pragma journal_mode=wal;\ncreate table if not exists t(a);\ninsert into t values(1);\n"
    asks = "pragma memlith_share;\npragma memlith_stats;\n"

    def is_shared(answer):
        return answer.returncode == 0 and "shared" in answer.stdout.split() and "control_block=yes" in answer.stdout

    if shutil.which("sqlite3"):
        load = f".load {plugin}\n"
        answer = run(["sqlite3"], load + f".open '{uri}&share=1'\n" + wal + asks)
        check("sqlite3, .load, a URI", is_shared(answer), answer)
        answer = run(["sqlite3"], load + f".open '{uri}'\npragma memlith_share=1;\n" + wal + asks)
        check("sqlite3, .load, PRAGMA", is_shared(answer), answer)
        answer = run(["sqlite3"], load + f".open '{uri}'\n" + wal + asks, environment={"MEMLITH_SQLITE_SHARE": "1"})
        check("sqlite3, .load, MEMLITH_SQLITE_SHARE", is_shared(answer), answer)
        answer = run(["sqlite3", "shared.db"], wal + asks,
                     environment={"MEMLITH_SQLITE_SHARE": "1", "LD_PRELOAD": plugin})
        check("sqlite3, LD_PRELOAD, MEMLITH_SQLITE_SHARE", is_shared(answer), answer)
        answer = run(["sqlite3", "shared.db"], "pragma memlith_share=1;\n" + wal + asks,
                     environment={"LD_PRELOAD": plugin})
        check("sqlite3, LD_PRELOAD, PRAGMA", is_shared(answer), answer)
        answer = run(["sqlite3", "shared.db"], "select * from t;\npragma memlith_share=1;\nselect 'on';\n",
                     environment={"LD_PRELOAD": plugin, "MEMLITH_SQLITE_SHARE": "0"})
        check("too late for the PRAGMA", "has to be the first statement" in answer.stderr and "on" in answer.stdout,
              answer)
        os.mkdir(folder / "bare.db-memlith")
        answer = run(["sqlite3", "bare.db"], wal + asks,
                     environment={"MEMLITH_SQLITE_SHARE": "1", "MEMLITH_SQLITE_LOG": "stderr", "LD_PRELOAD": plugin})
        check("without a control block, said once", answer.stderr.count("mode shared as plain SQLite") == 1 and
              "control_block=none" in answer.stdout and plain("bare.db", "select * from t") == [(1,)], answer)
    for name, arguments, extra in (
            ("a URI", [plugin, uri + "&share=1"], {}),
            ("PRAGMA", [plugin, uri, "pragma"], {}),
            ("MEMLITH_SQLITE_SHARE", [plugin, uri], {"MEMLITH_SQLITE_SHARE": "1"}),
            ("LD_PRELOAD, MEMLITH_SQLITE_SHARE", [], {"MEMLITH_SQLITE_SHARE": "1", "LD_PRELOAD": plugin})):
        answer = run([sys.executable, "-c", SHARE, *arguments], environment=extra)
        check(f"Python, {name}", answer.stdout.splitlines()[-1:] == ["shared True"], answer)
    count = plain("shared.db", "select count(*) from t")[0][0]
    check("plain SQLite finds all", count == (9 if shutil.which("sqlite3") else 4), str(count))


def test_errors_and_ends():
    answer = run([sys.executable, "-c", ERROR, plugin])
    lines = answer.stdout.splitlines()
    check("memlith_error() on any connection and thread", len(lines) == 2 and lines[0] == lines[1] and
          "missing/app.db" in lines[0], answer)
    answer = run([sys.executable, "-c", ENDED, plugin])
    check("an ordinary file after SIGTERM", answer.returncode == 0 and plain("ended.db", "select * from t") == [(7,)],
          answer)


def test_busy_timeout(shell):
    """A shell sets no timeout; while another process writes, a statement of its own fails at once, or waits."""
    run([shell, "busy.db", "create table t(a);"])
    writer = sqlite3.connect(folder / "busy.db", isolation_level=None)
    insert = [shell, "busy.db", "pragma busy_timeout; insert into t values(1);"]
    with_plugin = {"LD_PRELOAD": plugin, "MEMLITH_SQLITE_SHARE": "1"}
    writer.execute("begin immediate")
    answer = run(insert, environment=with_plugin)
    check("busy: locked without a timeout", "locked" in answer.stderr and answer.stdout == "0\n", answer)
    log = folder.resolve() / "busy.log"
    extra = {"MEMLITH_SQLITE_BUSY_MS": "60000", "MEMLITH_SQLITE_LOG": str(log)}
    waiting = subprocess.Popen(insert, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=folder,
                               env={**environment, **with_plugin, **extra})
    while waiting.poll() is None and not (log.exists() and "busy.db" in log.read_text()):
        time.sleep(0.01)
    time.sleep(0.3)  # it has the database open, and meets the lock
    writer.execute("commit")
    writer.close()
    told = waiting.communicate(timeout=120)
    check("busy: waits with MEMLITH_SQLITE_BUSY_MS", told[0] == "60000\n" and waiting.returncode == 0, told)
    check("busy: the row is there", plain("busy.db", "select * from t") == [(1,)])
    answer = run(insert, environment={**with_plugin, "MEMLITH_SQLITE_BUSY_MS": "1s"})
    check("busy: no number is refused", "MEMLITH_SQLITE_BUSY_MS=1s" in answer.stderr, answer)


def test_shell(shell):
    answer = run([shell],
                 f".load '{plugin}'\n.open 'file:shell.db?vfs=memlith'\ncreate table t(a); insert into t values(1);\n"
                 "pragma journal_mode = wal; insert into t values(2);\npragma memlith_stats;\n",
                 environment={"MEMLITH_SQLITE_SHARE": "0"})
    check("shell: .load, URI", "journal=wal" in answer.stdout and not answer.stderr, answer)
    check("shell: plain SQLite afterwards", plain("shell.db", "select * from t") == [(1,), (2,)])
    answer = run([shell], f".load '{plugin}' sqlite3_memlithdefault_init\n.open default.db\ncreate table t(a);\n"
                 "pragma memlith_durability;\n")
    check("shell: as the default", answer.stdout.strip() == "full", answer)
    answer = run([shell], f".load '{plugin}'\n.open variable.db\ncreate table t(a);\npragma memlith_durability;\n",
                 environment={"MEMLITH_SQLITE_DEFAULT": "1", "MEMLITH_SQLITE_DURABILITY": "weak"})
    check("shell: as the default by the environment", answer.stdout.strip() == "weak", answer)
    answer = run([shell],
                 f".load '{plugin}'\n.open other.db\ncreate table t(a);\npragma memlith_durability;\n.load '{plugin}'\n"
                 "select 'still here';\n")
    check("shell: not the default, twice", answer.stdout.strip() == "still here" and not answer.stderr, answer)
    answer = run([shell, "preloaded.db", "create table t(a); insert into t values(1); pragma memlith_durability;"],
                 environment={"LD_PRELOAD": plugin})
    check("shell: LD_PRELOAD", answer.stdout.strip() == "full" and not answer.stderr, answer)
    check("shell: preloaded, plain afterwards", plain("preloaded.db", "select * from t") == [(1,)])


def test_many_shells(shell):
    """A rollback journal, and shells that know nothing of memlith: none waits for another one to give up the engine."""
    run([shell, "many.db", "create table t(a);"])
    log = folder.resolve() / "many.log"
    settings = {"LD_PRELOAD": plugin, "MEMLITH_SQLITE_LOG": str(log)}

    def insert(number):
        return run([shell, "-cmd", ".timeout 5000", "many.db", f"insert into t values({number});"],
                   environment=settings)
    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        answers = list(pool.map(insert, range(200)))
    lines = log.read_text().splitlines()
    check("200 inserts of 16 shells at a time: none is lost",
          plain("many.db", "select count(*), sum(a) from t") == [(200, 199 * 100)],
          [answer.stderr for answer in answers if answer.stderr])
    check("no shell had the engine", len(lines) == 200 and all("on memlith: shared" in line for line in lines),
          lines[:5])
    settings["MEMLITH_SQLITE_SHARE"] = "0"
    insert(200)
    check("a shell that asks has it", "on memlith: for writing" in log.read_text(), log.read_text()[-300:])


LOADED = """
import sqlite3, sys
loader = sqlite3.connect(":memory:")
loader.enable_load_extension(True)
loader.load_extension(sys.argv[1])
loader.close()
"""
REGISTERED = """
import ctypes, sqlite3, sys
assert ctypes.CDLL(sys.argv[1]).memlith_sqlite_register(0) == 0
"""
WORK = """
import threading
name = "file:" + sys.argv[2] + "?vfs=memlith"
a = sqlite3.connect(name, uri=True)
a.execute("create table t(a integer primary key, b text)")
with a: a.executemany("insert into t(b) values(?)", [(str(i),) for i in range(100)])
try:
    with a:
        a.execute("delete from t")
        raise KeyError
except KeyError:
    pass
b = sqlite3.connect(name, uri=True, timeout=30)
assert b.execute("select count(*) from t").fetchone() == (100,)
assert b.execute("pragma memlith_durability").fetchone() == ("full",)
b.execute("pragma journal_mode = wal")
def work():
    c = sqlite3.connect(name, uri=True, timeout=60)
    for i in range(20):
        with c: c.execute("insert into t(b) values('thread')")
    c.close()
threads = [threading.Thread(target=work) for _ in range(3)]
for each in threads: each.start()
for each in threads: each.join()
assert a.execute("select count(*) from t").fetchone() == (160,)
copy = sqlite3.connect(":memory:")
a.backup(copy)
assert copy.execute("select count(*) from t").fetchone() == (160,)
a.close(); b.close()
print("done")
"""
PRELOADED = """
import sqlite3, sys
a = sqlite3.connect(sys.argv[2])
a.execute("create table t(a)")
with a: a.execute("insert into t values(7)")
print(a.execute("pragma memlith_durability").fetchone())
a.close()
"""
SHUT_DOWN = """
import ctypes, sqlite3, sys
def look():
    a = sqlite3.connect(sys.argv[2])
    print(a.execute("pragma memlith_durability").fetchone())
    a.close()
look()
library = ctypes.CDLL("libsqlite3.so.0")
library.sqlite3_shutdown()
look()
library.sqlite3_vfs_find.restype = ctypes.c_void_p
library.sqlite3_vfs_register(ctypes.c_void_p(library.sqlite3_vfs_find(b"unix-none")), 1)
look()
"""
KILLED = """
a = sqlite3.connect("file:" + sys.argv[2] + "?vfs=memlith", uri=True)
a.execute("create table if not exists t(a integer primary key)")
while True:
    with a: row = a.execute("insert into t values(null)").lastrowid
    print(row, flush=True)
"""


def test_python(python, label):
    answer = run([python, "-c", "import sqlite3; print(hasattr(sqlite3.Connection, 'enable_load_extension'))"])
    if answer.returncode != 0:
        print(f"skip {label}: it has no sqlite3")
        return
    ways = [("registered", REGISTERED)]
    if answer.stdout.strip() == "True":
        ways.append(("loaded", LOADED))
    else:
        print(f"skip {label}, loaded: this Python is built without load_extension")
    for way, begin in ways:
        name = f"{label}-{way}.db"
        answer = run([python, "-c", begin + WORK, plugin, name])
        check(f"{label}: {way}", answer.stdout.strip() == "done", answer)
        check(f"{label}: {way}, plain afterwards", plain(name, "select count(*) from t") == [(160,)])
    answer = run([python, "-c", PRELOADED, plugin, f"{label}-preloaded.db"], environment={"LD_PRELOAD": plugin})
    check(f"{label}: LD_PRELOAD", answer.stdout.strip() == "('full',)" and not answer.stderr, answer)
    check(f"{label}: preloaded, plain afterwards", plain(f"{label}-preloaded.db", "select * from t") == [(7,)])
    answer = run([python, "-c", SHUT_DOWN, plugin, f"{label}-shut.db"], environment={"LD_PRELOAD": plugin})
    check(f"{label}: LD_PRELOAD, after sqlite3_shutdown()",
          answer.stdout.split("\n")[:3] == ["('full',)", "('full',)", "None"], answer)
    last = 0
    for _ in range(2):
        with subprocess.Popen([python, "-c", REGISTERED + KILLED, plugin, f"{label}-killed.db"], stdout=subprocess.PIPE,
                              text=True, cwd=folder, env=environment) as child:
            for line in child.stdout:
                last = int(line)
                if last % 10 == 0:
                    break
            child.send_signal(signal.SIGKILL)
            last = max([last, *(int(line) for line in child.stdout.read().splitlines())])
        found = run([python, "-c", REGISTERED
                     + "a = sqlite3.connect('file:' + sys.argv[2] + '?vfs=memlith', uri=True)\n"
                     "print(a.execute('select max(a) from t').fetchone()[0]); a.close()", plugin, f"{label}-killed.db"])
        good = found.stdout.strip().isdigit() and last <= int(found.stdout) <= last + 1
        check(f"{label}: kill -9", good, (last, found))


if sanitized:
    print("skip everything: the plugin is built with a sanitizer, which a program that is not cannot load")
    sys.exit(77)
if shell := shutil.which("sqlite3"):
    test_shell(shell)
    test_busy_timeout(shell)
    test_many_shells(shell)
else:
    print("skip the sqlite3 shell: there is none")
test_ways_to_share()
test_errors_and_ends()
seen = set()
for candidate in [sys.executable, "/usr/bin/python3", shutil.which("python3")]:
    if candidate and (real := os.path.realpath(candidate)) not in seen and pathlib.Path(real).exists():
        seen.add(real)
        test_python(candidate, f"python{len(seen)}")
shutil.rmtree(folder)
print(f"{tested} checks, {len(failures)} failed")
sys.exit(1 if failures else 77 if tested == 0 else 0)
