#!/usr/bin/env python3
"""RocksDB on memlith beside stock RocksDB and a bare log: ./dev bench rocksdb [SUITE ...].

SUITE is fill (random keys with sync), mixgraph (83 % get, 14 % put, 3 % seek), recovery (an open after a kill), profile
(where mixgraph's processor time goes; takes perf); none: all four. Every side is as durable as the others: a write
returns when it is flushed. The sides take turns, on an ext4 of their own (--fs xfs: an XFS) on a loop device where that
is possible: then the lines also tell what its block layer sees for each operation.
"""
import contextlib
import json
import os
import pathlib
import re
import shutil
import statistics
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "bench/kit"))
import contest  # noqa: E402 pylint: disable=wrong-import-position
from contest import PERCENTILES  # noqa: E402 pylint: disable=wrong-import-position
from disk_counts import DiskCounts  # noqa: E402 pylint: disable=wrong-import-position

SIDES = ["bare", "stock", "recycle", "run", "memlith", "memlith-late", "memlith-memtable"]
PLUGINS = {"memlith": "memlith_rocksdb.so", "memlith-memtable": "memlith_rocksdb_memtables.so"}
# A frame of the kernel within a call that writes or flushes; and parts of the program, by the end of a frame's file.
LOG_CALL = re.compile(r" (vfs_(iter_)?writev?|vfs_fsync\w*|do_fsync|\w*sys_f(data)?sync|\w*sync_file_range|"
                      r"\w*sys_io_uring_enter) ")
PARTS = (("memlith", re.compile(r"/memlith_rocksdb(_memtables)?\.so\)$")),
         ("rocksdb", re.compile(r"/librocksdb\.so[.\d]*\)$")))
MAKE = {"ext4": ["mkfs.ext4", "-qF"], "xfs": ["mkfs.xfs", "-q"]}


class Bench:
    def __init__(self, given, folder, is_own):
        self.given, self.folder, self.disk = given, folder, DiskCounts(folder, is_own)

    def clear(self):
        for each in self.folder.iterdir():
            if each.name != "lost+found":
                shutil.rmtree(each) if each.is_dir() else each.unlink()
        contest.sync(self.folder)

    def run(self, words, **environment):
        return contest.said_by(words, stderr=subprocess.PIPE, env=dict(os.environ, **environment))

    def counted(self, measure):
        """The result of measure(), with "ops" and "seconds", and the disk's counts meanwhile."""
        before = self.disk.now()
        told = measure()
        return told | self.disk.since(before)

    def own_words(self, side, *words):
        program = [self.given.bin / "memlith-rocksdb-bench", "--side", "stock" if side == "run" else side, "--dir",
                   self.folder, *words]
        if side == "run":
            program = [self.given.bin / "memlith", "run", "--match", "*.log", "--commit", "fsync", "--", *program]
        return [str(each) for each in program]

    def fill_figures(self, side, *words):
        """The counts are those from the first write to the last, and of what the page cache then has to write."""
        with subprocess.Popen(self.own_words(side, *words), stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                              text=True) as program:
            if program.stdout.readline() != "ready\n":
                sys.exit(f"{side}: the program has ended")

            def measure():
                print(file=program.stdin, flush=True)
                told = json.loads(program.stdout.readline())
                contest.sync(self.folder)
                return told
            told = self.counted(measure)
            print(file=program.stdin, flush=True)
        return told

    def in_turns(self, suite, sides, workload, threads, measure):
        def turn(side):
            self.clear()
            return measure(side)

        for side, told in contest.in_turns(self.given.rounds, sides, turn).items():
            ops = sum(run["ops"] for run in told)
            line = {"suite": f"rocksdb-{suite}", "side": side, "workload": workload, "durability": "durable",
                    "threads": threads}
            if suite == "recovery":
                line["seconds"] = round(statistics.median(run["seconds"] for run in told), 3)
            else:
                line["ops_per_s"] = round(ops / sum(run["seconds"] for run in told))
            for name in PERCENTILES:
                if name in told[0]:
                    line[name] = round(statistics.median(run[name] for run in told), 1)
            for name in self.disk.now():
                line[f"{name}_per_op"] = round(sum(run[name] for run in told) / ops, 3)
            contest.say(self.given, line)

    def fill(self):
        for value_bytes in self.given.value_bytes:
            for threads in self.given.threads:
                def measure(side, words=("--threads", threads, "--value-bytes", value_bytes)):
                    return self.fill_figures(side, *words, "--seconds", self.given.seconds, "--operations",
                                             self.given.operations, "--warm-up", self.given.warm_up)
                self.in_turns("fill", self.given.sides, f"{value_bytes} B, sync", threads, measure)

    def mixgraph_words(self, side):
        """The words of db_bench for mixgraph, on a database that is there: with the settings of the paper that MixGraph
        is from (FAST 2020), and its distributions."""
        settings = ["--key_size=48", "--keyrange_dist_a=14.18",
                    "--keyrange_dist_b=-2.917", "--keyrange_dist_c=0.0164", "--keyrange_dist_d=-0.08082",
                    "--keyrange_num=30", "--value_k=0.2615", "--value_sigma=25.45", "--iter_k=2.517",
                    "--iter_sigma=14.236", "--mix_get_ratio=0.83", "--mix_put_ratio=0.14", "--mix_seek_ratio=0.03",
                    "--sine_mix_rate_interval_milliseconds=5000", "--sine_a=1000", "--sine_b=0.000073",
                    "--sine_d=4500", "--use_direct_reads=false", "--cache_size=268435456", "--histogram=1"]
        words = ["db_bench", *settings, f"--db={self.folder}/db", f"--num={self.given.keys}",
                 *(["--fs_uri=memlith://"] if side == "memlith" else [])]
        # Filled without sync, or filling would take longer than measuring.
        self.run([*words, "--benchmarks=fillrandom"], **self.preload(side))
        return [*words, "--benchmarks=mixgraph", "--use_existing_db=1", "--sync=1", f"--reads={self.given.reads}"]

    def mixgraph(self):
        for threads in self.given.threads:
            def measure(side, threads=threads):
                words = [*self.mixgraph_words(side), f"--threads={threads}"]
                return self.counted(lambda: self.mixgraph_figures(self.run(words, **self.preload(side))))
            self.in_turns("mixgraph", self.database_sides(), "83 % get, 14 % put with sync, 3 % seek", threads, measure)

    def profile(self):
        """Shares of mixgraph's processor time: in the kernel's calls that write or flush, and in its others; in user
        mode in RocksDB, in memlith, and elsewhere (db_bench, the C library)."""
        if not shutil.which("perf"):
            contest.say_aside("(profile is left out: it takes perf)")
            return
        record = self.given.dir / "perf.data"
        for threads in self.given.threads:
            for side in "stock", "memlith":
                self.clear()
                words = [*self.mixgraph_words(side), f"--threads={threads}"]
                environment = [f"{name}={value}" for name, value in self.preload(side).items()]
                self.run(["perf", "record", "-q", "-e", "cpu-clock", "-F", "999", "-g", "-o", str(record), "--", "env",
                          *environment, *words])
                stacks = re.split(r"\n{2,}", self.run(["perf", "script", "-i", record, "-F", "ip,sym,dso"]).strip())
                parts = [self.part_of(stack.splitlines()) for stack in stacks]
                if not {"log_calls", "rocksdb"} <= set(parts):
                    sys.exit(f"perf says what this program does not understand: {stacks[0]}")
                contest.say(self.given, {
                    "suite": "rocksdb-profile", "side": side, "workload": "83 % get, 14 % put with sync, 3 % seek",
                    "durability": "durable", "threads": threads, "samples": len(parts),
                    **{f"{part}_share": round(parts.count(part) / len(parts), 4)
                       for part in ("log_calls", "other_calls", "rocksdb", "memlith", "other")}})
        record.unlink()

    @staticmethod
    def part_of(frames):
        """The part of a sample's stack, whose first line is the innermost frame."""
        if "([kernel.kallsyms])" in frames[0]:
            return "log_calls" if any(map(LOG_CALL.search, frames)) else "other_calls"
        return next((part for part, file in PARTS if file.search(frames[0])), "other")

    @staticmethod
    def mixgraph_figures(said):
        found = re.search(r"^mixgraph\s*:\s*[\d.]+ micros/op \d+ ops/sec ([\d.]+) seconds (\d+) operations", said, re.M)
        # db_bench has a histogram for each kind of operation; the writes' is the one that a log matters to.
        writes = re.search(r"(?s)Microseconds per write:.*?Percentiles: P50: ([\d.]+) P75: [\d.]+ P99: ([\d.]+) "
                           r"P99.9: ([\d.]+)", said)
        if not found or not writes:
            sys.exit(f"db_bench says what this program does not understand: {said[-2000:]}")
        return {"ops": int(found[2]), "seconds": float(found[1]), **dict(zip(PERCENTILES, map(float, writes.groups())))}

    def database_sides(self):
        return [each for each in self.given.sides if each in ("stock", *PLUGINS)]

    def preload(self, side):
        return {"LD_PRELOAD": str(self.given.bin.parent / "lib" / PLUGINS[side])} if side in PLUGINS else {}

    def recovery(self):
        for mib in self.given.log_mib:
            def measure(side, mib=mib):
                self.run(self.own_words(side, "--fill-mib", mib))
                self.drop_cache()
                opening = self.own_words(side, "--open", "--fill-mib", mib)
                return self.counted(lambda: {"ops": 1, **json.loads(self.run(opening))})
            self.in_turns("recovery", self.database_sides(), f"open, {mib} MiB of log", 1, measure)

    @staticmethod
    def drop_cache():
        subprocess.run(["sync"], check=True)
        with contextlib.suppress(OSError):
            pathlib.Path("/proc/sys/vm/drop_caches").write_text("1", encoding="ascii")


def main():
    suites = {"fill": Bench.fill, "mixgraph": Bench.mixgraph, "recovery": Bench.recovery, "profile": Bench.profile}
    options = contest.options_of(__doc__, folder="where the databases, or the disk's image, go", rounds=3,
                                 suites=suites)
    contest.disk_options(options, 4096)
    options.add_argument("--fs", choices=["ext4", "xfs"], default="ext4", help="on the loop device")
    options.add_argument("--threads", type=contest.numbers, default=[1, 4, 12])
    options.add_argument("--value-bytes", type=contest.numbers, default=[100, 400])
    options.add_argument("--sides", type=contest.names(SIDES), default=SIDES,
                         help="mixgraph and recovery have stock, memlith and memlith-memtable")
    options.add_argument("--seconds", type=float, default=3)
    options.add_argument("--operations", type=int, default=0, help="of fill, instead of --seconds")
    options.add_argument("--warm-up", type=int, default=50_000, help="operations before fill measures")
    options.add_argument("--keys", type=int, default=500_000, help="of mixgraph; 20000000 at full size")
    options.add_argument("--reads", type=int, default=100_000, help="operations of mixgraph")
    options.add_argument("--log-mib", type=contest.numbers, default=[64, 512])
    given = options.parse_args()
    with contest.own_disk(given, "rocksdb-bench", MAKE[given.fs]) as (folder, is_own):
        bench = Bench(given, folder, is_own)
        for suite in contest.chosen(given):
            suites[suite](bench)


if __name__ == "__main__":
    main()
