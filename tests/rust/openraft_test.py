#!/usr/bin/env python3
"""Tests the crate memlith-openraft (integrations/openraft), or exits with 77 and says why it cannot.

    openraft_test.py CARGO SOURCE crate BIN  `cargo test`: openraft's suite, streams, kills
    openraft_test.py CARGO SOURCE soak BIN   three nodes of its example under faults, a few runs (kvsoak of
                                             integrations/raft); BIN is the folder of power-disk

Nothing is downloaded: crates and modules that are in no cache are a reason not to run (`./dev test` downloads them).
"""
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

SKIPPED = 77
SOAK = ["-runs", "4", "-rounds", "5"]
CUTS = ["-runs", "0", "-rounds", "0", "-cuts", "2"]
PLANTED = ["stale-reads", "lost-sessions"]
PLANTED_RUNS = ["-runs", "40"]


def skip(reason):
    print(f"skipped: {reason}")
    sys.exit(SKIPPED)


def soak(cargo, source, programs):
    go = shutil.which("go") or skip("there is no go, which the clients are built with")
    environment = {**os.environ, "GOPROXY": "off", "GOFLAGS": "-mod=readonly -buildvcs=false", "GOTOOLCHAIN": "local"}
    subprocess.run([*cargo("build"), "--example", "kvnode"], check=True)
    node = pathlib.Path(os.environ["CARGO_TARGET_DIR"], "debug", "examples", "kvnode")
    with tempfile.TemporaryDirectory(dir=os.environ.get("MEMLITH_TEST_DIR")) as work:
        built = subprocess.run([go, "build", "-o", f"{work}/kvsoak", "./cmd/kvsoak"], cwd=source / "integrations/raft",
                               env=environment, capture_output=True, text=True, check=False)
        if built.returncode != 0 and "GOPROXY=off" in built.stderr:
            skip("modules of others are not in Go's cache: run `go mod download` in integrations/raft")
        print(built.stdout + built.stderr, end="", flush=True)
        built.check_returncode()
        command = [f"{work}/kvsoak", "-openraft", "-node", node, "-work", f"{work}/nodes"]
        subprocess.run([*command, *SOAK], check=True)
        for fault in PLANTED:
            subprocess.run([*command, *PLANTED_RUNS, "-planted", fault], check=True)
        cut = subprocess.run([*command, *CUTS, "-disk", programs / "power-disk"], check=False)
        if cut.returncode != SKIPPED:  # kvsoak has said why: no root, FUSE or loop devices
            cut.check_returncode()


def main():
    program, source, kind, programs = sys.argv[1:]
    source, programs = pathlib.Path(source).resolve(), pathlib.Path(programs).resolve()
    if test_folder := os.environ.get("MEMLITH_TEST_DIR"):
        pathlib.Path(test_folder).mkdir(parents=True, exist_ok=True)
    manifest = source / "integrations/openraft/Cargo.toml"

    def cargo(command):
        return [program, command, "--offline", "--locked", "--quiet", "--manifest-path", manifest]

    fetched = subprocess.run([*cargo("fetch")], capture_output=True, text=True, check=False)
    if fetched.returncode != 0:
        skip("crates of others are not in cargo's cache, or cargo is too old for them: run `cargo fetch --locked` in "
             f"{manifest.parent}: {fetched.stderr.strip().splitlines()[-1]}")
    if kind == "soak":
        soak(cargo, source, programs)
    else:
        subprocess.run(cargo("test"), check=True)


if __name__ == "__main__":
    try:
        main()
    except subprocess.CalledProcessError as error:
        sys.exit(error.returncode)
