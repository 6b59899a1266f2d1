#!/usr/bin/env python3
"""The interface of C as programs are linked with it: functions, constants, the layout of structs, exported symbols.

    abi.py make INCLUDE LIBRARY C_COMPILER FILE     writes that of a version (make.py does so)
    abi.py check INCLUDE LIBRARY C_COMPILER         holds today's against VERSION/abi.json of every version here

What a version has stays: functions with the same parameters, constants with the same values, members of structs at the
same places. A struct may grow at its end if it says its size (struct_size); every other one keeps its size. abidiff.py
compares the declarations, too; this one compares constants, and what the library exports.
"""
import json
import pathlib
import re
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1] / "dist" / "site"))
import headers  # noqa: E402

VERSION = re.compile(r"MEMLITH_VERSION_(MAJOR|MINOR|PATCH)")
MEMBER = re.compile(r"\(\*(\w+)\)\(|(\w+)\s*(?:\[[^]]*\])?\s*(?=[,;])")


def declarations(include):
    """The items of all headers of C."""
    for path in sorted(pathlib.Path(include, "memlith").glob("*.h")):
        for item in headers.items_of(path.read_text(encoding="utf-8"))[1]:
            if item.code is not None:
                yield path.name, item


def members(code):
    body = headers.COMMENT.sub("", code[code.index("{") + 1:code.rindex("}")])
    for line in re.findall(r"[^;]+;", body):
        pointer = re.search(r"\(\*(\w+)\)\(", line)
        for match in [pointer] if pointer else MEMBER.finditer(line):
            yield match[1] or match[2]


def measured(lines, include, compiler):
    """The output of a program that has these lines in its main()."""
    names = sorted(path.name for path in pathlib.Path(include, "memlith").glob("*.h"))
    text = "".join(f"#include <memlith/{name}>\n" for name in names)
    text = f"#include <stddef.h>\n#include <stdio.h>\n{text}int main(void) {{\n" + "\n".join(lines) + "\n}\n"
    with tempfile.TemporaryDirectory() as folder:
        source, program = pathlib.Path(folder, "abi.c"), pathlib.Path(folder, "abi")
        source.write_text(text, encoding="utf-8")
        subprocess.run([compiler, "-std=c11", f"-I{include}", source, "-o", program], check=True)
        return dict(line.rsplit(" ", 1) for line in
                    subprocess.run([program], capture_output=True, text=True, check=True).stdout.splitlines())


def interface(include, library, compiler):
    functions, lines = {}, []
    for _, item in declarations(include):
        plain = headers.COMMENT.sub("", item.code)
        if plain.startswith("typedef struct") and "{" in plain:
            name = item.names[0]
            lines.append(f'printf("size {name} %zu\\n", sizeof({name}));')
            lines += [f'printf("place {name}.{each} %zu+%zu\\n", offsetof({name}, {each}), '
                      f"sizeof((({name}*)0)->{each}));" for each in members(item.code)]
        elif plain.startswith("enum") or re.match(r"#define \w+ [\d(]", plain):
            lines += [f'printf("constant {name} %lld\\n", (long long)({name}));' for name in item.names
                      if not VERSION.fullmatch(name)]
        elif re.fullmatch(r"[^{}]*\);", plain.strip()) and not plain.startswith(("typedef", "#")):
            functions[item.names[0]] = re.sub(r"\(\s+", "(", re.sub(r"\s+", " ", plain).strip())
    symbols = subprocess.run(["nm", "--dynamic", "--defined-only", "--format=posix", library], capture_output=True,
                             text=True, check=True).stdout
    # Names that include/private declares are exported for the tests, and are no part of the interface.
    exported = sorted({line.split()[0].split("@")[0] for line in symbols.splitlines()} & set(functions))
    return {"functions": functions, "values": measured(lines, include, compiler), "symbols": exported}


def broken(old, new):
    """The names and values that a program linked with `old` would miss in `new`."""
    for name, signature in old["functions"].items():
        if new["functions"].get(name) != signature:
            yield f"{name} was\n    {signature}\nand is\n    {new['functions'].get(name, 'gone')}"
    for name in sorted(set(old["symbols"]) - set(new["symbols"])):
        yield f"the library does not export {name} any more"
    for key, value in old["values"].items():
        now = new["values"].get(key)
        kind, name = key.split(" ")
        may_grow = kind == "size" and f"place {name}.struct_size" in old["values"]
        if now is None or (int(now) < int(value) if may_grow else now != value):
            yield f"{key} was {value}, and is {now or 'gone'}"


def self_test():
    old = {"functions": {"memlith_a": "int memlith_a(int);", "memlith_b": "int memlith_b(void);"},
           "symbols": ["memlith_a", "memlith_b"],
           "values": {"size o": "16", "place o.struct_size": "0+8", "place o.x": "8+4", "size p": "8",
                      "constant C": "1"}}
    grown = {"functions": {**old["functions"], "memlith_c": "void memlith_c(void);"},
             "symbols": [*old["symbols"], "memlith_c"],
             "values": {**old["values"], "size o": "24", "place o.y": "16+8"}}
    worse = {"functions": {"memlith_a": "int memlith_a(long);"}, "symbols": ["memlith_a"],
             "values": {**old["values"], "size o": "8", "place o.x": "12+4", "size p": "16", "constant C": "2"}}
    assert not list(broken(old, old)) and not list(broken(old, grown))
    found = list(broken(old, worse))
    assert len(found) == 7, found


def main(command, include, library, compiler, *file):
    now = interface(include, library, compiler)
    if command == "make":
        pathlib.Path(file[0]).write_text(json.dumps(now, indent=1, sort_keys=True) + "\n", encoding="utf-8")
        return 0
    self_test()
    text = "".join(path.read_text(encoding="utf-8") for path in sorted(pathlib.Path(include, "memlith").glob("*.h")))
    declared = set(re.findall(r"^MEMLITH_API [^;(]*?\b(memlith_\w+)\s*\(", headers.COMMENT.sub("", text), re.MULTILINE))
    failures = [f"{name} is declared, and not compared or not exported"
                for name in sorted(declared - (set(now["symbols"]) & set(now["functions"])))]
    versions = sorted(HERE.glob("*/abi.json"))
    if not versions:
        failures.append("there is no abi.json to compare with")
    for path in versions:
        failures += [f"since {path.parent.name}: {each}"
                     for each in broken(json.loads(path.read_text(encoding="utf-8")), now)]
    print("\n".join(failures) or f"{len(now['functions'])} functions, {len(now['values'])} sizes, places and constants "
                                 f"are those of {', '.join(path.parent.name for path in versions)}")
    return 1 if failures else 0


if __name__ == "__main__":
    if len(sys.argv) < 5:
        sys.exit(__doc__)
    sys.exit(main(*sys.argv[1:]))
