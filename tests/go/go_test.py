#!/usr/bin/env python3
"""Runs `go test` in a module's folder, or exits with 77 and says why it cannot.

    go_test.py GO FOLDER [-race] [PACKAGE...]
    go_test.py GO FOLDER --soak BIN [ARGS...]  three nodes under faults (kvsoak of integrations/raft), a few runs; BIN
                                               is the folder of power-disk
    go_test.py GO FOLDER --cuts BIN WORK TEST   the Python program TEST, with the module's tests as a program
    go_test.py GO FOLDER --planted PACKAGE     the package's tests find each fault of FOLDER/planted.py

Nothing is downloaded: modules that are not in Go's cache are a reason not to run (`./dev test` downloads them).
"""
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

SKIPPED = 77
SOAK = ["-runs", "2", "-rounds", "5"]
CUTS = ["-runs", "0", "-rounds", "0", "-cuts", "2"]
PLANTED = ["stale-reads", "lost-votes", "lost-entries", "lost-sessions", "wall-lease"]
PLANTED_RUNS = ["-runs", "40"]


def skip(reason):
    print(f"skipped: {reason}")
    sys.exit(SKIPPED)


def version(text):
    found = re.search(r"\bgo\s?(\d+)\.(\d+)", text)
    return (int(found[1]), int(found[2])) if found else (0, 0)


def need(go, folder, environment, race):
    wanted = version((folder / "go.mod").read_text(encoding="utf-8"))
    found = version(subprocess.run([go, "version"], capture_output=True, text=True, check=True).stdout)
    if found < wanted:
        skip(f"this is Go {found[0]}.{found[1]}, and the module needs {wanted[0]}.{wanted[1]}")
    listed = subprocess.run([go, "list", "-deps", "-test", "./..."], cwd=folder, env=environment, capture_output=True,
                            text=True, check=False)
    if listed.returncode != 0 and "GOPROXY=off" in listed.stderr:
        skip("modules of others are not in Go's cache: run `go mod download` in " + str(folder))
    if race:
        tried = subprocess.run([go, "build", "-race", "-o", os.devnull, "."], cwd=folder, env=environment,
                               capture_output=True, text=True, check=False)
        if tried.returncode != 0:
            skip("this Go has no race detector: " + tried.stderr.strip().splitlines()[-1])


def soak(go, folder, environment, programs, words):
    """A few runs, and that the check would have noticed."""
    with tempfile.TemporaryDirectory(dir=os.environ.get("MEMLITH_TEST_DIR")) as work:
        for name, flags in (("kvnode", ["-tags", "clockjumps"]), ("kvsoak", [])):
            subprocess.run([go, "build", *flags, "-o", f"{work}/{name}", f"./cmd/{name}"], cwd=folder, env=environment,
                           check=True)
        command = [f"{work}/kvsoak", "-node", f"{work}/kvnode", "-work", f"{work}/nodes"]
        subprocess.run([*command, *SOAK, *words], check=True)
        for fault in PLANTED:
            subprocess.run([*command, *PLANTED_RUNS, "-planted", fault], check=True)
        disks = [*command, "-disk", programs / "power-disk"]
        cut = subprocess.run([*disks, *CUTS], check=False)
        if cut.returncode == SKIPPED:
            return  # kvsoak has said why: no root, FUSE or loop devices
        cut.check_returncode()
        subprocess.run([*disks, *PLANTED_RUNS, "-planted", "no-flush", "-no-flush", programs / "power-no-flush.so"],
                       check=True)


def planted(go, folder, environment, package):
    """The tests fail with each fault."""
    sys.path.insert(0, str(folder))
    from planted import PLANTED, plant  # pylint: disable=import-error,import-outside-toplevel
    for fault, (name, *_) in PLANTED.items():
        with tempfile.TemporaryDirectory(dir=os.environ.get("MEMLITH_TEST_DIR")) as work:
            changed, overlay = pathlib.Path(work, name).resolve(), pathlib.Path(work, "overlay.json")
            changed.write_text(plant(fault, name, (folder / package / name).read_text(encoding="utf-8")),
                               encoding="utf-8")
            overlay.write_text(json.dumps({"Replace": {str((folder / package / name).resolve()): str(changed)}}),
                               encoding="utf-8")
            tested = subprocess.run([go, "test", "-count=1", "-failfast", f"-overlay={overlay}", f"./{package}"],
                                    cwd=folder, env=environment, capture_output=True, text=True, check=False)
        if tested.returncode == 0 or "--- FAIL" not in tested.stdout:
            sys.exit(f"the fault {fault} was not found:\n{tested.stdout}{tested.stderr}")
        print(f"{fault}: found by {tested.stdout.split('--- FAIL: ')[1].split()[0]}")


def main():
    go, folder, *words = sys.argv[1:]
    folder = pathlib.Path(folder)
    if test_folder := os.environ.get("MEMLITH_TEST_DIR"):
        pathlib.Path(test_folder).mkdir(parents=True, exist_ok=True)
    environment = {**os.environ, "GOPROXY": "off", "GOFLAGS": "-mod=readonly -buildvcs=false", "GOTOOLCHAIN": "local"}
    if "GOCACHE" not in environment and not os.access(os.environ.get("HOME", "/nonexistent"), os.W_OK):
        environment["GOCACHE"] = str(pathlib.Path(test_folder or tempfile.gettempdir(), "go-cache").resolve())
    need(go, folder, environment, "-race" in words)
    if words[:1] == ["--soak"]:
        return soak(go, folder, environment, pathlib.Path(words[1]).resolve(), words[2:])
    if words[:1] == ["--cuts"]:
        programs, work, test = (pathlib.Path(word).resolve() for word in words[1:])
        work.mkdir(parents=True, exist_ok=True)
        subprocess.run([go, "test", "-c", "-o", work / "tests", "."], cwd=folder, env=environment, check=True)
        return subprocess.run([sys.executable, "-B", test, "--program", work / "tests", "--bin", programs, "--work",
                               work / "disks"], check=True)
    if words[:1] == ["--planted"]:
        return planted(go, folder, environment, words[1])
    flags = [word for word in words if word.startswith("-")]
    packages = [word for word in words if not word.startswith("-")] or ["./..."]
    subprocess.run([go, "vet", *packages], cwd=folder, env=environment, check=True)
    subprocess.run([go, "test", "-count=1", *flags, *packages], cwd=folder, env=environment, check=True)
    if not words:  # the benchmarks run, once
        subprocess.run([go, "test", "-count=1", "-run", "^$", "-bench", ".", "-benchtime", "10x", *packages],
                       cwd=folder, env=environment, check=True)
    return None


if __name__ == "__main__":
    try:
        main()
    except subprocess.CalledProcessError as error:
        sys.exit(error.returncode)
