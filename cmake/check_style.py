#!/usr/bin/env python3
"""Rules that no compiler checks: files, functions and lines stay short enough to read, sentences begin with their
subject and are not cut where nothing asks for it, and no text names a folder of one machine.

Usage: check_style.py [REPOSITORY | --self-test]
Prints each violation as `file:line: what` and exits with 1 if there was one. --self-test shows that each is found.
"""
import pathlib
import re
import subprocess
import sys
import tempfile

LINES_MAX = 800
ENGINE_LINES_MAX = 500  # of a file in src/
FUNCTION_LINES_MAX = 70  # of the body of a function in src/
COLUMNS_MAX = 120
# Their lines cannot be wrapped: documents that a benchmark writes, notebooks, lists of regular expressions, checksums,
# the interface of a version, lines of our text with a character in front.
WIDE = re.compile(r"results/(figures.*|papers)\.md|results/papers/.*\.json|.*\.ipynb|.*/(go|stock)\.sum|"
                  r"tests/golden/.*/abi\.json|integrations/sqlite/tests/suite/known.*\.txt|tests/lib/mutants/.*\.patch")
# Files in src/ that are still longer. The list only shrinks: an entry that is not needed any more is a violation too.
STILL_LONG = set()
CODE_FOLDERS = ["src", "include", "bindings", "integrations", "tools", "examples", "tests", "bench"]
CODE_SUFFIXES = {".c", ".cc", ".cpp", ".h", ".hpp", ".inc", ".py", ".sh"}
COMMENT = re.compile(r"\s*//.*")
# A string that is written in several lines: a line of its own, and how the next begins.
LITERAL = re.compile(r'(\s*)"((?:[^"\\]|\\.)*)"')
NEXT_LITERAL = re.compile(r'\s*"((?:[^"\\ ]|\\.)* ?)')
CUT_COLUMNS_MAX = 60  # of a line that is too short to have been filled
# Words that hide a noun, and beginnings of comments that hide a subject. Quoted, "nobody" is a name, such as a user's.
HIDING_WORD = re.compile(r"(?<![\"'])\b(?<!user )(?<!as )(?<!side )(nobody|whoever|whomever|somebody)\b", re.IGNORECASE)
HIDING_BEGINNING = re.compile(r"""^\s*(?:(?://[/!]?|\*|/\*\*?|#) |\"{3})(What|Of|So|Whether) """)
NOT_OURS = re.compile(r"results/.*|.*\.(patch|json|txt)|cmake/check_style\.py")
URL = re.compile(r"\bhttps?://\S+")
# An absolute path: no path goes on in front of it, but a compiler's -I or -L may stand there.
MACHINE_PATH = re.compile(r"(?:^|(?<=-[IL])|(?<![\w.~/$}*-]))/(?:work/|home/[A-Za-z])[\w.-]*")


def tracked_files(root):
    """The files that git tracks or would track; in an unpacked archive, every file."""
    git = subprocess.run(["git", "-C", str(root), "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
                         capture_output=True, check=False)
    if git.returncode == 0:
        files = (root / name.decode() for name in git.stdout.split(b"\0") if name)
    else:
        files = (path for path in root.rglob("*") if path.relative_to(root).parts[0] not in ("build", ".git"))
    return sorted(path for path in files if path.is_file() and not path.is_symlink())


def functions(lines):
    """Yields (number of the first line, that line, lines of the body) of each function, by clang-format's layout."""
    namespace, no_function = re.compile(r"(namespace|extern)\b"), re.compile(r"(class|struct|union|enum)\b")
    code = [COMMENT.sub("", line) for line in lines]
    # Indents of the file, of a class, of a class in a class; within a function they are parts of it, and shorter.
    for indent in (0, 2, 4):
        item, body = None, None  # the line that began the item at this indent, the number of the one that opened it
        for number, line in enumerate(code, 1):
            at_indent = line and not line.startswith("#") and len(line) - len(line.lstrip(" ")) == indent
            if at_indent and line[indent] == "}":
                if body is not None and not line.endswith("};") and not no_function.match(item[1]):
                    yield *item, number - body - 1
                item, body = None, None
            elif at_indent and body is None:
                item = None if line.endswith(":") or namespace.match(line[indent:]) else (number, line[indent:])
            if item is not None and body is None and line.endswith(("{", ";", "}")):
                item, body = (item, number) if line.endswith("{") else (None, None)


def lengths(name, lines, still_long):
    if name.parts[0] == "src":
        is_long, listed = len(lines) > ENGINE_LINES_MAX, name.as_posix() in still_long
        if is_long and not listed:
            yield f"{name}:{len(lines)}: over {ENGINE_LINES_MAX} lines; split it by subject"
        if listed and not is_long:
            yield f"{name}:{len(lines)}: it is short enough by now; take it off STILL_LONG in cmake/check_style.py"
        for number, line, length in functions(lines):
            if length > FUNCTION_LINES_MAX:
                yield f"{name}:{number}: {length} lines of one function, over {FUNCTION_LINES_MAX}: {line}"
    if len(lines) > LINES_MAX:
        yield f"{name}:{len(lines)}: over {LINES_MAX} lines; split it by subject"


def wide_lines(name, lines):
    """Lines of text that are too wide; of a document in Markdown, not its tables and quotations."""
    document, quoted = name.suffix == ".md", False
    for number, line in enumerate(lines, 1):
        if document and line.lstrip().startswith("```"):
            quoted = not quoted
        elif len(line) > COLUMNS_MAX and not quoted and not (document and line.startswith(("|", "    "))):
            yield f"{name}:{number}: {len(line)} columns, over {COLUMNS_MAX}; wrap the line"


def hidden_nouns(name, lines):
    for number, line in enumerate(lines, 1):
        if match := HIDING_WORD.search(line):
            yield f'{name}:{number}: "{match[1]}" hides a noun; name the thread, the process or the caller'
        if name.suffix != ".md" and (match := HIDING_BEGINNING.match(line)):
            yield f'{name}:{number}: a comment begins with "{match[1]}"; begin with the subject'


def cut_literals(name, lines):
    """The trace of a rewrap: a line with some words in the middle of a string, to which the next words would fit."""
    for number in range(1, len(lines) - 1):
        literal, after = LITERAL.fullmatch(lines[number]), NEXT_LITERAL.match(lines[number + 1])
        if not (literal and after and lines[number - 1].endswith('"')) or literal[2].endswith((r"\n", ";")):
            continue
        length = len(lines[number])
        if length - len(literal[1]) < CUT_COLUMNS_MAX and length + len(after[1]) <= COLUMNS_MAX:
            yield f"{name}:{number + 1}: a string is cut here; fill the line"


def violations(root, still_long=frozenset(STILL_LONG)):
    files = tracked_files(root)
    for name in sorted(still_long - {file.relative_to(root).as_posix() for file in files}):
        yield f"{name}:1: there is no such file; take it off STILL_LONG in cmake/check_style.py"
    for file in files:
        name = file.relative_to(root)
        content = file.read_bytes()
        if b"\0" in content:
            continue  # not text
        lines = content.decode("utf-8", errors="replace").splitlines()
        if name.parts[0] in CODE_FOLDERS and file.suffix in CODE_SUFFIXES:
            yield from lengths(name, lines, still_long)
            if file.suffix not in {".py", ".sh"}:
                yield from cut_literals(name, lines)
        if not WIDE.fullmatch(name.as_posix()):
            yield from wide_lines(name, lines)
        if not NOT_OURS.fullmatch(name.as_posix()):
            yield from hidden_nouns(name, lines)
        for number, line in enumerate(lines, 1):
            if match := MACHINE_PATH.search(URL.sub("", line)):
                yield f"{name}:{number}: {match[0]} is a path of one machine; write it relative to the repository"


def self_test():
    home, work = "/" + "home/someone", "/" + "work/main"
    def body(count):
        return "  x;\n" * count

    whole, long = FUNCTION_LINES_MAX, FUNCTION_LINES_MAX + 1
    tree = {
        "src/long.cpp": "\n" * (ENGINE_LINES_MAX + 1),
        "src/short.cpp": "\n" * ENGINE_LINES_MAX,
        "src/engine.cpp": "\n" * (ENGINE_LINES_MAX + 1),
        "src/functions.cpp": f"namespace a {{\n\nint f(int a,\n      int b) {{\n{body(long)}}}\n\n"
                             f"int g() {{\n{body(whole)}}}\nconstexpr int kTable[] = {{\n{body(long)}}};\n"
                             "\n}  // namespace a\n",
        "src/class.hpp": f"class A {{\n  A()\n      : a_(1) {{\n{body(long)}  }}\n  void f();\n{body(long)}}};\n",
        "tests/plain.py": '"""Whether one waits."""\n"nobody"\n',
        "src/plain.hpp": "// What is there.\n// Nobody waits. Whatever waits is woken.\n",
        "tests/plain.rs": "/// So many.\n",
        "tests/functions.cpp": f"int f() {{\n{body(long)}}}\n",
        "tests/strings.cpp": 'f("a b "\n  "c "\n  "d e");\ng("a\\n"\n  "b;"\n  "c\\n"\n  "d");\n'
                             f'h("a"\n  "bbbb bbbb "\n  "{"c" * 112}");\n',
        "tests/long.cpp": "\n" * (LINES_MAX + 1),
        "tests/whole.cpp": "\n" * LINES_MAX,
        "docs/long.md": "\n" * (LINES_MAX + 1),
        "docs/home.md": f"fine: a/{work}, https://example.org{home}, $PREFIX{home}, /workshop/main, {home[:5]}/\n(see "
                        f"{home}/x)\n",
        "docs/wide.md": f"{'a' * COLUMNS_MAX}\n{'a' * (COLUMNS_MAX + 1)}\n| {'a' * COLUMNS_MAX} |\n```\n{'a' * 130}\n"
                        "```\n",
        "tests/wide.py": f"| {'a' * COLUMNS_MAX}\n",
        "results/figures.md": "a" * (COLUMNS_MAX + 1),
        "tools/build.sh": f"cc -I{work}/include\n",
        "tests/image.bin": f"\0{home}/x\n",
    }
    expected = ["src/gone.cpp:1: there is no such file", "docs/home.md:2:", "docs/wide.md:2: 121",
                "src/class.hpp:2: 71 lines", "src/engine.cpp:501:",
                "src/functions.cpp:3: 71 lines", 'src/plain.hpp:1: a comment begins with "What"',
                'src/plain.hpp:2: "Nobody" hides', "src/short.cpp:500: it is short enough", "tests/long.cpp:801:",
                'tests/plain.py:1: a comment begins with "Whether"', 'tests/plain.rs:1: a comment begins with "So"',
                "tests/strings.cpp:2: a string is cut", "tests/wide.py:1: 122",
                "tools/build.sh:1:"]
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        for name, text in tree.items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(text, encoding="utf-8")
        found = list(violations(root, {"src/gone.cpp", "src/long.cpp", "src/short.cpp"}))
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
    print("\n".join(found) if found else "nothing to complain about")
    sys.exit(1 if found else 0)
