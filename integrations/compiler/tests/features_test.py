#!/usr/bin/env python3
"""Every kind of store is recorded at every level of optimisation, and what is not tracked is noticed."""
import subprocess

from common import FOLDER, GCC, HERE, PLAIN, build, compiler, end, expect, run, silent

WAYS = [["-O0"], ["-O1"], ["-O2"], ["-O3"], ["-Os"], ["-O2", "-flto"], ["-O2", "-ffast-math", "-mavx2"],
        ["-O1", f"-fsanitize={'' if GCC else 'address,'}undefined", "-fno-sanitize-recover=all"],
        ["-O2", "-pipe", "-fno-plt", "-masm=intel"] if GCC else ["-O2", "-flto=thin"]]
for way in WAYS:
    program, _ = build(HERE / "features.c", "features", *way)
    silent(f"C {' '.join(way)}", run(program))
    silent(f"C {' '.join(way)}, what was persisted", run(program, keep=True))
SANITIZED = ["-O1", f"-fsanitize={'undefined' if GCC else 'address'}"]
for way in ["-O0"], ["-O2"], ["-O3", "-D_GLIBCXX_ASSERTIONS"], ["-O2", "-flto"], SANITIZED:
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
program, _ = build(source, "untracked", "-O2", with_compiler=PLAIN)
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

# Functions of the program that are called like the C library's, in another file and in an archive: K&R's getline().
own = FOLDER / "own.c"
own.write_text("int getline(char s[], int lim) { s[0] = 'k'; s[1] = 0; return lim; }\n"
               "char *strsep(char *a, int b, int c) { a[0] = (char)(b + c); return a; }\n")
caller = FOLDER / "caller.c"
caller.write_text("""
#include "region.h"
int getline(char s[], int lim);
char* strsep(char* a, int b, int c);
char* strcpy(char* to, const char* from);
int main(int argc, char** argv) {
  char* const base = (char*)open_region(argc, argv, 1 << 16);
  if (getline(base, 1000) != 1000 || base[0] != 'k') return 3;
  if (strsep(base + 10, 40, 2) != base + 10 || base[10] != 42) return 4;
  strcpy(base + 20, argv[0]);
  persist();
  close_region();
}
""".replace('#include "region.h"\n', '#define getline getline_of_stdio\n#define strsep strsep_of_string\n'
            '#include "region.h"\n#undef getline\n#undef strsep\n'))
for way in ["-O0"], ["-O2"], ["-O2", "-flto"]:
    program, _ = build(caller, "caller", *way, own, "-fno-builtin")
    silent(f"functions named like the C library's {' '.join(way)}", run(program))
subprocess.run([compiler(own), "-O2", "-c", own, "-o", FOLDER / "own.o"], check=True)
subprocess.run(["ar", "rcs", FOLDER / "libown.a", FOLDER / "own.o"], check=True)
program, _ = build(caller, "caller", "-O2", FOLDER / "libown.a")
silent("functions named like the C library's, in an archive", run(program))

# A library of the program's own, and a program that links no memlith at all.
library = FOLDER / "libstores.so"
source.write_text("void set(int* to) { *to = 5; }\n")
build(source, "libstores.so", "-O2", "-shared", "-fPIC")
user = FOLDER / "user.c"
user.write_text(UNTRACKED.replace("MEMLITH_NO_TRACK void quiet(int* to) { *to = 7; }", "void set(int* to);").replace(
    "quiet", "set"))
program, _ = build(user, "user", "-O2", f"-L{FOLDER}", "-lstores", f"-Wl,-rpath,{FOLDER}")
silent("a shared library", run(program))
probe = subprocess.run([compiler(source), "-x", "c", "-", "-o", FOLDER / "probe"], capture_output=True, text=True,
                       input="#include <string.h>\nint main(void) { char c[9]; strcpy(c, \"4\"); return c[0]; }\n")
expect("a program from standard input, with -x c", probe.returncode == 0 and run(FOLDER / "probe").returncode == 52,
       probe.stderr)
source.write_text("#include <string.h>\n"
                  "int main(int argc, char** argv) { char c[64]; strcpy(c, argv[0]); return argc == c[0]; }")
program, _ = build(source, "plain", "-O2", "-Wl,--as-needed")
silent("a program without memlith", run(program))
end()
