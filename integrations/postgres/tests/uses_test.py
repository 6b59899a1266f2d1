#!/usr/bin/env python3
"""PostgreSQL on memlith, used in other ways than by clients alone:

- unlogged and temporary tables: not in the page log; kept over a clean stop, empty after a crash, as stock;
- a stock standby: refused with a sentence on both sides, and warned of where it is allowed; one with memlith follows;
- `pg_basebackup` from the server under load, and two streaming replicas made of it, a stock one and one with memlith,
  which is killed while it streams; both have what the primary has, also when they are promoted;
- `debug_io_direct=data`, which PostgreSQL 17 has: refused at the start, with a sentence;
- archive recovery of the same backup with memlith, killed on its way: everything that was archived is there.

All clusters have data checksums, which are verified at the end. --rounds: of the backups, replicas and recoveries; none
in ctest.
Exit code 77: this machine lacks PostgreSQL 15 or 17.
"""
import json
import shutil
import subprocess
import sys
import time

from server import BIN, VERSION, Load, Server, skip_without_postgres
from foreign import Wrong, options_of, seeded_random

ROWS = 30_000  # of 200 bytes, more than shared_buffers holds
FILL = f"insert into {{}} select i, repeat(md5(i::text), 6) from generate_series(1, {ROWS}) i"


class Uses:
    def __init__(self, given, chance):
        self.given, self.chance, self.acknowledged, self.kills = given, chance, 0, 0
        work = given.work
        self.primary = Server(work / "primary", given.plugin)
        self.primary.variables = ["MEMLITH_POSTGRES_STANDBYS=any"]  # of the stock replicas
        self.archive = self.primary.own(work / "archive")
        self.copies = []

    def remove(self):
        for server in (self.primary, *self.copies):
            server.remove()
        shutil.rmtree(self.archive, ignore_errors=True)

    def make(self):
        self.remove()
        self.primary.own(self.archive)
        self.primary.make()
        self.primary.configure(archive_mode="on", archive_command=f"cp %p {self.archive}/%f",
                               wal_keep_size="1GB")
        self.primary.start().fill()

    # ---- relations without a log
    def logged_bytes(self, text):
        """The bytes that the page log has taken when this is done and checkpointed."""
        def now():
            # The keeper shows its counters up to 50 ms later, or more on a machine that is busy.
            seen = []
            while seen[-3:].count(seen[-1] if seen else None) < 3:
                time.sleep(0.1)
                told = self.primary.call(self.given.memlith, "--json", "stat", f"{self.primary.data}.memlith/store")
                seen.append(json.loads(told.stdout)["logged_bytes"])
            return seen[-1]
        before = now()
        self.primary.sql(text)
        self.primary.sql("checkpoint")
        return now() - before

    def without_log(self):
        server = self.primary
        for kind, table in (("", "plain"), ("unlogged", "quick")):
            server.sql(f"create {kind} table {table}(i int primary key, v text)")
        plain, quick = (self.logged_bytes(FILL.format(table)) for table in ("plain", "quick"))
        brief = self.logged_bytes("set temp_buffers = '800kB'; create temp table brief(i int primary key, v text); "
                                  + FILL.format("brief"))
        if plain < ROWS * 200 or max(quick, brief) > plain / 10:
            raise Wrong(f"logged bytes: {plain} of a table, {quick} of an unlogged one, {brief} of a temporary one")
        for switch in ("logged", "unlogged"):
            server.sql(f"alter table quick set {switch}; update quick set i = -i where i % 7 = 0")
        self.expect_rows("quick", ROWS)
        server.stop()
        server.start()
        self.expect_rows("quick", ROWS)
        server.kill()
        server.start()
        self.expect_rows("quick", 0)
        self.expect_rows("plain", ROWS)
        server.sql(FILL.format("quick"))
        server.sql("select bt_index_parent_check('quick_pkey', true)")
        self.expect_rows("quick", ROWS)

    def direct_pages(self):
        if VERSION < 16:
            return
        self.primary.stop()
        direct = Server(self.given.work / "primary", self.given.plugin, debug_io_direct="data")
        if direct.try_start():
            raise Wrong("a server with debug_io_direct=data has started")
        if 'memlith: the server\'s setting debug_io_direct is "data"' not in direct.log.read_text(errors="replace"):
            raise Wrong(f"the server does not say why it does not start{direct.said()}")
        self.primary.start()

    def standbys(self):
        """A stock standby, and the same one with memlith."""
        refused = "runs without memlith, and this server's log has no full page images"
        allowed, self.primary.variables = self.primary.variables, []
        self.restart()
        standby = self.copy("standby", None)
        standby.start()
        standby.wait(lambda: refused in standby.log.read_text(errors="replace"), "the standby is told why")
        if f"FATAL:  the standby \"walreceiver\" {refused}" not in self.primary.log.read_text(errors="replace"):
            raise Wrong(f"the primary's log does not name the standby{self.primary.said()}")
        self.primary.sql("create table seen_by_standbys(i int)")
        if standby.sql("select count(*) from pg_class where relname = 'seen_by_standbys'") != "0":
            raise Wrong("a standby without memlith follows")
        standby.stop()
        standby.plugin = self.primary.plugin
        self.expect_following(standby.start())
        standby.stop()
        standby.plugin, self.primary.variables = None, allowed
        self.restart()
        self.expect_following(standby.start())
        if f"WARNING:  the standby \"walreceiver\" {refused}" not in self.primary.log.read_text(errors="replace"):
            raise Wrong(f"the primary does not warn of a standby that it allows{self.primary.said()}")
        standby.stop()
        self.copies.remove(standby)
        standby.remove()

    def restart(self):
        self.primary.stop()
        self.primary.start()

    def expect_following(self, standby):
        wanted = self.primary.sql("select pg_current_wal_flush_lsn()")
        standby.wait(lambda: standby.sql(f"select pg_last_wal_replay_lsn() >= '{wanted}'") == "t",
                     "the standby follows")

    def expect_rows(self, table, rows):
        found = self.primary.sql(f"set enable_indexonlyscan = off; select count(v) from {table}")
        if int(found) != rows:
            raise Wrong(f"{table} has {found} rows, not {rows}")

    # ---- copies
    def copy(self, name, plugin, source=None):
        """A copy of the primary, or of a copy of it that was never started."""
        server = Server(self.given.work / name, plugin)
        server.remove()
        server.prepare()
        self.copies.append(server)
        if source is None:
            server.call(BIN / "pg_basebackup", "-h", self.primary.socket, "-U", "postgres", "-D", server.data, "-c",
                        "fast", "-R")
            server.call(BIN / "pg_verifybackup", server.data)
            server.configure(archive_mode="off")
        else:
            subprocess.run(["cp", "-a", source.data, server.data], check=True)
        return server

    def follow(self, replica, counters):
        self.expect_following(replica)
        if replica.counters() != counters:
            raise Wrong("the replica has other rows than the primary")

    def kill_on_its_way(self, server):
        time.sleep(self.chance.random())
        server.kill()
        self.kills += 1
        server.start()

    def promote(self, server):
        server.call(BIN / "pg_ctl", "-D", server.data, "-w", "promote")
        server.check()
        server.sql("update ack set n = n + 1; checkpoint")
        server.stop()
        server.check_checksums()

    def replicas_and_recovery(self):
        load = Load(self.primary)
        try:
            stock = self.copy("stock", None)
            replica = self.copy("replica", self.given.plugin, stock)
            restored = self.copy("restored", self.given.plugin, stock)
            for server in (stock, replica):
                server.start()
            self.kill_on_its_way(replica)
            if not load.runs():
                raise Wrong(f"the load has ended by itself{self.primary.said()}")
        finally:
            counts = load.end()
        self.acknowledged += sum(counts.values())
        load.compare(counts)
        counters = self.primary.counters()
        for server in (stock, replica):
            self.follow(server, counters)
        segment = self.primary.sql("select pg_walfile_name(pg_switch_wal())")
        self.primary.wait((self.archive / segment).exists, "the log is archived")
        for server in (stock, replica):
            self.promote(server)

        (restored.data / "standby.signal").rename(restored.data / "recovery.signal")
        restored.configure(primary_conninfo="", restore_command=f"cp {self.archive}/%f %p")
        starting = restored.begin_start()
        time.sleep(self.chance.random())
        restored.kill()
        starting.wait()
        self.kills += 1
        restored.start()
        restored.wait(lambda: restored.sql("select pg_is_in_recovery()") == "f", "the recovery ends")
        if restored.counters() != counters:
            raise Wrong("the recovered server has other rows than the primary")
        restored.check()
        restored.stop()
        restored.check_checksums()
        for server in self.copies:
            server.remove()
        self.copies.clear()

    def run(self):
        self.make()
        self.without_log()
        self.direct_pages()
        self.standbys()
        for number in range(self.given.rounds):
            self.replicas_and_recovery()
            if number % 10 == 9:
                print(f"{number + 1} rounds, {self.kills} kills", flush=True)
        self.primary.stop()
        self.primary.check_checksums()


def main():
    options = options_of(__doc__, "plugin", "memlith")
    options.add_argument("--rounds", type=int, default=0)
    given = options.parse_args()
    skip_without_postgres(given.plugin)
    uses, began = Uses(given, seeded_random("the times, not how processes run")), time.monotonic()
    try:
        uses.run()
    except Wrong as wrong:
        print(f"FAILED: {wrong}")
        for server in (uses.primary, *uses.copies):
            server.kill()
        return 1
    uses.remove()
    print(f"{given.rounds} backups, each with two replicas and an archive recovery, {uses.kills} kills, "
          f"{uses.acknowledged} acknowledged transactions, all there; {time.monotonic() - began:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
