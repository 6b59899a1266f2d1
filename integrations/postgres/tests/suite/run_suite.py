#!/usr/bin/env python3
"""PostgreSQL's own tests with memlith: ./dev soak postgres-suite.

Runs the regression tests (`make installcheck`) and the isolation tests of Debian's source package against a stock
server and against one with memlith, and prints every test that ends differently, with the folder of its output. Exit
code 0: no test passes on the stock server and fails on memlith.
"""
import argparse
import pathlib
import re
import shutil
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
sys.path.insert(0, str(HERE.parents[2] / "sqlite/tests/suite"))
from beside_plain import get_debian_source  # noqa: E402
from server import BIN, VERSION, Server, skip_without_postgres  # noqa: E402

DEVELOPMENT = f"postgresql-server-dev-{VERSION}"
HEADERS = f"usr/include/postgresql/{VERSION}/server"
PROGRAMS = BIN.parent / "lib/pgxs/src/test"
SUITES = {"regress": (PROGRAMS / "regress/pg_regress", "parallel_schedule"),
          "isolation": (PROGRAMS / "isolation/pg_isolation_regress", "isolation_schedule")}
OUTCOME = re.compile(r"^(?:test|    )\s*(\S+)\s+\.\.\. (ok|FAILED)", re.M)
SETTINGS = {"shared_buffers": "16MB", "max_connections": "60", "max_parallel_workers": "8"}


def source_in(work):
    source = f"postgresql-{VERSION}"
    if not list(work.glob(f"{source}-{VERSION}.*/src")):
        get_debian_source(work, source)
    return next(work.glob(f"{source}-{VERSION}.*/src"))


def headers_in(work):
    """Unpacks a package without installing it: its dependencies are not needed here."""
    folder = work / "development"
    if not (folder / HEADERS).exists():
        subprocess.run(["apt-get", "download", "-qq", DEVELOPMENT], cwd=work, check=True)
        package = next(work.glob(f"{DEVELOPMENT}_*.deb"))
        subprocess.run(["dpkg-deb", "-x", package, folder], check=True)
    return folder / HEADERS


def make_libraries(work, source, headers):
    """The functions in C that the tests load. The package of headers may be of a newer release than the server: only
    what a build generates is taken from it."""
    folder = work / "libraries"
    folder.mkdir(exist_ok=True)
    subprocess.run(["gcc", "-O1", "-w", "-fPIC", "-shared", f"-I{source / 'include'}", f"-I{headers}", "-o",
                    folder / "regress.so", source / "test/regress/regress.c"], check=True)
    for name in ("refint.so", "autoinc.so"):
        shutil.copy2(BIN.parent / "lib" / name, folder / name)
    return folder


def run_suite(name, server, source, libraries, work):
    """{test: outcome}"""
    program, schedule = SUITES[name]
    inputs, output = source / "test" / name, work / f"{server.folder.name}-{name}"
    shutil.rmtree(output, ignore_errors=True)
    server.own(output)
    words = [program, f"--inputdir={inputs}", f"--outputdir={output}", f"--bindir={BIN}",
             f"--schedule={inputs / schedule}", f"--host={server.socket}", "--user=postgres", f"--dlpath={libraries}",
             "--max-concurrent-tests=20"]
    done = subprocess.run([*server.user, *map(str, words)], capture_output=True, text=True, cwd=output, check=False)
    (output / "said.txt").write_text(done.stdout + done.stderr)
    outcomes = dict(OUTCOME.findall(done.stdout))
    if not outcomes:
        sys.exit(f"{name} has run no test: {(done.stdout + done.stderr)[-2000:]}")
    return outcomes


def run_all(server, given, source, libraries):
    server.remove()
    server.make().start()
    try:
        return {(suite, test): outcome for suite in SUITES
                for test, outcome in run_suite(suite, server, source, libraries, given.work).items()}
    finally:
        server.stop()
        server.call(BIN / "pg_checksums", "--check", "-D", server.data)
        server.remove()


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--plugin", required=True, type=pathlib.Path)
    options.add_argument("--work", required=True, type=pathlib.Path)
    given = options.parse_args()
    given.work = given.work.resolve()
    given.work.mkdir(parents=True, exist_ok=True)
    skip_without_postgres(given.plugin, *(program for program, _ in SUITES.values()))
    source = source_in(given.work)
    libraries = make_libraries(given.work, source, headers_in(given.work))
    plain = run_all(Server(given.work / "plain", **SETTINGS), given, source, libraries)
    memlith = run_all(Server(given.work / "memlith", given.plugin, **SETTINGS), given, source, libraries)
    worse = 0
    for suite, test in sorted(plain.keys() | memlith.keys()):
        before, now = plain.get((suite, test)), memlith.get((suite, test))
        if before != now:
            worse += before == "ok"
            print(f"{suite} {test}: {before} on stock, {now} on memlith; {given.work}/memlith-{suite}/regression.diffs")
    passed = sum(outcome == "ok" for outcome in memlith.values())
    print(f"{len(memlith)} tests, {passed} passed on memlith, {sum(each == 'ok' for each in plain.values())} on stock; "
          f"{worse} passed on stock only")
    return 1 if worse else 0


if __name__ == "__main__":
    sys.exit(main())
