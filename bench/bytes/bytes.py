#!/usr/bin/env python3
"""Bytes to the device per byte of user data, by the counters of the block layer: ./dev bench bytes [FACE ...].

FACE is region, kv, applog, sqlite, rocksdb, redis, postgres; none: all. Every face replaces values of 1,000 bytes of
10,000 records at random, one a transaction, durable before the next of that writer (applog: appends them, and a thread
consumes them). The counting begins when the records are there and home, and ends when all is closed and written.
Memlith and what it stands beside take turns on an ext4 of their own on a loop device, which takes root.
"""
import contextlib
import ctypes
import importlib.util
import json
import os
import pathlib
import random
import shutil
import sqlite3
import subprocess
import sys
from concurrent import futures

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "bench/kit")]
import contest  # noqa: E402 pylint: disable=wrong-import-position
from disk_counts import DiskCounts  # noqa: E402 pylint: disable=wrong-import-position

KEYS, VALUE_BYTES = 10_000, 1000
CREATE, SYNC, EXPLICIT = 1, 0, 2  # MEMLITH_CREATE, MEMLITH_COMMIT_SYNC, MEMLITH_TRACKER_EXPLICIT


def key_of(number):
    return b"%016d" % number


def servers_of(product):
    """The module `server` of the product's tests: each has one of that name."""
    place = ROOT / "integrations" / product / "tests/server.py"
    sys.path.append(str(place.parent))
    spec = importlib.util.spec_from_file_location(f"{product}_server", place)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def by_threads(count, act):
    """Calls act(number of the thread) in `count` threads. The failure of a thread, sys.exit() too, is the caller's."""
    with futures.ThreadPoolExecutor(count) as pool:
        for each in [pool.submit(act, number) for number in range(count)]:
            each.result()


class Library:
    """The C interface, as far as it is needed here. Every call returns an error or 0."""

    def __init__(self, path):
        self.library = ctypes.CDLL(str(path))

    def __call__(self, name, *words):
        code = getattr(self.library, f"memlith_{name}")(*words)
        if code:
            text = ctypes.create_string_buffer(1024)
            self.library.memlith_last_error(text, ctypes.c_size_t(1024))
            sys.exit(f"memlith_{name}: {text.value.decode()}")

    def opened(self, name, *words):
        handle = ctypes.c_void_p()
        self(name, *words, ctypes.byref(handle))
        return handle


def options(**words):
    """An options struct of the C interface: struct_size, and its first numbers of 32 bits."""
    numbers = list(words.values())
    numbers += [0] * (len(numbers) % 2)
    kind = type("Options", (ctypes.Structure,), {"_fields_": [("size", ctypes.c_uint64)] + [
        (f"number{i}", ctypes.c_uint32) for i in range(len(numbers))]})
    return ctypes.byref(kind(ctypes.sizeof(kind), *numbers))


class Bytes(ctypes.Structure):
    _fields_ = [("data", ctypes.c_char_p), ("size", ctypes.c_uint64)]


class Entry(ctypes.Structure):
    _fields_ = [("number", ctypes.c_uint64), ("content", ctypes.c_void_p), ("size", ctypes.c_uint64)]


class InStore:
    """A store of memlith in this process, with a redo log of the size that it has after some time of use."""
    sides = ("memlith",)
    log_bytes = 128 << 20

    def __init__(self, given, folder, _side):
        self.memlith = Library(given.bin.parent / "lib/libmemlith.so")
        self.store = self.memlith.opened("store_open", str(folder / "store").encode(),
                                         options(flags=CREATE, io=0, log_bytes=self.log_bytes, and_high_half=0))

    def run(self, writers, count):
        def write(writer):
            for _ in range(count // writers):
                self.put(random.randrange(writer, KEYS, writers), 1)  # a record that no other writer changes
        by_threads(writers, write)
        return count // writers * writers

    def close(self):
        self.memlith("store_close", self.store)


class Region(InStore):
    """The records lie one behind the other in memory."""

    def fill(self):
        self.region = self.memlith.opened("region_open", self.store, b"records", options(
            flags=CREATE, tracker=EXPLICIT, size=KEYS * VALUE_BYTES, and_high_half=0))
        self.memlith.library.memlith_region_address.restype = ctypes.c_uint64
        self.address = self.memlith.library.memlith_region_address(self.region)
        for first in range(0, KEYS, 100):
            self.put(first, 100)
        self.memlith("store_checkpoint", self.store)

    def put(self, first, count):
        transaction = self.memlith.opened("begin", self.store)
        self.memlith("txn_write", transaction, ctypes.c_void_p(self.address + first * VALUE_BYTES),
                     random.randbytes(count * VALUE_BYTES), ctypes.c_uint64(count * VALUE_BYTES))
        self.memlith("commit", transaction, ctypes.c_uint32(SYNC), None)

    def close(self):
        self.memlith("region_close", self.region)
        super().close()


class Kv(InStore):
    def fill(self):
        self.kv = self.memlith.opened("kv_open", self.store, b"kv", options(flags=CREATE, reserved=0))
        number = ctypes.c_uint32()
        self.memlith("kv_map_open", self.kv, b"records", ctypes.c_uint32(CREATE), ctypes.byref(number))
        self.map = number
        for first in range(0, KEYS, 100):
            self.put(first, 100)
        self.memlith("store_checkpoint", self.store)

    def put(self, first, count):
        transaction = self.memlith.opened("kv_begin", self.kv, ctypes.c_uint32(0))
        self.memlith("kv_txn_set_wait", transaction, ctypes.c_uint64(60_000))
        for number in range(first, first + count):
            value = random.randbytes(VALUE_BYTES)
            self.memlith("kv_put", transaction, self.map, key_of(number), ctypes.c_uint64(16), value,
                         ctypes.c_uint64(VALUE_BYTES))
        self.memlith("kv_commit", transaction, ctypes.c_uint32(SYNC), None)
        self.memlith.library.memlith_kv_txn_free(transaction)

    def close(self):
        self.memlith("kv_close", self.kv)
        super().close()


class AppLog(InStore):
    def fill(self):
        self.log = self.memlith.opened("applog_open", self.store, b"log", options(flags=CREATE, when_full=0))
        self.ending = False
        self.pool = futures.ThreadPoolExecutor(1)
        self.consumer = self.pool.submit(self.consume)

    def consume(self):
        entry = Entry()
        while True:
            ending = self.ending
            code = self.memlith.library.memlith_applog_read(self.log, ctypes.c_uint64(20), ctypes.byref(entry))
            if code == 0:
                self.memlith("applog_consume", self.log, ctypes.c_uint64(entry.number))
            elif ending:
                return

    def put(self, _first, _count):
        entry = Bytes(random.randbytes(VALUE_BYTES), VALUE_BYTES)
        self.memlith("applog_append", self.log, ctypes.byref(entry), ctypes.c_uint64(1), None)
        self.memlith("applog_write", self.log, ctypes.c_uint32(SYNC), None)

    def close(self):
        self.ending = True
        self.consumer.result()
        self.pool.shutdown()
        self.memlith("applog_close", self.log)
        super().close()


class Sqlite:
    """WAL with synchronous=FULL, and the plugin's engine, which is as durable by default; several writers need WAL."""
    sides = ("memlith", "stock")

    def __init__(self, given, folder, side):
        self.uri = f"file:{folder}/app.db" + ("?vfs=memlith&share=0" if side == "memlith" else "")
        self.wal = side == "stock" or given.now > 1
        plugin = given.bin.parent / "lib/memlith_sqlite.so"
        if side == "memlith" and ctypes.CDLL(str(plugin)).memlith_sqlite_register(0):
            sys.exit("the plugin for SQLite cannot be registered")

    def connect(self):
        database = sqlite3.connect(self.uri, uri=True, timeout=600, isolation_level=None, check_same_thread=False)
        if self.wal:
            database.execute("pragma journal_mode=wal")
            database.execute("pragma synchronous=full")
        return database

    def fill(self):
        self.first = self.connect()  # stays open, or the last one to close would bring all home
        self.first.execute("create table records(k integer primary key, v blob)")
        self.first.execute("begin")
        self.first.executemany("insert into records values (?, ?)",
                               ((number, random.randbytes(VALUE_BYTES)) for number in range(KEYS)))
        self.first.execute("commit")
        self.first.close()
        self.first = self.connect()
        self.first.execute("select count(*) from records").fetchone()

    def run(self, writers, count):
        def write(_):
            with contextlib.closing(self.connect()) as database:
                for _ in range(count // writers):
                    database.execute("update records set v = ? where k = ?",
                                     (random.randbytes(VALUE_BYTES), random.randrange(KEYS)))
        by_threads(writers, write)
        return count // writers * writers

    def close(self):
        self.first.close()


class RocksDb:
    """The memtable stays in memory, so tables are not counted; the log is."""
    sides = ("memlith", "stock")

    def __init__(self, given, folder, side):
        self.words = [given.bin / "memlith-rocksdb-bench", "--side", side, "--dir", folder, "--value-bytes",
                      VALUE_BYTES, "--keys", KEYS, "--warm-up", KEYS]
        self.given = given

    def fill(self):
        words = [*self.words, "--threads", self.given.now, "--operations", self.given.operations]
        self.program = subprocess.Popen([str(word) for word in words], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        text=True)
        if self.program.stdout.readline() != "ready\n":
            sys.exit("memlith-rocksdb-bench has ended")

    def run(self, _writers, _count):
        print(file=self.program.stdin, flush=True)
        return json.loads(self.program.stdout.readline())["ops"]

    def close(self):
        print(file=self.program.stdin, flush=True)
        self.program.wait()


class Redis:
    """Beside an append-only file with appendfsync always."""
    sides = ("memlith", "stock")

    def __init__(self, given, folder, side):
        programs = given.bin.parent / "redis"
        directives = [("save", '""')] + ([] if side == "memlith" else [("appendonly", "yes"),
                                                                       ("appendfsync", "always")])
        program = programs / ("bin" if side == "memlith" else "plain") / "redis-server"
        self.server = servers_of("redis").Server(program, folder / "redis", "strong" if side == "memlith" else None,
                                                 directives)
        self.load = [given.bin / "memlith-redis-load", "--socket", self.server.folder / "s", "--value-bytes",
                     VALUE_BYTES, "--keys", KEYS]

    def fill(self):
        self.server.fresh().start()
        contest.said_by([*self.load, "--fill"])
        self.server.stop()
        self.server.start()

    def run(self, writers, _count):
        return contest.told_by([*self.load, "--clients", writers, "--seconds", 3])["ops"]

    def close(self):
        self.server.stop()


class Postgres:
    """Beside full_page_writes=on. Values are text of 1,024 bytes. A checkpoint at the end, none before."""
    sides = ("memlith", "stock")
    value_bytes = 1024
    value = "(select string_agg(md5(random()::text), '') from generate_series(1, 32))"

    def __init__(self, given, folder, side):
        servers = servers_of("postgres")
        self.pgbench = servers.BIN / "pgbench"
        plugin = given.bin.parent / "lib/memlith_postgres.so" if side == "memlith" else None
        self.server = servers.Server(folder / "postgres", plugin, "on", log_mib=64, shared_buffers="128MB",
                                     checkpoint_timeout="1h", max_wal_size="16GB", autovacuum="off")

    def fill(self):
        self.server.make().start()
        self.server.sql("create database b", "postgres")
        self.server.sql("create table records(k int primary key, v text) with (fillfactor=50)")
        self.server.sql("alter table records alter v set storage plain")
        self.server.sql(f"insert into records select k, {self.value} from generate_series(0, {KEYS - 1}) k")
        self.server.stop()
        self.server.start()
        (self.server.scripts / "put.sql").write_text(f"\\set k random(0, {KEYS - 1})\n"
                                                     f"update records set v = {self.value} where k = :k;\n")

    def run(self, writers, count):
        self.server.call(self.pgbench, "-h", self.server.socket, "-U", "postgres", "-n", "-M", "prepared", "-f",
                         self.server.scripts / "put.sql", "-c", writers, "-j", 2, "-t", count // writers, "b",
                         timeout=3600)
        return count // writers * writers

    def close(self):
        self.server.stop()


FACES = {"region": Region, "kv": Kv, "applog": AppLog, "sqlite": Sqlite, "rocksdb": RocksDb, "redis": Redis,
         "postgres": Postgres}


def measure(given, disk, folder, face, side):
    for each in folder.iterdir():
        if each.name != "lost+found":
            shutil.rmtree(each) if each.is_dir() else each.unlink()
    made = FACES[face](given, folder, side)
    made.fill()
    contest.sync(folder)
    before = disk.now()
    operations = made.run(given.now, given.operations)
    made.close()
    contest.sync(folder)
    return {"ops": operations, **disk.since(before)}


def main():
    parser = contest.options_of(__doc__, folder="where the disk's image goes", rounds=1, suites=FACES)
    parser.add_argument("--disk-mib", type=int, default=4096, help="of the loop device")
    parser.add_argument("--threads", type=contest.numbers, default=[1, 4], help="writers")
    parser.add_argument("--operations", type=int, default=20_000, help="of all writers; of redis, those of 3 seconds")
    given = parser.parse_args()
    given.here = False
    with contest.own_disk(given, "bytes-bench") as (folder, is_own):
        disk = DiskCounts(folder, is_own)
        if not disk.now():
            sys.exit("nothing is counted: it takes root, for a loop device")
        for parent in (folder, folder.parent):
            parent.chmod(parent.stat().st_mode | 0o011)  # PostgreSQL's user has to reach its own
        for face in contest.chosen(given):
            for given.now in given.threads:
                turns = contest.in_turns(given.rounds, FACES[face].sides,
                                         lambda side, face=face: measure(given, disk, folder, face, side))
                for side, told in turns.items():
                    ops = sum(turn["ops"] for turn in told)
                    user_bytes = ops * getattr(FACES[face], "value_bytes", VALUE_BYTES)
                    line = {"suite": "bytes", "side": side, "workload": face, "threads": given.now, "operations": ops,
                            "disk_bytes_per_byte": round(sum(turn["disk_bytes"] for turn in told) / user_bytes, 2)}
                    for name in ("disk_writes", "disk_flushes"):
                        line[f"{name}_per_op"] = round(sum(turn[name] for turn in told) / ops, 2)
                    contest.say(given, line)


if __name__ == "__main__":
    os.umask(0o022)
    main()
