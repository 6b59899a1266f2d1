#!/usr/bin/env python3
"""`memlith sqlite export` and `import`, and `memlith recover` of a SQLite database, against plain SQLite's view of the
files.

Usage: sqlite_test.py MEMLITH PLUGIN
The databases are made, held and killed by Pythons that have the plugin registered; this process has plain SQLite only.
Exit code 77: the plugin is built with a sanitizer, which a Python that is not cannot load.
"""
import json
import os
import pathlib
import resource
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import unittest

MEMLITH, PLUGIN = (str(pathlib.Path(each).resolve()) for each in sys.argv[1:3])
MARK = b"\x89MEMSQL\n"

# A child that has the plugin, prints "ready" when the statements are done, and stays until it is killed or told to end.
CHILD = """
import ctypes, sqlite3, sys
if sys.argv[1]: assert ctypes.CDLL(sys.argv[1]).memlith_sqlite_register(0) == 0
db = sqlite3.connect("file:" + sys.argv[2] + ("?vfs=memlith" if sys.argv[1] else ""), uri=True, isolation_level=None)
if not sys.argv[1]: db.execute("pragma synchronous=off")  # no power is cut here
def fill(count, size=100):  # 20 rows a commit, or all of them in the transaction that is open
    db.execute("create table if not exists t(a integer primary key, b blob)")
    own = not db.in_transaction
    for i in range(count):
        if own and i % 20 == 0: db.execute("begin")
        db.execute("insert into t(b) values(randomblob(?))", (size,))
        if own and (i % 20 == 19 or i == count - 1): db.execute("commit")
exec(sys.argv[3])
print("ready", flush=True)
sys.stdin.readline()
db.close()
"""

# The first transaction is larger than the log may grow to: the file was marked for it, and then nothing was committed.
EMPTY = """
try:
    db.execute("create table t as select randomblob(20 << 20)")
    assert False
except sqlite3.OperationalError: pass
"""


class Child:
    def __init__(self, path, work, plugin=PLUGIN, idle_ms="0"):
        environment = {**os.environ, "MEMLITH_SQLITE_LOG_MIB": "4", "MEMLITH_SQLITE_LOG_MAX_MIB": "16",
                       "MEMLITH_SQLITE_IDLE_MS": idle_ms, "MEMLITH_SQLITE_SHARE": "0"}
        self.process = subprocess.Popen([sys.executable, "-c", CHILD, plugin, str(path), work], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True, env=environment)
        assert self.process.stdout.readline() == "ready\n"
        self.pid = self.process.pid

    def end(self):
        self.process.communicate("\n", timeout=60)
        assert self.process.returncode == 0

    def kill(self):
        self.process.kill()
        self.process.communicate(timeout=60)


def memlith(*arguments, **more):
    return subprocess.run([MEMLITH, *map(str, arguments)], capture_output=True, text=True, timeout=120, check=False,
                          **more)


def rows_of(path):
    """Plain SQLite's view of the file; fails if it finds damage."""
    connection = sqlite3.connect(path)
    assert connection.execute("pragma integrity_check").fetchone() == ("ok",)
    rows = connection.execute("select * from t order by a").fetchall()
    connection.close()
    return rows


class Case(unittest.TestCase):
    def setUp(self):
        self.temporary = tempfile.TemporaryDirectory(dir=os.environ.get("MEMLITH_TEST_DIR") or None,
                                                     prefix="sqlite-test-")
        self.addCleanup(self.temporary.cleanup)
        self.folder = pathlib.Path(self.temporary.name).resolve()
        self.db = self.folder / "app.db"
        self.target = self.folder / "out.db"

    def run_child(self, path, work, plugin=PLUGIN, **more):
        child = Child(path, work, plugin, **more)
        self.addCleanup(child.process.kill)
        return child

    def crashed(self, path, work="fill(300)"):
        self.run_child(path, work).kill()
        self.assertTrue(path.read_bytes().startswith(MARK), "the case is not what it is meant to be")
        return path

    def plain(self, path, work="fill(300)"):
        self.run_child(path, work, plugin="").end()
        return path

    def files(self):
        """All but the counters of processes that have a database open, which go on."""
        return {file.name: file.read_bytes() for file in self.folder.iterdir() if file.is_file()
                and not file.name.endswith("-stats")}

    def done(self, *arguments):
        answer = memlith(*arguments, "--json")
        self.assertEqual(answer.returncode, 0, answer.stdout + answer.stderr)
        return json.loads(answer.stdout)

    def refused(self, category, *arguments, says=(), **more):
        """The command fails in that way, and no file is changed, made or removed."""
        before = self.files()
        answer = memlith(*arguments, "--json", **more)
        self.assertEqual(answer.returncode, 1, answer.stdout + answer.stderr)
        error = json.loads(answer.stdout)["error"]
        self.assertEqual(error["category"], category, error)
        for text in says:
            self.assertIn(text, error["message"] + error.get("advice", ""))
        self.assertEqual(self.files(), before)


class Export(Case):
    def test_of_a_crashed_database_has_every_acknowledged_commit(self):
        for mode in "delete", "wal":
            for page in 512, 4096, 65536:
                with self.subTest(mode=mode, page=page):
                    db = self.folder / f"{mode}{page}.db"
                    self.crashed(db,
                                 f"db.execute('pragma page_size={page}'); db.execute('pragma journal_mode={mode}'); "
                                     "fill(333, 5000); db.execute('delete from t where a % 3 = 0'); "
                                     "db.execute('begin'); fill(9)")
                    before = self.files()
                    target = self.folder / "out" / db.name
                    target.parent.mkdir(exist_ok=True)
                    answer = self.done("sqlite", "export", db, target)
                    self.assertEqual(self.files(), before, "the source was changed")
                    self.assertEqual([file.name for file in target.parent.iterdir()], [target.name])
                    self.assertEqual(list(answer), ["source", "target", "bytes", "seconds"])
                    self.assertEqual(answer["bytes"], target.stat().st_size)
                    exported = rows_of(target)
                    self.assertEqual([row[0] for row in exported], [a for a in range(1, 334) if a % 3 != 0])
                    self.assertEqual({len(row[1]) for row in exported}, {5000})
                    self.run_child(db, "db.execute('select * from t').fetchall()").end()
                    self.assertEqual(rows_of(db), exported, "the VFS recovers another state")
                    self.assertEqual(target.read_bytes()[:100], db.read_bytes()[:100], "the header")
                    shutil.rmtree(target.parent)

    def test_says_what_it_did(self):
        self.crashed(self.db)
        answer = memlith("sqlite", "export", self.db, self.target)
        self.assertEqual((answer.returncode, answer.stderr), (0, ""))
        self.assertIn(f"{self.target.stat().st_size} bytes", answer.stdout)
        self.assertIn("MB/s", answer.stdout)

    def test_of_a_closed_and_of_a_plain_database_is_the_file(self):
        self.run_child(self.db, "fill(700, 5000)").end()
        self.db.chmod(0o640)
        self.done("sqlite", "export", self.db, self.target)
        self.assertEqual(self.target.read_bytes(), self.db.read_bytes())
        self.assertEqual(self.target.stat().st_mode & 0o777, 0o640)
        for mode in "wal", "persist":  # a journal that begins with zeros is left by the latter
            plain = self.plain(self.folder / f"{mode}.db", f"db.execute('pragma journal_mode={mode}'); fill(30)")
            self.done("sqlite", "export", plain, self.folder / f"{mode}-out.db")
            self.assertEqual((self.folder / f"{mode}-out.db").read_bytes(), plain.read_bytes())
        self.assertTrue((self.folder / "persist.db-journal").exists())

    def test_of_a_marked_database_without_a_page(self):
        self.crashed(self.db, EMPTY)
        self.assertEqual(self.done("sqlite", "export", self.db, self.target)["bytes"], 0)
        self.assertEqual(self.target.stat().st_size, 0)

    def test_beside_a_process_that_has_it_open(self):
        for mode in "delete", "wal":
            for idle_ms in "0", "1":
                db, target = self.folder / f"{mode}{idle_ms}.db", self.folder / f"out-{mode}{idle_ms}.db"
                child = self.run_child(db, f"db.execute('pragma journal_mode={mode}'); fill(100)", idle_ms=idle_ms)
                while idle_ms != "0" and db.read_bytes().startswith(MARK):
                    pass
                self.done("sqlite", "export", db, target)
                exported = rows_of(target)
                self.assertEqual(len(exported), 100)
                child.end()
                self.assertEqual(rows_of(db), exported)

    def test_beside_a_writer_has_one_state_after_the_other(self):
        # Each transaction leaves as many rows as the number in each of them says.
        work = ("db.close(); import itertools, threading\n"
                "def write():\n"
                "    db = sqlite3.connect('file:' + sys.argv[2] + '?vfs=memlith', uri=True, isolation_level=None)\n"
                "    db.execute('pragma journal_mode=wal'); db.execute('create table t(a integer primary key, b)')\n"
                "    for i in itertools.count(1):\n"
                "        db.execute('begin'); db.execute('update t set b=?', (i,))\n"
                "        db.execute('insert into t(b) values(?)', (i,)); db.execute('commit')\n"
                "        if i == 3: begun.set()\n"
                "begun = threading.Event(); threading.Thread(target=write, daemon=True).start(); begun.wait()\n")
        child = self.run_child(self.db, work)
        counts = []
        for _ in range(5):
            self.done("sqlite", "export", self.db, self.target, "--force")
            rows = rows_of(self.target)
            self.assertEqual({b for _, b in rows}, {len(rows)})
            counts.append(len(rows))
        child.kill()
        self.assertEqual(counts, sorted(counts))
        self.assertGreaterEqual(counts[0], 3)

    def test_while_plain_sqlite_changes_it_names_the_process(self):
        self.plain(self.db)
        for begin in "begin immediate", "begin exclusive":
            child = self.run_child(self.db, f"db.execute('{begin}')", plugin="")
            self.refused("busy", "sqlite", "export", self.db, self.target, says=[f"process {child.pid}"])
            child.end()
        reader = self.run_child(self.db, "db.execute('begin'); db.execute('select * from t').fetchall()", plugin="")
        self.done("sqlite", "export", self.db, self.target)
        reader.end()

    def test_of_a_wal_database_that_plain_sqlite_has_open(self):
        self.plain(self.db, "db.execute('pragma journal_mode=wal'); fill(30)")
        child = self.run_child(self.db, "db.execute('select * from t').fetchall()", plugin="")
        self.refused("busy", "sqlite", "export", self.db, self.target, says=[f"process {child.pid}"])
        child.end()

    def test_with_what_plain_sqlite_left_is_refused(self):
        self.plain(self.db, "fill(3000)")
        self.run_child(self.db,
                       "db.execute('pragma cache_size=1'); db.execute('begin'); db.execute('update t set b=1')",
                       plugin="").kill()
        self.assertGreater((self.folder / "app.db-journal").stat().st_size, 0)
        for command in "export", "import":
            self.refused("invalid", "sqlite", command, self.db, self.target, says=["app.db-journal", "plain SQLite"])
        self.assertEqual(len(rows_of(self.db)), 3000)  # plain SQLite rolls back
        self.done("sqlite", "export", self.db, self.target)

        wal = self.folder / "wal.db"
        self.run_child(wal, "db.execute('pragma journal_mode=wal'); fill(30)", plugin="").kill()
        for command in "export", "import":
            self.refused("invalid", "sqlite", command, wal, self.folder / "other.db", says=["wal.db-wal"])

    def test_over_an_existing_file_needs_force(self):
        self.crashed(self.db)
        self.plain(self.target, "fill(3)")
        self.refused("exists", "sqlite", "export", self.db, self.target, says=["--force"])
        reader = self.run_child(self.target, "db.execute('begin'); db.execute('select * from t').fetchall()", plugin="")
        self.refused("busy", "sqlite", "export", self.db, self.target, "--force", says=[f"process {reader.pid}"])
        reader.end()
        self.done("sqlite", "export", self.db, self.target, "--force")
        self.assertEqual(len(rows_of(self.target)), 300)

    def test_never_replaces_what_is_not_a_database(self):
        self.crashed(self.db)
        self.refused("invalid", "sqlite", "export", self.db, self.folder / "app.db.memlith", "--force",
                     says=["belongs to the source"])
        self.refused("invalid", "sqlite", "export", self.db, self.folder / "app.db-wal", says=["belongs to the source"])
        other = self.plain(self.folder / "other.db")
        for name, content in [("notes.txt", b"something else entirely"),
                              ("log", (self.folder / "app.db.memlith").read_bytes())]:
            (self.folder / name).write_bytes(content)
            self.refused("invalid", "sqlite", "import", other, self.folder / name, "--force",
                         says=["not a SQLite database"])

    def test_prints_nothing_into_files(self):
        self.plain(self.db, "db.execute('pragma journal_mode=wal'); fill(30)")
        for closed in ">&-", "<&- >&-", "<&- >&- 2>&-":
            before = self.db.read_bytes()
            subprocess.run(["sh", "-c", f'exec "$@" {closed}', "sh", MEMLITH, "sqlite", "export", self.db, self.target,
                            "--force"],
                           timeout=120, check=False)
            self.assertEqual(self.db.read_bytes(), before, closed)
            self.assertEqual(rows_of(self.target), rows_of(self.db), closed)

    def test_into_trouble_leaves_nothing_behind(self):
        self.crashed(self.db)
        self.refused("not found", "sqlite", "export", self.db, self.folder / "no" / "out.db", says=["does not exist"])
        self.refused("invalid", "sqlite", "export", self.db, self.folder, "--force")
        self.refused("invalid", "sqlite", "export", self.db, self.db, "--force", says=["itself"])
        answer = memlith("sqlite", "export", self.db, self.target,
                         preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (8192, 8192)),
                         restore_signals=False)  # Python ignores SIGXFSZ, and so shall the command
        self.assertEqual(answer.returncode, 1, answer.stdout)
        self.assertEqual([file.name for file in self.folder.iterdir() if "out" in file.name], [])

    def test_of_what_is_no_whole_database(self):
        self.refused("not found", "sqlite", "export", self.folder / "missing.db", self.target)
        self.refused("invalid", "sqlite", "export", self.folder, self.target)
        for name, content, category in [("empty.db", b"", "invalid"), ("zeros.db", bytes(4096), "incompatible"),
                                        ("foreign.db", b"something else entirely", "incompatible")]:
            (self.folder / name).write_bytes(content)
            self.refused(category, "sqlite", "export", self.folder / name, self.target)
        self.crashed(self.db)
        log = self.folder / "app.db.memlith"
        self.refused("invalid", "sqlite", "export", log, self.target, says=["is the log of"])
        (self.folder / "app.db.memlith-journal").write_bytes(bytes(512))
        self.refused("invalid", "sqlite", "export", self.db, self.target, says=["several databases"])
        (self.folder / "app.db.memlith-journal").unlink()
        log.unlink()
        self.refused("corrupt", "sqlite", "export", self.db, self.target, says=["app.db.memlith", "missing"])
        self.refused("corrupt", "recover", self.db, says=["app.db.memlith", "missing"])
        self.assertEqual(memlith("verify", self.db).returncode, 2)


class Import(Case):
    def test_there_and_back(self):
        for page in 512, 4096:
            with self.subTest(page=page):
                source = self.plain(self.folder / f"source{page}.db",
                                    f"db.execute('pragma page_size={page}'); fill(701, 5000)")
                db, target = self.folder / f"app{page}.db", self.folder / f"out{page}.db"
                before = source.read_bytes()
                self.done("sqlite", "import", source, db)
                self.assertEqual((source.read_bytes(), db.read_bytes()), (before, before))
                self.crashed(db, "db.execute('update t set b=zeroblob(10) where a<=100'); fill(5)")
                self.done("sqlite", "export", db, target)
                expected = [(a, bytes(10) if a <= 100 else b) for a, b in rows_of(source)]
                self.assertEqual(rows_of(target)[:701], expected)
                self.assertEqual(len(rows_of(target)), 706)

    def test_refuses_what_is_not_whole(self):
        source = self.plain(self.folder / "source.db")
        whole = source.read_bytes()
        for content, says in [(whole[:-4096], "pages"), (whole[:-1], "whole pages"), (whole[:50], "header"),
                              (whole[:16] + b"\x03\x00" + whole[18:], "no page size")]:
            source.write_bytes(content)
            self.refused("corrupt", "sqlite", "import", source, self.db, says=[says])
        # Where the counters differ the page count says nothing: an old SQLite left it as it was.
        source.write_bytes(whole[:24] + b"\xff\xff\xff\xff\xff\xff\xff\xff"[:4] + whole[28:-4096])
        self.done("sqlite", "import", source, self.db)

    def test_refuses_a_marked_database(self):
        self.crashed(self.db)
        self.refused("invalid", "sqlite", "import", self.db, self.target, says=["export"])

    def test_over_an_existing_database_needs_force(self):
        source = self.plain(self.folder / "source.db", "fill(7)")
        holder = self.run_child(self.db, "fill(10)")
        self.refused("exists", "sqlite", "import", source, self.db)
        self.refused("busy", "sqlite", "import", source, self.db, "--force", says=[f"process {holder.pid}"])
        holder.kill()
        self.refused("exists", "sqlite", "import", source, self.db, says=["--force"])
        self.done("sqlite", "import", source, self.db, "--force")
        self.assertFalse((self.folder / "app.db.memlith").exists(),
                         "the log of the database that is gone is still there")
        self.crashed(self.db, "fill(2)")
        self.done("sqlite", "export", self.db, self.target)
        self.assertEqual(rows_of(self.target)[:7], rows_of(source))
        self.assertEqual(len(rows_of(self.target)), 9)

    def test_beside_a_log_that_is_left_over(self):
        source = self.plain(self.folder / "source.db", "fill(7)")
        self.crashed(self.db).unlink()
        self.refused("exists", "sqlite", "import", source, self.db, says=["app.db.memlith", "missing"])
        self.done("sqlite", "import", source, self.db, "--force")
        self.run_child(self.db, "fill(1)").end()
        self.assertEqual(len(rows_of(self.db)), 8)

    def test_beside_a_log_that_cannot_be_read(self):
        source = self.plain(self.folder / "source.db", "fill(7)")
        log = self.folder / "app.db.memlith"
        log.write_bytes(b"no log at all".ljust(65536, b"."))
        self.plain(self.db, "fill(1)")
        self.refused("exists", "sqlite", "import", source, self.db, says=["app.db exists"])
        os.rename(self.db, self.folder / "elsewhere.db")
        self.refused("exists", "sqlite", "import", source, self.db, says=[str(log), "missing"])
        os.rename(self.folder / "elsewhere.db", self.db)
        self.done("sqlite", "import", source, self.db, "--force")
        self.assertFalse(log.exists())
        self.assertEqual(len(rows_of(self.db)), 7)

    def test_beside_a_journal_that_is_left_over(self):
        source = self.plain(self.folder / "source.db")
        (self.folder / "app.db-journal").write_bytes(b"\xd9\xd5\x05\xf9\x20\xa1\x63\xd7" + bytes(504))
        self.refused("invalid", "sqlite", "import", source, self.db, "--force", says=["app.db-journal"])


class Recover(Case):
    def test_leaves_an_ordinary_database(self):
        self.crashed(self.db)
        shutil.copy(self.db, self.folder / "copy.db")
        shutil.copy(self.folder / "app.db.memlith", self.folder / "copy.db.memlith")
        answer = self.done("recover", self.db)
        self.assertGreater(answer["replayed_frames"], 0)
        self.assertNotIn("sqlite", answer)
        self.assertEqual(len(rows_of(self.db)), 300)  # as plain SQLite sees it
        self.assertEqual(self.done("recover", self.db)["replayed_frames"], 0)
        # A transaction over several databases is undecided: the mark stays.
        (self.folder / "copy.db.memlith-journal").write_bytes(bytes(512))
        answer = memlith("recover", self.folder / "copy.db")
        self.assertEqual(answer.returncode, 0, answer.stderr)
        for text in "memlith's VFS", "copy.db.memlith-journal":
            self.assertIn(text, answer.stdout)
        self.assertEqual((self.folder / "copy.db").read_bytes()[:8], MARK)
        self.done("sqlite", "export", self.db, self.target)
        self.assertEqual(len(rows_of(self.target)), 300)
        self.run_child(self.db, "fill(1)").end()
        self.assertEqual(rows_of(self.db)[:300], rows_of(self.target))

    def test_of_a_closed_database_is_nothing(self):
        self.run_child(self.db, "fill(10)").end()
        before = self.db.read_bytes()
        answer = self.done("recover", self.db)
        self.assertNotIn("sqlite", answer)
        self.assertEqual(answer["replayed_frames"], 0)
        self.assertEqual(self.db.read_bytes(), before)

    def test_does_not_replay_into_a_database_that_is_complete(self):
        self.crashed(self.db)
        for rows in 5, 3000:  # shorter than the log has it, and longer
            self.plain(self.target, f"fill({rows})")
            shutil.copy(self.target, self.db)
            self.refused("invalid", "recover", self.db, says=["complete by itself", "remove"])
        self.run_child(self.db, "fill(1)").end()
        self.assertEqual(rows_of(self.db)[:-1], rows_of(self.target))

    def test_does_not_replay_another_databases_log(self):
        self.crashed(self.db)
        self.crashed(self.folder / "other.db")
        expected, found = "not of the same moment as its log", "app.db.memlith"
        shutil.copy(self.folder / "other.db.memlith", self.folder / "app.db.memlith")
        self.refused("corrupt", "recover", self.db, says=[expected, found])
        self.refused("corrupt", "sqlite", "export", self.db, self.target, says=[expected, found])


if __name__ == "__main__":
    plugin_bytes = pathlib.Path(PLUGIN).read_bytes()
    if b"__asan_init" in plugin_bytes or b"__tsan_init" in plugin_bytes:
        print("skip everything: the plugin is built with a sanitizer, which a program that is not cannot load")
        sys.exit(77)
    unittest.main(argv=sys.argv[:1])
