"""The sides of bench.py for dictionaries. Each is a mapping of bytes to bytes at a stated durability.

A side that cannot be made durable, such as sqlitedict, which turns SQLite's flushes off, is only among the weak ones.
"""
import mmap
import os
import shelve

import memlith

COUNT = 20_000
WEAK = "durable within 100 ms"


class Side:
    """`set` and `get` are bound by the sides, so that a call costs what it costs their users."""

    has_threads = True

    def close(self):
        pass


class MemlithDict(Side):
    def __init__(self, folder, durable):
        self.name, self.durability = "memlith.Dict", "durable, atomic" if durable else WEAK
        self.store = memlith.open(folder / f"dict-{durable}")
        self.data = memlith.Dict(self.store, "d", weak=not durable, codec="raw")
        self.set, self.get = self.data.__setitem__, self.data.__getitem__

    def fill(self, items):
        self.data.update(items)

    def close(self):
        self.store.close()


class Raw(Side):
    """The disk's time for the smallest durable change, whatever the value."""

    name, durability, has_threads = "raw write and flush of 512 bytes", "no dictionary", False
    ROOM = 4 << 20

    def __init__(self, folder, durable):
        self.file = os.open(folder / "raw", os.O_RDWR | os.O_CREAT | os.O_DIRECT, 0o600)
        os.write(self.file, mmap.mmap(-1, self.ROOM))
        os.fsync(self.file)
        self.sector, self.at = memoryview(mmap.mmap(-1, 4096))[:512], 0

    def set(self, key, value):
        os.pwrite(self.file, self.sector, self.at)
        os.fdatasync(self.file)
        self.at = (self.at + 512) % self.ROOM

    def fill(self, items):
        pass

    def close(self):
        os.close(self.file)


class Lmdb(Side):
    def __init__(self, folder, durable):
        import lmdb

        self.name = "lmdb" if durable else "lmdb, sync=False"
        self.durability = "durable, atomic" if durable else "not durable"
        self.environment = lmdb.open(str(folder / f"lmdb-{durable}"), map_size=1 << 30, sync=durable)

    def set(self, key, value):
        with self.environment.begin(write=True) as transaction:
            transaction.put(key, value)

    def get(self, key):
        with self.environment.begin() as transaction:
            return transaction.get(key)

    def fill(self, items):
        with self.environment.begin(write=True) as transaction:
            transaction.cursor().putmulti(items)

    def close(self):
        self.environment.close()


class Diskcache(Side):
    def __init__(self, folder, durable):
        import diskcache

        self.name = f"diskcache, synchronous={'FULL' if durable else 'OFF'}"
        self.durability = "durable, atomic" if durable else "not durable"
        self.data = diskcache.Cache(str(folder / f"diskcache-{durable}"), sqlite_synchronous=2 if durable else 0,
                                    eviction_policy="none")
        self.set, self.get = self.data.__setitem__, self.data.__getitem__

    def fill(self, items):
        with self.data.transact():
            for key, value in items:
                self.data[key] = value

    def close(self):
        self.data.close()


class Rocksdict(Side):
    def __init__(self, folder, durable):
        import rocksdict

        self.rocksdict = rocksdict
        self.name = f"rocksdict, sync={durable}"
        self.durability = "durable, atomic" if durable else "not durable"
        self.data = rocksdict.Rdict(str(folder / f"rocksdict-{durable}"), rocksdict.Options(raw_mode=True))
        if durable:
            options = rocksdict.WriteOptions()
            options.sync = True
            self.data.set_write_options(options)
        self.set, self.get = self.data.__setitem__, self.data.__getitem__

    def fill(self, items):
        batch = self.rocksdict.WriteBatch(raw_mode=True)
        for key, value in items:
            batch.put(key, value)
        self.data.write(batch)

    def close(self):
        self.data.close()


class Sqlitedict(Side):
    name, durability = "sqlitedict, autocommit", "not durable"

    def __init__(self, folder, durable):
        import sqlitedict

        self.data = sqlitedict.SqliteDict(str(folder / "sqlitedict.db"), autocommit=True, encode=bytes, decode=bytes,
                                          encode_key=bytes.hex, decode_key=bytes.fromhex, journal_mode="WAL")
        self.set, self.get = self.data.__setitem__, self.data.__getitem__

    def fill(self, items):
        self.data.update(items)

    def close(self):
        self.data.close()


class Shelve(Side):
    """With the dbm that this Python has; keys are str, values are pickled."""

    def __init__(self, folder, durable):
        self.data = shelve.open(str(folder / f"shelve-{durable}"), protocol=5)
        kind = type(self.data.dict).__module__.strip("_")
        self.name, self.durability = f"shelve ({kind})", "not durable"

    def set(self, key, value):
        self.data[key.hex()] = value

    def get(self, key):
        return self.data[key.hex()]

    def fill(self, items):
        for key, value in items:
            self.set(key, value)

    def close(self):
        self.data.close()


DURABLE = [MemlithDict, Lmdb, Diskcache, Rocksdict, Raw]
ALL = [MemlithDict, Lmdb, Diskcache, Rocksdict, Sqlitedict, Shelve]


def key_of(number):
    return b"key:%012d" % (number * 7919 % COUNT)


def items():
    return [(key_of(number), bytes(100)) for number in range(COUNT)]


def set_some(side, draw, value):
    side.set(key_of(int(draw)), b"%-100d" % value)


def get_some(side, draw, value):
    if len(side.get(key_of(int(draw)))) != 100:
        raise AssertionError(side.name)
