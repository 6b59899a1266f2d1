#!/usr/bin/env python3
"""Masters and replicas on memlith, killed again and again: a replica goes on where its own disk has left off, and is
what its master is; what WAIT confirmed is on the replica's disk; Sentinel's failovers lose nothing that all replicas
confirmed.

Clients change the master at random (model.py). After each kill the databases of master, replica and the replica's
replica have the same digest, and the master's are what the model says.
"""
import argparse
import os
import pathlib
import random
import threading
import time

from kill_test import Load
from model import Model
from server import Gone, Refused, Server, free_port, run_tests
from foreign import seeded_random, skip_without, until

DIRECTIVES = [("bind", "127.0.0.1"), ("save", '""'), ("memlith-log-size", "2mb"), ("repl-diskless-sync-delay", 0),
              ("repl-ping-replica-period", 1), ("repl-backlog-size", "16mb")]
CLIENTS = 2


class Servers:
    def __init__(self, given, chance):
        self.program, self.work, self.chance = given.program, given.work / "replication", chance
        self.rounds, self.minutes = given.rounds, given.minutes

    def server(self, name, durability="strong", master=None, directives=()):
        port = free_port()
        more = [("replicaof", f"127.0.0.1 {master.port}")] if master else []
        made = Server(self.program, self.work / name, durability, [*DIRECTIVES, ("port", port), *directives, *more])
        made.port = port
        return made.fresh().start()


def replication(server):
    client = server.client()
    info = server.info(client)
    client.close()
    return info


def in_step(master, replica):
    """Waits until the replica has all that the master has, and compares. The servers' INFO."""
    def has_all():
        above, below = replication(master), replication(replica)
        offset = int(above["master_repl_offset"])
        # A replica that has not noticed that its master came back believes that the link is up.
        same = above["master_replid"] == below["master_replid"]
        return same and below.get("master_link_status") == "up" and int(below["slave_repl_offset"]) >= offset

    until(has_all, f"{replica.folder.name} has what {master.folder.name} has")
    above, below = replication(master), replication(replica)
    digests = [server.client()("DEBUG", "DIGEST") for server in (master, replica)]
    assert digests[0] == digests[1], \
        f"{replica.folder.name} differs from {master.folder.name}: {digests}\n{replica.log()[-2000:]}"
    return above, below


def pause(chance, most):
    time.sleep(chance.random() ** 2 * most)


def rounds_of(servers):
    began, number = time.monotonic(), 0
    while number < servers.rounds or time.monotonic() - began < servers.minutes * 60:
        yield number
        number += 1


def test_kills(servers):
    """Master, replica and the replica's replica."""
    chance = servers.chance
    for durability in ("strong", "weak"):
        window = [("memlith-window-ms", 30)]
        master = servers.server(f"{durability}-master", durability, directives=window)
        replica = servers.server(f"{durability}-replica", durability, master, window)
        below = servers.server(f"{durability}-below", durability, replica, window)
        in_step(master, replica), in_step(replica, below)
        models = [Model(random.Random(chance.random())) for _ in range(CLIENTS)]
        kills = partial = full = 0
        for number in rounds_of(servers):
            # A weak master loses what its clients know of; the model is about replicas then.
            some = [replica, below] if durability == "weak" and number % 2 else [master, replica, below]
            killed = chance.sample(some, chance.randrange(1, 3))
            loads = [Load(master, index, model) for index, model in enumerate(models)]
            for each in loads:
                each.start()
            pause(chance, 0.6)
            for each in killed:
                each.kill()
            kills, master_died = kills + len(killed), master in killed
            pause(chance, 0.2)
            if master not in killed:
                for each in reversed(killed):
                    each.start()
                killed = []
                pause(chance, 0.4)
            for each in loads:
                each.stopping = True
            for each in loads:
                each.join()
            for each in killed:
                each.start()
            client = master.client()
            if durability == "strong" or not master_died:
                models = [each.check(client) for each in loads]
            else:
                client("FLUSHALL")
                models = [Model(random.Random(chance.random())) for _ in range(CLIENTS)]
            in_step(master, replica)
            in_step(replica, below)
            for each in (master, replica):
                info = replication(each)
                partial, full = partial + int(info["sync_partial_ok"]), full + int(info["sync_full"])
                each.client()("CONFIG", "RESETSTAT")
        for each in (below, replica, master):
            each.stop()
        print(f"  {durability}: {kills} kills, {partial} partial and {full} full resynchronisations", flush=True)
        assert kills == 0 or partial > 0, "there was no partial resynchronisation; this tests nothing"


def fill(server, seed, changes=200):
    model, client = Model(random.Random(seed)), server.client()
    client("FLUSHALL")
    for _ in range(changes):
        client("SELECT", model.selected)
        for command in model.change():
            client(*[each[1] if isinstance(each, tuple) else each for each in command])
    client.close()


def test_a_replica_goes_on(servers):
    """Whatever ends it: no full resynchronisation, while the master's backlog has what it missed."""
    master = servers.server("on-master")
    replica = servers.server("on-replica", "strong", master)
    in_step(master, replica)
    full = int(replication(master)["sync_full"])
    for number, end in enumerate((replica.kill, replica.stop, replica.kill)):
        fill(master, number)
        if number == 2:
            in_step(master, replica)
            time.sleep(1.5)  # the stream goes on with PING alone
        end()
        fill(master, 10 + number)
        replica.start()
        above, _ = in_step(master, replica)
        assert int(above["sync_full"]) == full, f"a full resynchronisation after {end.__name__}, {number}"
        assert int(above["sync_partial_ok"]) == number + 1, above["sync_partial_ok"]
    # More than the backlog: all data anew.
    replica.kill()
    client = master.client()
    for number in range(40):
        client("SET", f"long{number}", os.urandom(500_000))
    client.close()
    replica.start()
    above, _ = in_step(master, replica)
    assert int(above["sync_full"]) == full + 1
    # A replica that has loaded all data, and was then killed before anything else was written.
    replica.kill()
    replica.start()
    above, _ = in_step(master, replica)
    assert int(above["sync_full"]) == full + 1
    replica.stop()
    master.stop()


def test_a_master_goes_on(servers):
    """A master that was shut down, or killed while nothing was written: its replica needs no data. One that lost what
    the replica has takes the replica's data away."""
    master = servers.server("off-master")
    replica = servers.server("off-replica", "strong", master)
    in_step(master, replica)
    fill(master, 1)
    in_step(master, replica)
    first = master.client()("INFO", "replication").split(b"master_replid:")[1][:40]
    for end in (master.stop, master.kill):
        if end == master.kill:
            until(lambda: int(replication(master)["master_repl_offset"]) > 0, "there is a backlog")
            time.sleep(0.5)
        end()
        master.start()
        above, below = in_step(master, replica)
        assert int(above["sync_partial_ok"]) == 1 and int(above["sync_full"]) == 0, (end.__name__, above["sync_full"])
        assert above["master_replid"].encode() != first, "a master went on with the ID that it had"
        fill(master, 2)
        in_step(master, replica)
    # A weak master that loses its last writes, which the replica has.
    client = master.client()
    client("CONFIG", "SET", "memlith-durability", "weak", "memlith-window-ms", 60000)
    client("SET", "lost", 1)
    waited = client("WAIT", 1, 10000)
    assert waited == 1, f"WAIT: {waited} replicas, {replication(master)}"
    master.kill()
    assert replica.client()("GET", "lost") == b"1", "the replica lacks what WAIT said that it has"
    master.start()
    client = master.client()
    for number in range(50):  # more bytes than were lost
        client("SET", f"instead{number}", number)
    above, _ = in_step(master, replica)
    assert int(above["sync_full"]) == 1, "a replica that had more than its master was not refused"
    assert replica.client()("GET", "lost") is None, "the weak write was lost by its master and not by the replica"
    replica.stop()
    master.stop()


def test_a_failed_master_comes_back(servers):
    """As a replica of what was its replica: with a partial resynchronisation if it has nothing that the new master does
    not have, else it loads all data."""
    for has_more in (False, True):
        master = servers.server("back-master")
        replica = servers.server("back-replica", "strong", master)
        in_step(master, replica)
        fill(master, 5)
        in_step(master, replica)
        if has_more:
            replica.kill()
            master.client()("SET", "more", 1)
        time.sleep(0.5)
        master.kill()
        if has_more:
            replica.start()
        replica.client()("REPLICAOF", "NO", "ONE")
        fill(replica, 6)
        client = master.start().client()
        try:
            client("REPLICAOF", "127.0.0.1", "no port")
            raise AssertionError("a wrong port was not refused")
        except Refused:
            pass
        client("REPLICAOF", "127.0.0.1", replica.port)
        above, _ = in_step(replica, master)
        found = int(above["sync_partial_ok"]), int(above["sync_full"])
        assert found == ((0, 1) if has_more else (1, 0)), (has_more, found)
        assert master.client()("GET", "more") is None
        master.stop()
        replica.stop()


def test_wait(servers):
    """Writes that WAIT confirmed are on the disk of the replica, whichever server is killed then."""
    for number in range(max(3, servers.rounds // 4)):
        master = servers.server("wait-master")
        replica = servers.server("wait-replica", "strong", master)
        in_step(master, replica)
        confirmed = [0]

        def run():
            try:
                client = master.client()
                while True:
                    count = client.transaction(("INCR", "count"), ("RPUSH", "counts", confirmed[0]))[0]
                    if client("WAIT", 1, 5000) >= 1:
                        confirmed[0] = count
            except Gone:
                pass

        thread = threading.Thread(target=run)
        thread.start()
        until(lambda: confirmed[0] > 0, "a confirmation")
        time.sleep(servers.chance.random() * 0.5)
        for each in servers.chance.sample([master, replica], 2):
            each.kill()
        thread.join()
        client = replica.start().client()
        found = int(client("GET", "count") or 0)
        assert found >= confirmed[0], f"round {number}: {confirmed[0]} confirmed, {found} on the replica"
        assert client("LLEN", "counts") == found
        replica.stop()


def test_keys_of_others_are_durable(servers):
    """The key of a MIGRATE is durable before its source removes it, with weak durability, too."""
    weak = [("memlith-window-ms", 60000)]
    source, target = (servers.server(name, "weak", directives=weak) for name in ("source", "target"))
    client = source.client()
    client("SET", "a", 1), client("RPUSH", "b", *range(3000)), client("SET", "c", 3)
    client("CONFIG", "SET", "memlith-durability", "strong")  # all is durable on the source
    client("MIGRATE", "127.0.0.1", target.port, "", 0, 5000, "KEYS", "a", "b")
    assert client("EXISTS", "a", "b") == 0
    target.client()("SET", "weak", 1)
    target.kill()
    client = target.start().client()
    assert client("GET", "a") == b"1" and client("LLEN", "b") == 3000, "a key that was moved is lost"
    assert client("GET", "weak") is None, "the window is no longer long enough for this test"
    target.stop()
    source.stop()


class Sentinels:
    def __init__(self, servers, master):
        self.servers = []
        for number in range(3):
            port = free_port()
            one = Server(servers.program, servers.work / f"sentinel{number}", None)
            one.directives = [("port", port), ("bind", "127.0.0.1"), ("unixsocket", "s"), ("dir", one.folder),
                              ("logfile", "log"), ("sentinel", f"monitor m 127.0.0.1 {master.port} 2"),
                              ("sentinel", "down-after-milliseconds m 3000"), ("sentinel", "failover-timeout m 4000"),
                              ("sentinel", "parallel-syncs m 1")]
            one.fresh()
            one.begin(["--sentinel"])
            one.wait().client()("SENTINEL", "DEBUG", "info-period", 300, "publish-period", 300, "ask-period", 300)
            self.servers.append(one)
        until(lambda: all(self.of(one)["num-other-sentinels"] == b"2" and self.of(one)["num-slaves"] == b"2"
                          for one in self.servers), "Sentinels know each other and the replicas")

    @staticmethod
    def of(one):
        client = one.client()
        fields = client("SENTINEL", "MASTER", "m")
        client.close()
        return {name.decode(): value for name, value in zip(fields[::2], fields[1::2])}

    def agreed_master(self, nodes):
        """The master, once all Sentinels name the same one of these nodes, and the others are its replicas. (On a slow
        machine they may name another one meanwhile.)"""
        ports = {int(self.of(one)["port"]) for one in self.servers}
        found = [each for each in nodes if {each.port} == ports]
        for each in nodes if found else ():
            info = replication(each)
            is_right = info["role"] == "master" if each in found else \
                info.get("master_port") == str(found[0].port) and info["master_link_status"] == "up"
            if not is_right:
                return None
        return found and found[0]


def test_sentinel(servers):
    """A master and two replicas under three Sentinels. Any replica may be promoted, so a write is safe when both have
    confirmed it."""
    nodes = [servers.server("sentinel-0")]
    nodes += [servers.server(f"sentinel-{number}", "strong", nodes[0]) for number in (1, 2)]
    for each in nodes[1:]:
        in_step(nodes[0], each)
    sentinels = Sentinels(servers, nodes[0])
    master, count, lost = nodes[0], 0, 0
    for number in range(max(2, servers.rounds // 8)):
        confirmed, acknowledged = [count], [count]

        def run():
            try:
                client = master.client()
                while True:
                    found = client.transaction(("INCR", "count"), ("RPUSH", "counts", acknowledged[0] + 1))[0]
                    assert found == acknowledged[0] + 1, (found, acknowledged)
                    acknowledged[0] = found
                    if client("WAIT", 2, 5000) >= 2:
                        confirmed[0] = found
            except Gone:
                pass

        thread = threading.Thread(target=run)
        thread.start()
        until(lambda: confirmed[0] > count, "a confirmation of both replicas")
        time.sleep(servers.chance.random() * 0.5)
        master.kill()
        thread.join()
        dead = master
        master = until(lambda: sentinels.agreed_master([each for each in nodes if each is not dead]), "a failover")
        client = master.client()
        count = int(client("GET", "count"))
        assert count >= confirmed[0], f"round {number}: both replicas confirmed {confirmed[0]}, {count} are left"
        assert [int(each) for each in client("LRANGE", "counts", 0, -1)] == list(range(1, count + 1))
        lost += max(0, acknowledged[0] - count)
        dead.start()
        master = until(lambda: sentinels.agreed_master(nodes), "the old master is a replica")
        for each in nodes:
            if each is not master:
                in_step(master, each)
        # Sentinel's next failover needs to know of both, and that they are replicas of this one.
        until(lambda: all(sentinels.of(one)["num-slaves"] == b"2" and sentinels.of(one)["flags"] == b"master"
                          for one in sentinels.servers), "Sentinels know of both replicas")
        time.sleep(1)
    for each in (*sentinels.servers, *nodes):
        each.stop()
    print(f"  {number + 1} failovers, {count} transactions; {lost} were acknowledged and lost, none that both replicas "
          "had confirmed", flush=True)


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--program", required=True)
    options.add_argument("--work", required=True, type=pathlib.Path)
    options.add_argument("--rounds", type=int, default=6)
    options.add_argument("--minutes", type=float, default=0, help="go on with the kills for so long at least, twice")
    options.add_argument("--only", default="")
    given = options.parse_args()
    skip_without(given.program)
    chance = seeded_random("the changes and the times, not how threads run")
    run_tests(globals(), given.only, Servers(given, chance))


if __name__ == "__main__":
    main()
