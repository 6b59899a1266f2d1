"""The golden store of Redis (README.md): makes it, and checks one.

Usage: golden_redis.py make PROGRAM FOLDER [--crash]      with --crash the server is killed
       golden_redis.py check PROGRAM [ARCHIVE...]         each archive, or those that lie here

PROGRAM is the redis-server that ./dev build redis makes.
"""
import os
import pathlib
import subprocess
import sys
import tarfile
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1] / "integrations" / "redis" / "tests"))
from server import Server  # noqa: E402, beside the tests of Redis
from foreign import skip_without  # noqa: E402, where server.py has found it

STRINGS, MEMBERS = 300, 50
# Left of the server's memory, which is a process's own.
LEFT_BY_THE_SERVER = "s", "log", "said", "redis.conf"


def value_of(number):
    return b"value %d " % number + b"v" * (number * number % 700)


def make(program, folder, crashed):
    server = Server(program, folder).start()
    client = server.client()
    for number in range(STRINGS):
        client("SET", f"string:{number}", value_of(number))
        if number % 3 == 0:
            client("DEL", f"string:{number - number % 9}")
    client("SET", "long", value_of(1) * 9000)
    for number in range(MEMBERS):
        client("RPUSH", "list", number)
        client("HSET", "hash", f"field:{number}", value_of(number))
        client("SADD", "set", f"member:{number}")
        client("ZADD", "sorted", number * 7 % MEMBERS, f"member:{number}")
        client("XADD", "stream", f"{number + 1}-0", "field", number)
    client("EXPIREAT", "list", 4_000_000_000)
    other = server.client(3)
    other("SET", "elsewhere", "database 3")
    if crashed:
        server.kill()
    else:
        server.stop()
    for name in LEFT_BY_THE_SERVER:
        (folder / name).unlink(missing_ok=True)


def expect(found, wanted, what):
    if found != wanted:
        sys.exit(f"golden_redis.py: {what} is not what was stored: {str(found)[:200]}")


def check_folder(program, folder):
    wanted = {}
    for number in range(STRINGS):
        wanted[f"string:{number}"] = value_of(number)
        if number % 3 == 0:
            wanted.pop(f"string:{number - number % 9}", None)
    for opened in range(2):
        server = Server(program, folder).start()
        client = server.client()
        expect(client("DBSIZE"), len(wanted) + 6 + opened, "the number of keys")
        for key, value in wanted.items():
            expect(client("GET", key), value, key)
        expect(client("GET", "long"), value_of(1) * 9000, "a long value")
        expect(client("LRANGE", "list", 0, -1), [b"%d" % number for number in range(MEMBERS)], "the list")
        expect(client("EXPIRETIME", "list"), 4_000_000_000, "a time")
        expect(client("HGET", "hash", "field:7"), value_of(7), "a field")
        expect(client("HLEN", "hash"), MEMBERS, "the hash")
        expect(client("SCARD", "set"), MEMBERS, "the set")
        expect(client("ZRANK", "sorted", "member:7"), 49, "the sorted set")
        expect(client("XLEN", "stream"), MEMBERS, "the stream")
        expect(server.client(3)("GET", "elsewhere"), b"database 3", "another database")
        client("SET", f"opened:{opened}", opened)
        server.stop()


def check(program, archives):
    skip_without(program)
    for path in archives:
        with tempfile.TemporaryDirectory(dir=os.environ.get("MEMLITH_TEST_DIR") or None) as name:
            with tarfile.open(path) as archive:
                archive.extractall(name)
            if path.name.startswith("redis-crashed"):  # the files are copies, as a store that was not closed knows
                memlith = pathlib.Path(program).resolve().parents[2] / "bin" / "memlith"
                subprocess.run([memlith, "recover", "--accept-copy", pathlib.Path(name) / "memlith"], check=True,
                               stdout=subprocess.DEVNULL)
            check_folder(program, pathlib.Path(name))
            print(f"{path.parent.name}/{path.name}: as it was stored")


def main():
    if len(sys.argv) < 3 or sys.argv[1] not in ("make", "check"):
        sys.exit(__doc__)
    command, program, *rest = sys.argv[1:]
    try:
        if command == "make":
            make(program, pathlib.Path(rest[0]), "--crash" in rest)
        else:
            found = [pathlib.Path(each) for each in rest] or sorted(HERE.glob("*/redis*.tar.xz"))
            if not found:
                sys.exit("golden_redis.py: there are no golden stores of Redis")
            check(program, found)
    finally:
        Server.kill_all()


if __name__ == "__main__":
    main()
