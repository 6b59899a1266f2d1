"""A client's databases, modelled in Python: a client makes a random change, and knows what the databases have to
be if the change was made, and if it was not.

The two databases of a client are dictionaries from keys to values: bytes, list, dict (hash), set, Sorted, Stream. A
value with a time to live is known by that time, too.
"""
import copy

SCRIPT = """local n = redis.call('INCRBY', KEYS[1], ARGV[1])
redis.call('RPUSH', KEYS[2], ARGV[2])
redis.call('HSET', KEYS[3], ARGV[2], n)
return n"""


class Sorted(dict):
    """A sorted set: member to score."""


class Stream(list):
    """A stream: (id, field, value)."""


class Model:
    def __init__(self, random):
        self.random, self.databases, self.expires, self.selected, self.serial = random, [{}, {}], [{}, {}], 0, 0

    def copy(self):
        made = Model(self.random)
        made.databases, made.expires = copy.deepcopy(self.databases), copy.deepcopy(self.expires)
        made.selected, made.serial = self.selected, self.serial
        return made

    # Each change returns the commands; the model is as it will be after them.

    def change(self):
        self.serial += 1
        kinds = [(self.strings, 10), (self.numbers, 10), (self.lists, 10), (self.hashes, 8), (self.sets, 8),
                 (self.sorted_sets, 8), (self.streams, 8), (self.script, 6), (self.several, 8), (self.expiry, 5),
                 (self.names, 6), (self.large, 2), (self.wide, 1), (self.whole, 0.3)]
        kind = self.random.choices([each for each, _ in kinds], [weight for _, weight in kinds])[0]
        return kind()

    @property
    def keys(self):
        return self.databases[self.selected]

    def name(self, kind, count=4):
        return f"{kind}{self.random.randrange(count)}".encode()

    def text(self, most=60):
        return f"{self.serial}:{'x' * self.random.randrange(most)}".encode()

    def put(self, key, value):
        self.keys[key] = value
        self.expires[self.selected].pop(key, None)

    def drop(self, key):
        self.expires[self.selected].pop(key, None)
        return self.keys.pop(key, None)

    def drop_empty(self, key):
        if not self.keys[key]:
            self.drop(key)

    def strings(self):
        key, text = self.name("string", 8), self.text()
        if self.random.random() < 0.5:
            self.put(key, text)
            return [("SET", key, text)]
        self.keys[key] = self.keys.get(key, b"") + text
        return [("APPEND", key, text)]

    def numbers(self):
        key, step = self.name("number"), self.random.randrange(1, 100)
        self.keys[key] = b"%d" % (int(self.keys.get(key, b"0")) + step)
        return [("INCRBY", key, step)]

    def lists(self):
        key = self.name("list")
        way = self.random.randrange(4)
        if way < 2:
            items = [self.text() for _ in range(self.random.randrange(1, 6))]
            self.keys[key] = self.keys.get(key, []) + items
            return [("RPUSH", key, *items)]
        if key not in self.keys:
            return [("LPOP", key)]
        if way == 2:
            self.keys[key] = self.keys[key][1:]
            self.drop_empty(key)
            return [("LPOP", key)]
        other = self.name("list")
        item = self.keys[key].pop()
        self.keys[other] = [item] + self.keys.get(other, [])
        self.drop_empty(key)
        return [("LMOVE", key, other, "RIGHT", "LEFT")]

    def hashes(self):
        key, field = self.name("hash"), self.name("field", 300)
        if self.random.random() < 0.2 and field in self.keys.get(key, {}):
            del self.keys[key][field]
            self.drop_empty(key)
            return [("HDEL", key, field)]
        text = self.text()
        self.keys.setdefault(key, {})[field] = text
        return [("HSET", key, field, text)]

    def sets(self):
        key = self.name("set")
        if self.random.random() < 0.2:
            result = self.keys.get(b"set0", set()) | self.keys.get(b"set1", set())
            self.drop(key)
            if result:
                self.keys[key] = result
            return [("SUNIONSTORE", key, "set0", "set1")]
        member = self.name("member", 300)
        if self.random.random() < 0.3 and member in self.keys.get(key, set()):
            self.keys[key].remove(member)
            self.drop_empty(key)
            return [("SREM", key, member)]
        self.keys.setdefault(key, set()).add(member)
        return [("SADD", key, member)]

    def sorted_sets(self):
        key, member, score = self.name("sorted"), self.name("member", 300), self.random.randrange(1000)
        if self.random.random() < 0.3 and key in self.keys:
            lowest = min(self.keys[key].items(), key=lambda item: (item[1], item[0]))[0]
            del self.keys[key][lowest]
            self.drop_empty(key)
            return [("ZPOPMIN", key)]
        self.keys.setdefault(key, Sorted())[member] = self.keys.get(key, {}).get(member, 0) + score
        return [("ZINCRBY", key, score, member)]

    def streams(self):
        key, text = self.name("stream"), self.text()
        stream = self.keys.setdefault(key, Stream())
        stream.append((b"%d-1" % self.serial, b"f", text))
        if self.random.random() < 0.2:
            self.keys[key] = Stream(stream[-20:])
            return [("XADD", key, "MAXLEN", 20, f"{self.serial}-1", "f", text)]
        return [("XADD", key, f"{self.serial}-1", "f", text)]

    def script(self):
        text = self.text(10)
        number = int(self.keys.get(b"scripted", b"0")) + 3
        self.keys[b"scripted"] = b"%d" % number
        self.keys[b"scripts"] = self.keys.get(b"scripts", []) + [text]
        self.keys.setdefault(b"script", {})[text] = b"%d" % number
        return [("EVAL", SCRIPT, 3, "scripted", "scripts", "script", 3, text)]

    def several(self):
        commands = []
        for _ in range(self.random.randrange(2, 6)):
            kind = self.random.choice([self.strings, self.numbers, self.lists, self.hashes, self.sorted_sets])
            commands += kind()
        return commands

    def expiry(self):
        key, text = self.name("mortal"), self.text()
        way = self.random.randrange(3)
        if way == 0 and key in self.keys:
            self.expires[self.selected].pop(key, None)
            return [("PERSIST", key)]
        when = 4_000_000_000_000 + self.random.randrange(10 ** 9)
        self.put(key, text)
        self.expires[self.selected][key] = when
        return [("SET", key, text, "PXAT", when)]

    def names(self):
        keys = sorted(self.keys)
        if not keys:
            return [("DEL", "none")]
        key, way = self.random.choice(keys), self.random.randrange(4)
        other = key.rstrip(b"0123456789") + b"%d" % self.random.randrange(4)
        if way == 0:
            self.drop(key)
            return [("DEL", key)]
        if way == 1 and other != key:
            expire = self.expires[self.selected].get(key)
            self.drop(other)
            self.keys[other] = self.drop(key)
            if expire:
                self.expires[self.selected][other] = expire
            return [("RENAME", key, other)]
        there, here = 1 - self.selected, self.selected
        expire = self.expires[here].get(key)
        if way == 2 and key not in self.databases[there]:
            self.databases[there][key] = self.drop(key)
            if expire:
                self.expires[there][key] = expire
            return [("MOVE", key, ("db", there))]
        self.databases[there][key] = copy.deepcopy(self.keys[key])
        self.expires[there].pop(key, None)
        if expire:
            self.expires[there][key] = expire
        return [("COPY", key, key, "DB", ("db", there), "REPLACE")]

    def large(self):
        key = self.name("large", 3)
        if key in self.keys and self.random.random() < 0.6:
            at, text = self.random.randrange(len(self.keys[key])), self.text()
            old = self.keys[key]
            self.keys[key] = old[:at] + text + old[at + len(text):]
            return [("SETRANGE", key, at, text)]
        text = b"%d" % self.serial * self.random.randrange(2_000, 100_000)
        if self.random.random() < 0.1:
            text *= 10
        self.put(key, text)
        return [("SET", key, text)]

    def wide(self):
        key = b"k" * 2000 + self.name("", 2)
        self.put(key, self.text())
        return [("SET", key, self.keys[key])]

    def whole(self):
        if self.random.random() < 0.5:
            self.databases[self.selected], self.expires[self.selected] = {}, {}
            return [("FLUSHDB",)]
        self.databases.reverse()
        self.expires.reverse()
        return [("SWAPDB", ("db", 0), ("db", 1))]


def read(client, databases):
    """([keys of each database], [times]) as a Model has them."""
    found, expires = [], []
    for db in databases:
        client("SELECT", db)
        keys, times = {}, {}
        for key in client("KEYS", "*"):
            keys[key] = value_of(client, key)
            when = client("PEXPIRETIME", key)
            if when >= 0:
                times[key] = when
        found.append(keys)
        expires.append(times)
    return found, expires


def value_of(client, key):
    kind = client("TYPE", key)
    if kind == b"string":
        return client("GET", key)
    if kind == b"list":
        return client("LRANGE", key, 0, -1)
    if kind == b"set":
        return set(client("SMEMBERS", key))
    if kind == b"stream":
        return Stream((entry, fields[0], fields[1]) for entry, fields in client("XRANGE", key, "-", "+"))
    flat = client("HGETALL", key) if kind == b"hash" else client("ZRANGE", key, 0, -1, "WITHSCORES")
    pairs = dict(zip(flat[::2], flat[1::2]))
    return pairs if kind == b"hash" else Sorted({member: int(score) for member, score in pairs.items()})


def difference(model, found, expires):
    """The differences from the model; empty: none."""
    for index in range(2):
        expected, have = model.databases[index], found[index]
        for key in sorted(expected.keys() | have.keys()):
            if expected.get(key) != have.get(key):
                return (f"database {index}, key {key[:40]!r}: expected {str(expected.get(key))[:300]}, "
                        f"found {str(have.get(key))[:300]}")
        if model.expires[index] != expires[index]:
            return f"database {index}: expires {model.expires[index]}, found {expires[index]}"
    return ""
