#!/usr/bin/env python3
"""The interface of C, as libabigail's abidiff compares it: beside abi.py, by a judge that is not ours.

    abidiff.py make INCLUDE C_COMPILER FILE     writes the interface of a version, FILE.xz (make.py does so)
    abidiff.py check INCLUDE C_COMPILER         holds today's against VERSION/abi.xml.xz of every version here

abidiff reads debugging information, which the library is shipped without. So it is given a library that has a function
for each one that the headers declare, and nothing in it: the compiler makes the library's own functions of the same
declarations, and abi.py checks that the library exports each of them. A struct that says its size (struct_size) may
grow at its end. Without abidiff, ends with 77, which means skipped.
"""
import lzma
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1] / "dist" / "site"))
import headers  # noqa: E402 pylint: disable=wrong-import-position

SKIPPED = 77
DECLARATION = re.compile(r"^MEMLITH_API ([^;{]*?\));", re.MULTILINE)
GROWING = re.compile(r"typedef struct (\w+) \{\s*uint64_t struct_size;")


def texts(include):
    """By name, the headers of C without comments."""
    return {path.name: headers.COMMENT.sub("", path.read_text(encoding="utf-8"))
            for path in sorted(pathlib.Path(include, "memlith").glob("*.h"))}


def library(include, compiler, folder):
    """One whose functions are those that the headers declare."""
    found = texts(include)
    source, made = folder / "interface.c", folder / "interface.so"
    functions = [each for text in found.values() for each in DECLARATION.findall(text)]
    assert len(functions) > 100, functions
    source.write_text("".join(f"#include <memlith/{name}>\n" for name in found) +
                      "".join(f"{each} {{ __builtin_trap(); }}\n" for each in functions), encoding="utf-8")
    subprocess.run([compiler, "-std=gnu2x", "-g", "-fPIC", "-shared", f"-I{include}", source, "-o", made], check=True)
    return made


def make(include, compiler, target):
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        written = folder / "abi.xml"
        subprocess.run(["abidw", "--no-corpus-path", "--no-show-locs", "--no-comp-dir-path",
                        library(include, compiler, folder), "--out-file", written], check=True)
        pathlib.Path(f"{target}.xz").write_bytes(lzma.compress(written.read_bytes(), preset=9))


def complaint(old, include, compiler):
    """The complaints of abidiff about today's headers; empty: none."""
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        before, rules = folder / "before.xml", folder / "rules"
        before.write_bytes(lzma.decompress(old.read_bytes()))
        growing = "|".join(struct for text in texts(include).values() for struct in GROWING.findall(text))
        rules.write_text(f"[suppress_type]\ntype_kind = struct\nname_regexp = ^({growing})$\n"
                         "has_data_member_inserted_at = end\n", encoding="utf-8")
        done = subprocess.run(["abidiff", "--no-added-syms", "--suppressions", rules, before,
                               library(include, compiler, folder)], capture_output=True, text=True, check=False)
        return "" if done.returncode == 0 else done.stdout + done.stderr


def self_test(old, include, compiler):
    """Headers that break programs are refused, and headers with something more are not."""
    with tempfile.TemporaryDirectory() as name:
        other = pathlib.Path(name)
        shutil.copytree(pathlib.Path(include, "memlith"), other / "memlith")
        for name, fine, before, after in [
                ("region", True, "} memlith_region_options;", "  uint64_t more;\n} memlith_region_options;"),
                ("status", True, "MEMLITH_API size_t memlith_last_error", "MEMLITH_API int memlith_more(int);\n"
                                                                          "MEMLITH_API size_t memlith_last_error"),
                ("region", False, "  uint64_t max_size;", "  uint64_t more;\n  uint64_t max_size;"),
                ("status", False, "last_error(char* buffer, size_t bytes)", "last_error(char* buffer, int bytes)"),
                ("status", False, "MEMLITH_API size_t memlith_last_error(char* buffer, size_t bytes);", "")]:
            header = other / "memlith" / f"{name}.h"
            text = header.read_text(encoding="utf-8")
            assert before in text, before
            header.write_text(text.replace(before, after), encoding="utf-8")
            said = complaint(old, other, compiler)
            header.write_text(text, encoding="utf-8")
            if fine == bool(said):
                return f"with {after or 'a function less'}, abidiff says: {said or 'nothing'}"
    return ""


def main(command, include, compiler, *target):
    if shutil.which("abidiff") is None:
        print("skipped: there is no abidiff (Debian: abigail-tools)")
        return SKIPPED
    if command == "make":
        make(include, compiler, target[0])
        return 0
    versions = sorted(HERE.glob("*/abi.xml.xz"))
    if not versions:
        sys.exit("there is no abi.xml.xz to compare with")
    said = [f"since {path.parent.name}:\n{text}" for path in versions if (text := complaint(path, include, compiler))]
    said += [text for text in [self_test(versions[-1], include, compiler)] if text and not said]
    print("\n".join(said) or f"the interface is that of {', '.join(path.parent.name for path in versions)}")
    return 1 if said else 0


if __name__ == "__main__":
    if len(sys.argv) < 4:
        sys.exit(__doc__)
    sys.exit(main(*sys.argv[1:]))
