#!/usr/bin/env python3
"""PostgreSQL on memlith, whose disk is full, or fails, under a running server: what was acknowledged is there when the
disk is well again, and the server's log says what was wrong.

- A full file system, of the data directory, or of it and memlith's log; then there is space again.
- A full file system of the log alone: a server that has no log yet is refused, any other goes on.
- EIO for a write or a flush of the keeper, or for flushes of the server itself, by strace.

Exit code 77: this machine lacks PostgreSQL 15 or 17, root, loop devices or strace.
"""
import contextlib
import os
import pathlib
import shutil
import subprocess
import sys
import time

from server import BIN, PATIENCE_S, Load, Server, skip_without_postgres
from common import Unable
from foreign import Wrong, options_of, seeded_random, skip
from mounts import enter_namespace

sys.path.append(str(pathlib.Path(__file__).resolve().parents[3] / "bench/kit"))
from loop_device import loop_device  # noqa: E402 pylint: disable=wrong-import-position

KINDS = ("full-both", "keeper-flush", "full-log", "keeper-write", "full-data", "server-flush")
CALLS = {"keeper-flush": "fdatasync,fsync", "keeper-write": "pwrite64,pwritev,pwritev2", "server-flush": "fsync"}
DISK_MIB = 256
KEEPER_GONE_S = 3  # PostgreSQL may go on without one, as long as nothing has to be flushed
SENTENCES = {"full": "No space left on device", "keeper": "memlith: the server's pages cannot be kept any more",
             "server": "Input/output error"}


class Faults:
    def __init__(self, given, chance, disk):
        self.given, self.chance, self.disk = given, chance, disk
        self.acknowledged, self.stopped, self.counts = 0, 0, dict.fromkeys(KINDS, 0)
        if os.geteuid() == 0:  # PostgreSQL's user has to get there
            for folder in (disk, disk.parent):
                folder.chmod(folder.stat().st_mode | 0o011)
        self.server = None

    def server_for(self, kind):
        """On the small disk what the fault is about."""
        plain = self.given.work / "fault"
        folder = plain if kind == "full-log" else self.disk / "fault"
        pages = {"full-log": self.disk / "pages", "full-data": plain / "pages"}.get(kind)
        self.server = Server(folder, self.given.plugin, pages=pages)
        self.server.scripts = self.given.work / "fault.load"  # what is said has space
        self.server.log = self.server.scripts / "log.txt"
        self.server.remove()
        for place in (self.disk / "pages", plain):
            shutil.rmtree(place, ignore_errors=True)
        if pages is not None:
            self.server.own(pages.parent if kind == "full-data" else pages)
        return self.server

    def fill_disk(self):
        ballast = self.disk / "ballast"
        with contextlib.suppress(OSError), ballast.open("wb", buffering=0) as file:
            while True:
                file.write(bytes(1 << 16))
        return ballast

    def grow(self):
        """Fills space until the server notices that there is none, or has stopped. The rows go straight into the
        table: a temporary file in a folder that could not be made would hide the lack of space."""
        for text in ("checkpoint", "create table more as select repeat('x', 100), generate_series(1, 2000000)",
                     "checkpoint"):
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.server.sql(text, check=False)

    def refused_first(self, kind):
        ballast = self.fill_disk()
        try:
            if self.server.try_start():
                raise Wrong("a server whose log has no space has started")
            if not self.says(kind):
                raise Wrong(f"the server's log does not say what is wrong{self.server.said()}")
        finally:
            ballast.unlink()

    def full(self, kind, load):
        ballast = self.fill_disk()
        try:
            self.grow()
            if kind == "full-log" and not load.runs():
                raise Wrong(f"a full disk has stopped the load, whose log had its space{self.server.said()}")
            if self.chance.random() < 0.5:
                self.server.kill()
                self.server.try_start()
        finally:
            ballast.unlink()

    def says(self, kind):
        return SENTENCES[kind.split("-", maxsplit=1)[0]] in self.server.log.read_text(errors="replace")

    def fail(self, kind):
        """The n-th such call fails, and all later ones, as of a disk that is gone."""
        server, end = self.server, time.monotonic() + PATIENCE_S / 4
        pids = [server.keeper()] if kind.startswith("keeper") else list(server.processes())
        tracing = subprocess.Popen(
            ["strace", "-f", "-qq", "-o", "/dev/null", "-e", f"trace={CALLS[kind]}", "-e",
             f"inject={CALLS[kind]}:error=EIO:when={self.chance.randint(1, 6)}+",
             *(word for pid in pids for word in ("-p", str(pid)))], stderr=subprocess.DEVNULL)
        try:
            while not self.says(kind) and time.monotonic() < end:
                server.sql("checkpoint", check=False)
        finally:
            tracing.terminate()
            tracing.wait()

    def session(self, kind):
        server = self.server_for(kind)
        server.make()
        if kind == "full-log":
            self.refused_first(kind)
        server.start().fill()
        load = Load(server)
        try:
            time.sleep(0.3 + self.chance.random())
            if kind.startswith("full"):
                self.full(kind, load)
            else:
                self.fail(kind)
        finally:
            counts = load.end()
        if not self.says(kind):
            raise Wrong(f"the server's log does not say what is wrong{server.said()}")
        self.come_back()
        load.compare(counts)
        server.check()
        server.stop()
        server.check_checksums()
        self.acknowledged += sum(counts.values())
        self.counts[kind] += 1

    def come_back(self):
        """A server that goes on by itself does so soon. One without a keeper is stopped, if it has not stopped itself,
        and starts again."""
        server, began = self.server, time.monotonic()
        while server.processes():
            waited = time.monotonic() - began
            if server.keeper() is not None and server.sql("checkpoint; select 1", check=False) == "1":
                return
            if server.keeper() is None and waited > KEEPER_GONE_S:
                server.call(BIN / "pg_ctl", "-D", server.data, "-w", "-m", "immediate", "stop", check=False)
            if waited > PATIENCE_S / 2:
                raise Wrong(f"the server neither stops nor answers{server.said()}")
            time.sleep(0.1)
        self.stopped += 1
        server.forget_process()
        server.start()

    def run(self):
        for number in range(self.given.faults):
            kind = KINDS[number] if number < len(KINDS) else self.chance.choice(KINDS)
            try:
                self.session(kind)
            except Wrong as wrong:
                raise Wrong(f"{kind}: {wrong}") from wrong
            finally:
                self.server.remove()


def main():
    options = options_of(__doc__, "plugin")
    options.add_argument("--faults", type=int, default=2)
    given = options.parse_args()
    skip_without_postgres(given.plugin, shutil.which("strace") or "strace")
    chance, began = seeded_random("the kinds and the times, not how processes run"), time.monotonic()
    given.work.mkdir(parents=True, exist_ok=True)
    try:
        enter_namespace()
    except Unable as unable:
        skip(unable)
    with loop_device(given.work, DISK_MIB, ["mkfs.ext4", "-qF", "-m", "0"], "loop", print) as disk:
        if disk is None:
            return 77
        faults = Faults(given, chance, disk)
        try:
            faults.run()
        except Wrong as wrong:
            print(f"FAILED after {faults.counts}: {wrong}")
            return 1
    print(f"{given.faults} faults ({', '.join(f'{count} {kind}' for kind, count in faults.counts.items() if count)}), "
          f"{faults.stopped} of which took a new start, {faults.acknowledged} acknowledged transactions, all there; "
          f"{time.monotonic() - began:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
