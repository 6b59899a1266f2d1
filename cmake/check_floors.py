#!/usr/bin/env python3
"""Holds every include of ours to cmake/floors.txt, the list of the parts of the tree and of what each may include.

Usage: check_floors.py [REPOSITORY | --self-test]
Prints each violation as `file:line: PART includes PART, which it may not` and exits with 1 if there was one.
With --self-test it builds a small tree with one violation of each kind and checks that each is found.
"""
import os
import pathlib
import re
import sys
import tempfile

SUFFIXES = {".c", ".cc", ".cpp", ".h", ".hpp", ".inc"}
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')
# Where the build looks for an include that is not beside the file: -I in CMakeLists.txt.
ROOTS = ["src", "include", "tests/lib", "bench", "integrations", "tools", "integrations/run", "tests"]
SKIPPED = {"build", ".git", ".cache"}


class Tree:
    """The parts of a repository, as its cmake/floors.txt has them."""

    def __init__(self, root):
        self.root, self.folders, self.named = root, {}, {}
        for number, line in enumerate((root / "cmake" / "floors.txt").read_text(encoding="utf-8").splitlines(), 1):
            words = line.split("#")[0].split()
            if not words:
                continue
            if len(words) < 2:
                raise SystemExit(f"cmake/floors.txt:{number}: a line is a part, its folder, and the parts it may "
                                 f"include")
            self.folders[words[0]], self.named[words[0]] = root / words[1], words[2:]
        for part, others in self.named.items():
            for other in others:
                if other not in self.named:
                    raise SystemExit(f"cmake/floors.txt: {part} may include {other}, which is no part")
        self.allowed = {part: self.reach(part, ()) for part in self.named}

    def reach(self, part, above):
        if part in above:
            raise SystemExit(f"cmake/floors.txt: {' -> '.join((*above, part))} is a circle")
        return {part}.union(*(self.reach(other, (*above, part)) for other in self.named[part]))

    def part_of(self, file):
        """The part with the longest folder that holds the file."""
        holding = [part for part, folder in self.folders.items() if file.is_relative_to(folder)]
        return max(holding, key=lambda part: len(self.folders[part].parts), default=None)

    def resolve(self, file, name):
        """The file of ours that an include names, or None."""
        places = [file.parent, *(self.root / root for root in ROOTS)]
        # A part is also a place to look from for its own files ("power/stream.hpp").
        if part := self.part_of(file):
            places.insert(1, self.folders[part])
        return next(((place / name).resolve() for place in places if (place / name).is_file()), None)

    def files(self):
        for folder, folders, names in os.walk(self.root):
            folders[:] = sorted(set(folders) - SKIPPED)  # builds may run there, whose files come and go
            for name in sorted(names):
                file = pathlib.Path(folder, name)
                if file.suffix in SUFFIXES:
                    yield file

    def violations(self):
        for file in self.files():
            part, where = self.part_of(file), file.relative_to(self.root)
            if part is None:
                yield f"{where}:1: lies in no part of the tree; give its folder a line in cmake/floors.txt"
                continue
            for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1):
                match = INCLUDE.match(line)
                if not match:
                    continue
                target = self.resolve(file, match[2])
                if target is None:
                    if match[1] == '"':
                        yield (f"{where}:{number}: {part} includes {match[2]}, which is no file of ours; "
                               "a library's headers go in <>")
                    continue
                other = self.part_of(target)
                if other not in self.allowed[part]:
                    may = " ".join(sorted(self.allowed[part] - {part})) or "no other part"
                    yield (f"{where}:{number}: {part} includes {match[2]} of {other}, which it may not; "
                           f"it may include {may}")


def self_test():
    tree = {
        "cmake/floors.txt": "# parts\npublic include/memlith\nbase src/base\nlog src/log base\ncapi src/capi log "
                            "public\n"
                            "kit bench/kit public\none integrations/one/src log\n"
                            "one-tests integrations/one/tests one support\n"
                            "two integrations/two/src log\nsupport tests/lib/support log\ncli tools/cli kit\n",
        "include/memlith/memlith.h": "\n",
        "src/base/a.hpp": '#include <vector>\n#include "base/b.hpp"\n#include "log/a.hpp"\n',
        "src/base/b.hpp": "\n",
        "src/log/a.hpp": '#include "base/a.hpp"\n  #  include <capi/a.hpp>\n#include "memlith/memlith.h"\n',
        "src/capi/a.hpp": '#include "memlith/memlith.h"\n#include "log/a.hpp"\n#include "nowhere.hpp"\n',
        "src/attic/a.cpp": '#include "base/a.hpp"\n',
        "bench/kit/own.hpp": '#include <memlith/memlith.h>\n#include "../../src/base/a.hpp"\n',
        "tools/cli/a.cpp": '#include "kit/own.hpp"\n#include "one/src/own.hpp"\n',
        "integrations/one/src/a.cpp": '#include <sqlite3.h>\n#include "own.hpp"\n#include "log/a.hpp"\n#include '
                                 '"two/src/a.hpp"\n'
                                 '#include "support/expect.hpp"\n',
        "integrations/one/src/own.hpp": "\n",
        "integrations/one/tests/a.cpp": '#include "one/src/own.hpp"\n#include "support/expect.hpp"\n'
                                   '#include "kit/own.hpp"\n',
        "integrations/two/src/a.hpp": "\n",
        "tests/lib/support/expect.hpp": "\n",
        "build/release/made.cpp": '#include "capi/a.hpp"\n',
    }
    expected = ["bench/kit/own.hpp:2: kit includes", "integrations/one/src/a.cpp:4: one includes two/src/a.hpp of two",
                "integrations/one/src/a.cpp:5: one includes support/expect.hpp of support",
                "integrations/one/tests/a.cpp:3: one-tests includes", "src/attic/a.cpp:1: lies in no part",
                "src/base/a.hpp:3: base includes log/a.hpp of log", "src/capi/a.hpp:3: capi includes nowhere.hpp, "
                                                                    "which is no file",
                "src/log/a.hpp:2: log includes capi/a.hpp of capi", "src/log/a.hpp:3: log includes memlith/memlith.h "
                                                                    "of public",
                "tools/cli/a.cpp:2: cli includes one/src/own.hpp of one"]
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder).resolve()
        for name, text in tree.items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(text, encoding="utf-8")
        found = list(Tree(root).violations())
    ok = len(found) == len(expected) and all(line.startswith(start) for line, start in zip(found, expected))
    print("\n".join(found))
    print("self-test: every planted violation was found, and nothing else" if ok else
          "self-test FAILED; expected:\n  " + "\n  ".join(expected))
    return 0 if ok else 1


if __name__ == "__main__":
    if "--self-test" in sys.argv[1:]:
        sys.exit(self_test())
    repository = pathlib.Path(sys.argv[1]) if sys.argv[1:] else pathlib.Path(__file__).parent.parent
    found = list(Tree(repository.resolve()).violations())
    print("\n".join(found) if found else "the floors hold")
    sys.exit(1 if found else 0)
