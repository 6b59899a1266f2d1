#!/usr/bin/env python3
"""The parts of `./dev docs` that need nothing from PyPI: the reference that is made of the headers, lists, dead links.

Usage: site_test.py ROOT
"""
import pathlib
import re
import subprocess
import sys
import unittest

ROOT = pathlib.Path(sys.argv[1])
sys.path.insert(0, str(ROOT / "dist" / "site"))
import headers  # noqa: E402
import lists  # noqa: E402

HEADERS = {path.name: path.read_text(encoding="utf-8") for path in sorted((ROOT / "include" / "memlith").iterdir())
           if path.name not in headers.INSIDE}


class Reference(unittest.TestCase):
    def test_every_function_of_c_has_a_place(self):
        for name, text in HEADERS.items():
            declared = set(re.findall(r"^MEMLITH_API [^;(]*?\b(memlith_\w+)\s*\(", headers.COMMENT.sub("", text), re.M))
            self.assertTrue(declared or not name.endswith(".h") or name in ("sqlite_file.h", "memlith.h"), name)
            self.assertEqual(declared - set(headers.anchors_of(headers.items_of(text)[1])), set(), name)

    def test_classes_of_cpp_and_their_members_have_places(self):
        for name, wanted in {
                "store.hpp": ["Store", "Store::open", "StoreOptions"], "region.hpp": ["Region::persist", "Tracker"],
                "status.hpp": ["Result::ok"], "transaction.hpp": ["Transaction::commit"],
                "heap.hpp": ["Heap::root", "Heap::migrate", "Heap::transact", "use_heap"],
                "allocator.hpp": ["heap_error::code", "allocator::allocate", "map", "unordered_multiset"],
                "btree.hpp": ["btree_map", "btree_set"], "flat_hash.hpp": ["flat_hash_map", "flat_hash_set"],
                "kv.hpp": ["KvTransaction::get_range", "Kv::transact", "Cursor::prev", "Durability"],
                "applog.hpp": ["AppLog::append", "LogEntry", "WhenFull"],
                "archive.hpp": ["Archive::step", "Standby::open", "restore"],
                "files.hpp": ["MappedFile::persist", "MappedFileOptions"],
                "copy.hpp": ["copy_store", "check_region"],
                "shared.hpp": ["SharedRegion::open", "SharedTransaction::commit"],
                "steps.hpp": ["Run::step", "Journal::run", "Step::send"], "steps_records.hpp": ["RunInfo", "Codec"],
                "rocksdb.hpp": ["NewRocksdbFileSystem", "RocksdbOptions"]}.items():
            self.assertLessEqual(set(wanted), set(headers.anchors_of(headers.items_of(HEADERS[name])[1])), name)

    def test_pages_have_declarations_without_what_is_inside(self):
        for name, text in HEADERS.items():
            page = headers.page(name, text, lambda _: None)
            self.assertNotIn("MEMLITH_API", page)
            self.assertNotIn("handle_", page)
            self.assertNotIn("detail::result_of", page)
            self.assertEqual(page.count("```") % 2, 0, name)

    def test_a_comment_belongs_to_what_follows(self):
        page = headers.page("x.hpp", "// memlith: x.\nnamespace memlith {\n// Adds one.\n// Errors: FULL.\n"
                            "class A {\n public:\n  // Gives `n`, see memlith_b.\n  int n() const { return n_; }\n\n"
                            "  template <class T>\n  void f(T&& a = {}) noexcept;  // quick\n private:\n  int n_;\n};\n"
                            "}  // namespace memlith\n", lambda word: "y.html#" + word)
        for line in ("### `A` { #A data-toc-label='A' }", "class A;", "<p>Adds one.</p>",
                     "<p><strong>Errors</strong>: FULL.</p>", "int n() const;",
                     '<p>Gives <code>n</code>, see <a href="y.html#memlith_b">memlith_b</a>.</p>',
                     "void f(T&& a = {}) noexcept;  // quick"):
            self.assertIn(line, page.split("\n"), page)
        self.assertNotIn("n_", page)


SOURCES = {"C": "include/memlith/*.h", "C++": "include/memlith/*.hpp", "Python": "bindings/python/src/**/*.py*",
           "Go": "bindings/go/**/*.go", "Rust": "bindings/rust/memlith/src/*.rs"}


class Languages(unittest.TestCase):
    def test_the_table_of_languages_names_what_is_there(self):
        page = (ROOT / "docs/index.md").read_text(encoding="utf-8")
        rows = [[cell.strip() for cell in line.strip("|").split("|")]
                for line in re.search(r"## What each language reaches\n(.*?)\n## ", page, re.S)[1].splitlines()
                if line.startswith("|")]
        self.assertEqual(rows[0][1:], list(SOURCES))
        self.assertGreater(len(rows), 15)
        for at, files in enumerate(SOURCES.values(), 1):
            text = "\n".join(path.read_text(encoding="utf-8") for path in ROOT.glob(files))
            for row in rows[2:]:
                for name in re.findall(r"`([^`]+)`", row[at]):
                    last = re.split(r"::|\.", name)[-1]
                    self.assertRegex(text, rf"\b{last}\b", f"{row[0]}, {rows[0][at]}: {name}")


class Lists(unittest.TestCase):
    def test_items_go_on_in_four_columns(self):
        self.assertEqual(lists.four_columns("text\n- a\n  b\n\n  c\n  1. d\n     e\n\nf\n```\n- g\n```"),
                         "text\n\n- a\n    b\n\n    c\n    1. d\n        e\n\nf\n```\n- g\n```")


class Site(unittest.TestCase):
    def test_every_page_with_commands_is_followed(self):
        listed = set(re.findall(r"memlith_page\((\S+?)[ )]", (ROOT / "tests/docs/CMakeLists.txt").read_text()))
        with_code = {path.relative_to(ROOT / "docs").with_suffix("").as_posix()
                     for place in ("index.md", "start/*.md", "tutorials/*.md", "how-to/*.md")
                     for path in (ROOT / "docs").glob(place)
                     if "```" in path.read_text(encoding="utf-8")}
        self.assertEqual(with_code - listed, set())

    def test_every_page_is_in_the_navigation(self):
        navigation = (ROOT / "dist" / "site" / "mkdocs.yml").read_text(encoding="utf-8")
        pages = {path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*.md")}
        pages |= {f"reference/{name}.md" for name in HEADERS}
        self.assertEqual({page for page in pages if f"- {page}\n" not in navigation}, set())

    def test_dead_links_are_found(self):
        subprocess.run([sys.executable, "-B", ROOT / "dist" / "site" / "check_links.py", "--self-test"], check=True,
                       stdout=subprocess.DEVNULL)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
