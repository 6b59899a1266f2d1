#!/usr/bin/env python3
"""Redis Cluster on memlith: three masters and three replicas, killed again and again under load, and slots that move.

Clients add to counters, lists and hashes in all slots, with a script that does all or nothing, and ask with WAIT for
the confirmation of the replica. After each kill, of everything a client knows:
 - no master was replaced: all acknowledged writes are there, whatever was killed, all six at once, too;
 - a replica was promoted: all writes that WAIT confirmed are there, and what is there is a prefix.
Nothing is ever applied twice or in part, and each replica has the digest of its master.
"""
import argparse
import binascii
import collections
import os
import pathlib
import random
import re
import signal
import subprocess
import threading
import time

from server import Client, Gone, Refused, Server, free_port, run_tests
from foreign import seeded_random, skip_without, until

NODE_TIMEOUT_MS = 2000
# The nodes.conf that a power cut would leave: the file as it was at its last flush, in nodes.conf.durable.
KEEPS_WHAT_IS_FLUSHED = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
int fsync(int fd) {
  int (*real)(int) = (int (*)(int))dlsym(RTLD_NEXT, "fsync");
  int done = real(fd);
  char link[64], path[4096], bytes[65536];
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  ssize_t size = readlink(link, path, sizeof path - 16);
  if (done || size < 10 || memcmp(path + size - 10, "nodes.conf", 10)) return done;
  path[size] = 0;
  int from = open(path, O_RDONLY);
  int to = open(strcat(path, ".durable"), O_WRONLY | O_CREAT | O_TRUNC, 0644);
  while ((size = read(from, bytes, sizeof bytes)) > 0) done |= write(to, bytes, size) != size;
  close(from);
  close(to);
  return done;
}
"""
BUS = 10000
SCRIPT = """local n = redis.call('INCR', KEYS[1])
redis.call('RPUSH', KEYS[2], n)
redis.call('HSET', KEYS[3], n % 100, ARGV[1])
return n"""
NOT_NOW = ("CLUSTERDOWN", "TRYAGAIN", "LOADING", "MASTERDOWN", "READONLY", "UNBLOCKED")  # and nothing was done


def slot_of(key):
    found = re.search(rb"\{(.+?)\}", key)
    return binascii.crc_hqx(found[1] if found else key, 0) % 16384


class Cluster:
    def __init__(self, given, name, count, replicas=0, directives=(), environment=None):
        self.work, self.cli = given.work / name, pathlib.Path(given.program).with_name("redis-cli")
        self.nodes = []
        for number in range(count):
            port = free_port(BUS)
            while any(port == each.port for each in self.nodes):
                port = free_port(BUS)
            node = Server(given.program, self.work / str(number), "strong",
                          [("bind", "127.0.0.1"), ("port", port), ("cluster-enabled", "yes"), ("save", '""'),
                           ("cluster-node-timeout", NODE_TIMEOUT_MS), ("repl-ping-replica-period", 1),
                           ("repl-diskless-sync-delay", 0), ("memlith-log-size", "2mb"), *directives], environment)
            node.port = port
            self.nodes.append(node.fresh().start())
        self.by_port = {each.port: each for each in self.nodes}
        if replicas is not None:
            self.run("--cluster", "create", *(f"127.0.0.1:{each.port}" for each in self.nodes),
                     "--cluster-replicas", replicas, "--cluster-yes")
            self.wait()

    def run(self, *arguments, check=True, seconds=120):
        """redis-cli, and what it says."""
        done = subprocess.run([self.cli, *map(str, arguments)], capture_output=True, text=True, check=False,
                              timeout=seconds)
        assert not check or done.returncode == 0, f"redis-cli {arguments}: {done.stdout[-2000:]}{done.stderr[-1000:]}"
        return done.stdout

    def alive(self):
        return [each for each in self.nodes if each.process.poll() is None]

    def look(self, node):
        """{port: (is a master, ID, ID of its master)}, and whether the node sees all slots served."""
        client = node.client()
        lines = client("CLUSTER", "NODES").decode().splitlines()
        is_ok = b"cluster_state:ok" in client("CLUSTER", "INFO")
        client.close()
        found = {}
        for line in lines:
            name, address, flags, master = line.split()[:4]
            found[int(address.split(":")[1].split("@")[0])] = ("master" in flags, name, master, "fail" in flags)
        return found, is_ok

    def wait(self, seconds=60):
        """Until all nodes that run see the same, and all slots are served; then {master: [its replicas]}."""
        def agreed():
            seen = [self.look(each) for each in self.alive()]
            kinds = [{port: each[0] for port, each in found.items()} for found, _ in seen]
            is_whole = all(is_ok for _, is_ok in seen) and all(each == kinds[0] for each in kinds)
            down = {each.port for each in self.nodes} - {each.port for each in self.alive()}
            failed = all(found[port][3] == (port in down) for found, _ in seen for port in found)
            return is_whole and len(kinds[0]) == len(self.nodes) and (failed or not down) and seen[0][0]

        found = until(agreed, "the cluster is whole", seconds)
        shards = {}
        for port, (is_master, name, _, is_down) in found.items():
            if is_master and not (is_down and port not in {each.port for each in self.alive()}):
                shards[self.by_port[port]] = [self.by_port[other] for other, each in found.items() if each[2] == name]
        return shards

    def in_step(self):
        """Each replica that runs is what its master is."""
        for master, replicas in self.wait().items():
            for replica in replicas:
                def has_all():
                    above, below = master.info(), replica.info()
                    return below.get("master_link_status") == "up" and \
                        int(below["slave_repl_offset"]) >= int(above["master_repl_offset"])

                until(has_all, f"node {replica.folder.name} has what node {master.folder.name} has")
                digests = [each.client()("DEBUG", "DIGEST") for each in (master, replica)]
                assert digests[0] == digests[1], f"node {replica.folder.name} differs from {master.folder.name}"

    def stop(self):
        for each in self.nodes:
            each.stop()


class Load(threading.Thread):
    """A client of the cluster, with tags that no other client uses: which of its writes were acknowledged, and which
    were confirmed by a replica."""

    def __init__(self, cluster, name, chance):
        super().__init__(daemon=True)
        self.cluster, self.chance, self.wrong = cluster, chance, ""
        self.tags = [f"{{{name}.{number}}}" for number in range(8)]
        self.acknowledged, self.confirmed, self.doubtful = (collections.Counter() for _ in range(3))
        self.writes = self.lost = 0
        self.connections, self.homes = {}, {}
        self.paused, self.going = threading.Event(), threading.Event()
        self.pausing = self.stopping = self.in_check = False
        self.going.set()

    # How keys are found.

    def connection(self, node):
        if node not in self.connections:
            self.connections[node] = Client(os.path.relpath(node.folder / "s"))
        return self.connections[node]

    def forget(self, node):
        if node in self.connections:
            self.connections.pop(node).close()

    def ask(self, tag, *command):
        """The reply of the node that serves the tag, and that node. Gone: the command may have been done or not."""
        for _ in range(2000):
            node = self.homes.get(tag) or self.chance.choice(self.cluster.nodes)
            try:
                client = self.connection(node)
            except Gone:
                self.homes.pop(tag, None)
                self.rest()
                continue
            try:
                return client(*command), node
            except Gone:
                self.forget(node)
                self.homes.pop(tag, None)
                raise
            except Refused as why:
                word, *rest = str(why).split()
                if word == "MOVED":
                    self.homes[tag] = self.cluster.by_port[int(rest[1].rsplit(":", 1)[1])]
                elif word == "ASK":
                    other = self.cluster.by_port[int(rest[1].rsplit(":", 1)[1])]
                    try:
                        asked = self.connection(other)
                        asked("ASKING")
                    except Gone:
                        self.forget(other)
                        self.rest()
                        continue
                    try:
                        return asked(*command), other
                    except Gone:
                        self.forget(other)
                        raise
                    except Refused as inner:
                        if not str(inner).startswith((*NOT_NOW, "MOVED", "ASK")):
                            raise
                        self.rest()
                elif word in NOT_NOW or "CLUSTERDOWN" in str(why):
                    self.homes.pop(tag, None)
                    self.rest()
                else:
                    raise
        raise AssertionError(f"no node serves {tag}")

    def rest(self):
        if self.stopping or (self.pausing and not self.in_check):
            raise InterruptedError
        time.sleep(0.02)

    # The checks that a test asks for.

    def run(self):
        try:
            while not self.stopping:
                if self.pausing:
                    self.paused.set()
                    self.going.wait()
                    self.paused.clear()
                    continue
                self.write(self.chance.choice(self.tags))
        except (Refused, AssertionError) as why:
            self.wrong = repr(why)
        finally:
            self.paused.set()

    def write(self, tag):
        try:
            count, node = self.ask(tag, "EVAL", SCRIPT, 3, f"{tag}n", f"{tag}l", f"{tag}h", "x" * 200)
        except Gone:
            self.doubtful[tag] += 1
            return
        except InterruptedError:
            return
        self.see(tag, count - 1)
        self.acknowledged[tag], self.doubtful[tag] = count, 0
        self.writes += 1
        if self.chance.random() < 0.3:
            try:
                if self.connections[node]("WAIT", 1, 500) >= 1:
                    self.confirmed[tag] = count
            except (Gone, KeyError):
                self.forget(node)
            except Refused:
                pass  # no master any more

    def see(self, tag, count):
        """Checks the number of keys."""
        most = self.acknowledged[tag] + self.doubtful[tag]
        assert self.confirmed[tag] <= count <= most, \
            f"{tag}: {count} of {self.acknowledged[tag]} acknowledged writes, {self.confirmed[tag]} confirmed, " \
            f"{self.doubtful[tag]} more not known"
        self.lost += max(0, self.acknowledged[tag] - count)

    def check(self):
        """While it pauses. How many acknowledged writes were found to be gone since the last check."""
        self.in_check = True
        try:
            assert not self.wrong, self.wrong
            for tag in self.tags:
                count = int(self.read(tag, "GET", f"{tag}n") or 0)
                self.see(tag, count)
                items, fields = self.read(tag, "LRANGE", f"{tag}l", 0, -1), self.read(tag, "HLEN", f"{tag}h")
                assert [int(each) for each in items] == list(range(1, count + 1)), (tag, count, items[-3:])
                assert fields == min(count, 100), (tag, count, fields)
                self.acknowledged[tag], self.doubtful[tag] = count, 0
        finally:
            self.in_check = False
        lost, self.lost = self.lost, 0
        return lost

    def read(self, tag, *command):
        while True:
            try:
                return self.ask(tag, *command)[0]
            except Gone:
                self.rest()


class Loads:
    def __init__(self, cluster, chance, count=3):
        self.each = [Load(cluster, f"c{number}", random.Random(chance.random())) for number in range(count)]
        for load in self.each:
            load.start()

    def pause(self):
        for load in self.each:
            load.going.clear()
            load.pausing = True
        for load in self.each:
            assert load.paused.wait(60), "a client hangs"

    def check(self):
        return sum(load.check() for load in self.each)

    def go_on(self):
        for load in self.each:
            load.paused.clear()
            load.pausing = False
            load.going.set()

    def stop(self):
        self.pause()
        for load in self.each:
            load.stopping = True
            load.going.set()
        for load in self.each:
            load.join()
        return sum(load.writes for load in self.each)


# ---- kills

def kill_all(cluster, shards, chance):
    """All six, masters and replicas in any order."""
    nodes = chance.sample(cluster.nodes, len(cluster.nodes))
    for each in nodes:
        each.kill()
    for each in nodes:
        each.begin()
    for each in nodes:
        each.wait()


def kill_replica(cluster, shards, chance):
    replica = chance.choice([each for replicas in shards.values() for each in replicas])
    replica.kill()
    time.sleep(chance.random() * 0.3)
    replica.start()


def kill_master(cluster, shards, chance):
    """And start it at once, so that it is not replaced."""
    master = chance.choice(list(shards))
    master.kill()
    master.start()


def kill_shard(cluster, shards, chance):
    """A master and its replica, for longer than the timeout: no node may replace the master."""
    master = chance.choice([each for each, replicas in shards.items() if replicas])
    both = [master, *shards[master]]
    for each in chance.sample(both, len(both)):
        each.kill()
    time.sleep(chance.choice([0, NODE_TIMEOUT_MS / 1000 + 1]))
    for each in chance.sample(both, len(both)):
        each.start()


def fail_over(cluster, shards, chance):
    """A master is killed, its replica is promoted, the master comes back as a replica. Often the replica does not get
    the last writes, which only the master has then."""
    master = chance.choice([each for each, replicas in shards.items() if replicas])
    is_cut_off = chance.random() < 0.7
    for each in shards[master] if is_cut_off else ():
        each.process.send_signal(signal.SIGSTOP)
    if is_cut_off:
        master.client()("CLIENT", "KILL", "TYPE", "replica")
        time.sleep(0.1 + chance.random() * 0.3)
    master.kill()
    for each in shards[master]:
        each.process.send_signal(signal.SIGCONT)

    def is_replaced():
        found, is_ok = cluster.look(shards[master][0])
        return is_ok and found[shards[master][0].port][0]

    until(is_replaced, "a failover")
    time.sleep(chance.random() * 0.5)
    master.start()
    until(lambda: not cluster.look(master)[0][master.port][0], "the old master is a replica")


def fail_over_by_hand(cluster, shards, chance):
    """CLUSTER FAILOVER, without kills: nothing is lost."""
    replica = chance.choice([each for replicas in shards.values() for each in replicas])
    until(lambda: replica.info()["master_link_status"] == "up", "the replica has its master")
    replica.client()("CLUSTER", "FAILOVER")
    until(lambda: cluster.look(replica)[0][replica.port][0], "a failover by hand")


def kill_in_reshard(cluster, shards, chance):
    """Slots move from a master to another while one of the two is killed."""
    source, target = chance.sample(list(shards), 2)
    names = {port: each[1] for port, each in cluster.look(source)[0].items()}
    with subprocess.Popen([cluster.cli, "--cluster", "reshard", f"127.0.0.1:{source.port}", "--cluster-from",
                           names[source.port], "--cluster-to", names[target.port], "--cluster-slots", "150",
                           "--cluster-yes", "--cluster-pipeline", "3"], stdout=subprocess.DEVNULL,
                          stderr=subprocess.DEVNULL) as moving:
        time.sleep(chance.random() * 0.8)
        killed = chance.choice([source, target])
        killed.kill()
        killed.start()
        moving.wait(120)
    time.sleep(NODE_TIMEOUT_MS / 1000)

    def is_fixed():
        said = cluster.run("--cluster", "fix", f"127.0.0.1:{source.port}", check=False)
        return "[OK] All 16384 slots covered" in cluster.run("--cluster", "check", f"127.0.0.1:{source.port}",
                                                             check=False) and said

    until(is_fixed, "redis-cli --cluster fix")


KINDS = [(kill_all, 3), (kill_replica, 2), (kill_master, 2), (kill_shard, 2), (fail_over, 3), (fail_over_by_hand, 1),
         (kill_in_reshard, 2)]
REPLACING = (fail_over, fail_over_by_hand)


def masters_of(shards):
    return sorted(each.port for each in shards)


def test_kills(given, chance):
    cluster = Cluster(given, "kills", 6, 1)
    loads = Loads(cluster, chance)
    began, number, kinds, lost = time.monotonic(), 0, [], 0
    totals = collections.Counter()
    while number < given.rounds or time.monotonic() - began < given.minutes * 60:
        if not kinds:  # each once, then at random
            kinds = chance.sample([each for each, _ in KINDS], len(KINDS)) if number == 0 else \
                chance.choices([each for each, _ in KINDS], [weight for _, weight in KINDS], k=20)
        kind, number = kinds.pop(), number + 1
        shards = cluster.wait()
        before = masters_of(shards)
        time.sleep(0.2 + chance.random() * 0.5)
        kind(cluster, shards, chance)
        after = masters_of(cluster.wait())
        loads.pause()
        replaced = before != after
        assert replaced or kind not in REPLACING, f"{kind.__name__}: no master was replaced"
        if replaced and kind not in REPLACING:
            print(f"  {kind.__name__}: the machine was slow; a master was replaced", flush=True)
        gone = loads.check()
        assert gone == 0 or (replaced and kind is not fail_over_by_hand), \
            f"{kind.__name__}: {gone} acknowledged writes are lost, and no failover explains it"
        cluster.in_step()
        lost += gone
        totals[kind.__name__] += 1
        for each in cluster.nodes:
            client = each.client()
            info = each.info(client)
            totals["partial"] += int(info["sync_partial_ok"])
            totals["full"] += int(info["sync_full"])
            client("CONFIG", "RESETSTAT")
            client.close()
        loads.go_on()
    writes = loads.stop()
    print(f"  {dict(totals)}; {writes} acknowledged writes, {lost} lost by failovers that WAIT had not confirmed; "
          f"{time.monotonic() - began:.0f} s", flush=True)
    assert writes > 50 * number, "hardly anything was written; this tests nothing"
    cluster.stop()


def test_a_failed_master_comes_back(given, chance):
    """Without a full resynchronisation, if it has nothing that the new master does not have."""
    cluster = Cluster(given, "back", 6, 1)
    loads = Loads(cluster, chance, 1)
    time.sleep(0.5)
    loads.stop()
    cluster.in_step()
    master, (replica,) = next(iter(cluster.wait().items()))
    time.sleep(0.5)
    master.kill()
    until(lambda: cluster.look(replica)[0][replica.port][0], "a failover")
    master.start()
    cluster.in_step()
    info = replica.info()
    assert (info["sync_full"], info["sync_partial_ok"]) == ("0", "1"), (info["sync_full"], info["sync_partial_ok"])
    cluster.stop()


# ---- slots

def two_masters(given, name, environment=None):
    """Each with its half of the slots, and no replica."""
    cluster = Cluster(given, name, 2, None, [("cluster-require-full-coverage", "no")], environment)
    for node, first, last in zip(cluster.nodes, (0, 8192), (8191, 16383)):
        node.client()("CLUSTER", "ADDSLOTSRANGE", first, last)
    one, other = cluster.nodes
    one.client()("CLUSTER", "SET-CONFIG-EPOCH", 1)
    other.client()("CLUSTER", "SET-CONFIG-EPOCH", 2)
    one.client()("CLUSTER", "MEET", "127.0.0.1", other.port)
    cluster.wait()
    return cluster


def keys_in(slots, count):
    found = []
    number = 0
    while len(found) < count:
        key = f"key{number}".encode()
        number += 1
        if slot_of(key) in slots:
            found.append(key)
    return found


def test_slots_that_are_lost(given, chance):
    """A master that learns that its slots are another's removes their keys, and they stay removed; when the slot comes
    back, nothing of the old values does."""
    cluster = two_masters(given, "lost")
    one, other = cluster.nodes
    small, large = keys_in(range(0, 8192), 2)
    client = one.client()
    client("SET", small, 1)
    client("RPUSH", large, *range(5000))
    time.sleep(0.3)  # both are in the kv store
    client("PING")
    names = {port: each[1] for port, each in cluster.look(one)[0].items()}
    for winner in (other, one):
        mine = winner.client()
        mine("CLUSTER", "BUMPEPOCH")
        for key in (small, large):
            mine("CLUSTER", "SETSLOT", slot_of(key), "NODE", names[winner.port])
        loser = one if winner is other else other
        until(lambda: all(winner_has(loser, winner, slot_of(key), names) for key in (small, large)), "the loser knows")
        assert all(loser.client()("CLUSTER", "COUNTKEYSINSLOT", slot_of(key)) == 0 for key in (small, large))
        if winner is other:
            one.kill()
            one.start()
            assert one.client()("DBSIZE") == 0, "keys came back"
            until(lambda: winner_has(one, other, slot_of(large), names), "the old owner knows")
    until(lambda: one.client()("RPUSH", large, "new"), "the slot is served again")
    one.client()("APPEND", small, "2")
    one.kill()
    client = one.start().client()
    until(lambda: client("LRANGE", large, 0, -1), "the slot is served again")
    assert client("LRANGE", large, 0, -1) == [b"new"], "old elements came back"
    assert client("GET", small) == b"2"
    cluster.stop()


def winner_has(node, winner, slot, names):
    """True if the node knows that the slot is the winner's."""
    for first, last, owner, *_ in node.client()("CLUSTER", "SLOTS"):
        if first <= slot <= last:
            return owner[2].decode() == names[winner.port]
    return False


def test_slots_that_are_open(given, chance):
    """An acknowledged move of a slot is durable: power is cut, and both servers still know it."""
    given.work.mkdir(parents=True, exist_ok=True)
    library = given.work.resolve() / "keeps.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-x", "c", "-", "-o", library, "-ldl"], input=KEEPS_WHAT_IS_FLUSHED,
                   text=True, check=True)
    cluster = two_masters(given, "open", dict(os.environ, LD_PRELOAD=str(library)))
    one, other = cluster.nodes
    names = {port: each[1] for port, each in cluster.look(one)[0].items()}
    key = keys_in(range(0, 8192), 1)[0]
    for node, *how in ((other, "IMPORTING", one), (one, "MIGRATING", other)):
        assert node.client()("CLUSTER", "SETSLOT", slot_of(key), how[0], names[how[1].port]) == b"OK"
        node.kill()
        (node.folder / "nodes.conf.durable").rename(node.folder / "nodes.conf")
    for node, mark in ((one, f"[{slot_of(key)}->-{names[other.port]}]"),
                       (other, f"[{slot_of(key)}-<-{names[one.port]}]")):
        said = node.start().client()("CLUSTER", "NODES").decode()
        assert mark in said, f"expected {mark}: {said}"
    cluster.stop()


def test_reset(given, chance):
    """CLUSTER RESET empties a replica, for good."""
    cluster = Cluster(given, "reset", 4, None)
    one, *_, replica = cluster.nodes
    cluster.run("--cluster", "create", *(f"127.0.0.1:{each.port}" for each in cluster.nodes[:3]), "--cluster-yes")
    until(lambda: b"cluster_state:ok" in one.client()("CLUSTER", "INFO"), "the cluster is up")
    one.client()("SET", keys_in(range(0, 100), 1)[0], 1)
    name = one.client()("CLUSTER", "MYID")
    replica.client()("CLUSTER", "MEET", "127.0.0.1", one.port)
    until(lambda: replica.client()("CLUSTER", "REPLICATE", name) == b"OK", "a replica")
    until(lambda: replica.client()("DBSIZE") == 1, "the replica has the key")
    replica.client()("CLUSTER", "RESET")
    assert replica.client()("DBSIZE") == 0
    replica.kill()
    assert replica.start().client()("DBSIZE") == 0, "the data came back"
    cluster.stop()


def test_data_of_before(given, chance):
    """A server that was none of a cluster becomes one: Redis takes the slots for which there are keys. Keys of another
    database are refused."""
    work = given.work / "before"
    node = Server(given.program, work, "strong", [("save", '""'), ("bind", "127.0.0.1"), ("port", free_port(BUS))])
    client = node.fresh().start().client()
    client("SET", "a", 1)
    client("RPUSH", "b", *range(3000))
    client("SELECT", 1)
    client("SET", "c", 1)
    node.kill()
    config = work / "redis.conf"
    plain = config.read_text(encoding="utf-8")
    config.write_text(plain + "cluster-enabled yes\ncluster-require-full-coverage no\n", encoding="utf-8")
    assert "the log has keys of database 1" in node.refuses_to_start()
    config.write_text(plain, encoding="utf-8")
    node.start()
    node.stop()
    config.write_text(plain + "cluster-enabled yes\ncluster-require-full-coverage no\n", encoding="utf-8")
    assert "the kv store has keys of database 1" in node.refuses_to_start()
    config.write_text(plain, encoding="utf-8")
    node.start().client(1)("DEL", "c")
    node.stop()
    config.write_text(plain + "cluster-enabled yes\ncluster-require-full-coverage no\n", encoding="utf-8")
    for _ in range(2):
        client = node.start().client()
        until(lambda: client("GET", "a") == b"1", "the slot is served")
        assert client("LLEN", "b") == 3000
        assert client("CLUSTER", "COUNTKEYSINSLOT", slot_of(b"a")) == 1
        assert client("CLUSTER", "GETKEYSINSLOT", slot_of(b"b"), 10) == [b"b"]
        node.kill()


def test_rebalance(given, chance):
    """A third master joins two, gets its share under load, and one leaves: nothing is lost. All are killed then."""
    cluster = Cluster(given, "rebalance", 4, None)
    address = [f"127.0.0.1:{each.port}" for each in cluster.nodes]
    cluster.run("--cluster", "create", *address[:3], "--cluster-yes")
    loads = Loads(cluster, chance, 2)
    time.sleep(0.5)
    cluster.run("--cluster", "add-node", address[3], address[0])
    cluster.wait()
    cluster.run("--cluster", "rebalance", address[0], "--cluster-use-empty-masters", "--cluster-pipeline", 50)
    loads.pause()
    assert loads.check() == 0, "acknowledged writes are lost"
    for each in cluster.nodes:
        each.kill()
    for each in cluster.nodes:
        each.start()
    cluster.wait()
    assert loads.check() == 0, "acknowledged writes are lost"
    said = cluster.run("--cluster", "check", address[0])
    assert "[OK] All 16384 slots covered" in said and "4 primaries" in said.replace("masters", "primaries"), said
    loads.stop()
    cluster.stop()


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--program", required=True)
    options.add_argument("--work", required=True, type=pathlib.Path)
    options.add_argument("--rounds", type=int, default=len(KINDS))
    options.add_argument("--minutes", type=float, default=0, help="go on with the kills for so long at least")
    options.add_argument("--only", default="")
    given = options.parse_args()
    given.work = given.work / "cluster"
    skip_without(given.program)
    run_tests(globals(), given.only, given, seeded_random("the changes and the times, not how threads run"))


if __name__ == "__main__":
    main()
