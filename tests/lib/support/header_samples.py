#!/usr/bin/env python3
"""Compiles the samples that the comments of the public headers show, as README.md's program is compiled.

A sample is a run of comment lines, indented by two columns or more than the text of the comment, in which a line ends
a statement. `...` stands for what a program does there: an empty statement. Each sample is compiled in a function;
SURROUNDINGS has what the sample takes for granted. A sample without an entry and an entry without a sample are
failures, and so is a header of C that does not begin with a sample.

Usage: header_samples.py INCLUDE FOLDER C_COMPILER CXX_COMPILER
"""
import pathlib
import re
import subprocess
import sys

# (header, number of the sample in it) -> (what stands before the function, its parameters; None: the sample is a
# function)
SURROUNDINGS = {
    ("applog.hpp", 1): ("#include <memlith/kv.hpp>", ""),
    ("archive.hpp", 1): ("extern bool running;\nvoid sleep_ms(int ms);", ""),
    ("btree.hpp", 1): ("", ""),
    ("copy.hpp", 1): ("", ""),
    ("derived.h", 1): ("#include <stddef.h>\nstruct index { memlith_derived derived; int leaves; };\n"
                       "struct index* make_index(const void* root);\nvoid free_index(struct index* index);",
                       "const void* root"),
    ("files.hpp", 1): ("", ""),
    ("flat_hash.hpp", 1): ("", ""),
    ("heap.hpp", 1): ("", ""),
    ("heap.hpp", 2): ("struct Order { int item, count; };",
                      "memlith::Heap* heap, memlith::vector<Order>& orders, memlith::map<int, int>& stock, "
                      "Order order"),
    ("kv.hpp", 1): ("std::string one_less(std::string_view count);", ""),
    ("memlith.h", 1): ("", ""),
    ("memlith.hpp", 1): ("struct Notes { int count; };", ""),
    ("region.h", 1): ("", "memlith_store* store"),
    ("region.hpp", 1): ("#include <memlith/store.hpp>\nstruct Counters { int words, lines; };",
                        "memlith::Store& store"),
    ("status.h", 1): ("#include <stdio.h>\n#include <stdlib.h>", None),
    ("status.hpp", 1): ("#include <iostream>\nmemlith::Result<int> look_up(const char* name);", ""),
    ("store.h", 1): ("#include <stdio.h>", ""),
    ("store.hpp", 1): ("void warn(void*, const char* sentence);", ""),
    ("transaction.h", 1): ("struct account { int balance; };",
                           "memlith_store* store, struct account* from, struct account* to"),
    ("transaction.h", 2): ("#include <memlith/applog.h>\n#include <memlith/kv.h>",
                           "memlith_store* store, memlith_region* counters, memlith_kv_txn* records, "
                           "memlith_applog* log, memlith_applog_entry entry"),
    ("transaction.h", 3): ("int rename_everything(memlith_region* region);",
                           "memlith_store* store, memlith_region* region"),
    ("transaction.hpp", 1): ("#include <memlith/store.hpp>\nstruct Account { int balance; };",
                             "memlith::Store& store, Account* from, Account* to"),
    ("applog.h", 1): ("", "memlith_store* store"),
    ("archive.h", 1): ("extern int running;\nvoid sleep_ms(int ms);", ""),
    ("copy.h", 1): ("#include <stdio.h>", ""),
    ("files.h", 1): ("#include <fcntl.h>\n#include <unistd.h>", ""),
    ("heap.h", 1): ("#include <string.h>", "memlith_store* store"),
    ("kv.h", 1): ("", "memlith_store* store"),
    ("sqlite_file.h", 1): ("#include <stdio.h>", ""),
    ("track.h", 1): ("", None),
    ("shared.h", 1): ("", ""),
    ("shared.hpp", 1): ("struct Account { int balance; };", ""),
    ("steps.hpp", 1): ("memlith::Result<int> one_less(memlith::KvTransaction& records, const char* item);\n"
                       "memlith::Result<std::string> pay(int cents, std::string_view key);", ""),
    ("rocksdb.hpp", 1): ("#include <rocksdb/env.h>\n#include <rocksdb/file_system.h>\n#include <rocksdb/options.h>",
                         "rocksdb::Options& options"),
}
COMMENT = re.compile(r"\s*(?://|/?\*) ?(.*)")
STATEMENT = re.compile(r".*[;{]\s*(//.*)?$")
TEXT_INDENT_MAX = 1


def samples(text):
    """Yields (line of the file, code) of each sample."""
    block = []
    for number, line in enumerate([*text.split("\n"), ""], 1):
        comment = COMMENT.fullmatch(line)
        code = comment[1].removesuffix("*/").rstrip() if comment else ""
        if len(code) - len(code.lstrip()) > TEXT_INDENT_MAX:
            block.append((number, code))
            continue
        if any(STATEMENT.match(code) for _, code in block):
            # Lines of an item of a list, which are indented, too, have words where the code has none.
            if not block[0][1].lstrip().startswith("- "):
                yield block[0][0], "\n".join(code for _, code in block)
        block = []


def program(header, code, surroundings):
    before, parameters = surroundings
    code = re.sub(r"\.\.\.(?=\s*(//.*)?$)", ";", code, flags=re.MULTILINE)
    if parameters is None:
        return f"#include <memlith/{header}>\n{before}\n{code}\n"
    parameters = parameters or ("void" if header.endswith(".h") else "")
    return (f"#include <memlith/{header}>\n{before}\nvoid sample({parameters});\nvoid sample({parameters}) {{\n"
            f"{code}\n}}\n")


def main(include, folder, c_compiler, cxx_compiler):
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    failures, expected = [], set(SURROUNDINGS)
    for header in sorted(pathlib.Path(include, "memlith").iterdir()):
        text = header.read_text()
        if header.suffix == ".h" and not list(samples(text[:text.index("*/")])):
            failures.append(f"{header.name}: its head has no sample of how to use it")
        for count, (line, code) in enumerate(samples(text), 1):
            place = f"{header.name}:{line}"
            if (header.name, count) not in SURROUNDINGS:
                failures.append(f"{place}: a sample without an entry in SURROUNDINGS:\n{code}")
                continue
            expected.remove((header.name, count))
            in_c = header.suffix == ".h"
            source = folder / f"{header.stem}_{header.suffix[1:]}_{count}.{'c' if in_c else 'cpp'}"
            source.write_text(program(header.name, code, SURROUNDINGS[header.name, count]))
            command = [c_compiler, "-std=gnu11"] if in_c else [cxx_compiler, "-std=c++20"]
            done = subprocess.run([*command, "-fsyntax-only", "-Wall", "-Wextra", "-Werror", "-Wno-empty-body",
                                   "-Wno-unused-variable", "-Wno-unused-but-set-variable",
                                   "-Wno-unused-function", f"-I{include}", source],
                                  capture_output=True, text=True, check=False)
            if done.returncode != 0:
                failures.append(f"{place}: the sample does not compile:\n{code}\n{done.stderr}")
    failures += [f"{header}: sample {count} is missing" for header, count in sorted(expected)]
    print("\n\n".join(failures) or f"{len(SURROUNDINGS)} samples compile")
    return 1 if failures else 0


if __name__ == "__main__":
    if len(sys.argv) != 5:
        sys.exit(__doc__)
    sys.exit(main(*sys.argv[1:]))
