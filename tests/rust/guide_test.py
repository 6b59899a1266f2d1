#!/usr/bin/env python3
"""Follows docs/rust.md: makes the program in a crate of its own, builds it, and runs it without any setting.

    guide_test.py SOURCE INCLUDE LIB WORK  the clone, its headers, the folder of the library, a folder for the crate
"""
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys

CLONE = "/path/to/memlith"


def script(guide):
    """The commands of the page, with its program in the place of the one that `cargo new` made; and what they print."""
    commands, expected = ["set -e"], []
    for kind, text in re.findall(r"^```(console|rust)\n(.*?)^```$", guide, re.MULTILINE | re.DOTALL):
        if kind == "rust":
            if "fn main()" in text:
                commands.append(f"printf %s {shlex.quote(text)} > src/main.rs")
            continue
        for line in text.splitlines():
            if line.startswith("$ "):
                commands.append(line[2:])
            else:
                expected.append(line)
    return "\n".join(commands), "".join(f"{line}\n" for line in expected)


def main():
    source, include, library, work = (pathlib.Path(word).resolve() for word in sys.argv[1:])
    commands, expected = script((source / "docs/rust.md").read_text(encoding="utf-8"))
    if commands.count(CLONE) != 1 or "src/main.rs" not in commands or not expected:
        sys.exit(f"docs/rust.md has no program to be built with {CLONE}, or no output of the program")
    settings = ("LD_LIBRARY_PATH", "LD_RUN_PATH", "LD_PRELOAD", "RUSTFLAGS", "CARGO_TARGET_DIR", "MEMLITH_INCLUDE_DIR",
                "MEMLITH_LIB_DIR")
    environment = {name: value for name, value in os.environ.items() if name not in settings}
    environment["CARGO_NET_OFFLINE"] = "true"
    if library != source / "build/release/lib":  # another preset than that of the page
        environment.update(MEMLITH_INCLUDE_DIR=str(include), MEMLITH_LIB_DIR=str(library))
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    done = subprocess.run(["bash", "-c", commands.replace(CLONE, shlex.quote(str(source)))], cwd=work, env=environment,
                          stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode != 0 or done.stdout != expected:
        sys.exit(f"exit code {done.returncode}; the page says\n{expected}and the program said\n{done.stdout}")
    shutil.rmtree(work)


if __name__ == "__main__":
    main()
