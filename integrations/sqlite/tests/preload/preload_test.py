#!/usr/bin/env python3
"""docs/sqlite.md, "Programs with a SQLite of their own": the plugin preloaded, in processes that have one SQLite or
several.

Usage: preload_test.py PLUGIN MODULES FOLDER
MODULES are shared objects such as a language's SQLite module (CMakeLists.txt): with a SQLite of their own, exported or
hidden, or with the system's. Each call has to reach the SQLite of the object that calls. Exit code 77: nothing could be
tested.
"""
import os
import pathlib
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading

plugin = str(pathlib.Path(sys.argv[1]).resolve())
modules = pathlib.Path(sys.argv[2]).resolve()
pathlib.Path(sys.argv[3]).mkdir(parents=True, exist_ok=True)
folder = pathlib.Path(tempfile.mkdtemp(dir=sys.argv[3]))
os.environ["MEMLITH_SQLITE_SHARE"] = "0"  # the engine, unless a test takes the default
failures = []
tested = 0

# In the processes that are started: a module by its file, `lazy` as node and perl load theirs.
WORDS = f"""
import ctypes, os, sys, threading
modules = {str(modules)!r}
class Module:
    def __init__(self, name, lazy=False):
        path = name if "/" in name else modules + "/" + name + ".so"
        handle = None
        if lazy:
            dlopen = ctypes.CDLL(None).dlopen
            dlopen.restype, dlopen.argtypes = ctypes.c_void_p, [ctypes.c_char_p, ctypes.c_int]
            handle = dlopen(path.encode(), 1)
            assert handle, path
        self.calls = ctypes.CDLL(path, handle=handle)
        self.calls.module_run.restype = ctypes.c_char_p
        self.calls.module_run.argtypes = [ctypes.c_void_p, ctypes.c_char_p]
        self.calls.module_close.argtypes = [ctypes.c_void_p]
    def try_open(self, name, flags=0x46, vfs=None):
        self.db = ctypes.c_void_p()
        return self.calls.module_open(name.encode(), ctypes.byref(self.db), flags, vfs)
    def open(self, name, **more):
        code = self.try_open(name, **more)
        assert code == 0, code
        self.calls.module_wait(self.db, 60000)
        return self
    def open_otherwise(self, call, name):
        self.db = ctypes.c_void_p()
        code = getattr(self.calls, call)(name, ctypes.byref(self.db))
        assert code == 0, code
        return self
    def twice(self):
        other = Module.__new__(Module)
        other.calls = self.calls
        return other
    def run(self, sql):
        return self.calls.module_run(self.db, sql.encode()).decode()
    def registered(self):
        return self.calls.module_has_vfs(b"memlith")
    def close(self):
        assert self.calls.module_close(self.db) == 0
"""


def run(text, *arguments, environment=None, **more):
    return subprocess.run([sys.executable, "-c", WORDS + text, *arguments], capture_output=True, text=True,
                          timeout=120, cwd=folder, check=False,
                          env={**os.environ, "MEMLITH_SQLITE_LOG_MIB": "1", "LD_PRELOAD": plugin,
                               "MEMLITH_SQLITE_LOG": "stderr", **(environment or {})}, **more)


def check(name, condition, told=""):
    global tested
    tested += 1
    print(f"{'ok  ' if condition else 'FAIL'} {name}")
    if not condition:
        failures.append(name)
        print("\n".join((told.stdout, told.stderr)) if isinstance(told, subprocess.CompletedProcess) else told)


def plain(name, query="select * from t"):
    connection = sqlite3.connect(folder / name)
    rows = connection.execute(query).fetchall()
    verdict = connection.execute("pragma integrity_check").fetchone()[0]
    connection.close()
    return rows if verdict == "ok" else verdict


def there(*names):
    missing = [name for name in names if not (modules / f"{name}.so").exists()]
    if missing:
        print(f"skip {' '.join(names)}: the system has no static SQLite to make them of")
    return not missing


def make_private():
    """A module with a library of its own beside it, whose file and name are not the system's, as wheels have it."""
    place = folder / "private"
    place.mkdir()
    library = next(line.split()[-1] for line in pathlib.Path("/proc/self/maps").read_text().splitlines()
                   if "libsqlite3.so" in line)
    for source, target in [(library, "libsqliteX.so.0"), (modules / "system.so", "private.so")]:
        content = pathlib.Path(source).read_bytes()
        assert content.count(b"libsqlite3.so.0\0") == 1, source
        (place / target).write_bytes(content.replace(b"libsqlite3.so.0\0", b"libsqliteX.so.0\0"))
    return str(place / "private.so")


WORK = """
module = Module(sys.argv[1], lazy=sys.argv[3] == "lazy")
module.open(sys.argv[2])
second = module.twice().open_otherwise("module_open_simply", sys.argv[2].encode())
third = module.twice().open_otherwise("module_open16", sys.argv[2].encode("utf-16-le") + bytes(2))
print(module.run("create table t(a); insert into t values(1); insert into t values(2)"), end="")
counted = second.run("begin; insert into t values(3); rollback; select count(*) from t")
print(counted, third.run("pragma memlith_durability"), module.registered())
for each in [module, second, third]: each.close()
"""


def test_each(name, path, way):
    database = f"{name}-{way}.db"
    answer = run(WORK, path, database, way)
    check(f"{name}, {way}: works, on memlith", answer.stdout.strip() == "2 full 1", answer)
    lines = [line for line in answer.stderr.splitlines() if database in line]
    check(f"{name}, {way}: a line for each connection",
          len(lines) == 3 and all(": on memlith: for writing, durability full" in line for line in lines), answer)
    check(f"{name}, {way}: plain SQLite afterwards", plain(database) == [(1,), (2,)])


def test_elsewhere(name, reason):
    database = f"{name}.db"
    answer = run(WORK, name, database, "now")
    check(f"{name}: works, on plain SQLite", answer.stdout.strip() == "2  0", answer)
    lines = [line for line in answer.stderr.splitlines() if database in line]
    if reason is None:
        check(f"{name}: no line, because no call is seen", not answer.stderr, answer)
    else:
        check(f"{name}: the lines say why",
              len(lines) == 3 and all(f"not on memlith: {reason}" in line for line in lines), answer)
    check(f"{name}: plain SQLite afterwards", plain(database) == [(1,), (2,)])


KILLED = """
module = Module(sys.argv[1]).open(sys.argv[2])
module.run("create table if not exists t(a integer primary key)")
while True: print(module.run("insert into t values(null); select last_insert_rowid()"), flush=True)
"""


def test_kill(name, path):
    last = 0
    for _ in range(3):
        with subprocess.Popen([sys.executable, "-c", WORDS + KILLED, path, f"{name}-killed.db"],
                              stdout=subprocess.PIPE, text=True, cwd=folder,
                              env={**os.environ, "LD_PRELOAD": plugin, "MEMLITH_SQLITE_LOG_MIB": "1"}) as child:
            for line in child.stdout:
                last = int(line)
                if last % 10 == 0:
                    break
            child.send_signal(signal.SIGKILL)
            last = max([last, *(int(line) for line in child.stdout.read().splitlines())])
    mark = (folder / f"{name}-killed.db").read_bytes()[:8]
    answer = run("module = Module(sys.argv[1]).open(sys.argv[2])\nprint(module.run('select count(*) from t; pragma "
                 "integrity_check'))\nmodule.close()",
                 path, f"{name}-killed.db")
    count = answer.stdout.split("\n")[0]
    check(f"{name}: kill -9", mark == b"\x89MEMSQL\n" and answer.stdout.endswith("ok\n")
          and last <= int(count) <= last + 3 and last >= 30, (last, mark, answer))


TOGETHER = """
import sqlite3
modules = [Module(path) for path in sys.argv[3:]]
name, mode = sys.argv[1], sys.argv[2]
first = modules[0].open(name)
first.run(f"pragma journal_mode = {mode}; create table t(who, a)")
def work(who, module):
    mine = module.twice().open(name)
    for i in range(40):
        answer = mine.run("begin immediate")
        answer += mine.run(f"insert into t values({who}, (select count(*) from t where who = {who})); commit")
        assert answer == "", answer
    mine.close()
def work_with_python(who):
    mine = sqlite3.connect(name, timeout=60)
    for i in range(40):
        with mine: mine.execute("insert into t values(?, (select count(*) from t where who = ?))", (who, who))
    mine.close()
threads = [threading.Thread(target=work, args=(who, module)) for who, module in enumerate(modules)]
threads += [threading.Thread(target=work_with_python, args=(9,))]
for each in threads: each.start()
for each in threads: each.join()
print(first.run("select who, count(*), max(a) from t group by who; pragma integrity_check; pragma journal_mode"))
# One that writes keeps the others out, whichever SQLite they have.
first.run("begin immediate")
other = modules[-1].twice()
assert other.try_open(name) == 0
print(other.run("begin immediate"))
first.run("rollback")
first.close(), other.close()
"""


def test_together(paths, mode):
    database = f"together-{mode}.db"
    answer = run(TOGETHER, database, mode, *paths,
                 environment={"MEMLITH_SQLITE_SHARE": "0" if mode == "delete" else ""})
    expected = [f"{who}|40|39" for who in range(len(paths))] + ["9|40|39", "ok", mode, "error 5: database is locked"]
    check(f"several SQLites on one database, {mode}", answer.stdout.split("\n")[:-1] == expected, answer)
    lines = [line for line in answer.stderr.splitlines() if database in line]
    connections = len(paths) + 3
    shared = sum(": on memlith: shared" in line for line in lines)
    check(f"several SQLites on one database, {mode}: all on memlith",
          all(": on memlith" in line for line in lines)
          and (len(lines), shared) == (connections, connections if mode == "wal" else 0), answer)
    check(f"several SQLites on one database, {mode}: plain SQLite afterwards",
          plain(database, "select count(*) from t") == [(40 * (len(paths) + 1),)])


def test_pointers():
    answer = run("""
import sqlite3
sqlite3.connect("pointer-1.db").close()
module = Module("own").open("pointer-2.db")
assert module.calls.module_load(module.db, (modules + "/extension.so").encode(), None) == 0
print(module.run("select opens_itself('pointer-3.db')"))
module.close()
""")
    check("an extension opens a database with its host's SQLite, one of two", answer.stdout.strip() == "memlith",
          answer)
    answer = run("""
module = Module("own").open_otherwise("module_open_by_jump", b"jump-1.db")
print(module.run("pragma memlith_durability"))
module.close()
import sqlite3
sqlite3.connect("jump-2.db").close()
db = ctypes.c_void_p(1)
print(module.calls.module_open_by_jump(b"jump-3.db", ctypes.byref(db)), db.value)
""")
    check("a call by a jump, from an object without a SQLite", answer.stdout.split("\n")[:2] == ["full", "1 None"],
          answer)
    check("a call that may be for either of two is refused",
          "refused a call" in answer.stderr and not (folder / "jump-3.db").exists(), answer)
    answer = run("""
import sqlite3
sqlite3.connect("user-1.db").close()
user = Module("user").open_otherwise("user_open", b"user-2.db")
print(user.run("pragma memlith_durability"), user.registered())
user.close()
""")
    check("a call by a jump, for an object that is linked to one of two SQLites",
          answer.stdout.split() == ["full", "1"], answer)
    answer = run("""
dlclose = ctypes.CDLL(None).dlclose
dlclose.argtypes = [ctypes.c_void_p]
# Each is loaded where the one before was.
for path in [sys.argv[1], "system", "own"] * 2:
    module = Module(path).open("unloaded.db")
    print(module.run("pragma memlith_durability"), module.registered(), end=" ")
    module.close()
    dlclose(module.calls._handle)
""", private)
    check("modules that are unloaded in between", answer.stdout.split() == ["full", "1"] * 6, answer)
    answer = run("""
module = Module("own")
ctypes.CDLL("libsqlite3.so.0", mode=ctypes.RTLD_GLOBAL)
module.open("global.db")
print(module.run("pragma memlith_durability"), module.registered())
""")
    check("another SQLite is loaded for everybody after a module was bound to its own",
          answer.stdout.split() == ["full", "1"], answer)


def test_shutdown():
    answer = run("""
module = Module("own")
for i in range(3):
    module.open("shut.db")
    print(module.run("pragma memlith_durability"))
    module.close()
    module.calls.module_shutdown()
""")
    check("after sqlite3_shutdown() of a module's own SQLite", answer.stdout.split() == ["full"] * 3, answer)


def test_register():
    answer = run("""
import sqlite3
module = Module("own")
print(ctypes.CDLL(sys.argv[1]).memlith_sqlite_register(0))
print(module.open("file:registered.db?vfs=memlith").run("pragma memlith_durability"))
print(sqlite3.connect("file:registered.db?vfs=memlith", uri=True).execute("pragma memlith_durability").fetchall())
""", plugin, environment={"LD_PRELOAD": ""})
    check("registered with each SQLite of a process", answer.stdout.split("\n")[:3] == ["0", "full", "[('full',)]"],
          answer)
    answer = run("""
module = Module("hidden").open(":memory:")
assert module.calls.module_load(module.db, sys.argv[1].encode(), b"sqlite3_memlithdefault_init") == 0
other = module.twice().open("hidden-loaded.db")
print(other.run("create table t(a); pragma memlith_durability"))
print(Module("own").open("hidden-beside.db").run("create table t(a); pragma memlith_durability") == "")
other.close(), module.close()
""", plugin, environment={"LD_PRELOAD": ""})
    check("loaded as an extension by a SQLite that is hidden", answer.stdout.split() == ["full", "True"], answer)
    check("loaded as an extension: lines", ": on memlith" in answer.stderr
          and "hidden-beside.db: not on memlith: the VFS \"memlith\" is not registered" in answer.stderr, answer)


USES = """
import sqlite3
db = sqlite3.connect("logged.db")
db.execute("create table if not exists t(a)")
with db: db.execute("insert into t values(1)")
print(db.execute("select count(*) > 0 from t").fetchone()[0], db.execute("pragma memlith_durability").fetchone()[0])
db.close()
"""


def test_log():
    words = ["1 full"]

    def works(answer):
        return answer.returncode == 0 and answer.stdout.strip() == words[0]
    log = folder / "lines.log"
    answer = run("os.chdir('/')\nos.environ['x'] = '1'\n"
                 + USES.replace('"logged.db"', repr(str(folder / "logged.db"))),
                 environment={"MEMLITH_SQLITE_LOG": "lines.log"})
    check("log: a file by a relative name",
          works(answer) and log.read_text().count("logged.db: on memlith") == 1 and not answer.stderr, answer)
    for target in ["/dev/full", "/nowhere/lines.log", "/", "", "0"]:
        answer = run(USES, environment={"MEMLITH_SQLITE_LOG": target})
        check(f"log: {target!r} harms nothing", works(answer) and not answer.stderr, answer)
        (folder / "0").unlink(missing_ok=True)
    os.mkfifo(folder / "fifo")
    answer = run(USES, environment={"MEMLITH_SQLITE_LOG": str(folder / "fifo")})
    check("log: a fifo without a reader harms nothing", works(answer), answer)
    answer = run("import resource, signal, sqlite3\nresource.setrlimit(resource.RLIMIT_FSIZE, (0, "
                 "resource.getrlimit(resource.RLIMIT_FSIZE)[1]))\n"
                 "signal.signal(signal.SIGXFSZ, signal.SIG_DFL)\nsqlite3.connect('file:logged.db?mode=ro', "
                 "uri=True).execute('select * from t').fetchall()\n"
                 "print('1 full')", environment={"MEMLITH_SQLITE_LOG": str(log)})
    check("log: a file that may not grow harms nothing", works(answer), answer)
    data = folder / "data"
    answer = run(f"db = open({str(data)!r}, 'wb', buffering=0)\nassert db.fileno() == 2, db.fileno()\nfile = db\n"
                 + USES + "file.write(b'mine')", preexec_fn=lambda: os.close(2))
    check("log: standard error closed, and its number another file's", works(answer) and data.read_bytes() == b"mine",
          answer)
    answer = run(f"os.close(2)\nfile = os.open({str(data)!r}, os.O_RDWR | os.O_TRUNC)\nassert file == 2\n" + USES
                 + "os.write(file, b'mine')")
    check("log: standard error closed later", works(answer) and data.read_bytes() == b"mine", answer)
    ends = os.pipe()
    os.close(ends[0])
    with subprocess.Popen([sys.executable, "-c", WORDS + "import signal\nsignal.signal(signal.SIGPIPE, "
                                                         "signal.SIG_DFL)\n" + USES], stdout=subprocess.PIPE,
                          stderr=ends[1], text=True, cwd=folder,
                          env={**os.environ, "LD_PRELOAD": plugin, "MEMLITH_SQLITE_LOG": "stderr"}) as child:
        os.close(ends[1])
        told = child.communicate()[0]
    check("log: standard error without a reader", told.strip() == words[0] and child.returncode == 0,
          (told, child.returncode))
    ends = os.pipe()
    os.set_blocking(ends[1], False)
    while True:
        try:
            os.write(ends[1], b"x" * 4096)
        except BlockingIOError:
            break
    os.set_blocking(ends[1], True)
    with subprocess.Popen([sys.executable, "-c", WORDS + USES], stdout=subprocess.PIPE, stderr=ends[1], text=True,
                          cwd=folder, env={**os.environ, "LD_PRELOAD": plugin,
                                           "MEMLITH_SQLITE_LOG": "stderr"}) as child:
        ended = threading.Timer(60, child.kill)
        ended.start()
        told = child.communicate()[0]
        ended.cancel()
    os.close(ends[0]), os.close(ends[1])
    check("log: a pipe that is full stops no process", told.strip() == words[0] and child.returncode == 0,
          (told, child.returncode))
    log.unlink()
    answer = run("""
import sqlite3
def work(i):
    for j in range(20): sqlite3.connect(f"threads-{i}.db").close()
children = []
for i in range(2):
    child = os.fork()
    if child == 0:
        threads = [threading.Thread(target=work, args=(f"{i}-{j}",)) for j in range(3)]
        for each in threads: each.start()
        for each in threads: each.join()
        os._exit(0)
    children.append(child)
print([os.waitpid(child, 0)[1] for child in children])
""", environment={"MEMLITH_SQLITE_LOG": str(log)})
    lines = log.read_text().splitlines()
    whole = re.compile(r"memlith \d+: \S+/threads-\d-\d\.db: on memlith: for writing, durability full \(SQLite "
                       r"[0-9.]+\)")
    check("log: whole lines of threads and forked processes",
          answer.stdout.strip() == "[0, 0]" and len(lines) == 120 and all(whole.fullmatch(line) for line in lines),
          (answer, lines[:3], len(lines)))
    answer = run("""
import sqlite3
def attempt(name, **more):
    try: sqlite3.connect(name, **more).execute("create table x(a)")
    except sqlite3.Error as error: print(error)
attempt("file:wrong.db?log_mib=no", uri=True)
attempt("file:mine\\n.db?vfs=unix", uri=True)
attempt("file:shown?mode=memory", uri=True)
holder = sqlite3.connect("held.db", isolation_level=None)
holder.execute("create table t(a)")
holder.execute("begin immediate")  # between transactions it would give the database to the other process
import subprocess
opening = ("import sqlite3\\ntry: sqlite3.connect('held.db', timeout=1)\\n"
           "except sqlite3.Error as error: print(error)")
subprocess.run([sys.executable, "-c", opening])
""", environment={"MEMLITH_SQLITE_OPEN_WAIT_MS": "300"})
    told = answer.stderr.splitlines()
    check("log: an error's sentence",
          any("error: log_mib=no: it must be a number from 1 to" in line for line in told), answer)
    check("log: another VFS, and a line stays a line",
          any("/mine\\x0a.db: not on memlith: the program, or its default, asks for another VFS (VFS \"unix\"" in line
             for line in told), answer)
    check("log: in memory", any("a database without a name: not on memlith: in memory, or temporary" in line
                                for line in told), answer)
    check("log: who holds a database", any(re.search(r"error: \S*held\.db\S*: .*process \d+", line) for line in told),
          answer)


if b"__asan_init" in pathlib.Path(plugin).read_bytes() or b"__tsan_init" in pathlib.Path(plugin).read_bytes():
    print("skip everything: the plugin is built with a sanitizer, which a program that is not cannot load")
    sys.exit(77)
private = make_private()
everything = there("own")
for way in ["now", "lazy"]:
    test_each("system", "system", way)
    test_each("private", private, way)
    test_each("needs_both", "needs_both", way)
    if everything:
        test_each("own", "own", way)
        test_each("needs_forgetful", "needs_forgetful", way)
test_kill("private", private)
if everything:
    test_kill("own", "own")
    test_elsewhere("hidden", None)
    test_elsewhere("incomplete", "this SQLite does not export the functions that a VFS needs")
    test_elsewhere("old", "this SQLite is older than 3.22")
    test_elsewhere("encrypts", "this SQLite encrypts databases")
    shutil.copy(modules / "own.so", folder / "own_twin.so")
    for journal_mode in ["delete", "wal"]:
        test_together(["own", str(folder / "own_twin.so"), private], journal_mode)
    test_pointers()
    test_shutdown()
    test_register()
test_log()
shutil.rmtree(folder)
print(f"{tested} checks, {len(failures)} failed")
sys.exit(1 if failures else 0)
