#!/usr/bin/env python3
"""Builds Redis 7.0 with memlith: ./dev build redis; with --system valkey Valkey 8.1: ./dev build valkey.

Gets Debian's source (of Debian 12, and of Debian 13), builds it with its own makefile, and links the same objects once
more together with ours (redis.mk). Nothing in its folder is changed. Leaves redis-server and redis-cli, or those of
Valkey, in FOLDER/bin, and the plain server in FOLDER/plain.
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
SYSTEMS = {"redis": ("redis-7.*", "bookworm"), "valkey": ("valkey-8.*", "trixie")}  # the folder, Debian's suite


def source_in(work, system):
    folders, suite = SYSTEMS[system]
    if not list(work.glob(f"{folders}/src")):
        if not shutil.which("dpkg-source"):
            print(f"no {system}: its source cannot be unpacked; install the package dpkg-dev")
            sys.exit(NO_SOURCE)
        try:
            get_source(work, system, suite)
        except (SystemExit, OSError, subprocess.SubprocessError) as why:
            print(why)
            print(f"no {system}: its source could not be had from deb.debian.org (see above)")
            sys.exit(NO_SOURCE)
    return next(work.glob(f"{folders}/src"))


def get_source(work, system, suite):
    """With Debian's patches; or, of Valkey where a mirror has lists that are newer than its files, without them."""
    try:
        get_debian_source(work, system, suite=suite)
    except SystemExit:
        if system == "redis":
            raise
        get_debian_source(work, system, "--tar-only", suite=suite)
        for archive in work.glob(f"{system}_*.orig.tar.*"):
            subprocess.run(["tar", "-xf", archive], cwd=work, check=True)
        print(f"{system}: without Debian's patches, which could not be had")


def make(source, targets, variables):
    ccache = "ccache " if shutil.which("ccache") else ""
    jemalloc = ["USE_SYSTEM_JEMALLOC=yes"] if pathlib.Path("/usr/include/jemalloc/jemalloc.h").exists() else \
        ["MALLOC=libc"]
    command = ["make", "-C", source, f"-j{os.cpu_count()}", f"CC={ccache}gcc", f"MEMLITH_CXX={ccache}g++",
               "BUILD_TLS=no", *jemalloc, *variables, *targets]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"building the server failed:\n{(done.stdout + done.stderr)[-4000:]}")


def build(work, library, system):
    work.mkdir(parents=True, exist_ok=True)
    source = source_in(work, system)
    for folder in ("bin", "plain"):
        (work / folder).mkdir(exist_ok=True)
    # Valkey's -O3 optimizes the whole program at once, and knows nothing of the calls that come to ours.
    flags = ["OPTIMIZATION=-O2"] if system == "valkey" else []
    make(source, [f"{system}-server", f"{system}-cli"], flags)
    make(source, ["-f", "Makefile", "-f", HERE / "redis.mk", "memlith-server"],
         [f"MEMLITH={ROOT}", f"OUT={work / 'bin'}", f"LIBRARY={library}", *flags])
    shutil.copy2(source / f"{system}-server", work / "plain" / f"{system}-server")
    shutil.copy2(source / f"{system}-cli", work / "bin" / f"{system}-cli")
    return work / "bin" / f"{system}-server"


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--work", required=True, type=pathlib.Path, help="where source and programs go")
    options.add_argument("--library", required=True, type=pathlib.Path, help="libmemlith.a")
    options.add_argument("--system", choices=sorted(SYSTEMS), default="redis")
    given = options.parse_args()
    print(build(given.work.resolve(), given.library.resolve(), given.system))


if __name__ == "__main__":
    main()
