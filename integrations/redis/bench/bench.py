#!/usr/bin/env python3
"""Redis on memlith beside the same Redis with an append-only file: ./dev bench redis [SUITE ...].

SUITE is mixes (SET and GET), pauses (SET while files are rewritten), readers (clients that only GET beside one that
only SETs, with the flushes of the disk and with slow ones), start (how long a start takes); none: all four.
All servers run at once, and only one of them is asked at a time, in turns.
"""
import json
import os
import pathlib
import statistics
import subprocess
import sys
import threading
import time
from concurrent import futures

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path[:0] = [str(ROOT / "bench/kit"), str(ROOT / "integrations/redis/tests")]
import contest  # noqa: E402 pylint: disable=wrong-import-position
from server import Gone, Refused, Server  # noqa: E402 pylint: disable=wrong-import-position

NO_SAVE = ("save", '""')
# side: memlith's durability or None, directives, how durable an acknowledged write is
SIDES = {"memlith-strong": ("strong", [], "durable"),
         "aof-always": (None, [("appendonly", "yes"), ("appendfsync", "always")], "durable"),
         "memlith-weak": ("weak", [("memlith-window-ms", 1000)], "within 1 s"),
         "aof-everysec": (None, [("appendonly", "yes"), ("appendfsync", "everysec")], "within 1 to 2 s"),
         "aof-no": (None, [("appendonly", "yes"), ("appendfsync", "no")], "when the kernel writes")}


# Loaded before a server: each of its flushes takes longer by as many microseconds as FLUSH_DELAY_US says.
SLOW_FLUSHES = r"""
#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>
static void delay(void) { usleep((unsigned)atoi(getenv("FLUSH_DELAY_US"))); }
int fdatasync(int fd) { delay(); return (int)syscall(SYS_fdatasync, fd); }
int fsync(int fd) { delay(); return (int)syscall(SYS_fsync, fd); }
ssize_t pwritev2(int fd, const struct iovec* pieces, int count, off_t at, int flags) {
  if (flags & RWF_DSYNC) delay();
  return syscall(SYS_pwritev2, fd, pieces, count, (long)at, 0L, flags);
}
"""


class Bench:
    def __init__(self, given):
        self.given = given
        self.programs = {True: given.redis / "bin/redis-server", False: given.redis / "plain/redis-server"}

    def server(self, side, *directives, environment=None):
        memlith, own, _ = SIDES[side]
        directives = [NO_SAVE, ("memlith-log-size", f"{self.given.log_mib}mb"), *own, *directives]
        if not memlith:
            directives = [each for each in directives if not each[0].startswith("memlith")]
        return Server(self.programs[bool(memlith)], self.given.dir / "redis-bench" / side, memlith, directives,
                      environment=environment)

    def load(self, server, **options):
        """The report of memlith-redis-load."""
        words = [self.given.bin / "memlith-redis-load", "--socket", server.folder / "s", "--value-bytes",
                 str(self.given.value_bytes)]
        for name, value in options.items():
            words += [f"--{name}"] if value is True else [f"--{name}", str(value)]
        told = subprocess.run(words, capture_output=True, text=True, check=False)
        if told.returncode != 0:
            sys.exit(f"{server.folder.name}: {told.stderr}\n{server.log()[-2000:]}")
        return json.loads(told.stdout) if told.stdout else None

    def tell(self, suite, side, workload, threads, runs, **more):
        """A line: throughput of all runs, the median of each percentile."""
        line = {"suite": f"redis-{suite}", "side": side, "workload": workload, "durability": SIDES[side][2],
                "threads": threads, "ops_per_s": round(sum(run["ops"] for run in runs) /
                                                       sum(run["seconds"] for run in runs))}
        for name in contest.PERCENTILES:
            line[name] = round(statistics.median(run[name] for run in runs), 1)
        line["max_us"] = round(max(run["max_us"] for run in runs), 1)
        contest.say(self.given, line | more)

    def filled(self, sides):
        servers = {side: self.server(side).fresh().start() for side in sides}
        for server in servers.values():
            self.load(server, keys=self.given.keys, fill=True)
        return servers

    def mixes(self):
        servers = self.filled(self.given.sides)
        for clients in self.given.clients:
            for writes in self.given.writes:
                def turn(side, clients=clients, writes=writes):
                    return self.load(servers[side], clients=clients, writes=writes, keys=self.given.keys,
                                     seconds=self.given.seconds)

                runs = contest.in_turns(self.given.rounds, servers, turn)
                for side, told in runs.items():
                    more = {}
                    if SIDES[side][0]:
                        info = servers[side].info()
                        more = {"cut_max_us": int(info["memlith_cut_max_us"]),
                                "waits_for_room": int(info["memlith_waits_for_room"])}
                    self.tell("mixes", side, f"{writes}% SET", clients, told, **more)
        for server in servers.values():
            server.stop()

    def pauses(self):
        """SET by 10 clients; beside it, a child writes a file: a new append-only file, or an RDB file."""
        jobs = [("memlith-strong", None), ("memlith-strong", "BGSAVE"), ("aof-always", None),
                ("aof-always", "BGREWRITEAOF"), ("aof-always", "BGSAVE")]
        servers = self.filled(["memlith-strong", "aof-always"])

        def turn(job):
            side, command = job
            ending = threading.Event()
            again = threading.Thread(target=repeat, args=(servers[side], command, ending))
            again.start()
            told = self.load(servers[side], clients=10, keys=self.given.keys, seconds=self.given.seconds)
            ending.set()
            again.join()
            return told

        for (side, command), told in contest.in_turns(self.given.rounds, jobs, turn).items():
            self.tell("pauses", side, f"100% SET, {command or 'nothing beside'}", 10, told)
        for server in servers.values():
            server.stop()

    def readers(self):
        """Clients that only read, beside one that only writes."""
        library = self.given.dir / "redis-bench" / "slow-flushes.so"
        library.parent.mkdir(parents=True, exist_ok=True)
        subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", library, "-x", "c", "-"], input=SLOW_FLUSHES, text=True,
                       check=True)
        for delay_us in self.given.flush_delays_us:
            environment = {**os.environ, "LD_PRELOAD": str(library), "FLUSH_DELAY_US": str(delay_us)}
            servers = {side: self.server(side, environment=environment).fresh().start() for side in self.given.sides}
            for server in servers.values():
                self.load(server, keys=self.given.keys, fill=True)

            def turn(side, servers=servers):
                same = {"keys": self.given.keys, "seconds": self.given.seconds}
                with futures.ThreadPoolExecutor() as pool:
                    writer = pool.submit(self.load, servers[side], clients=1, writes=100, **same)
                    read = self.load(servers[side], clients=4, writes=0, **same)
                    return writer.result(), read

            for side, told in contest.in_turns(self.given.rounds, servers, turn).items():
                more = {"flush_delay_us": delay_us}
                self.tell("readers", side, "SET beside 4 that GET", 1, [written for written, _ in told], **more)
                self.tell("readers", side, "GET beside 1 that SETs", 4, [read for _, read in told], **more)
            for server in servers.values():
                server.stop()

    def start(self):
        """From the process's begin to the first reply."""
        for millions in self.given.start_millions:
            keys = int(millions * 1_000_000)
            for side, ending in (("memlith-strong", "stop"), ("memlith-strong", "kill"), ("aof-no", "rdb"),
                                 ("aof-no", "kill")):
                server = self.server(side).fresh().start()
                self.load(server, keys=keys, fill=True)
                client = server.client()
                if ending == "rdb":
                    client("SAVE")
                    server.kill()
                    config = server.folder / "redis.conf"
                    config.write_text(config.read_text(encoding="utf-8") + "appendonly no\n", encoding="utf-8")
                elif ending == "stop":
                    server.stop()
                else:
                    server.kill()
                took = []
                for _ in range(self.given.rounds):
                    began = time.monotonic()
                    server.start()
                    took.append(time.monotonic() - began)
                    assert server.client()("DBSIZE") == keys
                    server.kill()
                what = {"stop": "kv store", "kill": "after kill -9", "rdb": "RDB file"}[ending]
                contest.say(self.given, {"suite": "redis-start", "side": "plain" if ending == "rdb" else side,
                          "workload": f"start, {what}", "durability": SIDES[side][2], "threads": 1, "keys": keys,
                          "ops_per_s": round(keys / min(took)), "seconds": round(min(took), 3)})


def repeat(server, command, ending):
    """The command whenever no child writes, until it is enough."""
    client = server.client()
    while command and not ending.is_set():
        try:
            client(command)
        except Refused:
            pass  # one is under way
        except Gone:
            return
        ending.wait(0.05)
    while command and any(server.info(client)[name] == "1" for name in ("rdb_bgsave_in_progress",
                                                                       "aof_rewrite_in_progress")):
        time.sleep(0.02)


def main():
    suites = {"mixes": Bench.mixes, "pauses": Bench.pauses, "readers": Bench.readers,
              "start": Bench.start}
    options = contest.options_of(__doc__, folder="where the servers' files go", rounds=3, suites=suites)
    options.add_argument("--redis", required=True, type=pathlib.Path, help="what build.py has made")
    options.add_argument("--clients", type=contest.numbers, default=[1, 10, 40])
    options.add_argument("--writes", type=contest.numbers, default=[10, 20, 40, 60, 80, 100], help="per cent of SET")
    options.add_argument("--sides", type=contest.names(SIDES), default=list(SIDES))
    options.add_argument("--seconds", type=float, default=3)
    options.add_argument("--flush-delays-us", type=contest.numbers, default=[0, 10_000], help="of the suite readers")
    options.add_argument("--keys", type=int, default=100_000)
    options.add_argument("--value-bytes", type=int, default=100)
    options.add_argument("--log-mib", type=int, default=4, help="memlith-log-size; 4 is a quarter of the data")
    options.add_argument("--start-millions", type=lambda text: [float(each) for each in text.split(",")], default=[1.0],
                         help="keys: 1,5,10")
    given = options.parse_args()
    bench = Bench(given)
    try:
        for suite in contest.chosen(given):
            suites[suite](bench)
    finally:
        Server.kill_all()


if __name__ == "__main__":
    main()
