#!/usr/bin/env python3
"""A compiler's messages about programs that mix values of the process with containers of a heap.

conversions.cpp must compile. Each wrong program must not, and the first error must be short and begin with the point:
the advice of an assertion, or the two types, without the default arguments.

Usage: messages.py CONVERSIONS INCLUDE FOLDER COMPILER
"""
import pathlib
import re
import subprocess
import sys

INCLUDES = """#include <string>
#include <variant>
#include <vector>
#include "memlith/heap.hpp"
"""
HEAD = INCLUDES + """struct Person { std::string name; int height; };
using Map = memlith::map<memlith::string, int>;
void wrong(memlith::Heap& heap, memlith::Region& region, Map& map, memlith::vector<memlith::string>& words) {
  (void)heap, (void)region, (void)map, (void)words;
  """
ADVICE = r"memlith: an object of this type cannot live in a heap\."
# The line that is wrong, what the first error says, and within how many characters it has said so.
WRONG = [
    ("(void)heap.root<Person>();", ADVICE, 200),
    ("(void)heap.root<std::string>();", ADVICE, 260),
    ("(void)region.root<Person>();", ADVICE, 200),
    ('memlith::vector<std::string> own; own.push_back("x");', ADVICE, 300),
    ('memlith::map<std::string, int> own; own["x"] = 1;', ADVICE, 300),
    ("std::vector<std::string> copy = words;", r"vector<memlith::string, ?(memlith::)?allocator<", 120),
    ("map[7] = 1;", r"operator\[\](’ .*| .*)map<memlith::string, int", 120),
]
# Types that may not live in a heap, and what the errors say of each, one after the other.
REFUSED = [
    ("struct T { T() : n(1) {} int n; memlith::string s; };", ["It has a constructor or private members"]),
    ("struct B { memlith::string s; }; struct T : B { int n; };", ["It has a base class"]),
    (f"struct T {{ {' '.join(f'int m{i};' for i in range(24))} memlith::string s; }};", ["more than 24 members"]),
    ("struct T { int n; std::variant<int, memlith::string> v; };", ["Its member 2 cannot", "It is a std::variant"]),
    ("struct B { int n; int m; std::string s; }; struct T { B b; };",
     ["Its member 1 cannot", "Its member 3 cannot", "It is a container that owns memory of the process"]),
    ("struct T { memlith::vector<std::string> v; };",
     ["Its member 1 cannot", "its elements cannot", "It is a container that owns memory of the process"]),
    ("struct T { memlith::map<int, T> children; std::string s; };",
     ["Its member 2 cannot", "It is a container that owns memory of the process"]),
    ("struct T { virtual ~T() = default; };", ["It has virtual functions"]),
    ("struct T { int n; void (*f)(); };", ["Its member 2 cannot", "It is a pointer to code"]),
    ("struct T { int n; ~T() {} };", ["It has a destructor of its own"]),
]
ERROR = re.compile(r"^[^\n]*: (?:fatal )?error: (.*)$", re.MULTILINE)


def compile_it(compiler, include, source):
    command = [compiler, "-std=c++20", f"-I{include}", "-fsyntax-only", "-Wall", "-Wextra", "-Werror", source]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.returncode == 0, done.stderr


def complaints(compiler, conversions, include, folder):
    ok, said = compile_it(compiler, include, conversions)
    if not ok:
        yield f"{conversions} does not compile:\n{said}"
    for number, (line, wanted, within) in enumerate(WRONG):
        source = folder / f"wrong_{number}.cpp"
        source.write_text(HEAD + line + "\n}\n", encoding="utf-8")
        ok, said = compile_it(compiler, include, source)
        first = ERROR.search(said)
        if ok or first is None:
            yield f"{line}\n  compiles, or is refused without an error:\n{said}"
            continue
        point = re.search(wanted, first[1])
        if point is None or point.end() > within:
            yield f"{line}\n  the first error does not have {wanted} within {within} characters:\n  {first[1]}"
    for number, (declared, wanted) in enumerate(REFUSED):
        source = folder / f"refused_{number}.cpp"
        source.write_text(f"{INCLUDES}{declared}\nvoid wrong(memlith::Heap& heap) {{ (void)heap.root<T>(); }}\n",
                          encoding="utf-8")
        ok, said = compile_it(compiler, include, source)
        errors = ERROR.findall(said)
        if ok or len(errors) != len(wanted) or not all(part in error for part, error in zip(wanted, errors)):
            yield f"{declared}\n  the errors do not say {wanted}, one after the other:\n" + "\n".join(errors)


def main(conversions, include, folder, compiler):
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    found = list(complaints(compiler, conversions, include, folder))
    print("\n\n".join(found) or f"{len(WRONG)} messages are short")
    return 1 if found else 0


if __name__ == "__main__":
    if len(sys.argv) != 5:
        sys.exit(__doc__)
    sys.exit(main(*sys.argv[1:]))
