"""Debian's PostgreSQL in a folder, with or without memlith, under load, with its acknowledged transactions counted."""
import contextlib
import os
import pathlib
import pwd
import shutil
import signal
import subprocess
import sys
import time

# At the end: the rig has modules of the same names as others.
sys.path.append(str(pathlib.Path(__file__).resolve().parents[3] / "tests/power/rig"))
from foreign import Wrong, skip, skip_without, until  # noqa: E402 pylint: disable=wrong-import-position

VERSION = 17 if pathlib.Path("/usr/lib/postgresql/17").exists() else 15
BIN = pathlib.Path(f"/usr/lib/postgresql/{VERSION}/bin")
CLIENTS = 4
PATIENCE_S = 120
SETTINGS = {
    "shared_buffers": "4MB", "checkpoint_timeout": "30s", "max_wal_size": "64MB", "min_wal_size": "32MB",
    "autovacuum_naptime": "1s", "autovacuum_vacuum_scale_factor": "0.02", "bgwriter_delay": "20ms",
    "wal_buffers": "256kB", "listen_addresses": "", "max_connections": "20", "max_parallel_workers": "0",
}
# Each transaction adds one to its client's counter, which tells what the client had acknowledged.
LOAD = r"""
\set aid random(1, 100000)
\set tid random(1, 10)
\set delta random(-5000, 5000)
\set r random(1, 1000000)
BEGIN;
UPDATE pgbench_accounts SET abalance = abalance + :delta WHERE aid = :aid;
UPDATE pgbench_tellers SET tbalance = tbalance + :delta WHERE tid = :tid;
UPDATE pgbench_branches SET bbalance = bbalance + :delta WHERE bid = 1;
INSERT INTO pgbench_history (tid, bid, aid, delta, mtime) VALUES (:tid, 1, :aid, :delta, CURRENT_TIMESTAMP);
INSERT INTO junk VALUES (:r, md5(:r::text));
DELETE FROM junk WHERE k < :r - 900000;
INSERT INTO unlogged VALUES (:r, md5(:r::text)) ON CONFLICT DO NOTHING;
UPDATE ack SET n = n + 1 WHERE c = :client_id;
END;
"""
SCHEMA = """create extension amcheck;
create table ack(c int primary key, n int);
insert into ack select i, 0 from generate_series(0, 7) i;
create index on pgbench_accounts(abalance);
create table junk(k int, v text);
create index on junk(v);
create unlogged table unlogged(k int primary key, v text);"""
SUMS = """set enable_indexscan = off; set enable_bitmapscan = off; set enable_indexonlyscan = off;
select (select sum(abalance) from pgbench_accounts) = (select sum(tbalance) from pgbench_tellers)
  and (select sum(bbalance) from pgbench_branches) = (select sum(tbalance) from pgbench_tellers)
  and (select coalesce(sum(delta), 0) from pgbench_history) = (select sum(tbalance) from pgbench_tellers)
  and (select count(*) from pgbench_accounts) = 100000"""
INDEXES = """select count(bt_index_parent_check(c.oid, true)::text) from pg_class c join pg_am a on a.oid = c.relam
where c.relkind = 'i' and a.amname = 'btree' and c.relpersistence in ('p', 'u')"""
HEAPS = """select c.relname, (verify_heapam(c.oid)).msg from pg_class c
where relkind in ('r', 't', 'm') and c.relpersistence in ('p', 'u')"""


def skip_without_postgres(*needed):
    skip_without(BIN / "initdb", BIN / "postgres", shutil.which("setpriv") or "setpriv", *needed)


def as_user():
    """PostgreSQL refuses to run as root."""
    if os.geteuid() != 0:
        return []
    for name in ("postgres", "nobody"):
        with contextlib.suppress(KeyError):
            user = pwd.getpwnam(name)
            return ["setpriv", f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups"]
    return skip("there is no user that PostgreSQL would run as")


class Server:
    """A cluster in `folder`/data. `plugin`: memlith_postgres.so, which overrules `fpw`, or None for stock. `pages`: the
    folder of memlith's log, if it is not the one beside the data; `log_mib`: its size."""

    def __init__(self, folder, plugin=None, fpw="on", pages=None, log_mib=16, **settings):
        self.folder, self.fpw = pathlib.Path(folder).resolve(), fpw
        self.plugin = pathlib.Path(plugin).resolve() if plugin else None
        self.data, self.log = self.folder / "data", self.folder / "log.txt"
        self.log_mib = log_mib
        self.pages = pages or self.folder / "data.memlith"
        self.scripts = self.folder.parent / f"{self.folder.name}.load"
        self.settings = SETTINGS | settings
        self.variables = []  # more of the environment of a server with memlith, NAME=VALUE
        # A short path, as sockets need, which a killed server may leave behind.
        self.socket = pathlib.Path(f"/tmp/memlith-pg-{os.getpid()}-{self.folder.name}")
        self.user = as_user()

    def call(self, *words, check=True, timeout=PATIENCE_S):
        done = subprocess.run([*self.user, *map(str, words)], capture_output=True, text=True, timeout=timeout, cwd="/",
                              check=False)
        if check and done.returncode != 0:
            raise Wrong(f"{words[0]} failed: {(done.stdout + done.stderr)[-1500:]}{self.said()}")
        return done

    def own(self, path):
        path.mkdir(parents=True, exist_ok=True)
        if os.geteuid() == 0:
            uid, gid = (int(word.split("=")[1]) for word in self.user[1:3])
            os.chown(path, uid, gid)
        return path

    def said(self):
        with contextlib.suppress(OSError):
            lines = self.log.read_text(errors="replace").splitlines()
            notable = [line for line in lines[-60:] if any(w in line for w in ("PANIC", "FATAL", "ERROR", "memlith"))]
            return "\n" + "\n".join(notable[-12:])
        return ""

    # ---- life
    def prepare(self):
        """The folders, for a data directory that is made in another way."""
        for folder in (self.folder, self.socket, self.scripts):
            self.own(folder)
        (self.scripts / "load.sql").write_text(LOAD)
        return self

    def make(self):
        self.prepare().call(BIN / "initdb", "-D", self.data, "-k", "-U", "postgres", "-A", "trust", "--no-sync",
                  "--wal-segsize=4")
        return self

    def configure(self, **settings):
        """In the data directory, and so in every copy of it."""
        with (self.data / "postgresql.auto.conf").open("a") as file:
            file.writelines(f"{name} = '{value}'\n" for name, value in settings.items())

    def words(self):
        options = {**self.settings, "full_page_writes": self.fpw, "unix_socket_directories": str(self.socket)}
        return " ".join(f"-c {name}={value}" if value else f"-c {name}=" for name, value in options.items())

    def environment(self):
        if self.plugin is None:
            return []
        return ["env", f"LD_PRELOAD={self.plugin}", f"MEMLITH_POSTGRES_LOG_MIB={self.log_mib}",
                f"MEMLITH_POSTGRES_LOG={self.pages}", *self.variables]

    def start_words(self):
        self.own(self.socket)
        return [*self.environment(), str(BIN / "pg_ctl"), "-D", str(self.data), "-w", "-t", str(PATIENCE_S), "-l",
                str(self.log), "-o", self.words(), "start"]

    def try_start(self):
        # Not its output: the server would keep the pipe open.
        done = subprocess.run([*self.user, *self.start_words()], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                              timeout=2 * PATIENCE_S, cwd="/", check=False)
        return done.returncode == 0

    def begin_start(self):
        return subprocess.Popen([*self.user, *self.start_words()], stdout=subprocess.DEVNULL,
                                stderr=subprocess.DEVNULL, cwd="/")

    def start(self):
        if not self.try_start():
            raise Wrong(f"the server does not start{self.said()}")
        if (self.keeper() is not None) != (self.plugin is not None):
            raise Wrong(f"the server runs {'without' if self.plugin else 'with'} memlith{self.said()}")
        return self

    def stop(self, mode="fast"):
        self.call(BIN / "pg_ctl", "-D", self.data, "-w", "-t", PATIENCE_S, "-m", mode, "stop")

    def processes(self):
        """The processes of the server, and its keeper: {pid: name}."""
        found = {}
        for entry in os.listdir("/proc"):
            if entry.isdigit():
                with contextlib.suppress(OSError):
                    folder = os.readlink(f"/proc/{entry}/cwd")
                    if folder in (str(self.data), str(self.pages)):
                        words = pathlib.Path(f"/proc/{entry}/cmdline").read_text().replace("\0", " ").strip()
                        if words:
                            found[int(entry)] = words
        return found

    def keeper(self):
        return next((pid for pid, name in self.processes().items() if "memlith keeper" in name), None)

    def backends(self):
        return [pid for pid, name in self.processes().items() if "postgres: postgres b" in name]

    def signal_all(self, *, keeper=True):
        """Everything at once. A keeper that outlives the others for a moment may end the use of the directory, so it is
        stopped first. Whether something was left."""
        found = self.processes()
        keepers = [pid for pid, name in found.items() if "memlith keeper" in name]
        others = [pid for pid in found if pid not in keepers]
        signals = [(signal.SIGSTOP, keepers)] if keeper else []
        for number, pids in [*signals, (signal.SIGKILL, others + (keepers if keeper else []))]:
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, number)
        return bool(others or (keeper and keepers))

    def kill_processes(self, *, keeper=True):
        until(lambda: not self.signal_all(keeper=keeper), "processes are killed", PATIENCE_S)

    def kill(self, *, keeper=True):
        self.kill_processes(keeper=keeper)
        self.forget_process()

    def forget_process(self):
        """The process named in a killed postmaster's file may be a zombie still, or another one by now."""
        for left in (self.data / "postmaster.pid", *self.socket.glob(".s.PGSQL*")):
            left.unlink(missing_ok=True)

    def remove(self):
        self.kill()
        for folder in (self.folder, self.socket, self.scripts):
            shutil.rmtree(folder, ignore_errors=True)

    # ---- use
    def sql(self, text, database="b", check=True):
        done = self.call(BIN / "psql", "-h", self.socket, "-U", "postgres", "-AtqX", "-v", "ON_ERROR_STOP=1", "-d",
                         database, "-c", text, check=check)
        return done.stdout.strip()

    def fill(self):
        self.sql("create database b", "postgres")
        self.call(BIN / "pgbench", "-h", self.socket, "-U", "postgres", "-i", "-s", "1", "-q", "b")
        self.sql(SCHEMA)

    def wait(self, what, sentence):
        until(what, lambda: f"{sentence}{self.said()}", PATIENCE_S / 2)

    def counters(self):
        return dict(tuple(map(int, line.split("|"))) for line in self.sql("select c, n from ack").splitlines())

    def check_checksums(self):
        """The state of a server that was stopped."""
        self.call(BIN / "pg_checksums", "--check", "-D", self.data)

    def check(self):
        """Checks that tables, indexes and sums agree."""
        for what, query, wanted in (("sums", SUMS, "t"), ("indexes", INDEXES, None), ("heaps", HEAPS, "")):
            found = self.sql(query)
            if wanted is not None and found != wanted:
                raise Wrong(f"{what}: {found[-300:]}")


class Load:
    """pgbench until it is ended, or the server ends; counts what was acknowledged to each client."""

    def __init__(self, server):
        self.server = server
        self.before = server.counters()
        for log in server.scripts.glob("acknowledged*"):
            log.unlink()
        self.process = subprocess.Popen(
            [*server.user, str(BIN / "pgbench"), "-h", str(server.socket), "-U", "postgres", "-n", "-T", "600", "-c",
             str(CLIENTS), "-j", "1", "-l", f"--log-prefix={server.scripts}/acknowledged", "-f",
             str(server.scripts / "load.sql"), "b"], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
            cwd="/")

    def runs(self):
        return self.process.poll() is None

    def disturb(self, chance, seconds):
        """Lets it run, with checkpoints and truncations."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if chance.random() < 0.4:
                self.server.sql("checkpoint")
            if chance.random() < 0.15:
                self.server.sql("truncate junk")
            time.sleep(chance.random() * 0.3)

    def end(self):
        """Transactions acknowledged to each client."""
        with contextlib.suppress(ProcessLookupError):
            self.process.terminate()
        self.process.communicate()
        counts = {}
        for log in self.server.scripts.glob("acknowledged*"):
            for line in log.read_text().splitlines(keepends=True):
                if line.endswith("\n"):
                    client = int(line.split()[0])
                    counts[client] = counts.get(client, 0) + 1
        return counts

    def compare(self, counts):
        """True if the server has them. pgbench buffers what it prints, so the server may have more."""
        now = self.server.counters()
        for client, count in counts.items():
            if now[client] < self.before[client] + count:
                raise Wrong(f"client {client}: {self.before[client]} + {count} acknowledged, {now[client]} found")
