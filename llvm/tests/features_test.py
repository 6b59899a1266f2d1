#!/usr/bin/env python3
"""Every kind of store is recorded at every level of optimisation, and what is not tracked is noticed."""
from common import FOLDER, HERE, build, compiler, end, expect, run, silent

WAYS = [["-O0"], ["-O1"], ["-O2"], ["-O3"], ["-Os"], ["-O2", "-flto"], ["-O2", "-flto=thin"],
        ["-O1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"], ["-O2", "-ffast-math", "-mavx2"]]
for way in WAYS:
    program, _ = build(HERE / "features.c", "features", *way)
    silent(f"C {' '.join(way)}", run(program))
    silent(f"C {' '.join(way)}, what was persisted", run(program, keep=True))
for way in ["-O0"], ["-O2"], ["-O3", "-D_GLIBCXX_ASSERTIONS"], ["-O2", "-flto"], ["-O1", "-fsanitize=address"]:
    program, _ = build(HERE / "containers.cpp", "containers", "-std=c++20", *way)
    silent(f"C++ {' '.join(way)}", run(program))
    silent(f"C++ {' '.join(way)}, what was persisted", run(program, keep=True))

UNTRACKED = """
#include "region.h"
MEMLITH_NO_TRACK void quiet(int* to) { *to = 7; }
int main(int argc, char** argv) {
  int* const base = (int*)open_region(argc, argv, 1 << 16);
  quiet(base + 100);
  if (argc > 2) must(memlith_touch(region, base + 100, 4), "touch");
  persist();
  close_region();
}
"""
source = FOLDER / "untracked.c"
source.write_text(UNTRACKED)
program, _ = build(source, "untracked", "-O2")
said = run(program).stderr
expect("MEMLITH_NO_TRACK, and a change that was not recorded is reported",
       "not recorded" in said and "offset 400" in said, said)
silent("memlith_touch() records it", run(program, "touch"))
source.write_text(UNTRACKED.replace("MEMLITH_NO_TRACK", "__attribute__((noinline))").replace(
    '#include "region.h"', '#include "region.h"\nMEMLITH_NO_TRACK_FILE;'))
program, _ = build(source, "untracked", "-O2")
expect("MEMLITH_NO_TRACK_FILE", "not recorded" in run(program).stderr)
source.write_text(UNTRACKED.replace("MEMLITH_NO_TRACK ", "__attribute__((noinline)) "))
program, _ = build(source, "untracked", "-O2")
silent("without it", run(program))
program, _ = build(source, "untracked", "-O2", with_compiler="clang-19")
expect("a program without the pass is reported", "not recorded" in run(program).stderr)

# Inline assembly that may write to memory that it does not name.
source.write_text("void f(int* p) { __asm__ volatile(\"movl $1, (%0)\" : : \"r\"(p) : \"memory\"); }\n"
                  "int main(int argc, char** argv) { (void)argv; int x = 0; if (argc > 5) f(&x); }\n")
_, done = build(source, "assembly", "-O0")
expect("inline assembly: a warning", "warning" in done.stderr and "inline assembly" in done.stderr, done.stderr)
_, done = build(source, "assembly", "-O0", "-fmemlith-asm=error", check=False)
expect("inline assembly: an error on request", done.returncode != 0 and "error" in done.stderr, done.stderr)
_, done = build(source, "assembly", "-O0", "-fmemlith-asm=allow", "-Werror")
expect("inline assembly: allowed on request", done.stderr == "", done.stderr)

# A library of the program's own, and a program that links no memlith at all.
library = FOLDER / "libstores.so"
source.write_text("void set(int* to) { *to = 5; }\n")
build(source, "libstores.so", "-O2", "-shared", "-fPIC")
user = FOLDER / "user.c"
user.write_text(UNTRACKED.replace("MEMLITH_NO_TRACK void quiet(int* to) { *to = 7; }", "void set(int* to);").replace(
    "quiet", "set"))
program, _ = build(user, "user", "-O2", f"-L{FOLDER}", "-lstores", f"-Wl,-rpath,{FOLDER}")
silent("a shared library", run(program))
source.write_text("#include <string.h>\n"
                  "int main(int argc, char** argv) { char c[64]; strcpy(c, argv[0]); return argc == c[0]; }")
program, _ = build(source, "plain", "-O2", "-Wl,--as-needed")
silent("a program without memlith", run(program))
end()
