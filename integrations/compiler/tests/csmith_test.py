#!/usr/bin/env python3
"""Programs of csmith, whose variables lie in a region: every change of them must be recorded, at -O0, -O2 and -O3.

csmith's global variables are moved to a struct in the region, and pointers between them with them. Each function
persists when it begins, up to 40 times a run; MEMLITH_VERIFY_TRACKING=1 compares the region with a copy at each
persist.

Usage: csmith_test.py BUILD SOURCE [--programs N] [--seed N]; MEMLITH_SEED replaces the seed.
"""
import argparse
import concurrent.futures
import os
import re
import shutil
import subprocess
import sys

from common import FOLDER, PLAIN, build, end, expect, run

LEVELS = ["-O0", "-O2", "-O3"]
NAME = re.compile(r"\bg_\d+\b")
OPTIONS = ["--no-argc", "--max-funcs", "4", "--max-block-depth", "3", "--max-expr-complexity", "6"]
# Programs that csmith makes smaller than this hardly store; larger ones take long to compile.
TEXT_BYTES = range(5_000, 60_000)

SETUP = """
#include <signal.h>
#include <sys/time.h>
#include <unistd.h>
#include "region.h"
struct all {{
{members}
}};
static struct all* volatile all;
static const struct {{ const char* from; size_t bytes, to; }} moved[] = {{
{rows}
}};
/* The variables with their first values; a pointer to one of them leads to its new place. */
static void move_variables(char* base) {{
  all = (struct all*)(base + 4096);
  for (size_t i = 0; i < sizeof moved / sizeof *moved; ++i) {{
    memcpy((char*)all + moved[i].to, moved[i].from, moved[i].bytes);
    for (size_t at = 0; at + sizeof(char*) <= moved[i].bytes; at += sizeof(char*)) {{
      char** const word = (char**)((char*)all + moved[i].to + at);
      for (size_t k = 0; k < sizeof moved / sizeof *moved; ++k) {{
        if (*word < moved[k].from || *word >= moved[k].from + moved[k].bytes) continue;
        *word = (char*)all + moved[k].to + (*word - moved[k].from);
        break;
      }}
    }}
  }}
}}
static int persists;
static void tick(void) {{
  if (persists++ < 40) persist();
}}
/* csmith does not promise that a program ends. */
static void cut(int signal) {{
  (void)signal;
  (void)!write(STDOUT_FILENO, "cut", 3);
  _exit(0);
}}
static char* begin(int argc, char** given) {{
  const struct itimerval second = {{{{0, 0}}, {{1, 0}}}};
  signal(SIGVTALRM, cut);
  setitimer(ITIMER_VIRTUAL, &second, NULL);
  return open_region(argc, given, 1 << 20);
}}
{macros}
"""


def in_region(text):
    """The program with its global variables in a region."""
    head, rest = text.split("/* --- GLOBAL VARIABLES --- */")
    variables, rest = rest.split("/* --- FORWARD DECLARATIONS --- */")
    names = []
    for definition in re.split(r";\s*(?:/\*[^\n]*\*/)?\n", variables):
        found = NAME.search(definition)
        if found:
            names.append(found.group())
    setup = SETUP.format(
        members="\n".join(f"  __typeof__(first_{name}) {name};" for name in names),
        rows="\n".join(f"  {{(const char*)&first_{name}, sizeof first_{name}, __builtin_offsetof(struct all, {name})}},"
                       for name in names),
        macros="\n".join(f"#define {name} (all->{name})" for name in names))
    begin, main = rest.split("int main (void)\n{")
    begin = re.sub(r"(\n(?:static|inline)[^;{}\n]*\bfunc_\d+\([^;{}]*\)\n\{)", r"\1 tick();", begin)
    main = main.replace("func_1();", "move_variables(begin(argc, given));\n    persist();\n    func_1();\n"
                        "    persist();", 1).replace("platform_main_end", "close_region();\n    platform_main_end", 1)
    return (head + NAME.sub(lambda found: "first_" + found.group(), variables) + setup + begin +
            "int main(int argc, char** given)\n{\n    if (argc < 2) return 2;" + main)


def program_of(seed):
    for attempt in range(50):
        options = OPTIONS + (["--no-volatiles"] if seed % 2 else [])
        text = subprocess.run(["csmith", "--seed", str(seed * 50 + attempt), *options], capture_output=True, text=True,
                              check=True, cwd=FOLDER).stdout
        if len(text) in TEXT_BYTES and "/* --- GLOBAL VARIABLES --- */" in text and " g_" in text:
            return in_region(text)
    sys.exit(f"csmith makes no program of the wanted size for seed {seed}")


def try_one(seed):
    level = LEVELS[seed % len(LEVELS)]
    source = FOLDER / f"csmith-{seed}.c"
    source.write_text(program_of(seed), encoding="utf-8")
    binary, done = build(source, f"csmith-{seed}", level, "-w", "-I/usr/include/csmith", check=False)
    if done.returncode != 0:
        return seed, f"{source.name} does not compile: {done.stderr[:2000]}", False
    store = FOLDER / f"store-{seed}"
    done = run(binary, store=store)
    good = done.returncode == 0 and done.stderr == ""
    said = "" if good else f"{level}: exit {done.returncode}\n{done.stderr[:2000]}"
    binary.unlink()
    shutil.rmtree(store, ignore_errors=True)
    if not said:
        source.unlink()
    return seed, said, not done.stdout.endswith("cut")


arguments = argparse.ArgumentParser()
arguments.add_argument("build")
arguments.add_argument("source")
arguments.add_argument("--programs", type=int, default=50)
arguments.add_argument("--seed", type=int, default=int(os.environ.get("MEMLITH_SEED", "1")))
arguments = arguments.parse_args()
if shutil.which("csmith") is None:
    print("skipped: csmith is not installed (Debian: csmith libcsmith-dev)")
    sys.exit(0)
print(f"seed {arguments.seed}, {arguments.programs} programs of csmith")
ended_count = 0
with concurrent.futures.ThreadPoolExecutor(2) as threads:
    for seed, said, ended in threads.map(try_one, range(arguments.seed, arguments.seed + arguments.programs)):
        ended_count += ended
        if said:
            expect(f"program of seed {seed}", False, said)


def is_reported_without_pass(seed):
    source = FOLDER / f"csmith-plain-{seed}.c"
    source.write_text(program_of(seed), encoding="utf-8")
    binary, _ = build(source, f"csmith-plain-{seed}", "-O2", "-w", "-I/usr/include/csmith", with_compiler=PLAIN)
    return "not recorded" in run(binary).stderr


expect("what a program without the pass changes is reported",
       any(is_reported_without_pass(seed) for seed in range(arguments.seed, arguments.seed + 5)))
expect(f"{arguments.programs} programs of csmith, of which {ended_count} ended: every change was recorded",
       ended_count * 2 >= arguments.programs)
end()
