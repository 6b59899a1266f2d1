"""Shared by the tests of memlith-gcc and memlith-cc: building a program with one of them, as MEMLITH_TEST_COMPILER says
(gcc or clang), and running that with MEMLITH_VERIFY_TRACKING=1."""
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

BUILD, SOURCE = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]).resolve()
HERE = pathlib.Path(__file__).resolve().parent
FOLDER = pathlib.Path(tempfile.mkdtemp(prefix="pass-", dir=os.environ.get("MEMLITH_TEST_DIR", BUILD)))
LIBRARY = BUILD / "lib"
GCC = os.environ.get("MEMLITH_TEST_COMPILER", "clang") == "gcc"
PLAIN = "gcc" if GCC else "clang-19"  # which records nothing
failures = []


def compiler(source):
    names = ("memlith-gcc", "memlith-g++") if GCC else ("memlith-cc", "memlith-c++")
    return BUILD / "bin" / names[str(source).endswith(".cpp")]


def build(source, name, *flags, with_compiler=None, check=True):
    """Builds a program; returns its path and what the compiler said."""
    program = FOLDER / name
    command = [with_compiler or compiler(source), "-g1", f"-I{SOURCE}/include", f"-I{HERE}", source, "-o", program,
               f"-L{LIBRARY}", "-lmemlith", f"-Wl,-rpath,{LIBRARY}", "-pthread", *flags]
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False)
    if check and done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}\n{done.stderr}")
    return program, done


def run(program, *arguments, store=None, keep=False, verify=True):
    """Runs the program on a store, which is new unless `keep`."""
    store = store or FOLDER / "store"
    if not keep:
        shutil.rmtree(store, ignore_errors=True)
    environment = dict(os.environ, MEMLITH_VERIFY_TRACKING="1" if verify else "0")
    return subprocess.run([str(program), str(store), *arguments], capture_output=True, text=True, check=False,
                          env=environment, timeout=300)


def expect(what, good, said=""):
    print(f"{'ok    ' if good else 'FAILED'} {what}", flush=True)
    if not good:
        print(said)
        failures.append(what)


def silent(what, done):
    """The program ended well, and every change was recorded."""
    expect(what, done.returncode == 0 and done.stderr == "", f"exit {done.returncode}\n{done.stdout}{done.stderr}")


def end():
    shutil.rmtree(FOLDER, ignore_errors=True)
    sys.exit(1 if failures else 0)
