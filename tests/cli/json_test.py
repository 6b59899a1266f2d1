#!/usr/bin/env python3
"""The output of the commands with --json has the fields of docs/json.md, and no others.

Usage: json_test.py MEMLITH HELLO_C JSON_MD [MEMLITH_SQLITE_BENCH] [MEMLITH_KV_BENCH] [ORDER]
"""
import json
import os
import pathlib
import re
import sqlite3
import subprocess
import sys
import tempfile
import unittest

MEMLITH, HELLO, DOCUMENT = sys.argv[1:4]
BENCHES = {pathlib.Path(word).name: word for word in sys.argv[4:]}
SQLITE_BENCH = BENCHES.get("memlith-sqlite-bench")
KV_BENCH = BENCHES.get("memlith-kv-bench")
ORDER = BENCHES.get("order")
NAMED_BY_DATA = {"turns[].parts_s"}
SMALL = ["--pages", "1", "--region-mib", "1", "--log-mib", "1", "--rounds", "3"]


def documented():
    """The fields of each section's table; and those that may be missing."""
    fields, optional = {}, {}
    for section in pathlib.Path(DOCUMENT).read_text(encoding="utf-8").split("\n## ")[1:]:
        title = section.splitlines()[0]
        rows = [line.split(" | ", 1) for line in section.splitlines() if line.startswith("| `")]
        fields[title] = {name for names, _ in rows for name in re.findall(r"`([^`]+)`", names)}
        optional[title] = {name for names, text in rows if "may be missing" in text
                           for name in re.findall(r"`([^`]+)`", names)}
    return fields, optional


def names_in(value, prefix=""):
    """The fields of an object and of those in it: "log.bytes", "regions[].name"."""
    for key, inner in value.items():
        name = prefix + key
        if isinstance(inner, dict) and name not in NAMED_BY_DATA:
            yield from names_in(inner, name + ".")
        elif isinstance(inner, list) and all(isinstance(each, dict) for each in inner) and inner:
            for each in inner:
                yield from names_in(each, name + "[].")
        else:
            yield name


class Fields(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.fields, cls.optional = documented()
        if SQLITE_BENCH is None:
            del cls.fields["memlith-sqlite-bench"], cls.fields["memlith-sqlite-bench writers"]
        if ORDER is None:
            del cls.fields["memlith steps list, show, retry, cancel"]
        if KV_BENCH is None:
            for title in [title for title in cls.fields if title.startswith("memlith-kv-bench")]:
                del cls.fields[title]
        del cls.fields["bench bytes"]  # makes file systems of its own and runs servers, by hand
        del cls.fields["bench copy"]  # tests/cli/bench_copy_test.py
        del cls.fields["bench replica"]  # programs in Go, run by hand
        del cls.fields["bench etcd"]  # integrations/etcd, by hand
        del cls.fields["bench bbolt"]  # integrations/bbolt/bboltconvert/cmd/bboltbench/main_test.go
        del cls.fields["bench files"]  # tests/run/bench_files_test.py
        # integrations/compiler/tests/overhead_test.py, kyoto_test.py and pmdk_test.py
        del cls.fields["bench instrumented"], cls.fields["bench instrumented kyoto"], cls.fields["bench pmdk"]
        del cls.fields["memlith format"]  # tests/cli/raw_device_test.py
        cls.seen = set()

    @classmethod
    def tearDownClass(cls):
        differing = cls.seen ^ set(cls.fields)
        assert not differing, f"described and not printed, or the other way round: {differing}"

    def setUp(self):
        temporary = tempfile.TemporaryDirectory(dir=os.environ.get("MEMLITH_TEST_DIR") or None, prefix="json-test-")
        self.addCleanup(temporary.cleanup)
        self.folder = pathlib.Path(temporary.name)
        self.store = self.folder / "store"

    def rows(self, *command, code=0):
        done = subprocess.run([*map(str, command), "--json"], capture_output=True, text=True, check=False)
        self.assertEqual((done.returncode, done.stderr), (code, ""), done.stdout)
        return [json.loads(line) for line in done.stdout.splitlines()]

    def check_fields(self, title, rows):
        self.assertTrue(rows)
        self.seen.add(title)
        printed = {name for row in rows for name in names_in(row)}
        # null stands for whatever may be in its place.
        printed -= {name for name in printed if any(other.startswith((name + ".", name + "[].")) for other in printed)}
        self.assertEqual(printed ^ self.fields[title], self.optional[title] - printed, title)

    def check(self, title, *words, code=0):
        rows = self.rows(MEMLITH, *words, code=code)
        self.check_fields(title, rows)
        return rows

    def test_stores(self):
        self.check("A failure, of any command", "info", self.store, code=1)
        self.check("A failure, of any command", "nothing", code=1)
        subprocess.run([HELLO, self.store], check=True, stdout=subprocess.DEVNULL)
        for command in "info", "verify", "recover":
            self.check(f"memlith {command}", command, self.store)
        self.assertEqual(self.check("memlith verify", "verify", "--pointers", self.store)[0]["pointers"], [])
        found = self.check("memlith verify", "verify", "--leaks", self.store)[0]["leaks"]
        self.assertEqual(found, {"blocks": 0, "bytes": 0})
        freed = self.check("memlith recover", "recover", "--collect=plain-pointers", self.store)[0]["freed"]
        self.assertEqual(freed, found)
        self.check("memlith copy", "copy", "--verify", self.store, self.folder / "copied")
        self.check("memlith keeper", "keeper", "--grace", "0.01", self.store)
        refused = self.check("A failure, of any command", "recover", "--collect=all", self.store, code=1)[0]
        self.assertIn("plain-pointers", json.dumps(refused))

    def test_disktest(self):
        told = self.folder / "told"
        command = [MEMLITH, "disktest", "listen", "0", told, "--json"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as witness:
            rows = [json.loads(witness.stdout.readline())]
            where = f"localhost:{rows[0]['port']}"
            self.check("memlith disktest write", "disktest", "write", self.folder, "--tell", where, "--size", "1",
                       "--rounds", "9")
            rows += [json.loads(line) for line in witness.stdout]
        self.check_fields("memlith disktest listen", rows)
        self.assertEqual(rows[1]["told"], 9)
        verdict = self.check("memlith disktest check", "disktest", "check", self.folder, "--told", told)[0]
        self.assertTrue(verdict["honest"])

    def test_dump_and_load(self):
        dump = self.folder / "dump"
        self.check("memlith kv put, del", "kv", "put", self.store, "map", "key", "value")
        self.check("memlith dump", "dump", self.store, "--out", dump)
        self.check("memlith load", "load", self.folder / "loaded", "--in", dump)

    def test_kv(self):
        records = self.folder / "records"
        records.write_text("key\tvalue\n", encoding="utf-8")
        loaded = self.check("memlith kv put, del", "kv", "put", self.store, "map", "--in", records)
        self.assertEqual(loaded, [{"map": "map", "records": 1, "durable": True}])
        self.check("memlith kv get, scan", "kv", "get", self.store, "map", "key")
        self.check("memlith kv get, scan", "kv", "scan", self.store, "map")
        self.check("memlith kv count", "kv", "count", self.store, "map")
        self.check("memlith kv stats", "kv", "stats", self.store)
        put = self.check("memlith kv put, del", "kv", "put", self.store, "map", "\\x00", "value")
        self.assertEqual(put, [{"map": "map", "key": "\\x00", "durable": True}])
        self.assertEqual(self.check("memlith kv put, del", "kv", "del", self.store, "map", "\\x00"), put)
        self.check("A failure, of any command", "kv", "del", self.store, "map", "\\x00", code=1)

    @unittest.skipIf(ORDER is None, "built without it")
    def test_steps(self):
        subprocess.run([ORDER, self.store, "keyless", "kill"], check=False, stdout=subprocess.DEVNULL)
        for words in ("list", self.store), ("show", self.store, "keyless"), ("retry", self.store, "keyless"), (
                "cancel", self.store, "keyless"):
            self.check("memlith steps list, show, retry, cancel", "steps", *words)

    def test_help(self):
        rows = {row["command"]: row for row in self.check("memlith help", "help")}
        self.assertIn("kv put", rows)
        self.assertEqual([each["name"] for each in rows["kv put"]["arguments"]], ["STORE", "MAP", "KEY", "VALUE"])
        for name, row in rows.items():  # each command is there, once, and described
            self.assertTrue(row["description"], name)
            for below in row["commands"]:
                self.assertIn(f"{name} {below}".strip(), rows)
        self.assertEqual([row["command"] for row in self.rows(MEMLITH, "help", "kv", "put")], ["kv put"])

    def check_kv_bench(self, suite, *words):
        """The fields of the table about all suites, and those of the suite's own, which some of its lines may lack."""
        rows = self.rows(KV_BENCH, suite, *words, "--dir", self.folder)
        self.seen.add("memlith-kv-bench")
        title = f"memlith-kv-bench {suite}" + (" --recovery-log-mib" if "--recovery-log-mib" in words else "")
        common = self.fields["memlith-kv-bench"]
        for row in rows:
            self.assertLessEqual(common, set(row))
        self.check_fields(title, [{name: value for name, value in row.items() if name not in common} for row in rows])
        return rows

    @unittest.skipIf(KV_BENCH is None, "built without it")
    def test_kv_bench(self):
        short = ["--seconds", "0.01"]
        for suite in "table2", "table2-large":
            self.check_kv_bench(suite, "--keys", "20", "--durability", "sync", "--rest-us", "1")
        self.check_kv_bench("entries", "--keys", "100", "--changes", "1", "--rounds", "2")
        self.check_kv_bench("threads", *short, "--keys", "20", "--threads", "1", "--durability", "sync")
        self.check_kv_bench("allocate", "--rounds", "2", "--trace-mib", "1")
        self.check_kv_bench("open", "--heap-mib", "16", "--blocks", "5000", "--repetitions", "1")
        self.check_kv_bench("ycsb", *short, "--records", "50", "--workloads", "f", "--window-ms", "1,2")
        self.check_kv_bench("ycsb", "--records", "50", "--recovery-log-mib", "1")
        self.check_kv_bench("applog", *short, "--rounds", "1", "--bytes", "100", "--threads", "1", "--log-mib", "1")
        self.check_kv_bench("kvcalls", *short, "--records", "1000", "--repetitions", "1")
        self.check_kv_bench("processes", *short, "--records", "100", "--repetitions", "1", "--processes", "2")

    @unittest.skipIf(KV_BENCH is None, "built without it")
    def test_dbbench(self):
        rows = self.check_kv_bench("dbbench", "--seconds", "0.01", "--records", "200")
        sides = {(row["side"], row["backend"]) for row in rows}
        self.assertLessEqual({(side, backend) for side in ("memlith", "memlith-log")
                              for backend in ("file", "file-uring")}, sides)
        for row in rows:
            values = [row[name] for name in ("p50_us", "p99_us", "p999_us", "max_us")]
            self.assertEqual(values, sorted(values), row)
            self.assertEqual(row["durability"], "sync" if row["workload"].startswith("fill") else "none")

    def test_stat(self):
        bench = subprocess.Popen([MEMLITH, "bench", "persist", "--pages", "1", "--region-mib", "1", "--seconds", "600",
                                  "--dir", self.folder],
                                 stdout=subprocess.DEVNULL)
        store = self.folder / f"memlith-bench-{bench.pid}" / "store"
        try:
            while subprocess.run([MEMLITH, "stat", store], capture_output=True, check=False).returncode != 0:
                self.assertIsNone(bench.poll(), "the benchmark has ended")
            row = self.check("memlith stat", "stat", store)[0]
            self.assertEqual((row["process"], row["alive"]), (bench.pid, True))
            self.check_prometheus(store, bench.pid)
        finally:
            bench.terminate()
            bench.wait()

    def check_prometheus(self, store, process):
        """Every line is a comment or a sample of the metric that the comment before it described."""
        text = subprocess.run([MEMLITH, "stat", "--prometheus", store], capture_output=True, text=True, check=True)
        described, values = "", {}
        for line in text.stdout.splitlines():
            if line.startswith("# TYPE "):
                described = line.split()[2]
                self.assertIn(line.split()[3], ("counter", "gauge", "summary"))
            elif not line.startswith("# HELP "):
                sample = re.fullmatch(r'(memlith_\w+)\{store="([^"]+)"(?:,quantile="([0-9.]+)")?\} ([0-9.]+)', line)
                self.assertIsNotNone(sample, line)
                self.assertEqual(sample[1].removesuffix("_count"), described)
                self.assertEqual(sample[2], str(store))
                values[sample[1], sample[3]] = float(sample[4])
        self.assertEqual(values["memlith_up", None], 1)
        self.assertEqual(values["memlith_process", None], process)
        self.assertLessEqual(values["memlith_persist_seconds", "0.5"], values["memlith_persist_seconds", "0.99"])
        both = subprocess.run([MEMLITH, "stat", "--prometheus", "--json", store], capture_output=True, text=True,
                              check=False)
        self.assertEqual(both.returncode, 1, both.stdout)

    def test_sqlite(self):
        database = self.folder / "a.db"
        connection = sqlite3.connect(database)
        connection.execute("create table t(a)")
        connection.close()
        self.check("memlith sqlite export, import", "sqlite", "export", database, self.folder / "b.db")
        self.check("memlith sqlite export, import", "sqlite", "import", database, self.folder / "c.db")
        self.check("memlith sqlite doctor", "sqlite", "doctor", sys.executable)

    def test_rocksdb(self):
        self.check("memlith rocksdb release", "rocksdb", "release", self.folder)

    def test_postgres(self):
        (self.folder / "PG_VERSION").write_text("15\n", encoding="ascii")
        self.check("memlith postgres recover", "postgres", "recover", self.folder)

    @unittest.skipIf(SQLITE_BENCH is None, "built without it")
    def test_sqlite_bench(self):
        small = ["--repetitions", "1", "--dir", self.folder]
        self.check_fields("memlith-sqlite-bench",
                          self.rows(SQLITE_BENCH, "update", "--rows", "100", "--commits", "20", *small)
                          + self.rows(SQLITE_BENCH, "dbbench", "--keys", "100", "--writes", "64", "--transaction-kib",
                                      "4", "--pattern", "random", "--calls", *small)
                          + self.rows(SQLITE_BENCH, "tatp", "--subscribers", "100", "--seconds", "0.02", *small)
                          + self.rows(SQLITE_BENCH, "speed", "--size", "1", *small))
        self.check_fields("memlith-sqlite-bench writers",
                          self.rows(SQLITE_BENCH, "writers", "--rows", "100", "--seconds", "0.02", "--threads", "2",
                                    *small))

    def test_benchmarks(self):
        where = ["--dir", self.folder]
        self.check("memlith bench persist", "bench", "persist", *SMALL, *where)
        self.check("memlith bench persist --peers", "bench", "persist", "--peers", *SMALL, *where)
        self.check("memlith bench persist --breakdown", "bench", "persist", "--breakdown", *SMALL, *where)
        self.check("memlith bench persist --one-region", "bench", "persist", "--one-region", "--threads", "2",
                   "--tracker", "fault", *SMALL, *where)
        self.check("memlith bench persist --checkpoints", "bench", "persist", "--checkpoints", *SMALL, *where)
        self.check("memlith bench protect", "bench", "protect", "--pages", "1", "--region-mib", "1", "--rounds", "3")
        self.check("memlith bench tail", "bench", "tail", "--phases", "1", *SMALL, *where)
        self.check("memlith bench transparent", "bench", "transparent", *SMALL, *where)
        self.check("memlith bench recovery", "bench", "recovery", "--log-mib", "16", "--region-mib", "1", *where)
        self.check("memlith bench open", "bench", "open", "--region-mib", "1", *where)
        self.check("memlith bench engine", "bench", "engine", "--commits", "300", "--log-mib", "1", "--small-log-mib",
                   "1", "--checkpoints", "1", "--pending", "10", "--rounds", "10", "--persists", "100", *where)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
