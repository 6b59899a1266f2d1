#!/usr/bin/env python3
"""Builds Redis 7.0 with memlith: ./dev build redis.

Gets Debian's source of Redis, builds it with its own makefile, and links the same objects once more together with ours
(redis.mk). Nothing in Redis's folder is changed. Leaves redis-server and redis-cli in FOLDER/bin, and the plain server
in FOLDER/plain.
Exit code 77: the source cannot be had, and the last line says why.
"""
import argparse
import os
import pathlib
import shutil
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(ROOT / "integrations/sqlite/tests/suite"))
from beside_plain import get_debian_source  # noqa: E402

NO_SOURCE = 77


def source_in(work):
    if not list(work.glob("redis-7.*/src")):
        if not shutil.which("dpkg-source"):
            print("no Redis: its source cannot be unpacked; install the package dpkg-dev")
            sys.exit(NO_SOURCE)
        try:
            get_debian_source(work, "redis")
        except SystemExit as why:
            print(why)
            print("no Redis: its source could not be had from deb.debian.org (see above)")
            sys.exit(NO_SOURCE)
    return next(work.glob("redis-7.*/src"))


def make(source, targets, variables):
    ccache = "ccache " if shutil.which("ccache") else ""
    jemalloc = ["USE_SYSTEM_JEMALLOC=yes"] if pathlib.Path("/usr/include/jemalloc/jemalloc.h").exists() else \
        ["MALLOC=libc"]
    command = ["make", "-C", source, f"-j{os.cpu_count()}", f"CC={ccache}gcc", f"MEMLITH_CXX={ccache}g++",
               "BUILD_TLS=no", *jemalloc, *variables, *targets]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"building Redis failed:\n{(done.stdout + done.stderr)[-4000:]}")


def build(work, library):
    work.mkdir(parents=True, exist_ok=True)
    source = source_in(work)
    for folder in ("bin", "plain"):
        (work / folder).mkdir(exist_ok=True)
    make(source, ["redis-server", "redis-cli"], [])
    make(source, ["-f", "Makefile", "-f", HERE / "redis.mk", "memlith-server"],
         [f"MEMLITH={ROOT}", f"OUT={work / 'bin'}", f"LIBRARY={library}"])
    shutil.copy2(source / "redis-server", work / "plain" / "redis-server")
    shutil.copy2(source / "redis-cli", work / "bin" / "redis-cli")
    return work / "bin" / "redis-server"


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--work", required=True, type=pathlib.Path, help="where source and programs go")
    options.add_argument("--library", required=True, type=pathlib.Path, help="libmemlith.a")
    given = options.parse_args()
    print(build(given.work.resolve(), given.library.resolve()))


if __name__ == "__main__":
    main()
