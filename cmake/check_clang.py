#!/usr/bin/env python3
"""Clang's checks of src/ without building it: each header compiles alone, and locks are held where the code says so.

Usage: check_clang.py [REPOSITORY | --self-test]
Reads the sources of src/, six of a floor at a time, and each header as the only include of a file, with clang 19 and
-Wthread-safety; warnings are errors. Prints what clang complains about and exits with 1 if there was anything.
--self-test shows that a header that lacks an include, and a lock that is not held, are found.
"""
import concurrent.futures
import itertools
import os
import pathlib
import shlex
import subprocess
import sys
import tempfile

CLANG = "clang++-19 -std=c++20 -fsyntax-only -Wall -Wextra -Wthread-safety -Werror -Isrc -Iinclude"
# The instruction set of one file, as src/CMakeLists.txt gives it.
FLAGS = {"checksum_avx2.cpp": ["-mavx2"]}
AT_ONCE = 6


def complaint(root, files):
    """Clang's messages about files that are included one behind the other; nothing if all is well."""
    command = [*shlex.split(CLANG), *FLAGS.get(files[0].name, []), "-x", "c++", "-"]
    lines = "".join(f'#include "{file.relative_to(root / "src")}"\n' for file in files)
    read = subprocess.run(command, cwd=root, input=lines, capture_output=True, text=True, check=False)
    return read.stderr if read.returncode != 0 else ""


def groups_of(root):
    """Each header is alone, and so is a source with flags of its own."""
    files = sorted(file for file in (root / "src").rglob("*") if file.suffix in {".hpp", ".h", ".cpp"})
    together = [file for file in files if file.suffix == ".cpp" and file.name not in FLAGS]
    groups = [[file] for file in files if file not in set(together)]
    for _, floor in itertools.groupby(together, lambda file: file.relative_to(root).parts[1]):
        sources = list(floor)
        groups += [sources[at:at + AT_ONCE] for at in range(0, len(sources), AT_ONCE)]
    return groups


def complaints(root):
    groups = groups_of(root)
    with concurrent.futures.ThreadPoolExecutor(len(os.sched_getaffinity(0))) as threads:
        for files, said in zip(groups, threads.map(lambda files: complaint(root, files), groups)):
            if said:
                yield f"{' '.join(str(file.relative_to(root)) for file in files)}:\n{said}"


def self_test():
    tree = {
        "include/memlith/memlith.h": "",
        "src/base/alone.hpp": "inline std::size_t one() { return 1; }\n",
        "src/base/fine.hpp": "#include <cstddef>\ninline std::size_t two() { return 2; }\n",
        "src/base/lock.cpp": "struct __attribute__((capability(\"mutex\"))) Lock {};\nLock lock;\n"
                             "int count __attribute__((guarded_by(lock)));\nint main() { return count; }\n",
    }
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder).resolve()
        for name, text in tree.items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(text, encoding="utf-8")
        found = [said.splitlines()[0] for said in complaints(root)]
    ok = found == ["src/base/alone.hpp:", "src/base/lock.cpp:"]
    print(f"self-test {'passed' if ok else 'FAILED'}; clang complained about: {' '.join(found)}")
    return 0 if ok else 1


if __name__ == "__main__":
    if "--self-test" in sys.argv[1:]:
        sys.exit(self_test())
    repository = pathlib.Path(sys.argv[1]) if sys.argv[1:] else pathlib.Path(__file__).parent.parent
    found = list(complaints(repository.resolve()))
    print("\n".join(found) if found else "nothing to complain about")
    sys.exit(1 if found else 0)
