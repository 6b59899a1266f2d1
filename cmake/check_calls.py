#!/usr/bin/env python3
"""Holds docs/reference/calls.md against the sources: which call of which language is durable by default.

The table below lists operations with their calls in each language. The default of a call comes from its source: from a
parameter, its default or the word "weak" in the name; from the mode that its body passes on; or from its comment, which
says when it is durable. A row whose calls differ is a fault, unless the caller has to name the mode. So is a call that
the sources have not, and a public one that is named like those of the table and is in no row.

Usage: check_calls.py [REPOSITORY | --write REPOSITORY | --self-test]
Prints each fault and exits with 1 if there was one; --write writes the page.
"""
import ast
import pathlib
import re
import sys

PAGE = "docs/reference/calls.md"
LANGUAGES = ("C", "C++", "Python", "Go", "Rust")
DURABLE, WEAK, MODE, LATER = "durable", "weak", "as the call says", "later"
KINDS = {DURABLE: "**durable**", WEAK: "weak", MODE: "mode", LATER: "later"}

# (operation, its default, {language: calls}). A call is `Type.name`; in Go `package.Type.Name`, in Rust
# `module::Type::name`.
ROWS = (
    ("persist memory", DURABLE, {
        "C": "memlith_persist memlith_persist_all memlith_persist_range memlith_heap_persist",
        "C++": "Region.persist Region.persist_range Store.persist Heap.persist", "Python": "Store.persist",
        "Go": "region.Region.Persist region.Region.PersistRange",
        "Rust": "region::Region::persist region::Region::persist_own heap::Heap::persist"}),
    ("capture memory, without a wait", WEAK, {
        "C": "memlith_persist_async", "C++": "Region.persist_async Heap.persist_async",
        "Python": "Store.persist_async", "Go": "region.Region.PersistAsync",
        "Rust": "region::Region::persist_async heap::Heap::persist_async"}),
    ("change memory, or undo it", DURABLE, {
        "C++": "Region.transact Heap.transact Store.transact", "Go": "region.Region.Update",
        "Rust": "region::Region::transact heap::Heap::transact"}),
    ("the same, without a wait", WEAK, {
        "Go": "region.Region.UpdateWeak", "Rust": "region::Region::transact_with heap::Heap::transact_with"}),
    ("discard pages", DURABLE, {
        "C": "memlith_region_discard", "C++": "Region.discard", "Go": "region.Region.Discard"}),
    ("commit a mapped file", DURABLE, {
        "C": "memlith_msync", "C++": "MappedFile.persist MappedFile.persist_range"}),
    ("the same, without a wait", WEAK, {"C++": "MappedFile.persist_async"}),
    ("commit several structures", DURABLE, {
        "C": "memlith_commit", "C++": "Transaction.commit", "Python": "Store.transaction Transaction.commit",
        "Go": "memlith.Txn.Commit", "Rust": "store::Transaction::commit"}),
    ("the same, without a wait", WEAK, {
        "C++": "Transaction.commit_weak", "Go": "memlith.Txn.CommitWeak", "Rust": "store::Transaction::commit_weak"}),
    ("run a kv transaction", DURABLE, {
        "C++": "Kv.transact", "Python": "Dict.transact SharedStore.transact", "Go": "kv.KV.Update",
        "Rust": "kv::Kv::transact"}),
    ("the same, without a wait", WEAK, {"Go": "kv.KV.UpdateWeak", "Rust": "kv::Kv::transact_with"}),
    ("commit a kv transaction, and what it read", DURABLE, {
        "C": "memlith_kv_commit", "C++": "KvTransaction.commit", "Go": "kv.Txn.Commit",
        "Rust": "kv::Transaction::commit kv::Snapshot::commit"}),
    ("the same, without a wait", WEAK, {"Go": "kv.Txn.CommitWeak"}),
    ("read in a transaction", DURABLE, {"Go": "kv.KV.View"}),
    ("the same, without a wait", WEAK, {"Go": "kv.KV.ViewWeak"}),
    ("put a record in a transaction", LATER, {
        "C": "memlith_kv_put", "C++": "KvTransaction.put", "Go": "kv.Txn.Put", "Rust": "kv::Transaction::put"}),
    ("change records", DURABLE, {
        "Python": "Dict.__setitem__ Dict.update Deque.append Deque.transact"}),
    ("change a cache, whose items may go", WEAK, {"Python": "Cache.__setitem__ Cache.transact"}),
    ("fill a map", DURABLE, {
        "C": "memlith_kv_map_append", "C++": "Kv.append", "Python": "Dict.append", "Go": "kv.KV.Append",
        "Rust": "kv::Kv::append"}),
    ("remove a map", DURABLE, {
        "C": "memlith_kv_map_remove", "C++": "Kv.remove_map", "Go": "kv.KV.RemoveMap", "Rust": "kv::Kv::remove_map"}),
    ("persist a kv store's weak commits", DURABLE, {
        "C": "memlith_kv_persist", "C++": "Kv.persist", "Python": "SharedStore.persist", "Go": "kv.KV.Persist",
        "Rust": "kv::Kv::persist"}),
    ("append an entry", LATER, {
        "C": "memlith_applog_append", "C++": "AppLog.append", "Go": "applog.Log.Append",
        "Rust": "applog::AppLog::append"}),
    ("write an application log", DURABLE, {
        "C": "memlith_applog_write", "C++": "AppLog.write", "Go": "applog.Log.Write applog.Log.AppendWrite",
        "Rust": "applog::AppLog::write"}),
    ("the same, without a wait", WEAK, {
        "C++": "AppLog.write_weak", "Go": "applog.Log.WriteWeak", "Rust": "applog::AppLog::write_weak"}),
    ("consume entries", LATER, {
        "C": "memlith_applog_consume", "C++": "AppLog.consume", "Go": "applog.Log.Consume",
        "Rust": "applog::Reader::consume"}),
    ("wait for a ticket", DURABLE, {
        "C": "memlith_wait", "C++": "Store.wait Heap.wait", "Python": "Ticket.result", "Go": "memlith.Store.Wait",
        "Rust": "store::Store::wait"}),
    ("wait for a ticket of a kv store, or a log, of several processes", DURABLE, {
        "C": "memlith_kv_wait memlith_applog_wait", "C++": "Kv.wait AppLog.wait",
        "Go": "kv.KV.Wait applog.Log.Wait", "Rust": "kv::Kv::wait applog::AppLog::wait"}),
    ("commit a shared region", DURABLE, {
        "C": "memlith_shared_commit", "C++": "SharedTransaction.commit", "Python": "SharedTransaction.commit"}),
    ("the same, without a wait", WEAK, {"C++": "SharedTransaction.commit_weak"}),
    ("wait for a shared region's ticket", DURABLE, {
        "C": "memlith_shared_wait", "C++": "SharedRegion.wait", "Python": "SharedRegion.wait"}),
    ("close a kv store", DURABLE, {
        "C": "memlith_kv_close", "C++": "Kv.close", "Go": "kv.KV.Close", "Rust": "kv::Kv::close"}),
    ("close an application log", DURABLE, {
        "C": "memlith_applog_close", "C++": "AppLog.close", "Go": "applog.Log.Close",
        "Rust": "applog::AppLog::close"}),
)
# Public calls that are named like those above, and are something else.
OTHERS = {
    "Transaction.write", "memlith_txn_write",  # announce bytes in a transaction
    "MappedFile.commit",                       # is private
    "Flag.wait",                               # for threads of this process
    "Run.commit",                              # is private
    "Records.transact",                        # Dict's and Deque's
}
NAMED = re.compile(r"(?i)(persist|commit|transact|update|view|write|wait)(_?(all|range|async|weak|with|if))?")


def last_of(name):
    return re.split(r"\.|::", name)[-1]


def says_weak(name):
    return re.search(r"(?i)weak|async", last_of(name)) is not None


class Call:
    """A call of the sources: `text` is its declaration and, where that is code, its body."""

    def __init__(self, language, name, comment, text):
        self.language, self.name, self.comment, self.text = language, name, comment, text
        self.is_weak_by_class = None  # Python: the default of the class's parameter `weak`

    def default(self, kind):
        """Its default, and a fault or ""."""
        signature = self.text.partition("{")[0]
        if re.search(r"Durability \w+ = Durability::weak|weak: bool = True", signature) or self.is_weak_by_class:
            return WEAK, ""
        if re.search(r"Durability \w+ = Durability::sync", signature) or self.is_weak_by_class is False:
            return DURABLE, ""
        if re.search(r"uint32_t mode\b|durability: Durability\b", signature):
            return MODE, ""
        if says_weak(self.name):
            return WEAK, ""
        if re.search(r"COMMIT_WEAK|CommitWeak|Durability::Weak", self.text):
            return WEAK, ""
        if re.search(r"COMMIT_SYNC|CommitSync|Durability::Sync", self.text):
            return DURABLE, ""
        if kind == LATER:
            return LATER, ""
        said = re.search(r"(?i)\bdurabl[ey]\b|\bpersist", self.comment)
        return DURABLE, "" if said else f"the comment of {self.name} does not say when it is durable"


# ---- the calls of each language ------------------------------------------------------------------------------------

def block_at(lines, index, end):
    """The lines from one on, up to the first that matches `end`."""
    for last in range(index, len(lines)):
        if end.match(lines[last]):
            return "\n".join(lines[index:last + 1])
    return lines[index]


def calls_of_c(root):
    for file in sorted((root / "include/memlith").glob("*.h")):
        comment = ""
        for match in re.finditer(r"/\*(.*?)\*/|^MEMLITH_API ([^;]*?)\b(memlith_\w+)\(([^;]*)\);",
                                 file.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE):
            if match[3]:
                yield Call("C", match[3], comment, match[0])
            else:
                comment = (comment if match[1].strip().startswith("The same") else "") + match[1]


def calls_of_lines(file, language, owner, declared, mark, end, within):
    """Those of a language whose comments stand line by line above a declaration. `declared` finds the name, `owner` the
    type that encloses it; `within` makes a name of both."""
    lines, comment, before, type_name = file.read_text(encoding="utf-8").splitlines(), [], "", ""
    for index, line in enumerate(lines):
        if match := owner.match(line):
            type_name = match[1]
        if line.strip().startswith(mark):
            comment.append(line.strip()[len(mark):])
        elif match := declared.match(line):
            text = line if line.rstrip().endswith(("}", ";")) else block_at(lines, index, end)
            before = (before if "".join(comment).strip().startswith("The same") else "") + " ".join(comment)
            yield Call(language, within(type_name, match), before, text)
            comment = []
        elif not re.match(r"\s*(template <|requires |#\[)", line):
            comment = []


def calls_of_cpp(root):
    owner = re.compile(r"^(?:class|struct) (?:\[\[nodiscard\]\] )?(\w+)[^;]*\{")
    declared = re.compile(r"^  (?:\[\[nodiscard\]\] )?(?:static )?(?!return|if|for|using)[\w:<>,*& ]+? (\w+)\(")
    for file in sorted((root / "include/memlith").glob("*.hpp")):
        yield from calls_of_lines(file, "C++", owner, declared, "//", re.compile(r"^  \}|^  .*\}$"),
                                  lambda type_name, match: f"{type_name}.{match[1]}")


def calls_of_go(root):
    declared = re.compile(r"^func \(\w+ \*?(\w+)\) ([A-Z]\w*)\(")
    for file in sorted((root / "bindings/go").glob("**/*.go")):
        if file.name.endswith("_test.go") or "internal" in file.parts:
            continue
        package = re.search(r"(?m)^package (\w+)", file.read_text(encoding="utf-8"))[1]
        yield from calls_of_lines(file, "Go", re.compile(r"(?!)"), declared, "//", re.compile(r"^\}"),
                                  lambda _, match, package=package: f"{package}.{match[1]}.{match[2]}")


def calls_of_rust(root):
    owner = re.compile(r"^impl(?:<[^>]*>)? (?:\w+ for )?(\w+)")
    declared = re.compile(r"^    pub (?:unsafe )?fn (\w+)")
    for file in sorted((root / "bindings/rust/memlith/src").glob("*.rs")):
        yield from calls_of_lines(file, "Rust", owner, declared, "///", re.compile(r"^    \}"),
                                  lambda type_name, match, module=file.stem: f"{module}::{type_name}::{match[1]}")


def calls_of_python(root):
    """Those of the modules, and of the classes of the core below them."""
    bases, own = {}, {}
    for file in sorted((root / "bindings/python/core").glob("*.cpp")):
        text = file.read_text(encoding="utf-8")
        for match in re.finditer(r"class_<(\w+)>\((?:.|\n)*?;\n", text):
            for defined in re.finditer(r'\.def\("(\w+)"((?:[^"]|"(?:[^"\\]|\\.)*")*?)(?=\n      \.|;\n)', match[0]):
                words = " ".join(re.findall(r'"((?:[^"\\]|\\.)*)"', defined[2]))
                own[match[1], defined[1]] = Call("Python", f"{match[1]}.{defined[1]}", words, "")
    for file in sorted((root / "bindings/python/src/memlith").glob("*.py")):
        for node in ast.parse(file.read_text(encoding="utf-8")).body:
            if not isinstance(node, ast.ClassDef):
                continue
            bases[node.name] = [ast.unparse(base).split("[")[0].removeprefix("_core.") for base in node.bases]
            for each in node.body:
                if isinstance(each, ast.FunctionDef):
                    comment = (ast.get_docstring(each) or "") if each.name != "__init__" else ""
                    call = Call("Python", f"{node.name}.{each.name}", comment, ast.unparse(each.args))
                    if each.name == "__init__" and "weak: bool" in call.text:
                        call.is_weak_by_class = "weak: bool=True" in call.text
                    own[node.name, each.name] = call

    def inherited(name, method, below=()):
        if (name, method) in own and name not in below:
            return own[name, method]
        found = (inherited(base, method, (*below, name)) for base in bases.get(name, ()) if base != name)
        return next((call for call in found if call), own.get((name, method)))

    methods = {method for _, method in own}
    for name in bases:
        made = inherited(name, "__init__")
        for method in methods:
            if call := inherited(name, method):
                copy = Call("Python", f"{name}.{method}", call.comment, call.text)
                copy.is_weak_by_class = made.is_weak_by_class if made else None
                yield copy


def calls_of(root):
    """(language, name): its overloads, each with the comments of all of them, and of the C function that it calls."""
    found, of_c = {}, {}
    for calls in (calls_of_c, calls_of_cpp, calls_of_python, calls_of_go, calls_of_rust):
        for call in calls(root):
            found.setdefault((call.language, call.name), []).append(call)
            if call.language == "C":
                of_c[call.name] = call.comment
    for overloads in found.values():
        comments = " ".join(call.comment for call in overloads)
        for call in overloads:
            called = re.findall(r"\bmemlith_\w+", call.text) if call.language == "C++" else ()
            call.comment = " ".join([comments, *(of_c.get(name, "") for name in called)])
    return found


# ---- the table -----------------------------------------------------------------------------------------------------

def look(root):
    """Rows of the page, and faults."""
    calls, rows, faults, listed = calls_of(root), [], [], set()
    for operation, kind, cells in ROWS:
        row = []
        for language in LANGUAGES:
            texts = []
            for name in cells.get(language, "").split():
                listed.add(name)
                if (language, name) not in calls:
                    faults.append(f"{language} has no {name}: mend ROWS of cmake/check_calls.py")
                    continue
                for call in calls[language, name]:
                    default, fault = call.default(kind)
                    if fault:
                        faults.append(f"{language}: {fault}")
                    if default not in (kind, MODE):
                        faults.append(f'{language}: {name} is {default} by default, its siblings of "{operation}" are '
                                      f"{kind}")
                    if default == WEAK and not call.is_weak_by_class and not says_weak(name):
                        faults.append(f"{language}: {name} is weak, and its name does not say so")
                    shown = KINDS[default]
                texts.append(f"`{name}`: {shown}")
            row.append("<br>".join(texts) or "-")
        rows.append((operation, row))
    for language, name in calls:
        last = re.sub(r"^memlith_(kv_|applog_|heap_|shared_|txn_|region_|store_)?", "", last_of(name))
        if NAMED.fullmatch(last) and name not in listed and name not in OTHERS and not last.startswith("_"):
            if not any(name in words.split() for _, _, cells in ROWS for words in cells.values()):
                faults.append(f"{language}: {name} is in no row; add it to ROWS of cmake/check_calls.py")
    return rows, faults


def page(root):
    lines = [
        "# Calls and their durability", "",
        "The page is made of the sources by `cmake/check_calls.py`; `./dev test` fails if it is not what they say, or",
        "if a call differs from its siblings in other languages.", "",
        "- **durable**: the call returns when its effect is durable.",
        "- **weak**: it returns when the effect is in memory; durable within the window, in order, or when its ticket",
        "  was waited for.",
        "- **mode**: the caller names one of the two with each call.",
        "- **later**: durable with the commit or the write that follows.", "",
        "[What a reader may see](../guarantees.md#what-a-reader-may-see) says the same of reads.", "",
        "| call | " + " | ".join(LANGUAGES) + " |", "|---|" + "---|" * len(LANGUAGES)]
    rows, _ = look(root)
    lines += [f"| {operation} | " + " | ".join(row) + " |" for operation, row in rows]
    return "\n".join(lines) + "\n"


def faults_of(root):
    _, faults = look(root)
    yield from sorted(set(faults))
    file = root / PAGE
    if not file.is_file() or file.read_text(encoding="utf-8") != page(root):
        yield f"{PAGE} is not what the sources say: python3 -B cmake/check_calls.py --write ."


def self_test():
    """Plants a default that differs, a comment that says nothing, and a call that is in no row."""
    cases = (
        (Call("C++", "Kv.transact", "", "transact(Act&& act, Durability durability = Durability::weak) {"), WEAK),
        (Call("C++", "Kv.transact", "", "transact(Act&& act, Durability durability = Durability::sync) {"), DURABLE),
        (Call("C", "memlith_commit", "", "memlith_commit(memlith_txn* txn, uint32_t mode, uint64_t* ticket);"), MODE),
        (Call("Go", "kv.KV.ViewWeak", "", "func (k *KV) ViewWeak() error {"), WEAK),
        (Call("Go", "kv.KV.View", "", "func (k *KV) View() error { return k.view(read, capi.CommitWeak) }"), WEAK),
        (Call("Rust", "kv::Kv::persist", "Makes every commit durable.", "pub fn persist(&self) {"), DURABLE),
    )
    wrong = [call.name for call, wanted in cases if call.default(DURABLE) != (wanted, "")]
    if not Call("Rust", "kv::Kv::persist", "Does it.", "pub fn persist(&self) {").default(DURABLE)[1]:
        wrong.append("a comment without a word of durability")
    root = pathlib.Path(__file__).parent.parent
    rows = globals()["ROWS"]
    try:
        globals()["ROWS"] = tuple(row for row in rows if row[0] != "wait for a ticket")
        if not any("Store.wait is in no row" in fault for fault in look(root)[1]):
            wrong.append("a call that is in no row")
    finally:
        globals()["ROWS"] = rows
    print(f"self-test FAILED: {wrong}" if wrong else "self-test: every planted fault was found")
    return 1 if wrong else 0


def main():
    words = sys.argv[1:]
    if words[:1] == ["--self-test"]:
        return self_test()
    root = pathlib.Path(words[-1]) if words else pathlib.Path(__file__).parent.parent
    if words[:1] == ["--write"]:
        (root / PAGE).write_text(page(root), encoding="utf-8")
    found = list(faults_of(root))
    print("\n".join(found) if found else "every call is as durable as its siblings")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
