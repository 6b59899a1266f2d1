#!/usr/bin/env python3
"""Runs a program of this folder in several processes: each finds what the one before persisted. See containers.hpp.

With a compiler, compiles the program first; ends with code 77, which means skipped, where that compiler or its library
is not there.

Usage: run.py FOLDER PROGRAM
       run.py FOLDER SOURCE LIBRARY INCLUDE COMPILER [OPTIONS...]
"""
import pathlib
import shutil
import subprocess
import sys

RUNS = 4


def compiled(source, library, include, compiler, *options):
    """The program, made by that compiler; None where there is none, or not the library that the options name."""
    command = [compiler, "-std=c++20", *options]
    if shutil.which(compiler) is None:
        print(f"skipped: there is no {compiler}; packages_clang in cmake/packages.sh has it")
        return None
    probe = subprocess.run([*command, "-x", "c++", "-fsyntax-only", "-"], input="#include <map>\n", text=True,
                           capture_output=True, check=False)
    if probe.returncode != 0:
        print(f"skipped: {' '.join(command)} does not work: {probe.stderr}")
        return None
    program = folder / "program"
    libraries = pathlib.Path(library).parent
    subprocess.run([*command, "-O1", f"-I{include}", source, "-o", str(program), library, f"-Wl,-rpath,{libraries}"],
                   check=True)
    return str(program)


folder = pathlib.Path(sys.argv[1])
shutil.rmtree(folder, ignore_errors=True)
folder.mkdir(parents=True)
program = sys.argv[2] if len(sys.argv) == 3 else compiled(*sys.argv[2:])
if program is None:
    sys.exit(77)
for run in range(1, RUNS + 1):
    done = subprocess.run([program, str(folder / "store"), "add"], capture_output=True, text=True, check=False)
    if done.returncode != 0 or done.stdout != f"{run}\n" or done.stderr:
        sys.exit(f"run {run} ended with {done.returncode} and printed: {done.stdout}{done.stderr}")
subprocess.run([program, str(folder / "store"), "destroy"], check=True)
