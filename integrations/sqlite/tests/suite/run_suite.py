#!/usr/bin/env python3
"""SQLite's own tests with memlith as the default VFS: ./dev soak sqlite-suite.

Gets SQLite's source from Debian, builds its test program with the plugin as default VFS (extra_init.c), runs each file
of its suite "veryquick" in a process of its own (each_command.tcl), on plain SQLite and on memlith, and holds what
differs against known.txt, which says why. Exit code 0: nothing else passes on plain SQLite and not on memlith. The
tests refuse to run as root; as root they are run as nobody.
"""
import collections
import os
import pathlib
import re
import shutil
import sys

from beside_plain import (HERE, SETTINGS, arguments, call, compare, ending, get_debian_source, read_reasons, reasons_of,
                          run_for)

FILE_SECONDS = 1800  # the longest takes two minutes on a machine that does nothing else
# On memlith, of one that waits for ever there, as known.txt says; on plain SQLite it takes a second.
HANGING_FILE_SECONDS = 60
# The line of a test that begins; Tcl ends a command that it cites after the dots.
BEGUN = r"^(?!! )(\S.*?)\.\.\.(?!\")"
LIST = """set argv0 [lindex $argv 0]
set argv {}
set testdir [file dirname $argv0]
source $testdir/permutations.test
puts "FILES [join [dict get $::testspec(veryquick) -files] |]"
"""


# Tests of several clients run twice: in processes, of which memlith's engine lets one write, and with connections of
# one process. Without this the first would end the file before the second. SQLite itself has it for its VFS unix-excl.
CLIENTS = ("""$tn==1 && [permutation]=="unix-excl\"""",
           """$tn==1 && ([permutation]=="unix-excl" || ([info exists ::env(MEMLITH_SQLITE_PLUGIN)] && """
           """$::env(MEMLITH_SQLITE_SHARE)=="0"))""")


def get_source(work):
    if not list(work.glob("sqlite3-*/")):
        get_debian_source(work, "sqlite3")
    source = next(work.glob("sqlite3-*/"))
    clients = source / "test" / "lock_common.tcl"
    text = clients.read_text(encoding="utf-8")
    if CLIENTS[1] not in text:
        if CLIENTS[0] not in text:
            sys.exit(f"{clients} is not what it was; see CLIENTS")
        clients.write_text(text.replace(*CLIENTS), encoding="utf-8")
    return source


def build(source):
    place = source / "bld"
    program = place / "testfixture"
    if not program.exists():
        place.mkdir(exist_ok=True)
        # Nearly what Debian's SQLite can do, so that there are the tests of it.
        call(["../configure", "--enable-all", "--enable-update-limit", "--with-tcl=/usr/lib", "CFLAGS=-O1 -g0"],
             cwd=place)
        call(["make", f"-j{os.cpu_count()}", "sqlite3.c"], cwd=place)
        call(["make", "testfixture", "OPTS=-DSQLITE_EXTRA_INIT=memlith_extra_init -DSQLITE_ENABLE_COLUMN_METADATA "
              "-DSQLITE_ENABLE_DBSTAT_VTAB -DSQLITE_ENABLE_UNLOCK_NOTIFY",
              f"TLIBS={HERE / 'extra_init.c'} -lm -lz -ldl -lpthread"], cwd=place)
    return program


def outcomes_of(label, code, text):
    """{name: outcome} of a file of tests, from what it printed. The names of the file come first, and a name that comes
    again is counted."""
    begun, failed, outcomes = collections.Counter(), collections.Counter(), {}
    why = {name: f"expected {wanted} got {got}" for name, wanted, got in
           re.findall(r"^! (.+) expected: (.*)\n! \1 got: *(.*)$", text, re.M)}
    why |= dict(re.findall(r"^(.+)\.\.\.\n(Error: .*)$", text, re.M))
    for name in re.findall(BEGUN, text, re.M):
        begun[name] += 1
    told = re.search(r"^(\d+) errors out of (\d+) tests", text, re.M)
    if told:
        failed.update((re.search(r"^!Failures on these tests: (.*)", text, re.M) or [None, ""])[1].split())
    else:
        failed.update(name for name, _ in re.findall(r"^! (.+) (expected): ", text, re.M))
        failed.update(name for name, _ in re.findall(r"^(.+)\.\.\.\n(Error): ", text, re.M))
        last = re.findall(BEGUN + r"(.*\n?.*)", text, re.M)
        if last and not last[-1][1].endswith(" Ok") and last[-1][0] not in failed:
            failed[last[-1][0]] += 1
    for name in begun | failed:
        for index in range(max(begun[name], failed[name])):
            outcome = "failed" if index >= begun[name] - failed[name] else "ok"
            outcomes[f"{label} {name}" + (f" #{index + 1}" if index else "")] = [outcome, why.get(name, "")
                                                                                 if outcome == "failed" else ""]
    unclean = re.search(r"^(\d+ files were left open|Unfreed memory: .*)", text, re.M)
    outcomes[f"{label} (end)"] = ["failed", unclean[1]] if unclean else ["ok", ""] if told else [ending(code),
                                                                                                 text[-300:]]
    return outcomes


def refuse_where_nobody_may_enter(path):
    for folder in [path, *path.parents]:
        if not folder.stat().st_mode & 0o001:
            sys.exit(f"as root, SQLite's tests are run as user nobody, who may not enter {folder}: "
                     "clone the project to where everybody may, /opt say, or run this as another user")


class Run:
    def __init__(self, program, given):
        self.program, self.plugin, self.work = program, given.plugin, given.work
        self.hanging = [pattern for pattern, _ in read_reasons(reasons_of(given, "known.txt"))
                        if pattern.endswith("hung")]
        self.as_nobody = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"] if os.geteuid() == 0 else []

    def start(self, arguments_given, folder, seconds, kind="memlith"):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        if self.as_nobody:
            os.chown(folder, 65534, 65534)
        environment = {name: value for name, value in os.environ.items()
                       if not name.startswith("MEMLITH_")} | {"HOME": str(folder)}
        if kind == "memlith":
            environment |= {"MEMLITH_SQLITE_PLUGIN": self.plugin, **SETTINGS}
        try:
            return run_for(seconds, [*self.as_nobody, self.program, *arguments_given], cwd=folder, env=environment)
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def __call__(self, kind, file):
        label = pathlib.Path(file).name
        hangs = kind == "memlith" and any(re.fullmatch(pattern, f"{label} (end): hung") for pattern in self.hanging)
        code, text = self.start([HERE / "each_command.tcl", file], self.work / "run" / f"{label}-{kind}",
                                HANGING_FILE_SECONDS if hangs else FILE_SECONDS, kind)
        logs = self.work / f"logs-{kind}"
        logs.mkdir(exist_ok=True)
        (logs / f"{label}.log").write_text(f"{text}\nexit code {code}\n", encoding="utf-8")
        return outcomes_of(label, code, text)


def list_files(run, tests):
    """The files of the suite, as SQLite's own list has them."""
    script = run.work / "list.tcl"
    script.write_text(LIST, encoding="utf-8")
    _, listing = run.start([str(script), str(tests / "veryquick.test")], run.work / "run" / "list", 300)
    files = re.search(r"^FILES (.*)$", listing, re.M)
    if not files:
        sys.exit(f"cannot list the tests:\n{listing[-3000:]}")
    return sorted(str(tests / name) if "/" not in name else name for name in files[1].split("|"))


def main():
    given = arguments(__doc__)
    if os.geteuid() == 0:
        refuse_where_nobody_may_enter(given.work)
    program = build(get_source(given.work))
    run = Run(program, given)
    files = list_files(run, program.parent.parent / "test")
    files = [name for name in files if re.search(given.only, pathlib.Path(name).name)]
    print(f"{len(files)} files", flush=True)
    sys.exit(compare(given, files, run, "known.txt"))


if __name__ == "__main__":
    main()
