#!/usr/bin/env python3
"""The laboratory notices every planted fault.

Usage: mutants_test.py MEMLITH_CRASHLAB REPOSITORY
With MEMLITH_TEST_SHORT in the environment only the faults are planted that lie in files which changed: in the working
tree, or with the last commit.
"""
import os
import pathlib
import re
import subprocess
import sys

PATCHES = "tests/lib/mutants"


def git(root, *words):
    done = subprocess.run(["git", "-C", root, *words], capture_output=True, text=True, check=False)
    return done.stdout.splitlines() if done.returncode == 0 else []


def changed_files(root):
    """Their paths; a changed patch counts as a change of the file that it patches."""
    names = {*git(root, "diff", "--name-only", "HEAD~1"), *git(root, "ls-files", "--others", "--exclude-standard")}
    return {name.removeprefix(f"{PATCHES}/").removesuffix(".patch") for name in names}


def mutants_in(root, names):
    patches = (root / PATCHES / f"{name}.patch" for name in names)
    return {mutant for patch in patches if patch.is_file()
            for mutant in re.findall(r"\bMEMLITH_MUTANT\((\w+)\)", patch.read_text(encoding="utf-8"))}


def main():
    laboratory, root = sys.argv[1], pathlib.Path(sys.argv[2])
    command = [laboratory, "mutants", "--seconds", "600"]
    if "MEMLITH_TEST_SHORT" in os.environ:
        listed = subprocess.run([laboratory, "list"], capture_output=True, text=True, check=True).stdout
        known = set(re.findall(r"^  (\w+) ", listed.partition("Mutants:")[2], re.MULTILINE))
        assert known, "the laboratory lists no mutants"
        wanted = known & mutants_in(root, changed_files(root))
        if not wanted:
            print("No file has changed in which the laboratory has mutants; `./dev test all` plants all of them.")
            return 0
        command += ["--only", ",".join(sorted(wanted))]
    return subprocess.run(command, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
