#!/usr/bin/env python3
"""Packages with which programs use SQLite, on memlith: ./dev soak sqlite-clients, and those of Debian in ./dev test.

Gets sqlite3 and better-sqlite3 from npm and pysqlite3-binary and apsw from PyPI, in their newest versions, and uses
Perl's DBD::SQLite and Ruby's sqlite3 as Debian has them. Each runs its program of the folder clients/ with the plugin
preloaded, or loaded as an extension where a preload does not reach its SQLite: its results, the lines of
MEMLITH_SQLITE_LOG, kill -9, and what plain SQLite finds afterwards. Exit code 0: all of it is right. 77: there was
nothing to test.
"""
import argparse
import os
import pathlib
import shutil
import signal
import sqlite3
import subprocess
import sys

CLIENTS = pathlib.Path(__file__).resolve().parent.parent / "clients"
failures = []
tested = 0


def check(name, condition, told):
    global tested
    tested += 1
    print(f"{'ok  ' if condition else 'FAIL'} {name}", flush=True)
    if not condition:
        failures.append(name)
        print(told)


def quietly(command, folder):
    """True if an installation worked."""
    answer = subprocess.run([str(each) for each in command], cwd=folder, capture_output=True, text=True, timeout=1800,
                            check=False)
    if answer.returncode != 0:
        print(f"     {command[0]}: {(answer.stdout + answer.stderr).strip()[-400:]}")
    return answer.returncode == 0


class Client:
    """`reached`: by LD_PRELOAD. `loads`: it can load the plugin as an extension."""

    def __init__(self, name, command, reached=True, loads=False):
        self.name, self.command, self.reached, self.loads = name, command, reached, loads


def of_debian():
    found = []
    if (perl := shutil.which("perl")) and quietly([perl, "-MDBD::SQLite", "-e", "1"], "/"):
        found.append(Client("perl DBD::SQLite (Debian)", [perl, CLIENTS / "client.pl"]))
    ruby = "/usr/bin/ruby" if pathlib.Path("/usr/bin/ruby").exists() else None
    if ruby and quietly([ruby, "-e", "require 'sqlite3'"], "/"):
        found.append(Client("ruby sqlite3 (Debian)", [ruby, CLIENTS / "client.rb"]))
    return found


def of_registries(work):
    found = []
    if shutil.which("npm"):
        folder = work / "npm"
        folder.mkdir(exist_ok=True)
        if not (folder / "package.json").exists():
            (folder / "package.json").write_text('{"private": true}\n')
        for package, program, reached, loads in [("sqlite3", "client_sqlite3.js", True, False),
                                                 ("better-sqlite3", "client_better.js", False, True)]:
            # The package's own script gets, or builds, the module.
            if quietly(["npm", "install", "--foreground-scripts", package], folder):
                shutil.copy(CLIENTS / program, folder / program)
                found.append(Client(f"node {package}", ["node", folder / program], reached, loads))
            else:
                check(f"node {package}: installed from npm", False, "")
    else:
        print("skip node: there is no npm")
    environment = work / "python"
    python = environment / "bin" / "python"
    if python.exists() or quietly(["/usr/bin/python3", "-m", "venv", environment], work):
        for package, module, reached, loads in [("pysqlite3-binary", "pysqlite3", True, False),
                                                ("apsw", "apsw", False, True)]:
            if quietly([python, "-m", "pip", "install", "--quiet", package], work):
                found.append(Client(f"python {package}", [python, CLIENTS / "client.py", module], reached, loads))
            else:
                check(f"python {package}: installed from PyPI", False, "")
        found.append(Client("python sqlite3 and pysqlite3-binary", [python, CLIENTS / "client.py", "both"]))
    return found


def plain(path, query):
    connection = sqlite3.connect(path)
    try:
        row, verdict = connection.execute(query).fetchone(), connection.execute("pragma integrity_check").fetchone()[0]
    except sqlite3.Error as error:
        row, verdict = None, str(error)
    connection.close()
    return row[0] if verdict == "ok" else verdict


def try_client(client, way, plugin, folder):
    name = f"{client.name}, {way}"
    loaded = [plugin] if way == "loaded" else []
    environment = {**os.environ, "MEMLITH_SQLITE_LOG_MIB": "1", "MEMLITH_SQLITE_LOG": str(folder / "lines")}
    if way == "preloaded":
        environment["LD_PRELOAD"] = plugin
    expected = True if way == "loaded" else client.reached

    def run(command, database):
        return subprocess.run([*map(str, client.command), command, database, *loaded], cwd=folder, env=environment,
                              capture_output=True, text=True, timeout=300, check=False)
    answer = run("work", "work.db")
    words = answer.stdout.split()
    on_memlith = words[-1:] == ["full"]
    check(f"{name}: works, {'on memlith' if on_memlith else 'on plain SQLite'}",
          answer.returncode == 0 and words[:1] == ["101"] and expected == on_memlith, answer)
    log = folder / "lines"
    lines = [line for line in log.read_text().splitlines() if "/work.db: " in line] if log.exists() else []
    wanted = "work.db: on memlith: for writing" if on_memlith else "not on memlith"
    right = lambda line: wanted in line
    check(f"{name}: the log says so" if on_memlith else f"{name}: no call is seen",
          bool(lines) == on_memlith and all(map(right, lines)), (answer, lines))
    check(f"{name}: plain SQLite afterwards", plain(folder / "work.db", "select count(*) from t") == 101, answer)
    if not on_memlith:
        return
    last, rounds = 0, 3
    for _ in range(rounds):
        with subprocess.Popen([*map(str, client.command), "loop", "killed.db", *loaded], cwd=folder, env=environment,
                              stdout=subprocess.PIPE, text=True) as child:
            for line in child.stdout:
                last = int(line)
                if last % 20 == 0:
                    break
            child.send_signal(signal.SIGKILL)
            last = max([last, *(int(line) for line in child.stdout.read().split("\n")[:-1])])
    marked = (folder / "killed.db").read_bytes().startswith(b"\x89MEMSQL\n")
    answer = run("count", "killed.db")
    count = answer.stdout.split()[0] if answer.stdout else "0"
    check(f"{name}: kill -9", marked and answer.stdout.strip().endswith("ok")
          and 20 * rounds <= last <= int(count) <= last + rounds, (marked, last, answer))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--plugin", required=True)
    parser.add_argument("--work", required=True, type=pathlib.Path, help="for packages and databases")
    parser.add_argument("--debian", action="store_true", help="only what Debian has, and is installed")
    given = parser.parse_args()
    plugin = str(pathlib.Path(given.plugin).resolve())
    content = pathlib.Path(plugin).read_bytes()
    if b"__asan_init" in content or b"__tsan_init" in content:
        print("skip everything: the plugin is built with a sanitizer, which a program that is not cannot load")
        sys.exit(77)
    work = given.work.resolve()
    work.mkdir(parents=True, exist_ok=True)
    clients = of_debian() + ([] if given.debian else of_registries(work))
    for number, client in enumerate(clients):
        for way in ["preloaded"] + ["loaded"] * client.loads:
            folder = work / f"databases-{os.getpid()}" / f"{number}-{way}"
            folder.mkdir(parents=True)
            try_client(client, way, plugin, folder)
    shutil.rmtree(work / f"databases-{os.getpid()}", ignore_errors=True)
    print(f"{tested} checks of {len(clients)} clients, {len(failures)} failed")
    sys.exit(1 if failures else 77 if tested == 0 else 0)


if __name__ == "__main__":
    main()
