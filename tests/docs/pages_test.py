#!/usr/bin/env python3
"""Follows a page of docs/ as a reader would: writes its files, runs its commands, and compares what these print.

A block of code with title="NAME" is a file of that name. A block `console` is a session: a line `$ COMMAND` is run, in
one bash for the whole page, with the lines `> ...` that follow it; what it prints must be the lines below. `...` stands
for any text within a line, and alone for any lines. A command must succeed, unless its line ends with `# fails`. Every
other block of a page must follow a line `<!-- not run: REASON -->`, or `<!-- body of main, with HEADER -->`: that one
is compiled in C++ with the header, and run.

What a reader has installed is taken from a build: headers, libraries, programs, and the Python with the package. Paths
of installed plugins stand for those of the build.

Usage: pages_test.py BUILD PAGE FOLDER [PYTHON]
"""
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
BLOCK = re.compile(r"(?P<before>[^\n]*)\n```(?P<info>[^\n`]*)\n(?P<code>.*?)\n```$", re.DOTALL | re.MULTILINE)
BODY = re.compile(r"<!-- body of main, with (\S+) -->")
NOT_RUN = re.compile(r"<!-- not run: \S.* -->")
INSTALLED = "/usr/lib/x86_64-linux-gnu/memlith_"
MARK = "-- end of a command --"
SKIPPED = 77


class Session:
    """A bash in which the commands of a page run, one after the other."""

    def __init__(self, folder, environment):
        self.bash = subprocess.Popen(["bash", "--norc"], cwd=folder, env=environment, stdin=subprocess.PIPE,
                                     stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                     start_new_session=True)

    def run(self, command):
        """The command's output, and its status."""
        self.bash.stdin.write(f"{command}\necho '{MARK}' $?\n")
        self.bash.stdin.flush()
        lines = []
        for line in self.bash.stdout:
            before, mark, status = line.rstrip("\n").partition(MARK)
            if mark:
                return "\n".join(lines + [before] if before else lines), int(status)
            lines.append(before)
        raise AssertionError(f"the shell ended in: {command}")

    def close(self):
        """Ends the shell, and what the page left running."""
        os.killpg(self.bash.pid, signal.SIGKILL)
        self.bash.communicate()


def blocks(text):
    """(kind, what) of each block: ("file", (name, code)), ("session", code); complains about others."""
    for match in BLOCK.finditer("\n" + text):
        language, _, rest = match["info"].partition(" ")
        title = re.search(r'title="([^"]+)"', rest)
        if NOT_RUN.fullmatch(match["before"]):
            continue
        if body := BODY.fullmatch(match["before"]):
            yield "file", ("body.cpp", f"#include <{body[1]}>\nint main() {{\n{match['code']}\n}}\n")
            yield "session", "$ c++ -std=c++20 body.cpp -o body -lmemlith && ./body"
        elif title:
            yield "file", (title[1], match["code"] + "\n")
        elif language == "console":
            yield "session", match["code"]
        else:
            raise AssertionError(f"a block that is not run, without a reason:\n{match['code']}")


def commands(session):
    """(command, the lines shown below it) of a session."""
    command, shown = None, []
    for line in session.split("\n"):
        if line.startswith("> ") and command is not None and not shown:
            command += "\n" + line[2:]
        elif line.startswith("$ "):
            if command is not None:
                yield command, shown
            command, shown = line[2:], []
        else:
            shown.append(line)
    assert command is not None, f"a session without a command:\n{session}"
    yield command, shown


def pattern_of(shown):
    """The lines for which the shown ones stand."""
    parts = []
    for line in shown:
        if line.strip() == "...":
            parts.append(r"(?:[^\n]*\n)*?")
        else:
            parts.append(".*?".join(re.escape(part) for part in line.rstrip().split("...")) + r"[ \t]*\n")
    return re.compile("".join(parts))


def environment_of(build, python):
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MEMLITH_")}
    programs = [str(python.parent)] if python else []
    return environment | {
        "CPATH": str(ROOT / "include"), "LIBRARY_PATH": str(build / "lib"), "LD_LIBRARY_PATH": str(build / "lib"),
        "PATH": ":".join([*programs, str(build / "bin"), environment["PATH"]]), "LC_ALL": "C.UTF-8",
        "PYTHONDONTWRITEBYTECODE": "1"}


def follow(page, folder, build, python):
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    began = time.monotonic()
    session, counts = Session(folder, environment_of(build, python)), {"file": 0, "session": 0}
    try:
        for kind, what in blocks(page.read_text(encoding="utf-8")):
            counts[kind] += 1
            if kind == "file":
                (folder / what[0]).parent.mkdir(parents=True, exist_ok=True)
                (folder / what[0]).write_text(what[1], encoding="utf-8")
                continue
            for command, shown in commands(what):
                printed, status = session.run(command.replace(INSTALLED, f"{build}/lib/memlith_"))
                fails = command.rstrip().endswith("# fails")
                assert (status != 0) == fails, f"{page.name}: {command}\nended with {status} and printed:\n{printed}"
                text = printed + "\n" if printed else ""
                assert pattern_of(shown).fullmatch(text), (
                    f"{page.name}: {command}\nprinted:\n{text}the page shows:\n" + "\n".join(shown))
    finally:
        session.close()
    assert counts["session"] > 0, f"{page.name} has nothing to run"
    print(f"{page.name}: {counts['file']} files, {counts['session']} sessions, {time.monotonic() - began:.1f} s")


def self_test():
    assert pattern_of(["a ... c", "...", "z"]).fullmatch("a b c\nx\ny\nz\n")
    assert pattern_of(["..."]).fullmatch("") and not pattern_of(["a"]).fullmatch("")
    assert not pattern_of(["a"]).fullmatch("a\nb\n")
    text = ('x\n```cpp title="a.cpp"\nint a;\n```\n<!-- not run: why -->\n```ini\n[x]\n```\n'
            "```console\n$ a\nb\n$ c \\\n> d\n```\n")
    found = list(blocks(text))
    assert found == [("file", ("a.cpp", "int a;\n")), ("session", "$ a\nb\n$ c \\\n> d")], found
    assert list(commands(found[1][1])) == [("a", ["b"]), ("c \\\nd", [])]
    try:
        list(blocks("\n```ini\n[x]\n```\n"))
    except AssertionError:
        return
    raise AssertionError("a block that is not run was not found")


def main():
    sys.stdout.reconfigure(line_buffering=True)
    self_test()
    build, page, folder = (pathlib.Path(word).resolve() for word in sys.argv[1:4])
    # Not resolved: the link in the environment's folder is what makes it that environment's.
    python = pathlib.Path(sys.argv[4]).absolute() if len(sys.argv) > 4 else None
    if python and not python.exists():
        print("skipped: there is no environment with the package; see the test python.wheel")
        return SKIPPED
    follow(page, folder, build, python)
    return 0


if __name__ == "__main__":
    sys.exit(main())
