#!/usr/bin/env python3
"""The manual pages name every command and option, and roff has no complaint; bash and zsh complete what they should.

Usage: pages_test.py MEMLITH PAGES_PY
"""
import json
import os
import pathlib
import pty
import re
import select
import subprocess
import sys
import tempfile
import unittest

MEMLITH, PAGES = sys.argv[1:3]
SILENCE_S = 20  # how long zsh may say nothing before the test gives up

ASK_BASH = """
source "$1"
shift
COMP_WORDS=("$@")
COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
_memlith
printf '%s\\n' "${COMPREPLY[@]}"
"""


class Zsh:
    """An interactive zsh in a terminal of its own, in which `memlith` prints what it was called with."""

    def __init__(self, functions):
        child, self.terminal = pty.fork()
        if child == 0:
            os.execvpe("zsh", ["zsh", "-f", "-i"], dict(os.environ, TERM="dumb", PS1="% "))
        self.child = child
        self.send(f"fpath=({functions} $fpath); autoload -U compinit; compinit -u -D; "
                  "memlith() { print -r -- \"GOT\"\":$*:\" }; print REA''DY\n")
        self.wait("READY")

    def send(self, text):
        os.write(self.terminal, text.encode())

    def wait(self, pattern):
        seen = ""
        while not re.search(pattern, seen):
            if not select.select([self.terminal], [], [], SILENCE_S)[0]:
                raise AssertionError(f"zsh printed no {pattern}, but {seen!r}")
            seen += os.read(self.terminal, 4096).decode(errors="replace")
        return re.search(pattern, seen)

    def complete(self, typed):
        self.send(f"{typed}\t\n")
        return self.wait("GOT:(.*?):")[1].strip()

    def close(self):
        self.send("\x03exit\n")
        os.close(self.terminal)
        os.waitpid(self.child, 0)


class Pages(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        temporary = tempfile.TemporaryDirectory(dir=os.environ.get("MEMLITH_TEST_DIR") or None, prefix="pages-test-")
        cls.addClassCleanup(temporary.cleanup)
        cls.folder = pathlib.Path(temporary.name)
        subprocess.run([sys.executable, "-B", PAGES, MEMLITH, cls.folder], check=True)
        listed = subprocess.run([MEMLITH, "help", "--json"], capture_output=True, text=True, check=True).stdout
        cls.rows = [json.loads(line) for line in listed.splitlines()]

    def test_manual_pages(self):
        formatted = {}
        for path in (self.folder / "man").iterdir():
            done = subprocess.run(["groff", "-ww", "-man", "-Tascii", "-rLL=200n", path], capture_output=True,
                                  text=True, check=True, env=dict(os.environ, GROFF_NO_SGR="1"))
            self.assertEqual(done.stderr, "", path.name)
            formatted[path.stem] = re.sub(".\b", "", done.stdout)
        for row in self.rows:
            top = row["command"].split(" ")[0]
            if top == "help":
                continue
            text = formatted["memlith" + (f"-{top}" if top else "")]
            self.assertIn(f"memlith {row['command']}".strip(), text)
            for option in row["options"]:
                self.assertIn(", ".join(option["names"]), text)
            for argument in row["arguments"]:
                self.assertIn(argument["name"], text)
        self.assertIn("one of fsync, msync, auto", formatted["memlith-run"])

    def bash(self, *words):
        done = subprocess.run(["bash", "-c", ASK_BASH, "bash", self.folder / "bash" / "memlith", "memlith", *words],
                              capture_output=True, text=True, check=True, cwd=self.folder / "man")
        self.assertEqual(done.stderr, "")
        return done.stdout.split()

    def test_bash(self):
        self.assertEqual(self.bash("in"), ["info"])
        self.assertEqual(self.bash("kv", "p"), ["put"])
        self.assertEqual(self.bash("stat", "--pro"), ["--prometheus"])
        self.assertEqual(self.bash("run", "--commit", "ms"), ["msync"])
        self.assertEqual(self.bash("--json", "ver"), ["verify"])
        self.assertEqual(self.bash("info", "memlith-kv"), ["memlith-kv.1"])  # a file
        self.assertEqual(self.bash("help", "for"), ["format"])

    def test_zsh(self):
        zsh = Zsh(self.folder / "zsh")
        try:
            self.assertEqual(zsh.complete("memlith inf"), "info")
            self.assertEqual(zsh.complete("memlith kv sca"), "kv scan")
            self.assertEqual(zsh.complete("memlith stat --prom"), "stat --prometheus")
            self.assertEqual(zsh.complete("memlith run --commit ms"), "run --commit msync")
        finally:
            zsh.close()


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
