#!/usr/bin/env python3
"""Random C programs whose every change of a region must be recorded: structs, unions, bit-fields, vectors, atomics,
functions of the C library, at -O0, -O2 and -O3. Each program runs with MEMLITH_VERIFY_TRACKING=1, which compares the
region with a copy at each persist.

Usage: random_test.py BUILD SOURCE [--programs N] [--seed N]; MEMLITH_SEED replaces the seed.
"""
import argparse
import concurrent.futures
import os
import random
import shutil
import sys

from common import FOLDER, build, end, expect, run

SCALARS = ["char", "unsigned char", "short", "int", "unsigned", "long", "unsigned long long", "float", "double"]
WHOLE = SCALARS[:7]
LEVELS = ["-O0", "-O2", "-O3"]


class Program:
    """One program: `text` is its source. All indices are in bounds, and no value overflows a signed type."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.structs = []  # lists of (name, kind, count)
        self.text = "\n".join([self.types(), *(self.function(i) for i in range(self.random.randint(4, 7))),
                               self.main()])

    def fields(self):
        kinds = ["scalar", "scalar", "array", "bits", "vector", "union", "text", "atomic", "wide"]
        return [(f"f{i}", self.random.choice(kinds), self.random.choice(SCALARS), self.random.randint(2, 40))
                for i in range(self.random.randint(3, 9))]

    def declaration(self, field):
        name, kind, scalar, count = field
        return {
            "scalar": f"{scalar} {name};",
            "array": f"{scalar} {name}[{count}];",
            "bits": f"unsigned {name} : {count % 31 + 1}; unsigned {name}b : {count % 13 + 1};",
            "vector": f"vector{self.lanes(count)} {name};",
            "union": f"union {{ {scalar} a; char b[{count}]; double c; }} {name};",
            "text": f"char {name}[{count + 16}];",
            "atomic": f"_Atomic long {name};",
            "wide": f"__int128 {name};",
        }[kind]

    @staticmethod
    def lanes(count):
        return 4 << count % 3

    def types(self):
        lines = ['#include "region.h"', "#include <stdatomic.h>",
                 *(f"typedef int vector{n} __attribute__((vector_size({4 * n})));" for n in (4, 8, 16)),
                 "static volatile unsigned opaque = 1;"]
        for i in range(self.random.randint(2, 4)):
            fields = self.fields()
            packed = " __attribute__((packed, aligned(16)))" if self.random.random() < 0.2 else ""
            if packed:
                fields = [field for field in fields if field[1] not in ("atomic", "vector")]
                fields = fields or [("f", "array", "int", 9)]
            self.structs.append(fields)
            lines.append(f"struct s{i} {{ {' '.join(self.declaration(field) for field in fields)} }}{packed};")
        members = " ".join(f"struct s{i} m{i}[16];" for i in range(len(self.structs)))
        lines += [f"struct all {{ {members} char bytes[4096]; long words[512]; }};", "static struct all* all;"]
        return "\n".join(lines)

    def index(self, bound):
        form = self.random.choice(["{}", "({} + x) % {}", "(i * {} + x) % {}"])
        return form.format(self.random.randrange(bound), bound) if form == "{}" else form.format(
            self.random.randrange(1, 9), bound)

    def assign(self):
        number = self.random.randrange(len(self.structs))
        name, kind, scalar, count = self.random.choice(self.structs[number])
        there = f"all->m{number}[{self.index(16)}].{name}"
        value = f"({self.random.randrange(100)} + x % 50 + i)"
        choice = self.random.random()
        if kind == "scalar":
            if scalar in WHOLE and choice < 0.3:
                return f"{there} {self.random.choice(['^=', '|=', '&='])} {value};"
            return f"{there} = ({scalar}){value};"
        if kind == "array":
            if choice < 0.5:
                return f"for (unsigned k = 0; k < {count}; ++k) {there}[k] = ({scalar})(k + {value});"
            return f"{there}[{self.index(count)}] = ({scalar}){value};"
        if kind == "bits":
            return f"{there}{self.random.choice(['', 'b'])} = (unsigned){value};"
        if kind == "vector":
            n = self.lanes(count)
            return f"{there} {self.random.choice(['=', '+='])} (vector{n}){{(int){value}, 1, 2}};"
        if kind == "union":
            return self.random.choice([f"{there}.a = ({scalar}){value};", f"{there}.b[{self.index(count)}] = (char)x;",
                                       f"{there}.c = {value};", f"memset(&{there}, (int)x, 1 + x % {count});"])
        if kind == "text":
            return self.random.choice([f'snprintf({there}, sizeof {there}, "%u-%u", x, i);',
                                       f'strcpy({there}, "some text");', f"strncpy({there}, names[x % 3], {count});",
                                       f"memset({there}, 'a' + (int)(x % 9), x % {count});"])
        if kind == "atomic":
            return self.random.choice([f"atomic_fetch_add(&{there}, (long)x);",
                                       f"atomic_store(&{there}, (long){value});",
                                       "{ long e = (long)(x % 3); "
                                       f"atomic_compare_exchange_strong(&{there}, &e, (long)x); }}",
                                       f"atomic_exchange_explicit(&{there}, (long)x, memory_order_release);"])
        return f"{there} = (__int128){value} << {count};"

    def statement(self, depth, number):
        choice = self.random.random()
        if depth < 2 and choice < 0.2:
            body = self.block(depth + 1, number)
            return self.random.choice([
                f"for (unsigned j = 0; j < {self.random.randint(2, 30)}; ++j) {{ x += j; {body} }}",
                f"if (x % {self.random.randint(2, 5)} == 0) {{ {body} }}",
                f"switch (x % 3) {{ case 0: {body} break; case 1: x ^= 5; break; default: {body} }}"])
        if choice < 0.27:
            which = self.random.randrange(len(self.structs))
            return self.random.choice([
                f"all->m{which}[{self.index(16)}] = all->m{which}[{self.index(16)}];",
                f"memmove(&all->m{which}[{self.random.randrange(8)}], &all->m{which}[{self.random.randrange(8)}], "
                f"(1 + x % 8) * sizeof(struct s{which}));",
                f"{{ struct s{which} local = all->m{which}[{self.index(16)}]; memset(&local, (int)x, 3 + x % 5); "
                f"all->m{which}[{self.index(16)}] = local; }}"])
        if choice < 0.37:
            start, step = self.random.randrange(1000), self.random.randint(1, 5)
            return self.random.choice([
                f"for (unsigned k = 0; k < {self.random.randint(1, 500)}; ++k) "
                f"all->bytes[{start} + k * {step}] = (char)(k * x);",
                f"for (unsigned k = 0; k < 512; ++k) all->words[k] += (long)(k ^ x);",
                f"for (unsigned k = 0; k < 511; ++k) if ((k * x) % 5 == 0) all->words[k] = all->words[k + 1] + 1;",
                f"memcpy(all->bytes + {start}, all->words, x % 900);",
                f"{{ char* p = all->bytes + x % 2000; do *p++ = (char)x; while (p < all->bytes + 2500 && *p != 3); }}"])
        if choice < 0.42 and number > 0:
            return f"x ^= f{self.random.randrange(number)}(x, i + 1);"
        return self.assign()

    def block(self, depth, number):
        return " ".join(self.statement(depth, number) for _ in range(self.random.randint(2, 6 - depth)))

    def function(self, number):
        names = "static const char* const names[] = {\"a\", \"longer name\", \"b\"};\n" if number == 0 else ""
        keyword = self.random.choice(["static", "static", "static inline", "__attribute__((noinline)) static"])
        return (f"{names}{keyword} unsigned f{number}(unsigned x, unsigned i) {{\n  if (i > 6) return x;\n  "
                f"{self.block(0, number)}\n  return x * 7 + i;\n}}")

    def main(self):
        count = self.text_functions()
        calls = "\n".join(f"    x = f{self.random.randrange(count)}(x, round % 4);"
                          + ("\n    persist();" if self.random.random() < 0.5 else "") for _ in range(6))
        return (f"int main(int argc, char** argv) {{\n  all = (struct all*)(open_region(argc, argv, 1 << 18) + 64);\n"
                "  unsigned x = opaque;\n"
                f"  for (unsigned round = 0; round < 6; ++round) {{\n{calls}\n    persist();\n  }}\n"
                f"  close_region();\n  return 0;\n}}")

    def text_functions(self):
        # Every program has at least four.
        return 4


def try_one(seed):
    program = Program(seed)
    level = LEVELS[seed % len(LEVELS)]
    source = FOLDER / f"random-{seed}.c"
    source.write_text(program.text, encoding="utf-8")
    binary, done = build(source, f"random-{seed}", level, "-w", check=False)
    if done.returncode != 0:
        return seed, f"{source.name} does not compile: {done.stderr[:2000]}"
    done = run(binary, store=FOLDER / f"store-{seed}")
    fine = done.returncode == 0 and done.stderr == ""
    said = "" if fine else f"{level}: exit {done.returncode}\n{done.stderr[:2000]}"
    binary.unlink()
    shutil.rmtree(FOLDER / f"store-{seed}")
    return seed, said


arguments = argparse.ArgumentParser()
arguments.add_argument("build")
arguments.add_argument("source")
arguments.add_argument("--programs", type=int, default=51)
arguments.add_argument("--seed", type=int, default=int(os.environ.get("MEMLITH_SEED", "1")))
arguments = arguments.parse_args()
print(f"seed {arguments.seed}, {arguments.programs} programs")
with concurrent.futures.ThreadPoolExecutor(2) as threads:
    for seed, said in threads.map(try_one, range(arguments.seed, arguments.seed + arguments.programs)):
        if said:
            expect(f"program of seed {seed}", False, said)
            print(Program(seed).text, file=sys.stderr)
expect(f"{arguments.programs} programs: every change was recorded", True)
end()
