#!/usr/bin/env python3
"""Each ORDER comment of src/ and of a plugin's src/ ends with what fails if the order is broken, and that exists.

Usage: check_orders.py [REPOSITORY | --self-test]
A comment `// ORDER name: the crash that the order of the next lines prevents. [REFERENCE]` ends with one or more
references, with commas between: `mutant NAME` of tests/lib/mutants/mutants.hpp breaks the order, and a test notices;
`workload NAME` of tests/lib/lab, or `test SUITE.NAME`, fails when the lines change places. Prints each violation as
`file:line: what` and exits with 1 if there was one. --self-test shows that each is found.
"""
import pathlib
import re
import sys
import tempfile

ORDER = re.compile(r"^\s*// ORDER (?P<names>[a-z-]+(?:, [a-z-]+)*): ")
COMMENT = re.compile(r"^\s*// ?(.*)")
REFERENCES = re.compile(r"\[((?:mutant|workload|test) [^\[\]]+)\]$")


def names_in(root, folder, pattern):
    """The pattern's matches in the sources of a folder."""
    files = (file for file in sorted((root / folder).rglob("*")) if file.suffix in {".cpp", ".hpp"})
    return {match for file in files for match in re.findall(pattern, file.read_text(encoding="utf-8"))}


def existing(root):
    """Everything that a reference may name."""
    tests = {test for folder in ("tests", "integrations")
             for test in names_in(root, folder, r"\bTEST(?:_F|_P)?\((\w+),\s*(\w+)\)")}
    return {
        "mutant": names_in(root, "tests/lib/mutants", r"\bX\((\w+), \w+, \""),
        "workload": names_in(root, "tests/lib/lab", r"(?m)^ +\{(?:\.name = )?\"([a-z0-9-]+)\","),
        "test": {f"{suite}.{name}" for suite, name in tests},
    }


def orders(file):
    """(line number, text) of each ORDER comment."""
    lines = file.read_text(encoding="utf-8").splitlines()
    for number, line in enumerate(lines, 1):
        if not line.lstrip().startswith("// ORDER "):
            continue
        text = [line.strip()]
        for further in lines[number:]:
            match = COMMENT.match(further)
            if not match or match[1].startswith("ORDER"):
                break
            text.append(match[1].strip())
        yield number, " ".join(text)


def violations(root):
    known = existing(root)
    folders = [root / "src", *sorted((root / "integrations").glob("*/src"))]
    for file in sorted(file for folder in folders for file in folder.rglob("*") if file.suffix in {".cpp", ".hpp"}):
        for number, text in orders(file):
            where = f"{file.relative_to(root)}:{number}"
            references = REFERENCES.search(text)
            if not ORDER.match(text) or not references:
                yield (f"{where}: it reads // ORDER name: why. [mutant NAME], [workload NAME] or [test "
                       "SUITE.NAME]")
                continue
            for reference in references[1].split(", "):
                kind, _, name = reference.partition(" ")
                if name not in known.get(kind, ()):
                    yield f"{where}: there is no {reference}"


def self_test():
    tree = {
        "tests/lib/mutants/mutants.hpp": '#define LIST(X) \\\n  X(flush_left_out, log, "a flush is left out") \\\n'
                                         '  X(skip_mark, one, "nothing says so")\n',
        "src/log/good.cpp": "// ORDER one-before-two: why. [mutant flush_left_out]\n"
                            "  // ORDER two-before-three: because of a crash that is told in\n"
                            "  // two lines. [workload two-commits, workload reopened, test Log.ComesBack]\nint x;\n"
                            "// ORDERLY\n",
        "src/log/bad.cpp": "// ORDER one-before-two: why.\n// ORDER two: why. [crash/two]\nint x;\n"
                           "// ORDER three: why. [mutant flush_leftout]\n"
                           "// ORDER four: why. [test Log.ComesBack, test Log.No]\n"
                           "// ORDER five: why. [workload one-commit]\nint y;\n"
                           "// Order six: no tag is no tag. [mutant none]\n",
        "integrations/one/src/marks.cpp": "// ORDER one-before-two: why. [mutant skip_mark]\nint x;\n"
                                     "// ORDER two-before-three: why. [mutant keep_mark]\n",
        "tests/lib/lab/workloads.cpp": 'Row rows[] = {\n    {"two-commits", "two commits", options},\n};\n',
        "tests/lib/lab/more.cpp": 'Row rows[] = {\n    {.name = "reopened",\n     .sentence = "reopening"},\n};\n',
        "tests/unit/log/log_test.cpp": "TEST_F(Log,\n       ComesBack) {}\n",
    }
    expected = ["integrations/one/src/marks.cpp:3: there is no mutant keep_mark", "src/log/bad.cpp:1: it reads",
                "src/log/bad.cpp:2: it reads", "src/log/bad.cpp:4: there is no mutant",
                "src/log/bad.cpp:5: there is no test Log.No", "src/log/bad.cpp:6: there is no workload one-commit"]
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        for name, text in tree.items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(text, encoding="utf-8")
        found = list(violations(root))
    ok = len(found) == len(expected) and all(line.startswith(start) for line, start in zip(found, expected))
    print("\n".join(found))
    print("self-test: every planted violation was found, and nothing else" if ok else
          "self-test FAILED; expected:\n  " + "\n  ".join(expected))
    return 0 if ok else 1


if __name__ == "__main__":
    if "--self-test" in sys.argv[1:]:
        sys.exit(self_test())
    repository = pathlib.Path(sys.argv[1]) if sys.argv[1:] else pathlib.Path(__file__).parent.parent
    found = list(violations(repository.resolve()))
    print("\n".join(found) if found else "each ORDER names what fails without it")
    sys.exit(1 if found else 0)
