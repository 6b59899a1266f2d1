#!/usr/bin/env python3
"""memlith sqlite doctor: programs, processes and databases, and that its advice works.

Usage: doctor_test.py MEMLITH PLUGIN FOLDER
"""
import json
import os
import pathlib
import shutil
import sqlite3
import subprocess
import sys
import tempfile

memlith, plugin = sys.argv[1], str(pathlib.Path(sys.argv[2]).resolve())
if b"__asan_init" in pathlib.Path(plugin).read_bytes() or b"__tsan_init" in pathlib.Path(plugin).read_bytes():
    print("skipped: a sanitizer's runtime has to be the first library of a process")
    sys.exit(77)
pathlib.Path(sys.argv[3]).mkdir(parents=True, exist_ok=True)
folder = pathlib.Path(tempfile.mkdtemp(dir=sys.argv[3]))
failures = []


def doctor(target):
    """The findings, as objects."""
    answer = subprocess.run([memlith, "sqlite", "doctor", "--json", str(target)], capture_output=True, text=True,
                            timeout=120, check=False)
    return [json.loads(line) for line in answer.stdout.splitlines()]


def check(what, good, told=""):
    print(f"{'ok  ' if good else 'FAIL'} {what} {told if not good else ''}", flush=True)
    if not good:
        failures.append(what)


def has(findings, reaches, *texts):
    """True if one finding is of this kind and has these texts."""
    return any(each["reaches"] == reaches and all(text in each["finding"] + each["subject"] for text in texts)
               for each in findings)


def compiled(name, source, *flags):
    (folder / f"{name}.c").write_text(source)
    subprocess.run(["cc", "-o", folder / name, folder / f"{name}.c", *flags], check=True)
    return folder / name


CALLS = "#include <sqlite3.h>\nint main(void) { return sqlite3_open(\"x.db\", 0); }\n"
found = doctor(compiled("linked", CALLS, "-lsqlite3"))
check("linked with libsqlite3", has(found, "yes", "the system's libsqlite3") and "LD_PRELOAD=" in found[0]["advice"],
      found)
found = doctor(compiled("still", "int main(void) { return 0; }\n", "-static"))
check("linked statically", has(found, "no", "linked statically"), found)
found = doctor(compiled("own", "const char* t = \"CREATE TABLE x(type text,name text,tbl_name text,\";\n"
                        "int main(void) { return *t; }\n"))
check("a SQLite of its own", has(found, "no", "contains a SQLite of its own") and
      "sqlite3_memlithdefault_init" in found[0]["advice"], found)
found = doctor(compiled("go", "const char* t = \"CREATE TABLE x(type text,name text,tbl_name text,\";\n"
                        "const char* g = \"\\377 Go buildinf:\";\nint main(void) { return *t + *g; }\n"))
check("Go", "mattn" in found[0]["advice"], found)
own_python = compiled("python3.13", "const char* t = \"CREATE TABLE x(type text,name text,tbl_name text,\";\n"
                      "int main(void) { return *t; }\n")
found = doctor(own_python)
check("a Python with a SQLite inside", has(found, "no", "contains a SQLite of its own") and
      "LD_PRELOAD=" not in found[0]["advice"], found)
os.chmod(folder / "linked", 0o4755)
found = doctor(folder / "linked")
check("set-user-ID", has(found, "no", "ignores LD_PRELOAD"), found)
(folder / "script").write_text(f"#!/usr/bin/env {sys.executable}\n")
found = doctor(folder / "script")
check("a script", "is a script for" in found[0]["finding"], found)
(folder / "damaged").write_bytes((folder / "own").read_bytes()[:700])
check("a damaged program", len(doctor(folder / "damaged")) == 1)
check("nothing of that name", doctor(folder / "missing")[0].get("reaches") is None)

HOLDS = ("import ctypes, sqlite3, sys\n"
         "if sys.argv[2]: assert ctypes.CDLL(sys.argv[2]).memlith_sqlite_register(0) == 0\n"
         "db = sqlite3.connect(sys.argv[1], uri=True)\n"
         "db.execute('pragma journal_mode=wal'); db.execute('create table if not exists t(a)')\n"
         "print(db.execute('select count(*) from t').fetchone(), flush=True); sys.stdin.read()\n")


def while_open(name, uri, library, body, **extra):
    """Runs `body` with the number of a process that has the database open."""
    with subprocess.Popen([sys.executable, "-c", HOLDS, uri, library], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                          env={**os.environ, **extra}) as process:
        process.stdout.readline()
        body(doctor(folder / name), doctor(process.pid))
        process.stdin.close()


DB = folder / "app.db"
for mode, parameters, library, reaches, text in (
        ("shared", "?vfs=memlith&share=1", plugin, "yes", "in mode shared"),
        ("engine", "?vfs=memlith&share=0&idle_ms=0", plugin, "yes", "with the engine"),
        ("plain", "", "", "no", "is on plain SQLite")):
    while_open("app.db", f"file:{DB}{parameters}", library, lambda by_name, by_number: check(
        f"{mode}: a database, a process", has(by_name, reaches, text, "app.db") and has(by_number, reaches, text),
        (by_name, by_number)))
while_open("app.db", f"file:{DB}", "", lambda _, by_number: check(
    "a plugin that is not there", has(by_number, "no", "cannot see that file"), by_number),
    LD_PRELOAD="/nowhere/memlith_sqlite.so")
check("a database that no process has", has(doctor(DB), "unknown", "is open in no process"), doctor(DB))


# ---- the lines that it gives


def runs(arguments, **extra):
    return subprocess.run(arguments, capture_output=True, text=True, cwd=folder, timeout=120, check=False,
                          env={**os.environ, **extra})


if shutil.which("php"):
    line = next(each for each in doctor("php")[0]["advice"].splitlines() if "loadExtension" in each).strip()
    ask = "$d = new SQLite3(\"php.db\"); echo $d->querySingle(\"pragma memlith_share\");"
    answer = runs(["sh", "-c", line.replace("...", ask)])
    check("PHP in mode shared", answer.stdout == "shared", answer)
    answer = runs(["sh", "-c", line.replace("...", ask)], MEMLITH_SQLITE_SHARE="0")
    check("PHP on the engine", answer.stdout == "engine", answer)
    ask = "$d = new PDO(\"sqlite:php.db\"); echo $d->query(\"pragma memlith_share\")->fetchColumn();"
    answer = runs(["sh", "-c", line.replace("...", ask)], MEMLITH_SQLITE_SHARE="1")
    check("PDO in mode shared", answer.stdout == "shared", answer)
    answer = runs(["php", "-r", "echo (new SQLite3('php.db'))->querySingle('pragma memlith_share') ?? 'plain';"],
                  LD_PRELOAD=plugin)
    check("LD_PRELOAD does nothing for PHP", answer.stdout == "plain", answer)
else:
    print("skip PHP: it is not installed")
loads = "import sqlite3; sqlite3.connect(':memory:').enable_load_extension(True)"
if runs(["/usr/bin/python3", "-c", loads]).returncode == 0:
    line = next(each for each in doctor(own_python)[0]["advice"].splitlines() if "load_extension(" in each).strip()
    answer = runs(["/usr/bin/python3", "-c", f"import sqlite3\n{line}\nprint(sqlite3.connect('own.db').execute("
                   "'pragma memlith_share').fetchone()[0])"])
    check("the line for such a Python", answer.stdout == "shared\n", answer)
answer = runs([sys.executable, "-c", "import sqlite3\nprint(sqlite3.connect('python.db').execute("
               "'pragma memlith_share').fetchone()[0])"], LD_PRELOAD=plugin)
check("Python", answer.stdout == "shared\n", answer)
shutil.rmtree(folder)
print(f"{len(failures)} failed")
sys.exit(1 if failures else 0)
