#!/usr/bin/env python3
"""PostgreSQL on memlith beside stock PostgreSQL: ./dev bench postgres.

pgbench's simple-update and tpcb-like, on clusters whose pages have been updated at random before (fresh rows of pgbench
are mostly blanks, which compress unfairly well); with --modes tpcc the five transactions of TPC-C in their mix, and its
conditions of consistency at the end. The sides take turns, each with a cluster of its own, on an ext4 of their own on a
loop device where that is possible. A turn begins right after a checkpoint, and is a number of transactions (or
--seconds of them) and a CHECKPOINT. The lines tell transactions a second, latencies, bytes of the write-ahead log, what
the block layer sees for each transaction until everything is written, and the seconds of the checkpoint; and then how
memlith relates to each other side.

Sides: on (full_page_writes=on), lz4 (on, wal_compression=lz4), memlith, off (full_page_writes=off: pages that a power
cut tears are lost; the bound, not a choice). All but `off` are as durable as each other.
"""
import os
import pathlib
import re
import shutil
import statistics
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path[:0] = [str(ROOT / "bench/kit"), str(ROOT / "integrations/postgres/tests")]
import contest  # noqa: E402 pylint: disable=wrong-import-position
from disk_counts import DiskCounts  # noqa: E402 pylint: disable=wrong-import-position
from server import BIN, Server, Wrong  # noqa: E402 pylint: disable=wrong-import-position

SIDES = {"on": {"fpw": "on"}, "lz4": {"fpw": "on", "wal_compression": "lz4"}, "memlith": {}, "off": {"fpw": "off"}}
MODES = {"simple-update": ["-N"], "tpcb-like": []}
TPCC = pathlib.Path(__file__).resolve().parent / "tpcc"
TPCC_MIX = {"new_order": 45, "payment": 43, "order_status": 4, "delivery": 4, "stock_level": 4}  # per cent
LONGEST_S = 3600  # for one run of pgbench
COUNTS = ("wal_bytes", "disk_bytes", "disk_writes", "disk_flushes")


class Bench:
    def __init__(self, given, folder, is_own):
        self.given, self.folder, self.disk = given, folder, DiskCounts(folder, is_own)

    def server(self, side, name=None):
        settings = {"shared_buffers": self.given.shared_buffers, "checkpoint_timeout": self.given.checkpoint_timeout,
                    "max_wal_size": "16GB", "min_wal_size": "512MB", "autovacuum": "off", "max_connections": "50",
                    "wal_buffers": "16MB", "bgwriter_delay": "200ms"} | SIDES[side]
        fpw = settings.pop("fpw", "on")
        plugin = self.given.bin.parent / "lib/memlith_postgres.so" if side == "memlith" else None
        return Server(self.folder / (name or side), plugin, fpw, log_mib=64, **settings)  # the default

    def pgbench(self, server, *words):
        done = server.call(BIN / "pgbench", "-h", server.socket, "-U", "postgres", "-n", "-M", "prepared", *words, "b",
                           timeout=LONGEST_S)
        return float(re.search(r"tps = ([\d.]+)", done.stdout)[1])

    def make_clusters(self):
        """One cluster, filled and aged, and a copy of it for each side."""
        aged = self.server("on", "aged")
        aged.make().start()
        aged.sql("create database b", "postgres")
        if set(MODES) & set(self.given.modes):
            aged.call(BIN / "pgbench", "-h", aged.socket, "-U", "postgres", "-i", "-s", self.given.scale, "-q", "b",
                      timeout=LONGEST_S)
            self.pgbench(aged, "-N", "-c", 8, "-j", 2, "-t", max(self.given.age // 8, 1))
        if "tpcc" in self.given.modes:
            for file in TPCC.iterdir():
                shutil.copy(file, aged.scripts)
            aged.call(BIN / "psql", "-h", aged.socket, "-U", "postgres", "-qX", "-v",
                      f"warehouses={self.given.warehouses}", "-f", aged.scripts / "schema.sql", "b", timeout=LONGEST_S)
        aged.stop()
        for side in self.given.sides:
            server = self.server(side)
            server.own(server.folder)
            server.own(server.scripts)
            subprocess.run(["cp", "-a", aged.data, server.data], check=True)
        aged.remove()
        contest.sync(self.folder)

    def workload(self, server, mode):
        """The words for pgbench."""
        if mode != "tpcc":
            return MODES[mode]
        scripts = []
        for name, share in TPCC_MIX.items():
            shutil.copy(TPCC / f"{name}.sql", server.scripts)
            scripts += ["-f", f"{server.scripts}/{name}.sql@{share}"]
        return ["-D", f"warehouses={self.given.warehouses}", "--max-tries=10", *scripts]

    def turn(self, side, mode, clients):
        server = self.server(side).start()
        workload = self.workload(server, mode)
        try:
            tables = ("customer", "stock") if mode == "tpcc" else ("pgbench_accounts",)
            server.sql("create extension if not exists pg_prewarm; select "
                       + ", ".join(f"pg_prewarm('{name}', 'read'), pg_prewarm('{name}_pkey')" for name in tables))
            self.pgbench(server, *workload, "-c", clients, "-j", 2, "-t", max(self.given.warm_up // clients, 1))
            server.sql("checkpoint")
            contest.sync(self.folder)
            for log in server.scripts.glob("latencies*"):
                log.unlink()
            position = "select pg_current_wal_insert_lsn() - '0/0'::pg_lsn"
            wal, before = int(server.sql(position)), self.disk.now()
            length = ["-T", self.given.seconds] if self.given.seconds else ["-t", self.given.transactions // clients]
            tps = self.pgbench(server, *workload, "-c", clients, "-j", 2, *length, "-l",
                               f"--log-prefix={server.scripts}/latencies")
            wal, began = int(server.sql(position)) - wal, time.monotonic()
            server.sql("checkpoint")
            checkpoint_s = time.monotonic() - began
            contest.sync(self.folder)
            counts = self.disk.since(before)
            if mode == "tpcc" and (broken := server.sql("select condition, w_id from broken")):
                raise Wrong(f"{side}: TPC-C's conditions do not hold: {broken[:300]}")
        finally:
            server.stop()
        latencies = [int(line.split()[2]) for log in server.scripts.glob("latencies*")
                     for line in log.read_text().splitlines()]
        return {"ops": len(latencies), "tps": tps, "wal_bytes": wal, "checkpoint_s": checkpoint_s,
                **contest.percentiles(latencies), **counts}

    def measure(self, mode, clients):
        turns = contest.in_turns(self.given.rounds, self.given.sides, lambda side: self.turn(side, mode, clients),
                                 rotate=True)
        lines = {}
        for side, told in turns.items():
            ops = sum(turn["ops"] for turn in told)
            line = {"suite": "postgres", "side": side, "workload": mode,
                    "durability": "pages may tear" if side == "off" else "durable", "threads": clients,
                    "ops_per_s": round(statistics.median(turn["tps"] for turn in told)),
                    "checkpoint_s": round(statistics.median(turn["checkpoint_s"] for turn in told), 2)}
            for name in ("p50_us", "p99_us"):
                line[name] = statistics.median(turn[name] for turn in told)
            for name in COUNTS:
                if name in told[0]:
                    line[f"{name}_per_op"] = round(sum(turn[name] for turn in told) / ops, 2)
            contest.say(self.given, line)
            lines[side] = line
        self.say_ratios(lines)

    def say_ratios(self, lines):
        own = lines.pop("memlith", None)
        names = ("ops_per_s", "p99_us", "checkpoint_s", *(f"{name}_per_op" for name in COUNTS))
        for side, line in lines.items() if own else ():
            ratios = {name: round(own[name] / line[name], 3) for name in names if line.get(name)}
            contest.say(self.given, {"suite": "postgres", "side": f"memlith / {side}", "workload": line["workload"],
                      "threads": line["threads"], **ratios})


def main():
    options = contest.options_of(__doc__, folder="where the clusters, or the disk's image, go", rounds=None)
    contest.disk_options(options, None)
    options.add_argument("--long", action="store_true",
                         help="1, 4 and 16 clients, scale 50, 30,000 transactions a turn, 5 rounds, on 12 GiB")
    options.add_argument("--sides", type=contest.names(SIDES), default=list(SIDES))
    options.add_argument("--modes", type=contest.names((*MODES, "tpcc")), default=list(MODES))
    options.add_argument("--clients", type=contest.numbers)
    options.add_argument("--scale", type=int, help="of pgbench: 100,000 rows, 15 MB, each")
    options.add_argument("--warehouses", type=int, default=10, help="of tpcc: 100 MB each")
    options.add_argument("--age", type=int, help="updates at random before")
    options.add_argument("--transactions", type=int, help="of a turn")
    options.add_argument("--seconds", type=int, help="of a turn, instead of --transactions")
    options.add_argument("--warm-up", type=int, default=1000, help="transactions before each turn")
    options.add_argument("--shared-buffers", default="128MB")
    options.add_argument("--checkpoint-timeout", default="5min")
    given = options.parse_args()
    for name, short, long in (("clients", [4], [1, 4, 16]), ("scale", 5, 50), ("age", 20_000, 200_000),
                              ("transactions", 8000, 30_000), ("rounds", 2, 5), ("disk_mib", 4096, 12288)):
        if getattr(given, name) is None:
            setattr(given, name, long if given.long else short)
    with contest.own_disk(given, "postgres-bench") as (folder, is_own):
        bench = Bench(given, folder, is_own)
        if os.geteuid() == 0:  # the loop device's folder lies in one of root alone
            for parent in (bench.folder, bench.folder.parent):
                parent.chmod(parent.stat().st_mode | 0o011)
        try:
            bench.make_clusters()
            for mode in given.modes:
                for clients in given.clients:
                    bench.measure(mode, clients)
        finally:
            for name in ("aged", *given.sides):
                bench.server("on", name).remove()
            if not is_own:
                shutil.rmtree(bench.folder, ignore_errors=True)


if __name__ == "__main__":
    main()
