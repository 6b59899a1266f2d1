"""Starts programs in C, Go, Java, Node.js and Python, each with a heap of its own language, again and again, and
counts in how many starts a store could not be opened because its addresses were taken (docs/guarantees.md,
"Addresses").

    addresses.py --memlith PREFIX --work FOLDER [--starts N] [LANGUAGE...]

PREFIX has include/ and lib/. A language whose tools are not installed is named and left out. Exit code 1: a kv store or
a log could not be opened, or a region with pointers in one start of a hundred or more.
"""

import argparse
import collections
import os
import pathlib
import shutil
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
WHAT = {1: "store", 2: "kv store", 3: "log", 4: "region"}

GO = """package main

// #cgo LDFLAGS: -L%(work)s -ltrial -Wl,-rpath,%(work)s
// int trial_start(void);
import "C"
import "os"

var kept [][]byte

func main() {
	for i := 0; i < 64; i++ {
		kept = append(kept, make([]byte, 4<<20))
	}
	os.Exit(int(C.trial_start()))
}
"""
JAVA = """public class Trial {
  static byte[][] kept = new byte[64][];
  public static void main(String[] arguments) {
    for (int i = 0; i < 64; ++i) kept[i] = new byte[1 << 20];
    System.load(arguments[0]);
  }
}
"""
NODE = "const kept = []; for (let i = 0; i < 2e6; ++i) kept.push({i}); process.dlopen({exports: {}}, process.argv[2]);"
PYTHON = """import ctypes, sys
kept = [bytearray(1 << 20) for _ in range(64)]
sys.exit(ctypes.CDLL(sys.argv[1]).trial_start())
"""


def run(*words: str, **more) -> None:
    subprocess.run(words, check=True, **more)


def commands(work: pathlib.Path, prefix: pathlib.Path) -> dict[str, list[str]]:
    """The command of a start in each language that is installed. Builds what is needed."""
    library = str(work / "libtrial.so")
    link = [f"-I{prefix / 'include'}", f"-L{prefix / 'lib'}", "-lmemlith", f"-Wl,-rpath,{prefix / 'lib'}"]
    run("cc", "-O1", "-shared", "-fPIC", str(HERE / "trial.c"), "-o", library, *link)
    run("cc", "-O1", "-DTRIAL_MAIN", str(HERE / "trial.c"), "-o", str(work / "trial_c"), *link)
    found = {"C": [str(work / "trial_c")], "Python": [sys.executable, "-c", PYTHON, library]}
    if shutil.which("go"):
        (work / "go").mkdir(exist_ok=True)
        (work / "go" / "main.go").write_text(GO % {"work": work})
        environment = {**os.environ, "GO111MODULE": "off", "CGO_ENABLED": "1", "GOFLAGS": ""}
        run("go", "build", "-o", str(work / "trial_go"), "main.go", cwd=work / "go", env=environment)
        found["Go"] = [str(work / "trial_go")]
    if shutil.which("javac") and shutil.which("java"):
        (work / "Trial.java").write_text(JAVA)
        run("javac", "-d", str(work), str(work / "Trial.java"))
        found["Java"] = ["java", "-Xmx512m", "-cp", str(work), "Trial", library]
    if shutil.which("node"):
        (work / "trial.js").write_text(NODE)
        found["Node"] = ["node", str(work / "trial.js"), library]
    return found


def trial(command: list[str], store: pathlib.Path, starts: int) -> tuple[collections.Counter, str]:
    failures: collections.Counter = collections.Counter()
    said = ""
    for _ in range(starts):
        environment = {**os.environ, "MEMLITH_TRIAL_STORE": str(store)}
        done = subprocess.run(command, env=environment, capture_output=True, text=True)
        if done.returncode != 0:
            failures[WHAT.get(done.returncode, f"exit code {done.returncode}")] += 1
            said = done.stderr.strip().splitlines()[-1] if done.stderr.strip() else ""
    return failures, said


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--memlith", type=pathlib.Path, required=True)
    parser.add_argument("--work", type=pathlib.Path, required=True)
    parser.add_argument("--starts", type=int, default=10_000)
    parser.add_argument("languages", nargs="*")
    given = parser.parse_args()
    shutil.rmtree(given.work, ignore_errors=True)
    given.work.mkdir(parents=True)
    work = given.work.resolve()
    found = commands(work, given.memlith.resolve())
    bad = 0
    for language in given.languages or ["C", "Go", "Java", "Node", "Python"]:
        if language not in found:
            print(f"{language}: not installed, left out", flush=True)
            continue
        failures, said = trial(found[language], work / f"store-{language}", given.starts)
        counts = ", ".join(f"{what} {count}" for what, count in sorted(failures.items())) or "none"
        last = f"; the last: {said}" if said else ""
        print(f"{language}: {given.starts} starts, failed: {counts}{last}", flush=True)
        bad += any(what != "region" or count * 100 >= given.starts for what, count in failures.items())
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
