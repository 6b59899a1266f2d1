#!/usr/bin/env python3
"""The patches that put mutants into a copy of the product's text (docs/testing.md, "Mutants").

PATH.patch beside this file changes the file PATH of the repository; a file PATH beside it takes the place of PATH.

Usage: patches.py COMMAND
  fit LIST STAMP        writes STAMP if the patches of each PATH of the file LIST fit; the build asks first
  apply OUT LIST        writes each PATH of the file LIST, as the tests compile it, to OUT/PATH; the build does this
  edit MUTANT|PATH...   writes the copies to tests/lib/mutants/edited/ and prints where; change them, then:
  save                  makes the patches anew from all edited copies, and removes the copies
  refresh               makes all patches anew after changes of the product's text; names those that need `edit`
  check                 every patch fits, every mutant is listed and is somewhere, the product's text has none
  --self-test           shows that what is wrong is found
"""
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

FOLDER = "tests/lib/mutants"
INCLUDE = '#include "mutants/mutants.hpp"\n'
HUNK = re.compile(r"@@ -(\d+)(?:,\d+)? \+\d+(?:,\d+)? @@")
ENTRY = re.compile(r"\bX\((\w+), (\w+), \"(.*)\"\)")
USE = re.compile(r"\bMEMLITH_MUTANT\((\w+)\)")
CONFLICT = "<<<<<<< "
WORDS = re.compile(r"(?i)mutant|sabotag|\bplanted\b")
BRACKETS = re.compile(r"\[[^\[\]]*\]")


class Misfit(Exception):
    """A hunk whose lines the product's text has not, or has in several places."""


class Hunk:
    def __init__(self, number, start):
        self.number, self.start, self.lines = number, start, []  # number: its line in the patch

    def before(self):
        return [line[1:] for line in self.lines if line[0] != "+"]

    def after(self):
        return [line[1:] for line in self.lines if line[0] != "-"]

    def with_less_context(self):
        """The hunk with less and less context at its two ends, as long as any line says where it goes."""
        changed = [index for index, line in enumerate(self.lines) if line[0] != " "]
        ends = [(head, tail) for head in range(changed[0] + 1) for tail in range(len(self.lines) - changed[-1])]
        for head, tail in sorted(ends, key=lambda end: (sum(end), end)):
            part = Hunk(self.number, self.start + head)
            part.lines = self.lines[head:len(self.lines) - tail]
            if any(line.strip(" {}") for line in part.before()):
                yield part


def read_patch(file):
    """The header's lines, and the hunks."""
    header, hunks = [], []
    for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1):
        if match := HUNK.match(line):
            hunks.append(Hunk(number, int(match[1])))
        elif hunks:
            if line and line[0] not in " +-":
                raise Misfit(f"{file}:{number}: a line of a hunk begins with a space, + or -")
            hunks[-1].lines.append(line or " ")
        elif not line.startswith(("--- ", "+++ ")):
            header.append(line)
    for hunk in hunks:
        if all(line[0] == " " for line in hunk.lines):
            raise Misfit(f"{file}:{hunk.number}: the hunk changes nothing")
    return header, hunks


def place_of(hunk, lines, begin, expected):
    """Where the hunk's lines are, from index `begin` on; with several places, only the expected one counts."""
    before = hunk.before()
    places = [at for at in range(begin, len(lines) - len(before) + 1) if lines[at:at + len(before)] == before]
    if len(places) > 1 and expected in places:
        return expected
    return places[0] if len(places) == 1 else None


class Patch:
    def __init__(self, root, path):
        self.root, self.path = root, path
        self.file = root / FOLDER / f"{path}.patch"
        self.name = f"{FOLDER}/{path}.patch"
        self.header, self.hunks = read_patch(self.file) if self.file.exists() else ([], [])

    def product(self):
        product = self.root / self.path
        if not product.is_file():
            raise Misfit(f"{self.name}:1: there is no {self.path}; move the patch to where its text is now, or remove "
                         "it")
        return product.read_text(encoding="utf-8").splitlines()

    def apply(self, loosely=False, conflicts=None):
        """The changed text. Loosely: lines of context may differ if what is left is there once. A hunk that does not
        fit is put into the text as a conflict, and noted in `conflicts`, or is a Misfit."""
        lines = self.product()
        out, at, drift = [], 0, 0
        for hunk in self.hunks:
            part, place = hunk, place_of(hunk, lines, at, hunk.start - 1 + drift)
            for part in hunk.with_less_context() if loosely and place is None else ():
                place = place_of(part, lines, at, None)
                if place is not None:
                    break
            if place is None:
                expected = min(max(at, hunk.start - 1 + drift), len(lines))
                if conflicts is None:
                    raise Misfit(f"{self.name}:{hunk.number}: this hunk does not fit {self.path} any more, near line "
                                 f"{expected + 1}; `python3 {FOLDER}/patches.py refresh`, and if that is not enough "
                                 f"`python3 {FOLDER}/patches.py edit {self.path}`")
                conflicts.append(f"{self.name}:{hunk.number}")
                out += lines[at:expected]
                out += [f"{CONFLICT}a hunk that does not fit", *hunk.lines, ">>>>>>>"]
                at = expected
                continue
            drift = place - (part.start - 1)
            out += lines[at:place] + part.after()
            at = place + len(part.before())
        return out + lines[at:]

    def save(self, edited):
        """Writes the patch that leads from the product's text to the edited one; removes a patch of nothing."""
        listed = known_mutants(self.root)
        with tempfile.TemporaryDirectory() as folder:
            files = [pathlib.Path(folder, name) for name in ("product", "edited")]
            for file, lines in zip(files, (self.product(), edited)):
                file.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
            labels = [f"--label={self.path}", f"--label={self.path}, as the tests compile it"]
            made = subprocess.run(["diff", "-U3", "-F^[[:alpha:]_]", *labels, *files], capture_output=True, text=True,
                                  check=False)
        if made.returncode == 0:
            self.file.unlink(missing_ok=True)
            return
        if made.returncode != 1:
            raise SystemExit(f"diff: {made.stderr}")
        # No space at the end of a line, and no heading of a hunk beyond the columns of the text.
        body = [line.rstrip()[:120] if line.startswith("@@") else line.rstrip() for line in made.stdout.splitlines()]
        text = [line for line in self.header if not is_told(line, listed)]
        used = [name for line in body if line.startswith("+") for name in USE.findall(line)]
        told = [f"{name}: {listed[name]}" for name in dict.fromkeys(used) if name in listed]
        self.file.parent.mkdir(parents=True, exist_ok=True)
        self.file.write_text("".join(f"{line}\n" for line in (*text, *told, *body)), encoding="utf-8")


def is_told(line, listed):
    return line.partition(":")[0] in listed


def known_mutants(root):
    """The fault of each mutant, by its name."""
    text = (root / FOLDER / "mutants.hpp").read_text(encoding="utf-8")
    return {name: what for name, _, what in ENTRY.findall(text)}


def patches(root):
    folder = root / FOLDER
    for file in sorted(folder.rglob("*.patch")):
        if not file.is_relative_to(folder / "edited"):
            yield file.relative_to(folder).as_posix().removesuffix(".patch")


def as_tests_compile_it(root, path):
    substitute, patch = root / FOLDER / path, Patch(root, path)
    if substitute.is_file():
        return INCLUDE + substitute.read_text(encoding="utf-8")
    return (INCLUDE if patch.hunks else "") + "".join(f"{line}\n" for line in patch.apply())


def apply(root, out, paths):
    """Writes the files that differ; returns what does not fit."""
    wrong = []
    for path in paths:
        try:
            text = as_tests_compile_it(root, path)
        except Misfit as misfit:
            wrong.append(str(misfit))
            continue
        copy = out / path
        if not copy.exists() or copy.read_text(encoding="utf-8") != text:
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_text(text, encoding="utf-8")
    return wrong


def edit(root, names, say=print):
    found = list(patches(root))
    for name in names:
        paths = [path for path in found if name in USE.findall((root / FOLDER / f"{path}.patch").read_text("utf-8"))]
        if (root / name).is_file():
            paths = [pathlib.Path(name).resolve().relative_to(root.resolve()).as_posix()
                     if pathlib.Path(name).is_file() else name]
        if not paths:
            raise SystemExit(f"{name} is neither a mutant of a patch nor a file of the repository")
        for path in paths:
            conflicts = []
            copy = root / FOLDER / "edited" / path
            lines = Patch(root, path).apply(True, conflicts)
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
            say(copy.relative_to(root), *(f"({where} does not fit: see {CONFLICT.strip()})" for where in conflicts))


def save(root):
    folder = root / FOLDER / "edited"
    for copy in sorted(file for file in folder.rglob("*") if file.is_file()):
        path = copy.relative_to(folder).as_posix()
        lines = copy.read_text(encoding="utf-8").splitlines()
        if any(line.startswith(CONFLICT) for line in lines):
            raise SystemExit(f"{copy.relative_to(root)}: a hunk that does not fit is still there; bring its + and - "
                             "lines into the text, and remove it")
        Patch(root, path).save([line for line in lines if line + "\n" != INCLUDE])
        copy.unlink()
    shutil.rmtree(folder, ignore_errors=True)


def refresh(root):
    wrong = []
    for path in patches(root):
        try:
            patch = Patch(root, path)
            patch.save(patch.apply(True))
        except Misfit as misfit:
            wrong.append(str(misfit))
    return wrong


def product_files(root):
    for folder in (root / "src", *sorted((root / "integrations").glob("*/src"))):
        yield from sorted(file for file in folder.rglob("*") if file.suffix in {".cpp", ".hpp"})


def violations(root):
    listed, somewhere = known_mutants(root), set()
    for path in patches(root):
        try:
            patch = Patch(root, path)
        except Misfit as misfit:
            yield str(misfit)
            continue
        try:
            patch.apply()
        except Misfit as misfit:
            yield str(misfit)
        used = dict.fromkeys(name for hunk in patch.hunks for line in hunk.lines if line[0] == "+"
                             for name in USE.findall(line))
        somewhere |= used.keys()
        for name in used:
            if name not in listed:
                yield f"{patch.name}:1: {name} is not in {FOLDER}/mutants.hpp"
        if [line for line in patch.header if is_told(line, listed)] != [f"{name}: {listed[name]}" for name in used
                                                                        if name in listed]:
            yield f"{patch.name}:1: its first lines do not tell its mutants; `python3 {FOLDER}/patches.py refresh`"
    for file in sorted((root / "tests/lib/lab").glob("*.cpp")):
        somewhere |= set(USE.findall(file.read_text(encoding="utf-8")))
    for name in listed:
        if name not in somewhere:
            yield f"{FOLDER}/mutants.hpp:1: no patch and no file of tests/lib/lab has the mutant {name}"
    for file in product_files(root):
        text = BRACKETS.sub(lambda match: "\n" * match[0].count("\n"), file.read_text(encoding="utf-8"))
        for number, line in enumerate(text.splitlines(), 1):
            if WORDS.search(line):
                yield (f"{file.relative_to(root)}:{number}: the product's text has no mutants; they go into a patch: "
                       f"python3 {FOLDER}/patches.py edit {file.relative_to(root)}")


def self_test():
    product = "int one();\nint two() {\n  one();\n  return 2;\n}\n// ORDER one-before-two: why. [mutant one_left_out]\n"
    changed = product.replace("  one();", "  if (!MEMLITH_MUTANT(one_left_out)) one();")
    lists = '  X(one_left_out, log, "one is left out") \\\n  X(in_the_lab, log, "three")\n'
    failures = []

    def expect(what, good):
        if not good:
            failures.append(what)

    def misfit(root):
        return "".join(apply(root, root / "out", ["src/two.cpp"]))

    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)

        def write(name, text):
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(text, encoding="utf-8")

        write("src/two.cpp", product)
        write(f"{FOLDER}/mutants.hpp", lists)
        write("tests/lib/lab/lab.cpp", "MEMLITH_MUTANT(in_the_lab)\n")
        write(f"{FOLDER}/edited/src/two.cpp", changed)
        save(root)
        patch = (root / FOLDER / "src/two.cpp.patch").read_text(encoding="utf-8")
        expect("a patch tells its mutants", patch.startswith("one_left_out: one is left out\n--- src/two.cpp\n"))
        copy = root / "out/src/two.cpp"
        expect("a patch is applied", not misfit(root) and copy.read_text(encoding="utf-8") == INCLUDE + changed)
        made_at = copy.stat().st_mtime_ns
        expect("a copy that is right is left alone", not misfit(root) and copy.stat().st_mtime_ns == made_at)
        expect("all is well", not list(violations(root)))

        write("src/two.cpp", "int zero();\n" + product)
        expect("a patch follows text that moved", not misfit(root))
        write("src/two.cpp", product + product)
        expect("a hunk that fits twice, once at its line, is put there", not misfit(root))
        write("src/two.cpp", "int zero();\n" + product + product)
        expect("a hunk that fits twice elsewhere fits nowhere", "src/two.cpp.patch:4" in misfit(root))
        write("src/two.cpp", product.replace("return 2", "return 1 + 1"))
        said = misfit(root)
        expect("a changed line of context is told with patch, line, file and remedy",
               said.startswith(f"{FOLDER}/src/two.cpp.patch:4: ") and "src/two.cpp any more, near line 1;" in said
               and "patches.py refresh" in said and list(violations(root)) == [said])
        expect("refresh makes it fit", not refresh(root) and not misfit(root) and not list(violations(root)))
        write("src/two.cpp", product.replace("one();\n  ", "one(1);\n  "))
        expect("a changed line that the patch changes is told", refresh(root) and misfit(root))
        edit(root, ["one_left_out"], say=lambda *_: None)
        try:
            save(root)
            failures.append("an edited copy with a conflict is refused")
        except SystemExit:
            pass
        write(f"{FOLDER}/edited/src/two.cpp", changed.replace("one();\n  ", "one(1);\n  "))
        save(root)
        expect("an edited copy makes the patch fit", not misfit(root))

        write(f"{FOLDER}/mutants.hpp", lists + '  X(nowhere, log, "no file has it")\n')
        expect("a listed mutant that is nowhere", any("the mutant nowhere" in said for said in violations(root)))
        write(f"{FOLDER}/mutants.hpp", lists.replace("one_left_out", "other"))
        expect("a mutant that is not listed", any("one_left_out is not in" in said for said in violations(root)))
        write(f"{FOLDER}/mutants.hpp", lists.replace("one is left", "it is left"))
        expect("a header that tells another sentence", any("do not tell" in said for said in violations(root)))
        write(f"{FOLDER}/mutants.hpp", lists)
        write("integrations/one/src/three.cpp", "int three();  // a mutant\n")
        expect("a mutant in the product's text",
               any(said.startswith("integrations/one/src/three.cpp:1:") for said in violations(root)))
        (root / "src/two.cpp").unlink()
        expect("a patch whose file is gone", any("there is no src/two.cpp" in said for said in violations(root)))
    print("\n".join(f"self-test FAILED: {failure}" for failure in failures) or "self-test: all of it was found")
    return 1 if failures else 0


def lines_of(file):
    return pathlib.Path(file).read_text(encoding="utf-8").splitlines()


def told(wrong):
    print("\n".join(wrong), end="\n" if wrong else "", file=sys.stderr)
    return 1 if wrong else 0


def main(arguments):
    root = pathlib.Path(__file__).resolve().parents[3]
    match arguments:
        case ["--self-test"]:
            return self_test()
        case ["fit", paths, stamp]:
            with tempfile.TemporaryDirectory() as folder:
                wrong = apply(root, pathlib.Path(folder), lines_of(paths))
            if not wrong:
                pathlib.Path(stamp).touch()
            return told(wrong)
        case ["apply", out, paths]:
            return told(apply(root, pathlib.Path(out), lines_of(paths)))
        case ["edit", _, *_]:
            edit(root, arguments[1:])
        case ["save"]:
            save(root)
        case ["refresh"] | ["check"]:
            wrong = refresh(root) if arguments == ["refresh"] else list(violations(root))
            print("\n".join(wrong) if wrong else "every patch fits")
            return 1 if wrong else 0
        case _:
            print(__doc__)
            return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
