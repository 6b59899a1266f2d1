#!/usr/bin/env python3
"""What no compiler checks: files stay short enough to read, and no text names a folder of somebody's machine.

Usage: check_style.py [REPOSITORY | --self-test]
Prints each violation as `file:line: what` and exits with 1 if there was one. --self-test shows that each is found.
"""
import pathlib
import re
import subprocess
import sys
import tempfile

LINES_MAX = 800
CODE_FOLDERS = ["src", "include", "testing", "plugins", "tools", "examples", "tests", "bench"]
CODE_SUFFIXES = {".c", ".cc", ".cpp", ".h", ".hpp", ".inc", ".py", ".sh"}
URL = re.compile(r"\bhttps?://\S+")
# An absolute path: no path goes on in front of it, but a compiler's -I or -L may stand there.
MACHINE_PATH = re.compile(r"(?:^|(?<=-[IL])|(?<![\w.~/$}*-]))/(?:work/|home/[A-Za-z])[\w.-]*")


def tracked_files(root):
    """What git tracks or would track; in an unpacked archive, every file."""
    git = subprocess.run(["git", "-C", str(root), "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
                         capture_output=True, check=False)
    if git.returncode == 0:
        files = (root / name.decode() for name in git.stdout.split(b"\0") if name)
    else:
        files = (path for path in root.rglob("*") if path.relative_to(root).parts[0] not in ("build", ".git"))
    return sorted(path for path in files if path.is_file() and not path.is_symlink())


def violations(root):
    for file in tracked_files(root):
        name = file.relative_to(root)
        content = file.read_bytes()
        if b"\0" in content:
            continue  # not text
        lines = content.decode("utf-8", errors="replace").splitlines()
        if name.parts[0] in CODE_FOLDERS and file.suffix in CODE_SUFFIXES and len(lines) > LINES_MAX:
            yield f"{name}:{len(lines)}: over {LINES_MAX} lines; split it by subject"
        for number, line in enumerate(lines, 1):
            if match := MACHINE_PATH.search(URL.sub("", line)):
                yield f"{name}:{number}: {match[0]} is a path of one machine; write it relative to the repository"


def self_test():
    home, work = "/" + "home/someone", "/" + "work/main"
    tree = {
        "src/long.cpp": "\n" * (LINES_MAX + 1),
        "src/whole.cpp": "\n" * LINES_MAX,
        "docs/long.md": "\n" * (LINES_MAX + 1),
        "docs/home.md": f"fine: a/{work}, https://example.org{home}, $PREFIX{home}, /workshop/main, {home[:5]}/\n(see {home}/x)\n",
        "tools/build.sh": f"cc -I{work}/include\n",
        "tests/image.bin": f"\0{home}/x\n",
    }
    expected = ["docs/home.md:2:", "src/long.cpp:801:", "tools/build.sh:1:"]
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
    print("\n".join(found) if found else "nothing to complain about")
    sys.exit(1 if found else 0)
