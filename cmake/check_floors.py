#!/usr/bin/env python3
"""Holds the includes to the floors: a floor includes itself and the floors below it, nothing else of ours.

A plugin (plugins/NAME) stands above all floors: it may include each of them, "memlith/..." and its own files, but neither another
plugin's nor anything of tools, bench, examples and tests. Programs outside the library (tools, bench, examples) see it as any user
does: through "memlith/..." only. The crash laboratory is a test that looks inside, and goes free. What bench measures with is the
tool's.
Usage: check_floors.py [REPOSITORY | --self-test]
Prints each violation as `file:line: floor X includes upward Y` and exits with 1 if there was one.
With --self-test it builds a small tree with one violation of each kind and checks that each is found.
"""
import pathlib
import re
import sys
import tempfile

FLOORS = ["base", "device", "log", "store", "region", "capi"]  # lowest first, as in src/CMakeLists.txt
OUTSIDE = ["tools", "bench", "examples"]
SHARED = {"bench": "tools/memlith"}  # whose files they use besides their own
FREE = ["tools/crashlab"]
SUFFIXES = {".c", ".cc", ".cpp", ".h", ".hpp", ".inc"}
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')


def includes(folder):
    """Yields (file, line number, opening bracket, included name) for every include below the folder."""
    for file in sorted(path for path in folder.rglob("*") if path.suffix in SUFFIXES):
        for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1):
            if match := INCLUDE.match(line):
                yield file, number, match[1], match[2]


def inside_violations(root):
    for file, number, bracket, name in includes(root / "src"):
        floor, target = file.relative_to(root / "src").parts[0], name.split("/")[0]
        if bracket == "<" and target not in [*FLOORS, "memlith"]:
            continue  # the system, or a library
        where = f"{file.relative_to(root)}:{number}: floor {floor} includes"
        if floor not in FLOORS:
            yield f"{file.relative_to(root)}:{number}: {floor} is not a floor; the floors are {' '.join(FLOORS)}"
        elif target == "memlith":
            if floor != FLOORS[-1]:
                yield f"{where} upward {name}; only {FLOORS[-1]} knows the public headers"
        elif target not in FLOORS:
            yield f"{where} {name}; write it from its floor, as \"{floor}/{name}\""
        elif FLOORS.index(target) > FLOORS.index(floor):
            yield f"{where} upward {target}"


def is_own(own, file, name):
    """Does the file find the name beside it, or in a folder above up to `own`, and is what it finds below `own`?"""
    folders = [file.parent, *(parent for parent in file.parents if parent.is_relative_to(own))]
    return any((folder / name).is_file() and (folder / name).resolve().is_relative_to(own.resolve()) for folder in folders)


def plugin_violations(root):
    for file, number, bracket, name in includes(root / "plugins"):
        parts, target = file.relative_to(root / "plugins").parts, name.split("/")[0]
        own = root / "plugins" / parts[0]  # a file that lies in plugins/ itself has no plugin, and so no files of its own
        if target in [*FLOORS, "memlith"] or bracket == "<" or (len(parts) > 1 and is_own(own, file, name)):
            continue
        yield (f"{file.relative_to(root)}:{number}: plugin {parts[0]} includes upward {name}; it may include the floors, "
               f"\"memlith/...\" and its own files (a foreign library's headers go in <>)")


def outside_violations(root):
    for top in OUTSIDE:
        for file, number, bracket, name in includes(root / top):
            target = name.split("/")[0]
            if any(file.is_relative_to(root / folder) for folder in FREE):
                continue
            found = is_own(root / top, file, name)
            found = found or (top in SHARED and (root / SHARED[top] / name).is_file())
            if target == "memlith" or (bracket == '"' and found) or (bracket == "<" and target not in FLOORS):
                continue
            yield (f"{file.relative_to(root)}:{number}: {top} includes {name}; it may include \"memlith/...\" and its own "
                   f"files (a foreign library's headers go in <>)")


def violations(root):
    return [*inside_violations(root), *plugin_violations(root), *outside_violations(root)]


def self_test():
    tree = {
        "src/base/a.hpp": '#include <vector>\n#include "base/b.hpp"\n#include "log/log.hpp"\n',
        "src/log/a.cpp": '#include "base/a.hpp"\n  #  include <store/store.hpp>\n',
        "src/region/a.cpp": '#include "memlith/memlith.h"\n#include "near.hpp"\n',
        "src/capi/a.cpp": '#include "memlith/memlith.h"\n#include "region/region.hpp"\n',
        "src/attic/a.cpp": '#include "base/a.hpp"\n',
        "tools/memlith/a.cpp": '#include "own.hpp"\n#include "memlith/memlith.hpp"\n#include "../../src/base/a.hpp"\n',
        "tools/memlith/own.hpp": "#include <fmt/core.h>\n",
        "tools/crashlab/a.cpp": '#include "store/store.hpp"\n',
        "bench/sqlite/a.cpp": '#include "own.hpp"\n#include "near.hpp"\n#include "store/store.hpp"\n',
        "bench/sqlite/near.hpp": "#include <fmt/core.h>\n",
        "plugins/one/a.cpp": '#include <sqlite3.h>\n#include "own.hpp"\n#include "store/store.hpp"\n#include "memlith/memlith.h"\n'
                             '#include "../two/a.hpp"\n#include "two/a.hpp"\n#include "../../tools/memlith/own.hpp"\n'
                             '#include "support/expect.hpp"\n',
        "plugins/one/own.hpp": "\n",
        "plugins/two/a.hpp": "\n",
        "tests/support/expect.hpp": "\n",
    }
    expected = ["src/attic/a.cpp:1:", "src/base/a.hpp:3: floor base includes upward log",
                "src/log/a.cpp:2: floor log includes upward store", "src/region/a.cpp:1: floor region includes upward",
                "src/region/a.cpp:2:", *(f"plugins/one/a.cpp:{line}: plugin one includes upward" for line in range(5, 9)),
                "tools/memlith/a.cpp:3:", "bench/sqlite/a.cpp:3:"]
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        for name, text in tree.items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(text, encoding="utf-8")
        found = violations(root)
    ok = len(found) == len(expected) and all(line.startswith(start) for line, start in zip(found, expected))
    print("\n".join(found))
    print("self-test: every planted violation was found, and nothing else" if ok else
          "self-test FAILED; expected:\n  " + "\n  ".join(expected))
    return 0 if ok else 1


if __name__ == "__main__":
    if "--self-test" in sys.argv[1:]:
        sys.exit(self_test())
    repository = pathlib.Path(sys.argv[1]) if sys.argv[1:] else pathlib.Path(__file__).parent.parent
    found = violations(repository.resolve())
    print("\n".join(found) if found else "the floors hold")
    sys.exit(1 if found else 0)
