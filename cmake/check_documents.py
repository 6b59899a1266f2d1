#!/usr/bin/env python3
"""Documents name only tests and files that are there.

Usage: check_documents.py [REPOSITORY | --self-test]
In Markdown outside of results/ and CHANGELOG.md, a word in backticks such as `run.calls` must be a test that a
CMakeLists.txt adds, if there is a suite of that name; and one such as `src/log/log.hpp` must be a file or a folder, if
it begins with a folder of the repository. A path may hold a capital placeholder (NAME) or a star.
`./dev soak NAME` is one of tests/soak/soaks.sh. Each row of the table "What runs on it" (docs/index.md) names a test,
or says "untried".
Prints each fault as `file:line: ...` and exits with 1 if there was one.
"""
import pathlib
import re
import sys
import tempfile

WORD = re.compile(r"`([^`\s]+)`")
TEST = re.compile(r"([a-z]+)\.([a-z0-9_+]+(?:\.[a-z0-9_-]+)*)")
ADDED = re.compile(r"add_test\(NAME\s+([\w.+${}-]+)")
# Functions that add tests: the words of a call that they put together.
MADE = {"memlith_run_test": ("run", r"(\w+)"), "memlith_go_test": ("go", r"\w+ (\w+)"),
        "power_run": ("power", r"(\w+)"), "memlith_page": ("docs", r"([\w/-]+)")}
OTHERS = {"build", ".git"}
# Suffixes of files that look like a suite with a test.
FILES = {"md", "hpp", "h", "cpp", "c", "py", "sh", "txt", "so", "a", "json", "toml", "log", "db", "xml", "go",
         "rs", "cmake"}


def tests_of(root):
    """Patterns of the names of tests."""
    found = set()
    for file in root.glob("CMakeLists.txt"):
        found |= patterns_in(file.read_text(encoding="utf-8"))
    # Tests make and remove folders in build/ meanwhile, so that is not walked through.
    for folder in (each for each in root.iterdir() if each.is_dir() and each.name not in OTHERS):
        for file in folder.rglob("CMakeLists.txt"):
            if not OTHERS & set(file.relative_to(root).parts):
                found |= patterns_in(file.read_text(encoding="utf-8"))
    for file in (root / "cmake").glob("*.cmake"):
        found |= patterns_in(file.read_text(encoding="utf-8"))
    return found


def patterns_in(text):
    names = set(ADDED.findall(text))
    for function, (suite, arguments) in MADE.items():
        made = re.findall(rf"^\s*{function}\({arguments}", text, re.MULTILINE)
        names |= {f"{suite}.{name.replace('/', '.')}" for name in made}
    return {re.sub(r"\\\$\\\{\w+\\\}", r"[\\w+.-]+", re.escape(name)) for name in names}


def documents(root):
    yield from (path for path in [root / "README.md", root / "CONTRIBUTING.md"] if path.is_file())
    yield from sorted((root / "docs").rglob("*.md"))


def soaks_of(root):
    file = root / "tests/soak/soaks.sh"
    found = re.search(r"^soaks=\(([^)]*)\)", file.read_text(encoding="utf-8"), re.MULTILINE) if file.is_file() else None
    return set(found[1].split()) if found else set()


def has_proof(row):
    """True if the last cell of a row has a test, a soak, or says that there is none."""
    cell = row.rstrip(" |").rpartition("|")[2]
    return any(TEST.fullmatch(word) for word in WORD.findall(cell)) or re.search(r"soak|clients|untried", cell)


def faults(root):
    soaks, is_table = soaks_of(root), False
    patterns = [re.compile(pattern) for pattern in tests_of(root)]
    suites = {pattern.pattern.split("\\.")[0] for pattern in patterns}
    folders = {path.name for path in root.iterdir() if path.is_dir()} - OTHERS
    for document in documents(root):
        for number, line in enumerate(document.read_text(encoding="utf-8").splitlines(), 1):
            where = f"{document.relative_to(root).as_posix()}:{number}"
            if line.startswith("#"):
                is_table = line == "## What runs on it"
            if is_table and line.startswith("| ") and not line.startswith("| runtime") and not has_proof(line):
                yield f'{where}: the row names no test and does not say "untried"'
            for name in re.findall(r"\./dev soak ([a-z][\w-]*)", line):
                if name not in soaks:
                    yield f"{where}: there is no soak {name}"
            for word in WORD.findall(line):
                if match := TEST.fullmatch(word):
                    if match[1] in suites and match[2] not in FILES and not any(p.fullmatch(word) for p in patterns):
                        yield f"{where}: there is no test {word}"
                elif "/" in word and word.split("/")[0] in folders and re.fullmatch(r"[\w./*+-]+", word):
                    pattern = re.sub(r"\b[A-Z]{3,}\b", "*", word).rstrip("/")
                    if not any(root.glob(pattern)):
                        yield f"{where}: there is no {word}"


def self_test():
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        for name, text in {
                "tests/CMakeLists.txt": "add_test(NAME cli.kv X)\nadd_test(NAME pass.${suite} X)\n"
                                        "memlith_run_test(calls a)\n",
                "src/a.cpp": "", "docs/a.md": "`cli.kv` `pass.any` `run.calls` `src/a.cpp` `src/NAME` `x.y` `cli.md`\n"
                                             "`cli.gone`\n`run.gone` `src/b.cpp`\n`./dev soak all` `./dev soak no`\n"
                                             "## What runs on it\n| a | b | `cli.kv` |\n| a | b | untried |\n"
                                             "| a | b | |\n",
                "tests/soak/soaks.sh": "soaks=(one\n  all)\n"}.items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(text, encoding="utf-8")
        found = list(faults(root))
    wanted = ["docs/a.md:2: there is no test cli.gone", "docs/a.md:3: there is no test run.gone",
              "docs/a.md:3: there is no src/b.cpp", "docs/a.md:4: there is no soak no",
              'docs/a.md:8: the row names no test and does not say "untried"']
    print("\n".join(found))
    print("self-test: every planted fault was found, and nothing else" if found == wanted else
          f"self-test FAILED; wanted {wanted}")
    return 0 if found == wanted else 1


if __name__ == "__main__":
    if "--self-test" in sys.argv[1:]:
        sys.exit(self_test())
    repository = pathlib.Path(sys.argv[1]) if sys.argv[1:] else pathlib.Path(__file__).parent.parent
    found = list(faults(repository.resolve()))
    print("\n".join(found) if found else "every test and file that a document names is there")
    sys.exit(1 if found else 0)
