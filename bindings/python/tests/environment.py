#!/usr/bin/env python3
"""The virtual environment in which the Python package is tested.

    environment.py make --folder FOLDER --prebuilt LIB   makes FOLDER/venv, builds the wheel with LIB/libmemlith.a, and
                                                         installs it
    environment.py test --folder FOLDER [ARGS...]        runs pytest there, and mypy over the package

With --system-packages the environment also has the packages of the Python that makes it, such as Debian's PyTorch.

With --sanitize address,undefined the library and the module contain AddressSanitizer, whose runtime is preloaded into
Python. That takes several times as long, so it is done only if MEMLITH_PYTHON_SANITIZED is set, as `./dev check` does;
ThreadSanitizer knows nothing of the interpreter's lock.

The packages of requirements.txt come from the registry that pip is set up for. Without it, and without an environment
of an earlier run, `make` ends with 77, which means that the tests are skipped.
"""
import argparse
import hashlib
import os
import pathlib
import shutil
import subprocess
import sys
import venv

HERE = pathlib.Path(__file__).resolve().parent
PACKAGE = HERE.parent
SKIPPED = 77


def python_of(folder):
    return folder / "venv" / "bin" / "python"


def prepare(folder, requirements, system_packages):
    """An environment with the packages named; what an earlier run made is used again if nothing changed."""
    wanted = hashlib.sha256(requirements.read_bytes() + f"{sys.version} {system_packages}".encode()).hexdigest()
    stamp = folder / "venv" / "requirements.sha256"
    if stamp.exists() and stamp.read_text() == wanted:
        return 0
    shutil.rmtree(folder / "venv", ignore_errors=True)
    venv.create(folder / "venv", with_pip=True, system_site_packages=system_packages)
    pip = [python_of(folder), "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
    if subprocess.run([*pip, "--requirement", requirements], check=False).returncode != 0:
        shutil.rmtree(folder / "venv")
        print("skipped: pip cannot install the packages that the tests need; its message is above")
        return SKIPPED
    stamp.write_text(wanted)
    return 0


def is_left_out(sanitize):
    if not sanitize:
        return False
    if sanitize == "thread":
        print("skipped: ThreadSanitizer would have to be in the interpreter, too")
        return True
    if not os.environ.get("MEMLITH_PYTHON_SANITIZED"):
        print("skipped: with AddressSanitizer the Python tests are part of `./dev check`")
        return True
    return False


def make(folder, prebuilt, requirements, sanitize="", system_packages=False):
    folder.mkdir(parents=True, exist_ok=True)
    if status := prepare(folder, requirements, system_packages):
        return status
    settings = [f"build-dir={folder / 'build'}", f"cmake.define.MEMLITH_PYTHON_PREBUILT={prebuilt}",
                f"cmake.define.MEMLITH_SANITIZE={sanitize}", "cmake.define.MEMLITH_WERROR=ON"]
    environment = dict(os.environ)
    if shutil.which("ccache"):
        settings += [f"cmake.define.CMAKE_{language}_COMPILER_LAUNCHER=ccache" for language in ("C", "CXX")]
    environment["PATH"] = f"{python_of(folder).parent}:{environment['PATH']}"
    if sanitize:  # the stub generator loads the module
        environment |= sanitizer()
    command = [python_of(folder), "-m", "pip", "--disable-pip-version-check", "install", "--quiet",
               "--no-build-isolation", "--no-deps", "--force-reinstall",
               *(f"--config-settings={setting}" for setting in settings), PACKAGE]
    return subprocess.run(command, env=environment, check=False).returncode


def sanitizer():
    """Variables by which a Python without AddressSanitizer runs modules with it. libstdc++ has to be there before."""
    found = [subprocess.run(["c++", f"-print-file-name={name}"], capture_output=True, text=True, check=True)
             .stdout.strip() for name in ("libasan.so", "libstdc++.so")]
    return {"LD_PRELOAD": ":".join(found), "ASAN_OPTIONS": "detect_leaks=0", "PYTHONMALLOC": "malloc"}


def test(folder, rest, sanitize=""):
    if not python_of(folder).exists():
        print("skipped: there is no environment; see the test python.wheel")
        return SKIPPED
    # From an empty folder, so that the package is the installed one.
    place = folder / "run"
    place.mkdir(exist_ok=True)
    environment = dict(os.environ, PYTHONDONTWRITEBYTECODE="1", PYTHONWARNINGS="")
    if sanitize:
        environment |= sanitizer()
    # Three at once: most of the time they wait, for the disk or for a process of their own.
    return subprocess.run([python_of(folder), "-m", "pytest", "-p", "no:cacheprovider", "-n", "3", *(rest or [HERE])],
                          cwd=place, env=environment, check=False).returncode


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("command", choices=["make", "test"])
    parser.add_argument("--folder", type=pathlib.Path, required=True)
    parser.add_argument("--prebuilt", type=pathlib.Path)
    parser.add_argument("--requirements", type=pathlib.Path, default=HERE / "requirements.txt")
    parser.add_argument("--sanitize", default="")
    parser.add_argument("--system-packages", action="store_true")
    options, rest = parser.parse_known_args()
    if is_left_out(options.sanitize):
        return SKIPPED
    if options.command == "make":
        return make(options.folder.resolve(), options.prebuilt.resolve(), options.requirements, options.sanitize,
                    options.system_packages)
    return test(options.folder.resolve(), rest, options.sanitize)


if __name__ == "__main__":
    sys.exit(main())
