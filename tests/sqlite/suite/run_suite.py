#!/usr/bin/env python3
"""SQLite's own tests with memlith as the default VFS: ./dev soak sqlite-suite.

Gets SQLite's source from Debian, builds its test program with the plugin as default VFS (extra_init.c), runs each file of its
suite "veryquick" in a process of its own, and holds what fails, and does not with plain SQLite, against known.txt, which says why.
Exit code 0: nothing else.
The tests refuse to run as root; as root they are run as nobody.
"""
import argparse
import concurrent.futures
import os
import pathlib
import re
import shutil
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
SOURCES = """Types: deb-src
URIs: http://deb.debian.org/debian
Suites: bookworm
Components: main
Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg
"""
LIST = """set argv0 [lindex $argv 0]
set argv {}
set testdir [file dirname $argv0]
source $testdir/permutations.test
puts "FILES [join [dict get $::testspec(veryquick) -files] |]"
"""


def call(arguments, **more):
    result = subprocess.run(arguments, capture_output=True, text=True, check=False, **more)
    if result.returncode != 0:
        sys.exit(f"{' '.join(map(str, arguments))} failed:\n{(result.stdout + result.stderr)[-3000:]}")
    return result.stdout


def get_source(work):
    found = sorted(work.glob("sqlite3-*/"))
    if not found:
        (work / "lists" / "partial").mkdir(parents=True, exist_ok=True)
        (work / "source.sources").write_text(SOURCES, encoding="utf-8")
        options = ["-o", f"Dir::Etc::sourcelist={work}/source.sources", "-o", "Dir::Etc::sourceparts=/dev/null",
                   "-o", f"Dir::State::lists={work}/lists", "-o", "APT::Sandbox::User=root"]
        call(["apt-get", *options, "update"], cwd=work)
        call(["apt-get", *options, "source", "sqlite3"], cwd=work)
        found = sorted(work.glob("sqlite3-*/"))
    return found[0]


def build(source):
    place = source / "bld"
    program = place / "testfixture"
    if not program.exists():
        place.mkdir(exist_ok=True)
        call(["../configure", "--enable-load-extension", "--with-tcl=/usr/lib", "CFLAGS=-O1 -g0"], cwd=place)
        call(["make", f"-j{os.cpu_count()}", "sqlite3.c"], cwd=place)
        call(["make", "testfixture", "OPTS=-DSQLITE_EXTRA_INIT=memlith_extra_init",
              f"TLIBS={HERE / 'extra_init.c'} -lm -lz -ldl -lpthread"], cwd=place)
    return program


def known():
    lines = (HERE / "known.txt").read_text(encoding="utf-8").splitlines()
    return {line.split(None, 1)[0]: line.split(None, 1)[1] for line in lines if line and not line.startswith("#")}


def is_known(test, names):
    return any(re.fullmatch(name, test) for name in names)


class Run:
    def __init__(self, program, plugin, work):
        self.program, self.plugin, self.work = program, plugin, work
        self.as_nobody = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"] if os.geteuid() == 0 else []

    def start(self, arguments, folder, seconds, plain=False):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        if self.as_nobody:
            os.chown(folder, 65534, 65534)
        environment = {**os.environ, "MEMLITH_SQLITE_PLUGIN": self.plugin, "MEMLITH_SQLITE_LOG_MIB": "1", "HOME": str(folder)}
        if plain:
            del environment["MEMLITH_SQLITE_PLUGIN"]
        try:
            done = subprocess.run([*self.as_nobody, self.program, *arguments], cwd=folder, env=environment, text=True,
                                  errors="replace", stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
                                  timeout=seconds, check=False)
            return done.returncode, done.stdout
        except subprocess.TimeoutExpired as late:
            return "timeout", (late.stdout or b"").decode(errors="replace") if isinstance(late.stdout, bytes) else ""
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def test(self, file, plain=False):
        """How many tests ran, and the names of those that failed; a file that ended early is one of those."""
        name = pathlib.Path(file).name
        code, text = self.start([file], self.work / "run" / (name + ("-plain" if plain else "")), 600, plain)
        logs = self.work / ("logs-plain" if plain else "logs")
        logs.mkdir(exist_ok=True)
        (logs / (name + ".log")).write_text(text, encoding="utf-8")
        counts = re.search(r"(\d+) errors out of (\d+) tests", text)
        failed = re.search(r"!Failures on these tests: (.*)", text)
        if counts is None:
            return len(re.findall(r"\.\.\. Ok$", text, re.M)), [f"{name}:{'timeout' if code == 'timeout' else 'ended'}"]
        return int(counts[2]), failed[1].split() if failed else []

    def compare(self, file):
        """The same, without what plain SQLite fails too."""
        count, failed = self.test(file)
        if failed:
            plain = self.test(file, plain=True)[1]
            failed = [each for each in failed if each not in plain]
        return file, count, failed


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--plugin", required=True)
    options.add_argument("--work", required=True, type=pathlib.Path, help="where source, program and logs go")
    options.add_argument("--minutes", type=float, default=0, help="accepted like by every soak program; the suite runs once")
    options.add_argument("--only", default="", help="a regular expression for the names of test files")
    options.add_argument("--jobs", type=int, default=os.cpu_count())
    given = options.parse_args()
    work = given.work.resolve()
    work.mkdir(parents=True, exist_ok=True)
    program = build(get_source(work))
    run = Run(program, str(pathlib.Path(given.plugin).resolve()), work)
    script = work / "list.tcl"
    script.write_text(LIST, encoding="utf-8")
    _, listing = run.start([str(script), str(program.parent.parent / "test" / "veryquick.test")], work / "run" / "list", 120)
    files = re.search(r"^FILES (.*)$", listing, re.M)
    if not files:
        sys.exit(f"cannot list the tests:\n{listing[-3000:]}")
    tests = program.parent.parent / "test"
    files = [str(tests / name) if "/" not in name else name for name in files[1].split("|")]
    files = [name for name in files if re.search(given.only, pathlib.Path(name).name)]
    began, total, failures = time.monotonic(), 0, []
    names = known()
    with concurrent.futures.ThreadPoolExecutor(given.jobs) as pool:
        for file, count, failed in pool.map(run.compare, files):
            total += count
            failures += failed
            unknown = [each for each in failed if not is_known(each, names)]
            if unknown:
                print(f"{pathlib.Path(file).name}: {' '.join(unknown)}", flush=True)
    unknown = [each for each in failures if not is_known(each, names)]
    print(f"{len(files)} files, {total} tests, {len(failures)} failed, {len(failures) - len(unknown)} of them as known.txt says, "
          f"{len(unknown)} not; {time.monotonic() - began:.0f} s; logs in {work / 'logs'}")
    sys.exit(1 if unknown or total == 0 else 0)


if __name__ == "__main__":
    main()
