#!/usr/bin/env python3
"""Failure-atomic files beside plain ones: what `./dev bench files [SUITE...]` runs; without a suite, all.

    kyoto     Kyoto Cabinet's HashDB and TreeDB: one record replaced and made durable. Light load (one thread that
              thinks for 10 ms), and four threads flat out
    msync     1 to 1,024 random pages of a mapped file of 64 MiB, with pauses or without (--think-ms); also on ext4
              with data=journal and on XFS with reflinks, each on a loop device, as root
    size      what a sparse file of 1 MiB to 64 GiB takes when memlith_mmap opens it, and while 4,096 random pages are
              changed: memory and disk space; and the time of opening it, of one turn
    tycoon    examples/tycoon, a server over HTTP, at rising load
    overhead  a program whose files do not match, under `memlith run`

The sides of a line take turns; of each, the turn with the median of the mean times is shown. `write` is a program that
writes 4 KiB of an ordinary file and flushes it. --json prints one object a line.
"""
import itertools
import os
import pathlib
import statistics
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "kit"))
import contest  # noqa: E402 pylint: disable=wrong-import-position
from contest import told_by  # noqa: E402 pylint: disable=wrong-import-position
from loop_device import loop_device  # noqa: E402 pylint: disable=wrong-import-position


class Bench:
    def __init__(self, arguments):
        self.arguments, self.programs = arguments, arguments.bin

    def under_memlith(self, pattern, *options):
        return [self.programs / "memlith", "run", "--match", pattern, *options, "--"]

    def folder(self, parent=None):
        return contest.own_folder(parent or self.arguments.dir, "memlith-bench-files.")

    def in_turns(self, suite, workload, threads, sides):
        """`sides`: (name, durability, a function that measures once). One line for each."""
        measures = {name: measure for name, _, measure in sides}
        runs = contest.in_turns(self.arguments.rounds, measures, lambda name: measures[name]())
        for name, durability, _ in sides:
            contest.say(self.arguments, {"suite": suite, "side": name, "workload": workload, "durability": durability,
                                         "threads": threads} | contest.middle(runs[name], "mean_us"))

    def head(self, title):
        if not self.arguments.json:
            print(f"\n{title}", flush=True)

    # ---- kyoto

    def kyoto(self):
        self.head("Kyoto Cabinet: one record of 1 KiB of 10,000 replaced, durable")
        for kind, name in (("hash", "data.kch"), ("tree", "data.kct")):
            for threads, think_ms, load in ((1, 10, "light"), (4, 0, "full")):
                def side(how, prefix, kind=kind, name=name, threads=threads, think_ms=think_ms):
                    def measure():
                        with self.folder() as folder:
                            return told_by([*prefix, self.programs / "memlith-files-kyoto", folder / name, kind, how,
                                              threads, think_ms, self.arguments.seconds])
                    return measure
                memlith = self.under_memlith("data.kc*", "--commit", "fsync")
                self.in_turns("kyoto", f"{kind}-{load}", threads, [
                    ("write", "sync", side("write", [])), ("synchronize", "sync", side("synchronize", [])),
                    ("transactions", "sync", side("transactions", [])),
                    ("memlith", "sync", side("synchronize", memlith))])

    # ---- msync

    def loop(self, make, options):
        return loop_device(self.arguments.dir, 512, make, options, contest.say_aside)

    def msync(self):
        self.head("msync of random pages, every byte changed, of a file of 64 MiB")
        with self.loop(["mkfs.ext4", "-q", "-F", "-J", "size=128"], "loop,data=journal") as journal, \
             self.loop(["mkfs.xfs", "-q", "-f"], "loop") as xfs:
            places = [("msync", None, "msync"), ("msync, data=journal", journal, "msync"),
                      ("reflink", xfs, "reflink"), ("memlith", None, "memlith"),
                      ("memlith, guarded", None, "memlith-guard")]
            for pages, think_ms in itertools.product(self.arguments.pages, self.arguments.think_ms):
                def side(parent, how, pages=pages, think_ms=think_ms):
                    def measure():
                        with self.folder(parent) as folder:
                            return told_by([self.programs / "memlith-files-msync", folder, how, pages,
                                              self.arguments.seconds, think_ms])
                    return measure
                workload = f"{pages}-pages" + (f"-think-{think_ms}-ms" if think_ms else "")
                self.in_turns("msync", workload, 1, [(name, "sync", side(parent, how))
                                                             for name, parent, how in places
                                                             if parent is not None or name.find("journal") < 0
                                                             and name != "reflink"])

    # ---- size

    def size(self):
        self.head("A sparse file, mapped by memlith_mmap; 4,096 random pages changed, 64 a commit. Sizes in KiB")
        columns = ("opening_ms", "memory_opened_kib", "disk_opened_kib", "memory_most_kib", "disk_kib")
        if not self.arguments.json:
            print("| file | opened, ms | memory, opened | disk, opened | memory, changed | disk, changed |")
        for mib in (1, 16, 256, 4096, 65536):
            with self.folder() as folder:
                with open(folder / "data", "wb") as file:
                    file.truncate(mib << 20)
                told = told_by([self.programs / "memlith-files-size", folder / "data", 4096, 64])
            if self.arguments.json:
                contest.say(self.arguments, {"suite": "size"} | {name: told[name] for name in ("file_bytes", *columns)})
            else:
                print(f"| {mib:,} MiB | " + " | ".join(f"{told[name]:,}" for name in columns) + " |", flush=True)

    # ---- tycoon

    def tycoon(self):
        self.head("examples/tycoon: PUT of 1 KiB, durable, with so many connections")
        for threads in self.arguments.connections:
            def side(how, prefix, threads=threads):
                def measure():
                    with self.folder() as folder:
                        words = [*prefix, self.programs / "tycoon", folder / "data.kch", "0", how]
                        server = subprocess.Popen(list(map(str, words)), stdout=subprocess.PIPE, text=True)
                        try:
                            port = server.stdout.readline().rsplit(":", 1)[1].strip()
                            return told_by([self.programs / "memlith-files-http", port, threads,
                                              self.arguments.seconds])
                        finally:
                            server.kill()
                            server.wait()
                            server.stdout.close()
                return measure
            self.in_turns("tycoon", f"put-{threads}", threads, [
                ("synchronize", "sync", side("synchronize", [])),
                ("transactions", "sync", side("transactions", [])),
                ("memlith", "sync", side("synchronize", self.under_memlith("data.kc*", "--commit", "fsync")))])

    # ---- overhead

    def overhead(self):
        self.head("Programs whose files do not match: 512 bytes read by pread; a program started")

        def reads(prefix):
            def measure():
                with self.folder() as folder:
                    return told_by([*prefix, self.programs / "memlith-files-msync", folder, "pread", 0, 0, 0])
            return measure

        def starts(prefix, environment):
            def measure():
                samples = []
                for _ in range(200):
                    begin = time.perf_counter_ns()
                    subprocess.run([*prefix, "/bin/true"], check=True, env=environment)
                    samples.append((time.perf_counter_ns() - begin) / 1000)
                return {"ops_per_s": 1e6 / statistics.mean(samples), "mean_us": statistics.mean(samples),
                        **contest.percentiles(samples)}
            return measure
        memlith = self.under_memlith("*.nothing")
        self.in_turns("overhead", "pread", 1, [("plain", "none", reads([])), ("memlith", "none", reads(memlith))])
        shown = subprocess.run([*memlith, "env"], stdout=subprocess.PIPE, text=True, check=True).stdout
        library = {line.split("=", 1)[0]: line.split("=", 1)[1] for line in shown.splitlines()
                   if line.startswith(("LD_PRELOAD=", "MEMLITH_RUN="))}
        self.in_turns("overhead", "start", 1, [
            ("plain", "none", starts([], dict(os.environ))),
            ("memlith, a child", "none", starts([], os.environ | library)),
            ("memlith run", "none", starts(list(map(str, memlith)), dict(os.environ)))])


def main():
    suites = {"kyoto": Bench.kyoto, "msync": Bench.msync, "size": Bench.size, "tycoon": Bench.tycoon,
              "overhead": Bench.overhead}
    parser = contest.options_of(__doc__, folder="where the files go", rounds=3, suites=suites)
    parser.add_argument("--seconds", type=float, default=2, help="of each turn")
    parser.add_argument("--pages", type=contest.numbers, default=[1, 4, 16, 64, 256, 1024], help="of the suite msync")
    parser.add_argument("--think-ms", type=contest.numbers, default=[0], help="between operations of the suite msync")
    parser.add_argument("--connections", type=contest.numbers, default=[1, 2, 4, 8, 16], help="of the suite tycoon")
    arguments = parser.parse_args()
    bench = Bench(arguments)
    for name in contest.chosen(arguments):
        suites[name](bench)


if __name__ == "__main__":
    main()
