#!/usr/bin/env python3
"""Redis on memlith: what each command about persistence does, what is refused and how, replication, failing disks."""
import argparse
import os
import pathlib
import random
import shutil
import subprocess
import time

from model import Model
from server import Gone, Refused, Server, encode, free_port, run_tests
from foreign import skip_without

HERE = pathlib.Path(__file__).resolve().parent
LOG_VERSION_AT = 24  # in the region of an application log
SAVE_NOTHING = ("save", '""')
# A flush and a write that fail when the file FAIL_FILE is there.
FAILING_DISK = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <sys/uio.h>
#include <unistd.h>
static int failing(void) { return access(getenv("FAIL_FILE"), F_OK) == 0; }
#define CALL(result, name, parameters, arguments)                                   \
  result name parameters {                                                          \
    static result (*real) parameters;                                               \
    if (!real) real = (result(*) parameters)dlsym(RTLD_NEXT, #name);                \
    if (failing()) return errno = EIO, -1;                                          \
    return real arguments;                                                          \
  }
CALL(int, fdatasync, (int fd), (fd))
CALL(int, fsync, (int fd), (fd))
CALL(ssize_t, pwritev2, (int fd, const struct iovec* v, int n, off_t at, int flags), (fd, v, n, at, flags))
CALL(ssize_t, pwritev, (int fd, const struct iovec* v, int n, off_t at), (fd, v, n, at))
CALL(ssize_t, pwrite, (int fd, const void* bytes, size_t n, off_t at), (fd, bytes, n, at))
"""


# The process ends as soon as a file has taken the name of the configuration, if the file FAIL_FILE is there.
DIES_AT_RENAME = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
int rename(const char* from, const char* to) {
  int (*real)(const char*, const char*) = (int (*)(const char*, const char*))dlsym(RTLD_NEXT, "rename");
  int done = real(from, to);
  size_t bytes = strlen(to);
  if (bytes > 10 && !strcmp(to + bytes - 10, "redis.conf") && access(getenv("FAIL_FILE"), F_OK) == 0) _exit(9);
  return done;
}
"""


class Servers:
    def __init__(self, given):
        self.program, self.plain, self.work = given.program, given.plain, given.work / "commands"

    def server(self, name, memlith="strong", directives=(), **more):
        return Server(self.program if memlith else self.plain, self.work / name, memlith,
                      [SAVE_NOTHING, *directives], **more)


def refused(call, words):
    try:
        call()
    except Refused as why:
        assert words in str(why), f"expected {words!r}, got {why}"
        return
    raise AssertionError(f"nothing was refused; expected {words!r}")


def fill(client, seed, changes=300, databases=(0, 1)):
    model = Model(random.Random(seed))
    for _ in range(changes):
        client("SELECT", databases[model.selected])
        commands = [tuple(databases[each[1]] if isinstance(each, tuple) else each for each in command)
                    for command in model.change()]
        client.transaction(*commands) if len(commands) > 1 else client(*commands[0])


def digest(client):
    return client("DEBUG", "DIGEST")


def caught_up(server, client):
    """Waits until the kv store has all of the log."""
    for _ in range(2000):
        info = server.info(client)
        if info["memlith_kv_entry"] == info["memlith_log_newest_entry"]:
            return info
        client("SET", "filler", "x")
        time.sleep(0.02)
    raise AssertionError(f"the kv store does not catch up: {info}")


def restarted(server):
    server.kill()
    return server.start().client()


def test_restarts(servers):
    server = servers.server("restarts", directives=[("memlith-log-size", "1mb")]).fresh().start()
    client = server.client()
    for seed in range(5):
        fill(client, seed, databases=(2 * seed, 2 * seed + 1))
        client("SELECT", 0)
        client("PFADD", "hyper", seed, "x")
        client("GEOADD", "geo", 13.4 + seed, 52.5, f"place{seed}")
        client("SETBIT", "bits", 100_000 * seed, 1)
        client("XGROUP", "CREATE", f"group{seed}", "g", "0", "MKSTREAM")
        client("XADD", f"group{seed}", "1-1", "f", "v")
        client("XREADGROUP", "GROUP", "g", "consumer", "STREAMS", f"group{seed}", ">")
        before = digest(client)
        client = restarted(server)
        assert digest(client) == before, f"after a kill, {seed}"
        assert client("XPENDING", f"group{seed}", "g")[0] == 1
        caught_up(server, client)
        before = digest(client)
        client = restarted(server)
        assert digest(client) == before, f"after a kill of a server whose log is empty, {seed}"
        client("DEBUG", "LOADAOF")
        assert digest(client) == before, "DEBUG LOADAOF"
        client("DEBUG", "RELOAD")
        assert digest(client) == before, "DEBUG RELOAD"
        server.stop()
        client = server.start().client()
        assert digest(client) == before, "after a clean end"
    server.stop()


def test_grown_values(servers):
    """Values that grow by commands, those that become small again, and those that other keys are made of."""
    server = servers.server("grown", directives=[("memlith-log-size", "1mb")]).fresh().start()
    client = server.client()
    for round_number in range(3):
        for part in range(120):
            client("RPUSH", "list", *(f"{round_number}-{part}-{i}" for i in range(10)))
            client("HSET", "hash", f"field{part}", "x" * 50)
            client("APPEND", "text", "y" * 100)
            if part % 20 == 0:
                client("SUNIONSTORE", "sum", "set", "other")
                client("SADD", "set", *range(part * 10, part * 10 + 300))
                client("COPY", "list", "copied", "REPLACE")
                client("LTRIM", "list", -1000, -1)
        before = digest(client)
        client = restarted(server)
        assert digest(client) == before, f"grown, {round_number}"
        client("DEL", "text")
        client("LTRIM", "list", 0, 3)
        client("RENAME", "hash", "renamed")
        caught_up(server, client)
        before = digest(client)
        client = restarted(server)
        assert digest(client) == before, f"small again, {round_number}"
    caught_up(server, client)
    client("FLUSHALL")
    assert client("DBSIZE") == 0
    client = restarted(server)
    assert client("DBSIZE") == 0, "after FLUSHALL"
    client("SET", "filler", 1)
    server.stop()
    server.start().stop()


def test_expiry(servers):
    server = servers.server("expiry").fresh().start()
    client = server.client()
    client("SET", "soon", "x", "PX", 300)
    client("SET", "kept", "x", "PX", 10 ** 9)
    client("HSET", "hash", "a", 1)
    client("PEXPIRE", "hash", 300)
    for i in range(30):
        client("HSET", "large", *(f"{i}-{j}" for j in range(100)))
    client("PEXPIRE", "large", 300)
    client = restarted(server)
    end = time.monotonic() + 30
    while client("EXISTS", "soon", "hash", "large") and time.monotonic() < end:
        time.sleep(0.02)
    assert client("EXISTS", "soon", "hash", "large") == 0, "keys do not expire after a restart"
    client = restarted(server)
    assert client("EXISTS", "soon", "hash", "large") == 0, "expired keys came back"
    assert 0 < client("PTTL", "kept") <= 10 ** 9
    server.stop()


def test_scripts_and_functions(servers):
    server = servers.server("scripts").fresh().start()
    client = server.client()
    library = "#!lua name=lib\nredis.register_function('add', function(keys, args) " \
              "return redis.call('INCRBY', keys[1], args[1]) end)"
    client("FUNCTION", "LOAD", library)
    assert client("FCALL", "add", 1, "n", 5) == 5
    client("EVAL", "for i = 1, 1000 do redis.call('RPUSH', 'l', i) end redis.call('SET', 'random', math.random())", 0)
    chosen = client("GET", "random")
    client = restarted(server)
    assert client("FCALL", "add", 1, "n", 5) == 10
    assert client("LLEN", "l") == 1000 and client("GET", "random") == chosen
    client("FUNCTION", "DELETE", "lib")
    caught_up(server, client)
    client = restarted(server)
    refused(lambda: client("FCALL", "add", 1, "n", 5), "Function not found")
    server.stop()


def test_long_script(servers):
    """While a script runs, Redis serves events and flushes: what the script has done so far is not durable alone."""
    server = servers.server("long", directives=[("busy-reply-threshold", 1)]).fresh().start()
    for ending in ("kill", "SHUTDOWN"):
        client, other = server.client(), server.client()
        client("SET", "n", 0)
        time.sleep(0.2)
        client("INCR", "m")  # a cut; what follows is not in it
        client("INCR", "n")
        client.send("EVAL", "redis.call('INCR', 'n') local t = 0 for i = 1, %s do t = t + 1 end redis.call('INCR', 'n')"
                    % ("1e8" if ending == "kill" else "1e10"), 0)
        busy = 0
        while not client.ready(0.01):
            try:
                other("PING")
            except Refused as why:
                assert "BUSY" in str(why), why
                busy += 1
            if ending != "kill" and busy > 30:
                other.send("SHUTDOWN", "NOSAVE")
                server.process.wait(60)
                break
        assert busy > 0, "the script was too short"
        expected = b"3" if ending == "kill" else b"1"
        if ending == "kill":
            server.kill()
        client = server.start().client()
        assert client("GET", "n") == expected, f"{ending}: n is {client('GET', 'n')}, expected {expected}"
    server.stop()


def test_config(servers):
    server = servers.server("config", directives=[("memlith-window-ms", 700)]).fresh().start()
    client = server.client()
    flat = client("CONFIG", "GET", "memlith*", "maxclients")
    found = dict(zip(flat[::2], flat[1::2]))
    assert found[b"memlith"] == b"yes" and found[b"memlith-window-ms"] == b"700" and b"maxclients" in found, found
    assert found[b"memlith-log-size"] == b"67108864" and found[b"memlith-durability"] == b"strong", found
    assert client("CONFIG", "GET", "port") == [b"port", b"0"]
    refused(lambda: client("CONFIG", "SET", "appendonly", "no"), "needs a restart with 'memlith no'")
    client("CONFIG", "SET", "appendonly", "yes")
    refused(lambda: client("CONFIG", "SET", "appendfsync", "no"), "memlith-durability says")
    refused(lambda: client("CONFIG", "SET", "memlith-log-size", "1mb"), "before the server starts")
    refused(lambda: client("CONFIG", "SET", "memlith-window-ms", "0"), "must be 1 to 60000")
    refused(lambda: client("CONFIG", "SET", "memlith-window-ms", "5", "maxclients", "5"), "a CONFIG SET of their own")
    client("CONFIG", "SET", "memlith-durability", "weak", "memlith-window-ms", 50)
    assert server.info(client)["memlith_durability"] == "weak"
    client("CONFIG", "SET", "maxmemory-samples", 7)
    client("SET", "a", 1)
    client("CONFIG", "REWRITE")
    server.stop()
    config = (server.folder / "redis.conf").read_text(encoding="utf-8")
    assert "memlith yes\n" in config and "memlith-window-ms 50\n" in config and "# ???" not in config, config
    client = server.start().client()
    assert client("GET", "a") == b"1" and server.info(client)["memlith_window_ms"] == "50"
    server.stop()
    for lines, words in (([("memlith-log-size", "5")], "must be 1mb to 1024gb"),
                         ([("memlith-durability", "some")], "'strong' or 'weak'"),
                         ([("memlith-nothing", "1")], "Bad directive")):
        said = servers.server("refused", directives=lines).fresh().refuses_to_start()
        assert words in said, said


def test_commands(servers):
    server = servers.server("commands").fresh().start()
    client = server.client()
    fill(client, 7)
    before = digest(client)
    assert b"no append-only file" in client("BGREWRITEAOF")
    client("SAVE")
    client("BGSAVE")
    while server.info(client)["rdb_bgsave_in_progress"] == "1":
        time.sleep(0.01)
    assert server.info(client)["rdb_last_bgsave_status"] == "ok"
    client("SELECT", 0)
    client("SWAPDB", 0, 1)
    swapped = digest(client)
    assert swapped != before
    client = restarted(server)
    assert digest(client) == swapped, "SWAPDB"
    # The RDB file of before: what it changes behind the log's back is durable, too.
    client("DEBUG", "RELOAD", "NOSAVE")
    assert digest(client) == before, "here"
    client = restarted(server)
    assert digest(client) == before, "DEBUG RELOAD NOSAVE"
    info = server.info(client)
    assert info["aof_enabled"] == "1" and info["memlith_status"] == "ok" and int(info["memlith_kv_records"]) > 0
    assert info["aof_last_write_status"] == "ok"
    client("SELECT", 1)
    client("FLUSHDB")
    after = digest(client)
    client = restarted(server)
    assert digest(client) == after, "FLUSHDB"
    server.stop()


def test_child_does_not_hold_the_store(servers):
    """A server that is killed while a child saves starts again at once."""
    server = servers.server("child", directives=[("rdb-key-save-delay", 1_000_000)]).fresh().start()
    client = server.client()
    for i in range(20):
        client("SET", i, i)
    client("BGSAVE")
    children = subprocess.run(["pgrep", "-P", str(server.process.pid)], capture_output=True, text=True, check=True)
    client = restarted(server)
    assert client("DBSIZE") == 20
    for child in children.stdout.split():
        subprocess.run(["kill", "-9", child], check=False)
    server.stop()


def test_import(servers):
    """A new store takes what an RDB file has; from then on the file is not read."""
    plain = servers.server("import", memlith=None).fresh().start()
    client = plain.client()
    fill(client, 11)
    before = digest(client)
    client("SAVE")
    plain.kill()
    (plain.folder / "redis.conf").unlink()
    server = servers.server("import").start()
    client = server.client()
    assert digest(client) == before, "here"
    client("SELECT", 0)
    client("SET", "later", 1)
    after = digest(client)
    client = restarted(server)
    assert digest(client) == after
    server.stop()


def test_import_append_only(servers):
    """A new store takes what a plain server would have loaded: the append-only file, not an older RDB file."""
    directives = [("appendonly", "yes"), ("appendfsync", "always")]  # or Redis may write it later than it is killed
    plain = servers.server("import-aof", memlith=None, directives=directives).fresh().start()
    client = plain.client()
    fill(client, 12)
    client("SAVE")
    client("SELECT", 0)
    older = digest(client)
    fill(client, 13, databases=(2, 3))
    before = digest(client)
    assert before != older
    plain.kill()
    conf = plain.folder / "redis.conf"
    kept = plain.folder.with_name("import-aof-kept")
    shutil.rmtree(kept, ignore_errors=True)
    conf.unlink()
    (plain.folder / "s").unlink()
    shutil.copytree(plain.folder, kept)

    # The configuration does not say which of the two it was.
    said = servers.server("import-aof").refuses_to_start()
    assert "'appendonly yes' loads it" in said, said
    conf.unlink()
    server = servers.server("import-aof", directives=[("appendonly", "yes")]).start()
    client = server.client()
    assert digest(client) == before, "not what the append-only file has"
    info = server.info(client)
    assert info["aof_rewrite_in_progress"] == "0" and info["aof_current_size"] == "0", info
    client("SELECT", 0)
    client("SET", "later", 1)
    after = digest(client)
    server.kill()
    client = server.start().client()
    assert digest(client) == after, "after a restart"
    server.stop()

    shutil.rmtree(server.folder)
    shutil.copytree(kept, server.folder)
    server = servers.server("import-aof", directives=[("appendonly", "no")]).start()
    assert digest(server.client()) == older, "not what the RDB file has"
    server.stop()

    # As Redis 6 and before wrote it: one file.
    server = servers.server("import-aof", directives=[("appendonly", "yes")]).fresh()
    (server.folder / "appendonly.aof").write_bytes(b"".join(encode(["SET", f"key{i}", i]) for i in range(50)))
    client = server.start().client()
    assert client("DBSIZE") == 50 and client("GET", "key49") == b"49"
    server.kill()
    assert server.start().client()("DBSIZE") == 50
    server.stop()
    shutil.rmtree(kept)


def test_the_way_back(servers):
    """CONFIG REWRITE leaves what the user had, so that a plain server starts with the RDB file that was saved."""
    users = [("appendfsync", "everysec"), ("save", "900 7")]
    for lines, kept in (([], []), (users, ["appendfsync everysec", "save 900 7"]), ([("appendonly", "no")], [])):
        server = Server(servers.program, servers.work / "back", "strong", lines).fresh().start()
        client = server.client()
        client("SET", "a", 1)
        client("CONFIG", "SET", "maxmemory-samples", 7)
        client("SAVE")
        client("CONFIG", "REWRITE")
        client("CONFIG", "REWRITE")
        assert client("CONFIG", "GET", "appendonly") == [b"appendonly", b"yes"], "what is in effect has changed"
        server.stop()
        conf = server.folder / "redis.conf"
        config = conf.read_text(encoding="utf-8").splitlines()
        for word in ("appendonly yes", 'save ""', "appendfsync always", "crash-memcheck-enabled no"):
            assert word not in config, (word, config)
        assert "memlith yes" in config and "maxmemory-samples 7" in config, config
        said = [line for line in config if line.split(" ")[0] in ("save", "appendfsync")]
        assert [line for line in said if line in kept] == said or not kept, said
        assert kept or not any(line.startswith("save") for line in config), config
        client = server.start().client()  # still on memlith
        assert client("GET", "a") == b"1"
        server.stop()
        conf.write_text("".join(f"{line}\n" for line in config if not line.startswith("memlith")), encoding="utf-8")
        plain = Server(servers.plain, server.folder, None).start()
        assert plain.client()("GET", "a") == b"1", "a plain server starts empty beside a good dump.rdb"
        plain.stop()
    server = Server(servers.program, servers.work / "back", "strong").fresh().start()
    client = server.client()
    client("CONFIG", "SET", "save", "100 5")
    client("CONFIG", "SET", "crash-memcheck-enabled", "no")
    client("CONFIG", "REWRITE")
    config = (server.folder / "redis.conf").read_text(encoding="utf-8").splitlines()
    assert "save 100 5" in config and "crash-memcheck-enabled no" in config, config
    server.stop()


def test_a_kill_in_a_rewrite(servers):
    """The configuration has the directives of memlith whenever it has been replaced."""
    library, fail = servers.work / "dies.so", servers.work / "fail"
    servers.work.mkdir(parents=True, exist_ok=True)
    subprocess.run(["gcc", "-shared", "-fPIC", "-x", "c", "-", "-o", library], input=DIES_AT_RENAME, text=True,
                   check=True)
    server = servers.server("rewrite", environment=dict(os.environ, LD_PRELOAD=str(library), FAIL_FILE=str(fail)))
    client = server.fresh().start().client()
    client("SET", "a", 1)
    fail.touch()
    try:
        client("CONFIG", "REWRITE")
    except Gone:
        pass
    assert server.process.wait(30) == 9, "it was not killed"
    fail.unlink()
    config = (server.folder / "redis.conf").read_text(encoding="utf-8").splitlines()
    assert "memlith yes" in config, config
    client = server.start().client()
    assert client("GET", "a") == b"1"
    server.stop()


def replicate(servers, name, master_memlith, replica_memlith):
    master = servers.server(f"{name}-master", master_memlith, [("repl-diskless-sync-delay", 0), ("bind", "127.0.0.1")])
    port = free_port()
    master.directives = [(key, port if key == "port" else value) for key, value in master.directives]
    replica = servers.server(f"{name}-replica", replica_memlith)
    master.fresh().start()
    replica.fresh().start()
    leader, follower = master.client(), replica.client()
    follower("SET", "of its own", 1)
    fill(leader, 21)
    follower("REPLICAOF", "127.0.0.1", port)
    end = time.monotonic() + 60
    while replica.info(follower)["master_link_status"] != "up" and time.monotonic() < end:
        time.sleep(0.05)
    fill(leader, 22, databases=(2, 3))
    leader("SET", "last", 1)
    leader("WAIT", 1, 30000)
    before = digest(leader)
    assert digest(follower) == before, "the replica differs"
    for client, durability in ((leader, master_memlith), (follower, replica_memlith)):
        if durability == "weak":  # what came before is durable then
            client("CONFIG", "SET", "memlith-durability", "strong")
    replica.kill()
    master.kill()
    follower = replica.start().client()
    if replica_memlith:
        assert digest(follower) == before, "the replica differs after a kill"
        follower("CONFIG", "SET", "memlith-durability", "strong")
        follower("REPLICAOF", "NO", "ONE")
        follower("SELECT", 0)
        follower("INCR", "promoted")
        after = digest(follower)
        assert digest(restarted(replica)) == after, "a promoted replica"
    if master_memlith:
        assert digest(master.start().client()) == before, "the master differs after a kill"
    replica.stop()
    master.stop()


def test_replica_of_plain(servers):
    replicate(servers, "of-plain", None, "strong")


def test_master_of_plain(servers):
    replicate(servers, "master", "strong", None)


def test_both(servers):
    replicate(servers, "both", "weak", "weak")


def test_refusals(servers):
    one, other = servers.server("one").fresh().start(), servers.server("other").fresh().start()
    for server, changes in ((one, 50), (other, 60)):
        client = server.client()
        fill(client, 3, changes)
        caught_up(server, client)
        server.stop()
    kept = servers.work / "kept"
    shutil.rmtree(kept, ignore_errors=True)
    shutil.copytree(one.folder / "memlith", kept)
    theirs = other.folder / "memlith"
    for damage, words in ((lambda ours: shutil.copy(theirs / "log", ours / "log"), "belongs to another store"),
                          (lambda ours: shutil.copy(theirs / "objects/1", ours / "objects/1"),
                           "holds the application log of another store"),
                          (lambda ours: shutil.copy(theirs / "objects/2", ours / "objects/2"),
                           "do not belong together"),
                          (lambda ours: (ours / "objects/1").unlink(), 'the home file of region "log" is missing'),
                          (lambda ours: (ours / "objects/2").unlink(), 'the home file of region "kv" is missing'),
                          (lambda ours: (ours / "log").unlink(), "but no log"),
                          (lambda ours: os.truncate(ours / "log", 4096), "cut short"),
                          (later_version, "version")):
        (one.folder / "log").unlink(missing_ok=True)
        damage(one.folder / "memlith")
        said = one.refuses_to_start()
        assert "cannot open the store" in said and words in said, said
        shutil.rmtree(one.folder / "memlith")
        shutil.copytree(kept, one.folder / "memlith")
    held = servers.server("one").start()
    said_by = subprocess.run([one.program, one.folder / "redis.conf", "--unixsocket", "s2", "--logfile", ""],
                             cwd=one.folder, capture_output=True, text=True, timeout=60, check=False)
    assert said_by.returncode != 0 and "cannot open the store" in said_by.stdout, said_by
    held.stop()
    few = servers.server("few").fresh().start()
    client = few.client(12)
    client("SET", "a", 1)
    caught_up(few, client)
    few.stop()
    config = few.folder / "redis.conf"
    config.write_text(config.read_text(encoding="utf-8") + "databases 4\n", encoding="utf-8")
    said = few.refuses_to_start()
    assert 'raise the directive "databases"' in said, said


def later_version(store):
    """The first page of the application log says 4,000,000,000 where it says which version its format has."""
    with open(store / "objects/1", "r+b") as region:
        page = bytearray(region.read(4096))
        page[LOG_VERSION_AT:LOG_VERSION_AT + 4] = (4_000_000_000).to_bytes(4, "little")
        region.seek(0)
        region.write(page)


def test_failing_disk(servers):
    """A write whose flush failed is never acknowledged, and the server ends."""
    servers.work.mkdir(parents=True, exist_ok=True)
    (servers.work / "failing.c").write_text(FAILING_DISK, encoding="utf-8")
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", servers.work / "failing.so", servers.work / "failing.c",
                    "-ldl"], check=True)
    for memlith in ("strong", "weak"):
        fail = servers.work / "fail"
        fail.unlink(missing_ok=True)
        environment = os.environ | {"LD_PRELOAD": str(servers.work / "failing.so"), "FAIL_FILE": str(fail)}
        server = servers.server(f"failing-{memlith}", memlith, [("memlith-window-ms", 10)], environment=environment)
        client = server.fresh().start().client()
        client("SET", "a", 1)
        client("CONFIG", "SET", "memlith-durability", "strong")  # "a" is durable now
        client("CONFIG", "SET", "memlith-durability", memlith)
        fail.touch()
        acknowledged = 0
        try:
            while True:
                client("INCR", "n")
                acknowledged += 1
        except (Gone, Refused):
            pass
        assert server.process.wait(30) == 1, "the server goes on"
        assert memlith == "weak" or acknowledged == 0, f"{acknowledged} were acknowledged"
        assert "Exiting" in server.log(), server.log()[-500:]
        fail.unlink()
        client = server.start().client()
        assert client("GET", "a") == b"1"
        server.stop()


class SmallDisk:
    """A file system of 24 MiB in a mount namespace of its own, and a program that runs a server there."""

    def __init__(self, servers):
        self.path = (servers.work / "small-disk").resolve()
        self.path.mkdir(parents=True, exist_ok=True)
        script = 'mount -t tmpfs -o size=24m none "$0" && echo ready && exec sleep 3600'
        self.holder = subprocess.Popen(["unshare", "--mount", "sh", "-c", script, self.path], stdout=subprocess.PIPE)
        self.mounted = self.holder.stdout.readline() == b"ready\n"
        self.program = servers.work / "on-small-disk"
        self.program.write_text(f"#!/bin/sh\nexec nsenter --mount=/proc/{self.holder.pid}/ns/mnt -- "
                                f"{pathlib.Path(servers.program).resolve()} \"$@\"\n", encoding="utf-8")
        self.program.chmod(0o755)
        self.filler = pathlib.Path(f"/proc/{self.holder.pid}/root{self.path}/filler")

    def fill(self):
        with open(self.filler, "wb", buffering=0) as filler:
            try:
                while True:
                    filler.write(bytes(4096))
            except OSError:
                pass

    def release(self):
        self.filler.unlink()

    def end(self):
        self.holder.kill()
        self.holder.wait()


def until_accepted(client, *command):
    for _ in range(3000):
        try:
            return client(*command)
        except Refused as why:
            assert "MISCONF" in str(why), why
            time.sleep(0.01)
    raise AssertionError("writes are still refused")


def test_full_disk(servers):
    """A weak server whose disk has no room refuses writes, goes on reading, and keeps what it has acknowledged."""
    disk = SmallDisk(servers)
    if not disk.mounted:
        print("test_full_disk: cannot mount a tmpfs", flush=True)
        return
    try:
        keep_writes_on(disk, servers)
    finally:
        disk.end()


def keep_writes_on(disk, servers):
    server = Server(disk.program, servers.work / "full", "weak",
                    [SAVE_NOTHING, ("memlith-dir", disk.path / "store"), ("memlith-log-size", "1mb"),
                     ("memlith-window-ms", 10)])
    client = server.fresh().start().client()
    kept = {}
    # New keys, for which the kv store has to grow; and one value for which the log has to.
    for number, value in [(1_000_000, b"v" * 1000), (3, b"w" * (3 << 20))]:
        disk.fill()
        acknowledged = 0
        try:
            for i in range(number):
                client("SET", f"{number}-{i}", value)
                kept[f"{number}-{i}"] = value
                acknowledged += 1
                time.sleep(0.001 if number > 3 else 0.3)
        except Refused as why:
            assert "MISCONF" in str(why), why
        assert 0 < acknowledged < number, f"{acknowledged} writes were acknowledged on a full disk"
        for _ in range(100):
            refused(lambda: client("SET", "refused", 1), "MISCONF")
        assert all(client("GET", key) == value for key, value in kept.items()), "reads"
        disk.release()
        until_accepted(client, "SET", f"after-{number}", "x")
        kept[f"after-{number}"] = b"x"
    client("CONFIG", "SET", "memlith-durability", "strong")  # all of it is durable now
    client("SET", "end", 1)
    client = restarted(server)
    assert all(client("GET", key) == value for key, value in kept.items()), "what was acknowledged is lost"
    assert client("GET", "refused") is None
    server.stop()


def main():
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--program", required=True)
    options.add_argument("--plain", required=True)
    options.add_argument("--work", required=True, type=pathlib.Path)
    options.add_argument("--only", default="")
    given = options.parse_args()
    skip_without(given.program)
    run_tests(globals(), given.only, Servers(given))


if __name__ == "__main__":
    main()
