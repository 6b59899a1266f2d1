#!/usr/bin/env python3
"""Holds docs/guarantees.md against the tests: each section has tests, and each promise that a test names is there.

A test names a promise at its head: `docs/guarantees.md, "NAME": what it holds to.` NAME is a heading of that page, or
the bold beginning of a paragraph or of a row of a table. Each such row has tests, as each section has. The page
docs/promises.md of the site lists the promises with their tests.

Usage: check_promises.py [REPOSITORY | --page REPOSITORY | --self-test]
Prints each fault and exits with 1 if there was one; --page prints the page.
"""
import pathlib
import re
import sys
import tempfile

PAGE = "docs/guarantees.md"
HEADING = re.compile(r"^#{2,3} (.+)$")
LEAD = re.compile(r"^(?:- )?\*\*([^*]+)\*\*")
ROW = re.compile(r"^\| \*\*([A-Za-z][^*]*)\*\* \|")
NAMED = re.compile(r'docs/guarantees\.md((?:(?:,| and)\s*(?://|#)?\s*"[^"]+")+)(?::\s+([^."]*\.))?', re.DOTALL)
FOLDERS = ("tests", "integrations", "bindings")
SUFFIXES = {".c", ".cpp", ".py", ".go", ".rs"}


def key(name):
    return name.replace("`", "").rstrip(".").casefold()


def one_line(text):
    """A comment's text without the marks at the beginnings of its lines."""
    return " ".join(re.sub(r"\n\s*(//|#|\*)", " ", text).split())


def promises(root):
    """(level, name, keys): headings and bold beginnings, in order; the level is that of the heading, 0 of a bold
    beginning, and -1 of a row."""
    found = []
    for line in (root / PAGE).read_text(encoding="utf-8").splitlines():
        if match := HEADING.match(line):
            found.append((line.index(" "), match[1], {key(match[1])}))
        elif match := ROW.match(line):
            found.append((-1, match[1], {key(match[1])}))
        elif match := LEAD.match(line):
            name = match[1].rstrip(".")
            found.append((0, name, {key(name), *(key(part) for part in name.split(", "))}))
    return found


def named(root):
    """(file, name, sentence) of each promise that a test names."""
    for folder in FOLDERS:
        for file in sorted((root / folder).rglob("*")):
            if file.suffix not in SUFFIXES or not file.is_file():
                continue
            for match in NAMED.finditer(file.read_text(encoding="utf-8", errors="replace")):
                sentence = one_line(match[2] or "")
                for name in re.findall(r'"([^"]+)"', match[1]):
                    yield file.relative_to(root).as_posix(), one_line(name), sentence


def faults(root):
    tests = list(named(root))
    known = {each for _, _, keys in promises(root) for each in keys}
    for file, name, _ in tests:
        if key(name) not in known:
            yield f'{file}: names "{name}", which is no heading and no bold beginning of {PAGE}'
    # A section is tested if one of its paragraphs is, or a section below it.
    sections, tested = [], {key(name) for _, name, _ in tests}
    for level, name, keys in promises(root):
        if level == -1 and not keys & tested:
            yield f'{PAGE}: no test names the row "{name}"'
        if level == 2:
            sections.append((name, set()))
        if sections:
            sections[-1][1].update(keys)
        if level == 3:
            sections.append((name, set(keys)))
    for name, keys in sections:
        if not keys & tested:
            yield f'{PAGE}: no test names "{name}"'


def page(root):
    """The page promises.md."""
    tests = list(named(root))
    yield "# Promises and their tests\n"
    yield ("Each promise of [guarantees.md](guarantees.md) with the tests that name it. The list is made of the tests' "
           "own first lines; [testing.md](testing.md) says what each suite does. A section without a test fails "
           "`./dev test`.\n")
    for level, name, keys in promises(root):
        rows = [(file, sentence) for file, each, sentence in tests if key(each) in keys]
        if level > 0:
            yield f"{'#' * level} {name}\n"
        elif rows:
            yield f"**{name}**\n"
        if rows:
            yield "\n".join(f"- `{file}`" + (f": {sentence}" if sentence else "") for file, sentence in rows) + "\n"


def self_test():
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        for name, text in {
                PAGE: "# G\n## One\n**First part.** x\n| **Row** | x |\n| **Untested** | x |\n"
                      "## Two\n- **`a`, `b`** x\n### Three\nx\n",
                "tests/a.cpp": '// docs/guarantees.md, "one" and "row": holds.\n',
                "integrations/x/b.py": '"""docs/guarantees.md, "b" and\n"Nothing": no."""\n'}.items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(text, encoding="utf-8")
        found = list(faults(root))
    wanted = ['integrations/x/b.py: names "Nothing", which', f'{PAGE}: no test names the row "Untested"',
              f'{PAGE}: no test names "Three"']
    ok = len(found) == len(wanted) and all(line.startswith(start) for line, start in zip(found, wanted))
    print("\n".join(found))
    print("self-test: every planted fault was found, and nothing else" if ok else f"self-test FAILED; wanted {wanted}")
    return 0 if ok else 1


def main():
    words = sys.argv[1:]
    if words[:1] == ["--self-test"]:
        return self_test()
    if words[:1] == ["--page"]:
        print("\n".join(page(pathlib.Path(words[1]))))
        return 0
    root = pathlib.Path(words[0]) if words else pathlib.Path(__file__).parent.parent
    found = list(faults(root.resolve()))
    print("\n".join(found) if found else "every section of the promises has tests")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
