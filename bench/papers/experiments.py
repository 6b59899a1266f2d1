"""The experiments, tables and figures of the five papers: what each compares, what the paper found, and the command
that makes ours, or why there is none.

A row is an `Experiment`; several rows may be made by one `Run`. A number or a ratio of a paper is only given where its
source is known; else the text is "unknown". Sources of the papers' figures:

    abstract   the abstract of the paper; for MemSnap, of its author's talk at Waterloo (2024-01-26)
    issue      the audit of the papers against this tree
    thesis     S. Mahar's thesis, whose chapter on Snapshot has the paper's evaluation; numbers of figures are its order
    artifact   the list of scripts of MemSnap's artifact
"""
import dataclasses

UNKNOWN = "unknown"
# The peers of memlith-kv-bench, with the names that its lines have.
PEERS = ("leveldb", "kyoto-tree-tran", "sqlite", "lmdb", "rocksdb", "berkeleydb", "wiredtiger")
# The floors below every benchmark: a change of them makes every figure one of an older build.
ENGINE = ("src/base", "src/device", "src/log", "src/store", "src/region", "bench/kit")
PEER_WAYS = (*ENGINE, "bench/engine", "bench/peers")
KV = (*ENGINE, "src/shm", "src/kv", "src/applog", "bench/kv")
FILES = (*ENGINE, "src/files", "bench/files")
HEAP = (*ENGINE, "src/heap", "bench/kv")
SQLITE = (*ENGINE, "integrations/sqlite/src", "integrations/sqlite/bench")
REDIS = (*ENGINE, "src/kv", "src/applog", "integrations/redis")
RAFT = (*ENGINE, "src/kv", "src/applog", "bindings/go", "integrations/raft")
PASS = (*ENGINE, "integrations/compiler", "bench/instrumented")


@dataclasses.dataclass(frozen=True)
class Ratio:
    """Ours over another side's, as "times as good": above 1 ours is better. Without `base` and `base_field` it is our
    figure alone.

    `ours` and `base` say which lines of the command's JSON are meant: fields and the values that they may have. Of
    several lines the best counts. Lines are compared with those that have the same values of `by`, which become the
    label. With `base_field`, both numbers are of one line. A field may be a path with dots."""
    field: str
    ours: dict = dataclasses.field(default_factory=dict)
    base: dict = dataclasses.field(default_factory=dict)
    base_field: str = ""
    by: tuple[str, ...] = ()
    label: str = ""
    less_is_better: bool = False


@dataclasses.dataclass(frozen=True)
class Run:
    """A command: words behind `./dev`, of `bench` (its lines are read) or `soak` or `test` (it passes or fails)."""
    name: str
    section: str
    words: tuple[str, ...]
    minutes: int  # about, at this size
    paths: tuple[str, ...]  # a change of these makes a result older than its path
    quick: tuple[str, ...] = ()  # instead of `words`, for a test of the runner; none: left out of it


@dataclasses.dataclass(frozen=True)
class Experiment:
    """A row of the page. `run` names the run that makes it; else `missing` is a sentence that says why none does."""
    paper: str
    number: str
    compares: str
    theirs: str = UNKNOWN
    at_least: float | None = None  # the paper's ratio as a number: ours below it is a miss
    run: str = ""
    ratios: tuple[Ratio, ...] = ()
    missing: str = ""
    note: str = ""  # where the time goes, or what differs from the paper


PAPERS = {  # the name of the system, and the title
    "memsnap": ("MemSnap", "MemSnap: A Data Single Level Store for Fearless Persistence, ASPLOS 2024"),
    "fams": ("Failure-atomic msync", "Failure-Atomic msync(): A Simple and Efficient Mechanism for Preserving the "
             "Integrity of Durable Data, EuroSys 2013"),
    "acikv": ("AciKV", "Weakly Durable High-Performance Transactions, 2021"),
    "snapshot": ("Snapshot", "Snapshot: Fast, Userspace Crash Consistency for CXL and PM Using msync, ICCD 2023"),
    "fasl": ("FASL", "File Systems are not Enough: Rethinking the Storage API for Microsecond-Scale Cloud "
             "Applications"),
}


def words(text: str) -> tuple[str, ...]:
    """The words of a command; none of ours has a blank in a word."""
    return tuple(text.split())


# ---- the commands --------------------------------------------------------------------------------------------------

YCSB = "--records 20000000 --value-bytes 100 --seconds 6 --rounds 3"
YCSB_WORKLOADS = "write,a,b,read,scan,insert,modify,f"
YCSB_SIDES = "memlith,leveldb,sqlite,lmdb,rocksdb,berkeleydb,wiredtiger"
LARGE_SIDES = "memlith,leveldb,lmdb,berkeleydb,wiredtiger"  # what disk and memory have room for with 20 M records
WINDOWS = ("bench ycsb --records 1000000 --sides memlith --workloads write --seconds 120 --rounds 1 --window-ms "
           "1,10,100,1000,10000,100000 --window-mib 4096")
LATENCY = ("bench ycsb --records 1000000 --durability both --workloads write --sides memlith,memlith-group --threads "
           "1,4,16,64,256,1024 --window-ms 10 --seconds 3")
PMDK = "--operations 1000000 --records 5000000 --sides instrumented"
SLOW = "--slow-ns 2400 --cache-mib 128 --sides instrumented"
REDIS_MIXES = "--keys 10000000 --value-bytes 128 --clients 1,10,40 --sides memlith-strong,aof-always --seconds 3"

RUNS = (
    Run("persist-peers", "memsnap-persist", words("bench persist --peers --pages 1,4,16,64,256,1024 --rounds 2000"), 5,
        PEER_WAYS),
    Run("persist-async", "memsnap-persist", words("bench persist --tracker explicit,fault,scan --async --pages 1,4,16,"
                                                  "64,256,1024 --seconds 5"), 3, (*ENGINE, "bench/engine"),
        words("bench persist --tracker explicit --async --pages 1 --rounds 2 --region-mib 1 --log-mib 1")),
    Run("persist-steps", "memsnap-persist", words("bench persist --breakdown --tracker explicit,fault,scan --pages 16"),
        1, (*ENGINE, "bench/engine"),
        words("bench persist --breakdown --tracker explicit --pages 2 --rounds 3 --region-mib 1 --log-mib 1")),
    Run("persist-sequential", "memsnap-persist", words("bench persist --peers --sequential --tracker explicit --pages "
                                                       "1,4,16,64,256,1024 --rounds 1000"), 3, PEER_WAYS),
    Run("persist-checkpoints", "memsnap-persist", words("bench persist --checkpoints --tracker explicit --pages "
                                                        "1,4,16,64,256,1024 --threads 1,8 --rounds 1000"), 4, PEER_WAYS,
        words("bench persist --checkpoints --tracker explicit --pages 1 --rounds 2 --region-mib 1 --log-mib 1")),
    Run("protect", "memsnap-persist", words("bench protect --region-mib 1024 --pages 1,16,256,4096 --rounds 100"), 3,
        ("bench/kit", "bench/engine", "bench/peers"), words("bench protect --region-mib 1 --pages 1 --rounds 2")),
    Run("isolation", "memsnap-tests", words("test rocksdb -- -R rocksdb.skip_list|rocksdb.memtable_crash"), 4,
        (*ENGINE, "integrations/rocksdb/src", "integrations/rocksdb/tests")),
    Run("memtable", "memsnap-memtable", words("bench ycsb --records 1000000 --durability sync --threads 1,12 "
                                              "--workloads write,read,modify --sides memlith-memtable,memlith,rocksdb"),
        20, (*KV, "integrations/rocksdb/src")),
    Run("sqlite-dbbench", "memsnap-sqlite", words("bench sqlite dbbench --calls --paper --systems memlith,wal-full "
                                                  "--repetitions 3"), 75, SQLITE),
    Run("sqlite-tatp", "memsnap-tatp", words("bench sqlite tatp --paper --subscribers 1000,10000,100000,1000000 "
                                             "--systems memlith,wal-full --repetitions 5"), 50, SQLITE),
    Run("sqlite-tatp-mapped", "memsnap-tatp", words("bench sqlite tatp --paper --subscribers 1000,10000,100000,1000000 "
                                                    "--systems memlith,wal-full --repetitions 5 --mmap-mib 4096"), 50,
        SQLITE),
    Run("rocksdb-mixgraph", "memsnap-rocksdb", words("bench rocksdb mixgraph --here --keys 20000000 --threads 12 "
                                                     "--reads 100000 --rounds 3 --sides stock,memlith"), 60,
        (*ENGINE, "src/applog", "integrations/rocksdb/src", "integrations/rocksdb/bench")),
    Run("postgres-tpcc", "memsnap-postgres", words("bench postgres --modes tpcc --clients 24 --warehouses 10 --seconds "
                                                   "60 --rounds 3 --checkpoint-timeout 30s --disk-mib 12288"), 30,
        (*ENGINE, "src/applog", "integrations/settled", "integrations/postgres/src", "integrations/postgres/bench")),
    Run("rocksdb-memtable", "memsnap-rocksdb-memtable", words("bench rocksdb fill,mixgraph --here --value-bytes 100 "
                                                              "--threads 1,12 --keys 2000000 --rounds 3 "
                                                              "--sides stock,memlith,memlith-late,memlith-memtable"),
        15, (*ENGINE, "src/applog", "integrations/rocksdb/src", "integrations/rocksdb/bench")),
    Run("rocksdb-profile", "memsnap-rocksdb", words("bench rocksdb profile --here --keys 1000000 --threads 12 --reads "
                                                    "20000"), 3,
        (*ENGINE, "src/applog", "integrations/rocksdb/src", "integrations/rocksdb/bench")),
    Run("soak-power", "fams-cuts", words("soak power --cuts 300"), 90, (*ENGINE, "src/files", "tests/power")),
    Run("files-msync", "fams-files", words("bench files msync --seconds 5"), 20, FILES),
    Run("files-msync-light", "fams-files", words("bench files msync --seconds 10 --think-ms 10"), 30, FILES),
    Run("files-kyoto", "fams-files", words("bench files kyoto --seconds 10"), 10,
        (*FILES, "integrations/run")),
    Run("heap-table2", "fams-heap", words("bench heap table2 --turn 10 --repetitions 5"), 15, HEAP),
    Run("heap-table2-light", "fams-heap-light", words("bench heap table2 --turn 10 --repetitions 2 --rest-us 10000 "
                                                      "--durability sync"), 20, HEAP),
    Run("ycsb-weak", "acikv-weak", words(f"bench ycsb {YCSB} --workloads {YCSB_WORKLOADS} --sides {LARGE_SIDES}"), 25,
        KV),
    Run("ycsb-sync", "acikv-sync", words(f"bench ycsb {YCSB} --workloads {YCSB_WORKLOADS} --sides {LARGE_SIDES} "
                                         "--durability sync"), 25, KV),
    Run("ycsb-both", "acikv-both", words("bench ycsb --records 2000000 --durability both --workloads "
                                         f"write,a,b,read,scan,insert,modify --sides {YCSB_SIDES} --seconds 4.5"), 14,
        KV),
    Run("ycsb-both-zipf", "acikv-both-zipf", words("bench ycsb --records 2000000 --durability both --workloads "
                                                   f"write,a,b,read,scan,modify --distribution zipfian --sides "
                                                   f"{YCSB_SIDES} --seconds 4.5"), 13, KV),
    Run("ycsb-memory", "acikv-memory", words("bench ycsb --records 20000000 --cgroup-mib 276 --workloads write,read,"
                                             "scan --sides memlith,leveldb,lmdb,rocksdb"), 20, KV),
    Run("ycsb-threads", "acikv-threads", words("bench ycsb --records 2000000 --threads 1,2,4 --workloads write,read "
                                               f"--sides {YCSB_SIDES}"), 10, KV),
    Run("ycsb-transactions", "acikv-transactions",
        words("bench ycsb --records 1000000 --durability both --transaction-records 4,16 --threads 1,4 --workloads "
              f"write,modify --sides {YCSB_SIDES} --seconds 3"), 10, KV),
    Run("ycsb-window", "acikv-window", words(WINDOWS), 14, KV),
    Run("ycsb-window-slow", "acikv-window", words(f"{WINDOWS} --flush-delay-us 5000"), 14, KV),
    Run("ycsb-latency", "acikv-latency", words(LATENCY), 2, KV),
    Run("ycsb-latency-slow", "acikv-latency", words(f"{LATENCY} --flush-delay-us 5000"), 2, KV),
    Run("ycsb-vulnerability", "acikv-latency", words("bench ycsb --records 1000000 --sides memlith --workloads b,write "
                                                     "--seconds 15 --rounds 1 --window-ms 1,10,100,1000 --window-mib "
                                                     "4096"), 3, KV),
    Run("ycsb-recovery-1", "acikv-recovery", words("bench ycsb --recovery-log-mib 256,1024 --records 8000000"), 3, KV),
    Run("ycsb-recovery-10", "acikv-recovery", words("bench ycsb --recovery-log-mib 256,1024 --records 80000000"), 25,
        KV),
    Run("soak-invariant", "acikv-argument", words("soak invariant --cuts 60"), 15, (*KV, "tests/power")),
    Run("pmdk-lines", "snapshot-pmdk", words("bench pmdk lines"), 2, ("bench/pmdk",)),
    Run("pmdk-memory", "snapshot-pmdk", words(f"bench pmdk {PMDK} --suite list,btree,kv"), 30,
        (*ENGINE, "integrations/compiler", "bench/pmdk")),
    Run("pmdk-slow", "snapshot-slow", words(f"bench pmdk {SLOW} --operations 1000000 --suite list,btree"), 12,
        (*ENGINE, "integrations/compiler", "bench/pmdk")),
    Run("pmdk-slow-kv", "snapshot-slow", words(f"bench pmdk {SLOW} --operations 100000 --records 5000000 --suite kv "
                                               "--rounds 1"), 15, (*ENGINE, "integrations/compiler", "bench/pmdk")),
    Run("kyoto-commits", "snapshot-kyoto", words("bench instrumented kyoto --rounds 6 --seconds 3"), 20,
        (*PASS, "src/files")),
    Run("stores", "snapshot-stores", words("bench instrumented"), 10, PASS),
    Run("kills-of-boost", "snapshot-tests", words("test release -- -R containers"), 3, (*ENGINE, "src/heap",
                                                                               "tests/containers")),
    Run("dbbench-fits", "fasl-dbbench", words("bench dbbench --records 1000000 --seconds 10"), 20, KV),
    Run("dbbench-exceeds", "fasl-dbbench",
        words("bench dbbench --records 5000000 --cgroup-mib 192 --workloads overwrite,readrandom --backends file "
              "--sides memlith-log,memlith,leveldb,lmdb,rocksdb --seconds 10"), 10, KV),
    Run("redis-mixes", "fasl-redis", words(f"bench redis mixes {REDIS_MIXES} --writes 10,20,40,60,80,100 --log-mib 50"),
        20, REDIS),
    Run("redis-mixes-log", "fasl-redis-log", words(f"bench redis mixes {REDIS_MIXES} --writes 10,40,100 --log-mib "
                                                   "1600"), 15, REDIS),
    Run("redis-start", "fasl-redis", words("bench redis start --value-bytes 128 --log-mib 1600 --start-millions 10 "
                                           "--rounds 2"), 15, REDIS),
    Run("redis-pauses", "fasl-redis", words("bench redis pauses --keys 1000000 --value-bytes 128 --seconds 10"), 10,
        REDIS),
    Run("retwis", "fasl-retwis", words("bench replica retwis --sides memlith,raft-wal,memory --clients 10,60 --seconds "
                                       "21 --restarts 0"), 10, RAFT),
    Run("retwis-replica", "fasl-retwis", words("bench replica retwis --measure recovery --keys 10000000"), 20, RAFT),
    Run("retwis-timeline", "fasl-retwis", words("bench replica retwis --measure timeline --clients 60 --seconds 50"), 3,
        RAFT),
)


# ---- the rows ------------------------------------------------------------------------------------------------------

def over_best_peer(workload: str) -> tuple[Ratio, ...]:
    """The weak kv store over the best peer that flushes each operation, and over the best that flushes none."""
    ours = {"side": ("memlith",), "durability": ("weak",), "workload": (workload,)}
    return (Ratio("ops_per_s", ours, {"side": PEERS, "durability": ("sync",), "workload": (workload,)},
                  label="weak over the best durable peer"),
            Ratio("ops_per_s", ours, {"side": PEERS, "durability": ("none",), "workload": (workload,)},
                  label="weak over the best peer without a flush"))


def over_pmdk(suite_workloads: tuple[str, ...]) -> tuple[Ratio, ...]:
    return (Ratio("ops_per_s", {"side": ("memlith instrumented",), "workload": suite_workloads},
                  {"side": ("pmdk",)}, by=("workload",)),)


def over_wal_full(field: str, by: tuple[str, ...], label: str = "") -> tuple[Ratio, ...]:
    """SQLite on memlith, `full`, over WAL with FULL."""
    return (Ratio(field, {"system": ("memlith",)}, {"system": ("wal-full",)}, by=by, label=label,
                  less_is_better=field != "operations_per_s"),)


NOT_IN_ROCKSDB = ("Aurora runs on FreeBSD only. The least checkpoints of its classes are measured by size in Figure 3, "
                  "outside RocksDB.")
CHECKPOINTS = (("region", "a region's checkpoint"), ("process", "a process's checkpoint"))
SIZES = ("pattern", "transaction_kib")
TPCC = ("10 warehouses, 1 GB, with 128 MB of shared buffers and a checkpoint each 30 s. The paper maps PostgreSQL's "
        "files into its regions; the plugin keeps the files and the write-ahead log.")


def over_full_pages(field: str) -> tuple[Ratio, ...]:
    """PostgreSQL on memlith over each other side: full_page_writes on, the same compressed, and off (the bound)."""
    return tuple(Ratio(field, {"side": ("memlith",)}, {"side": (side,)}, label=f"over {side}",
                       less_is_better=field != "ops_per_s") for side in ("on", "lz4", "off"))


MEMSNAP = (
    Experiment("memsnap", "Table 1", "a processor profile of RocksDB with MixGraph, stock and on memlith: shares of "
               "calls that write or flush, and of the program's parts", run="rocksdb-profile",
               ratios=tuple(Ratio(f"{part}_share", by=("side",))
                            for part in ("log_calls", "other_calls", "rocksdb", "memlith", "other"))),
    Experiment("memsnap", "Table 2", "a persist within RocksDB beside Aurora's checkpoint of a region",
               missing=NOT_IN_ROCKSDB),
    Experiment("memsnap", "Table 5", "the steps of a persist of 64 KiB", run="persist-steps",
               ratios=tuple(Ratio(f"steps.{step}.p50_us", by=("tracker",), ours={"persist": ("asynchronous",)})
                            for step in ("stores", "touch", "call", "wait")),
               note="Steps of an asynchronous persist; the paper's are a kernel's, ours are a library's."),
    Experiment("memsnap", "Table 6, random", "4 KiB to 4 MiB of random pages made durable, beside pwrite + fsync",
               "4.5 to 30 times as fast as random file I/O (abstract)", 4.5, "persist-peers",
               (Ratio("p50_us", {"side": ("explicit",)}, {"side": ("pwrite+fsync",)}, by=("kib", "file_system"),
                      less_is_better=True),),
               note="Up to 64 KiB most of a persist is one write and flush of the disk, and pwrite + fsync of pages "
                    "that have their place in the file needs one, too. Of larger changes it writes each page by "
                    "itself."),
    Experiment("memsnap", "Table 6, direct", "the same beside a direct write and flush",
               "within a factor of 2 of direct I/O (abstract)", 0.5, "persist-peers",
               (Ratio("p50_us", {"side": ("explicit",)}, {"side": ("raw",)}, by=("kib",), less_is_better=True),),
               note="Raw copies nothing, sums nothing, and writes each byte once; checkpoints write each byte a second "
                    "time. [performance.md](../docs/performance.md#one-thread) has a program that copies and sums as "
                    "much, with checkpoints and without."),
    Experiment("memsnap", "Table 6, sequential", "pages one after the other made durable, beside one pwritev + fsync",
               run="persist-sequential",
               ratios=(Ratio("p50_us", {"side": ("explicit",)}, {"side": ("pwrite+fsync",)}, by=("kib", "file_system"),
                             less_is_better=True),)),
    Experiment("memsnap", "Table 6, copy-on-write", "random pages beside pwrite + fsync on a copy-on-write file system",
               run="persist-peers",
               ratios=(Ratio("p50_us", {"side": ("explicit",)}, {"side": ("pwrite+fsync",), "file_system": ("btrfs",)},
                             by=("kib",), less_is_better=True),),
               note="Btrfs lies on a loop device of the same disk."),
    Experiment("memsnap", "Table 6, asynchronous", "the time until an asynchronous persist has captured its pages, "
               "beside a durable write of as many bytes", run="persist-async",
               ratios=(Ratio("p50_us", base_field="raw_p50_us", by=("tracker", "pages"), less_is_better=True),)),
    Experiment("memsnap", "Table 7", "the calls of SQLite's dbbench and their time, 4, 64 and 1,024 KiB a transaction",
               run="sqlite-dbbench", ratios=over_wal_full("calls.us_per_operation", SIZES)),
    Experiment("memsnap", "Table 8", "processor time of SQLite's dbbench", run="sqlite-dbbench",
               ratios=(*over_wal_full("user_us_per_operation", SIZES, "user"),
                       *over_wal_full("system_us_per_operation", SIZES, "system"))),
    Experiment("memsnap", "Table 9", "MixGraph on RocksDB, 20 M keys and 12 threads", "1.084 (issue)", 1.084,
               "rocksdb-mixgraph",
               (Ratio("ops_per_s", {"side": ("memlith",)}, {"side": ("stock",)}, by=("threads",)),)),
    Experiment("memsnap", "Table 10", "latencies of a persist within RocksDB, MemSnap beside Aurora",
               "4 times Aurora's throughput (abstract)", missing=NOT_IN_ROCKSDB),
    Experiment("memsnap", "Figure 1", "ways to protect the pages of 1 GiB again, with the faults of 1 to 4,096 stores",
               run="protect",
               ratios=tuple(Ratio("together_p50_us", {"side": (ours,)}, {"side": (base,)}, by=("pages",),
                                  less_is_better=True, label=f"{ours} over {base}")
                            for ours, base in (("scan", "mprotect, all"), ("scan", "mprotect, each"),
                                               ("uffd, each", "mprotect, each"))),
               note="memlith protects by `scan`, or by `uffd, each` with the tracker `fault`."),
    Experiment("memsnap", "Figure 3", "4 KiB to 4 MiB beside checkpoints of Aurora's classes, with 1 and 8 threads "
               "that store; and how long these cannot", run="persist-checkpoints",
               ratios=(*(Ratio(field, {"side": ("explicit",)}, {"side": (side,)}, by=("kib", "threads"),
                               less_is_better=True, label=f"{what} over {text}")
                         for field, what in (("p50_us", "time"), ("pause_us", "pause")) for side, text in CHECKPOINTS),
                       Ratio("p50_us", {"side": ("explicit",)}, {"side": ("raw",)}, by=("kib", "threads"),
                             less_is_better=True, label="time over raw")),
               note="Aurora is a kernel for FreeBSD; the checkpoints are the least of their classes."),
    Experiment("memsnap", "Figure 4", "SQLite's dbbench: 2 M writes in transactions of 4 KiB to 1 MiB",
               "5 times file APIs (abstract)", 5.0, "sqlite-dbbench", over_wal_full("operations_per_s", SIZES)),
    Experiment("memsnap", "Figure 5", "TATP on SQLite, four sizes, 60 s a turn", run="sqlite-tatp",
               ratios=over_wal_full("operations_per_s", ("subscribers",))),
    Experiment("memsnap", "Figure 5, mapped", "the same with `mmap_size`", run="sqlite-tatp-mapped",
               ratios=over_wal_full("operations_per_s", ("subscribers",))),
    Experiment("memsnap", "Figure 6 a", "TPC-C on PostgreSQL, 24 connections: transactions per second",
               run="postgres-tpcc", ratios=over_full_pages("ops_per_s"), note=TPCC),
    Experiment("memsnap", "Figure 6 b", "the same: latency", run="postgres-tpcc", ratios=over_full_pages("p50_us"),
               note=TPCC),
    Experiment("memsnap", "Figure 6 c", "the same: bytes to the disk, of a transaction", "5: 0.20 of the bytes (issue)",
               5.0, "postgres-tpcc", over_full_pages("disk_bytes_per_op"), note=TPCC),
    Experiment("memsnap", "Figure 6 d", "the same: I/Os, of a transaction", run="postgres-tpcc",
               ratios=over_full_pages("disk_writes_per_op"), note=TPCC),
    Experiment("memsnap", "Section 7.2", "RocksDB with a memtable in a region instead of its log",
               run="rocksdb-memtable",
               ratios=tuple(Ratio("ops_per_s", {"side": ("memlith-memtable",)}, {"side": (side,)},
                                  by=("suite", "threads"), label=f"over {side}")
                            for side in ("stock", "memlith", "memlith-late"))),
    Experiment("memsnap", "Section 7.2, the list", "the skip list in a region by itself, beside RocksDB with its log",
               run="memtable",
               ratios=tuple(Ratio("ops_per_s", {"side": ("memlith-memtable",)}, {"side": (side,)},
                                  by=("workload", "threads"), label=f"over {side}")
                            for side in ("rocksdb", "memlith"))),
    Experiment("memsnap", "Section 7, isolation", "20 threads change 100 random keys a transaction, of the list, "
               "and of RocksDB with memtables in a region; after kills the sums are compared", run="isolation"),
)

OVER_MSYNC = tuple(Ratio("mean_us", {"side": ("memlith",)}, {"side": (side,)}, by=("workload",), less_is_better=True,
                         label=f"over {side}") for side in ("msync", "msync, data=journal"))
OVER_BEST_STORE = tuple(
    Ratio("p50_us", {"side": (side,), "durability": ("sync",)}, {"side": PEERS, "durability": ("sync",)},
          by=("workload",), less_is_better=True, label=f"{side} over the best store")
    for side in ("memlith-instrumented", "memlith-scan"))

FAMS = (
    Experiment("fams", "Section 4.1", "hundreds of power cuts of a machine that commits mapped files",
               "no commit lost in hundreds of cuts (abstract)", run="soak-power",
               note="Cuts of a virtual machine's disk; `memlith disktest` is for a real one."),
    Experiment("fams", "Figure 2 a, c, e", "msync of random pages without a pause, beside msync and journalled data",
               run="files-msync", ratios=OVER_MSYNC,
               note="One disk, where the paper has several; data=journal lies on a loop device of the same disk."),
    Experiment("fams", "Figure 2 b, d, f", "the same with think times", run="files-msync-light", ratios=OVER_MSYNC,
               note="As above."),
    Experiment("fams", "Figure 2, eager", "the variant that writes home at once",
               missing="A commit of memlith is always written home later; an eager variant would be a second way."),
    Experiment("fams", "Table 2", "a map on the persistent heap beside transactional stores: 1,000 keys of 1 KiB",
               "above 1 over several local stores (abstract)", 1.0, "heap-table2", OVER_BEST_STORE),
    Experiment("fams", "Table 2, think times", "the same with a rest of 10 ms before each operation",
               run="heap-table2-light", ratios=OVER_BEST_STORE),
    Experiment("fams", "Table 3", "what reliability costs: each operation durable, against no sync at all",
               run="heap-table2",
               ratios=(Ratio("p50_us", {"side": ("memlith-scan",), "durability": ("sync",)},
                             {"side": ("memlith-scan",), "durability": ("none",)}, by=("workload",),
                             less_is_better=True, label="durable over the same without any sync"),)),
    Experiment("fams", "Kyoto Tycoon", "a key-value server with one line changed, beside its own transactions",
               "response times lower by 26 to 43 % (abstract)",
               missing="Kyoto Tycoon is not in Debian 12, and its source was not found in a package; "
                       "`./dev bench files tycoon` measures a small server of our own over the same database library."),
    Experiment("fams", "Kyoto Tycoon, cost", "the same server beside one that hardly writes",
               "3 times the response time on a fast SSD (abstract)",
               missing="As above: without Kyoto Tycoon there is no such figure."),
    Experiment("fams", "Kyoto Cabinet, high load", "its database library, four threads without a pause: beside its own "
               "transactions", run="files-kyoto",
               ratios=(Ratio("mean_us", {"side": ("memlith",), "workload": ("hash-full", "tree-full")},
                             {"side": ("transactions",)}, by=("workload",), less_is_better=True),),
               note="The paper measured the server; this is no evidence for it."),
    Experiment("fams", "Kyoto Cabinet, light load", "the same, one thread that thinks for 10 ms", run="files-kyoto",
               ratios=(Ratio("mean_us", {"side": ("memlith",), "workload": ("hash-light", "tree-light")},
                             {"side": ("transactions",)}, by=("workload",), less_is_better=True),),
               note="As above."),
)

WRITES = "more than 100 times strongly durable systems, with writes (abstract)"
READS = ("With reads among the writes 100 is out of reach: the row of reads, over the durable peer of this row, is "
         "what a store would have whose writes took no time.")
INSERTS = "The first ratio over the second is what the fastest store without any flush reaches."


def acikv(run: str, distribution: str) -> tuple[Experiment, ...]:
    """A row for each workload."""
    return tuple(Experiment("acikv", f"YCSB, {distribution}: {what}", "weak commits beside other stores, 2 M records",
                            WRITES if writes else UNKNOWN, 100.0 if writes else None, run, over_best_peer(workload),
                            note=note)
                 for workload, what, writes, note in
                 (("write", "writes", True, ""), ("a", "half reads", True, READS), ("b", "95 % reads", True, READS),
                  ("read", "reads", False, ""), ("scan", "scans", False, ""),
                  *((("insert", "inserts", True, INSERTS),) if distribution == "uniform" else ()),
                  ("modify", "read-modify-write", True, "")))


FEWER = "Five sides: this machine has not the disk and the memory for all seven at this size."
WAITED = ("workload", "window_ms")
LONG = ("workload", "transaction_records", "threads")
OVER_GROUP = tuple(Ratio(field, {"side": ("memlith",), "durability": ("weak",)}, {"side": ("memlith-group",)},
                         by=("threads",), less_is_better=less, label=label)
                   for field, less, label in (("p50_us", True, "latency"), ("ops_per_s", False, "throughput")))
OVER_PEERS = (Ratio("ops_per_s", {"side": ("memlith",)}, {"side": PEERS}, by=("workload",)),)
OPENING = (Ratio("open_ms", by=("workload", "log_mib")), Ratio("first_get_us", by=("workload", "log_mib")))

ACIKV = (
    *acikv("ycsb-both", "uniform"), *acikv("ycsb-both-zipf", "zipf 0.99"),
    Experiment("acikv", "YCSB at size, weak", "20 M records: weak commits beside peers that flush nothing",
               run="ycsb-weak", ratios=OVER_PEERS, note=FEWER),
    Experiment("acikv", "YCSB at size, durable", "20 M records: each operation durable on every side", run="ycsb-sync",
               ratios=OVER_PEERS, note=FEWER),
    Experiment("acikv", "YCSB, an eighth of memory", "20 M records in memory of an eighth of them, page cache included",
               run="ycsb-memory", ratios=OVER_PEERS,
               note="Each side by itself in a memory control group; half of it is the side's own cache. "
                    "WiredTiger needs more than twice its cache."),
    Experiment("acikv", "Threads", "1, 2 and 4 threads", run="ycsb-threads",
               ratios=(Ratio("ops_per_s", {"side": ("memlith",)}, {"side": PEERS}, by=("workload", "threads")),)),
    Experiment("acikv", "Long transactions", "transactions of 4 and 16 records, 1 and 4 threads",
               run="ycsb-transactions",
               ratios=(*(Ratio("ops_per_s", {"side": ("memlith",), "durability": (ours,)},
                               {"side": PEERS, "durability": (base,)}, by=LONG, label=f"{ours} over {label}")
                         for ours, base, label in (("weak", "sync", "the best durable peer"),
                                                   ("weak", "none", "the best peer without a flush"),
                                                   ("sync", "sync", "the best durable peer"))),
                       Ratio("aborts", {"side": ("memlith",), "workload": ("modify",)}, by=("durability", *LONG))),
               note="LevelDB and RocksDB have batches, which read nothing: no sides of read-modify-write."),
    Experiment("acikv", "Figure 6", "throughput by the window within which commits become durable, 1 ms to 100 s",
               run="ycsb-window", ratios=(Ratio("ops_per_s", {"window_ms": (100_000,)}, {"window_ms": (1,)},
                                                label="window of 100 s over 1 ms"),)),
    Experiment("acikv", "Figure 6, slow disk", "the same with 5 ms more for each flush", run="ycsb-window-slow",
               ratios=(Ratio("ops_per_s", {"window_ms": (100_000,)}, {"window_ms": (1,)},
                             label="window of 100 s over 1 ms"),)),
    Experiment("acikv", "Figure 7", "latency by throughput, weak commits beside group commit, 1 to 1,024 threads, a "
               "window of 10 ms", run="ycsb-latency", ratios=OVER_GROUP),
    Experiment("acikv", "Figure 7, slow disk", "the same with 5 ms more for each flush", run="ycsb-latency-slow",
               ratios=OVER_GROUP),
    Experiment("acikv", "Figure 10, 1 GB", "recovery after a crash with 256 and 1,024 MiB of log; 8 M records",
               run="ycsb-recovery-1", ratios=OPENING),
    Experiment("acikv", "Figure 10, 10 GB", "the same with 80 M records", run="ycsb-recovery-10", ratios=OPENING),
    Experiment("acikv", "Figure 10, 50 GB", "the same with 400 M records",
               missing="50 GB and the space that a load needs beside them are more than this machine's disk has."),
    Experiment("acikv", "Vulnerability window", "how long a weak commit is not durable, with windows of 1 to 1,000 ms",
               run="ycsb-vulnerability",
               ratios=(*(Ratio(f"weak_wait_{figure}_ms", by=WAITED) for figure in ("p50", "p99", "max")),
                       Ratio("weak_wait_max_ms", base_field="window_ms", by=WAITED, less_is_better=True,
                             label="window over the longest")),
               note="Of each frame, from its first commit on; a flush comes on top of the window. With nothing but "
                    "writes, frames are full before the longer windows end, and the longest waits are for a checkpoint "
                    "that makes room in the log ([kv.md](../docs/kv.md#what-survives))."),
    Experiment("acikv", "Section 1, the argument", "stores without flushes break x < y in a power cut, weak commits "
               "never", run="soak-invariant",
               note="Which stores are broken, and after how many cuts, is in the output of the command."),
)

IN_MEMORY = "A region runs from a copy in memory, as in the paper, so reads of it never reach the medium."
VARIANTS = ("memlith-cc, empty calls", "memlith-cc, checks only")

SNAPSHOT = (
    Experiment("snapshot", "Stores past the cache", "non-temporal stores beside clwb",
               "non-temporal stores always faster (thesis)", 1.0, "pmdk-lines",
               (Ratio("p50_us", {"side": ("past the cache",)}, {"side": ("clwb",)}, by=("workload",),
                      less_is_better=True),),
               note="The lines of the result have all orders of fences, too."),
    Experiment("snapshot", "Instrumentation", "a key-value store with and without recording",
               "negligible (thesis)", run="stores",
               ratios=(Ratio("p50_us", {"side": ("memlith-cc",)}, {"side": ("clang",)}, by=("workload",),
                             less_is_better=True),),
               note="An operation of this store takes tens of nanoseconds, so a recorded store shows; speedtest1, a "
                    "program that does more, is nearer to what a user pays."),
    Experiment("snapshot", "Instrumentation, variants", "a recording call that does nothing, or only checks the range",
               run="stores", ratios=tuple(Ratio("p50_us", {"side": (side,)}, {"side": ("clang",)}, by=("workload",),
                                                less_is_better=True, label=side) for side in VARIANTS)),
    Experiment("snapshot", "Share of stores", "stores that are recorded, of all", "10.8 % (thesis)",
               run="stores", ratios=(Ratio("recorded_percent", by=("workload",)),),
               note="Of the stores in the code, as the compiler leaves them, in per cent."),
    Experiment("snapshot", "Figure 7 a", "a linked list beside PMDK on byte-addressable memory, 1 M operations",
               "competitive with PMDK for insert and delete, faster for traversal (thesis)", run="pmdk-memory",
               ratios=over_pmdk(("list, insert", "list, delete", "list, read all")),
               note="tmpfs stands in for Optane, which none of our machines has."),
    Experiment("snapshot", "Figure 7 b", "a B-tree of order 8, 1 M operations",
               "like PMDK for insert and delete, 4.1 for reads (thesis)", run="pmdk-memory",
               ratios=over_pmdk(("btree, insert", "btree, delete", "btree, read"))),
    Experiment("snapshot", "Figure 8", "a key-value store, YCSB's mixes, 5 M records", "1.2 to 2.2 (thesis)", 1.2,
               "pmdk-memory", over_pmdk(tuple(f"kv, {mix}" for mix in "ABCDEFG"))),
    Experiment("snapshot", "Figure 9", "Kyoto Cabinet's transactions of 1 to 128 updates", "1.4 to 8.0 (thesis)", 1.4,
               "kyoto-commits", (Ratio("ops_per_s", {"side": ("memlith instrumented",)}, {"side": ("transactions",)},
                                       by=("workload",)),),
               note="On a disk; the paper's is Optane. The ratio grows with the updates, since the peer logs each."),
    Experiment("snapshot", "Figure 10 a", "the linked list on an emulated memory-semantic SSD",
               "insert 1.7, delete 3.2, read 171 (thesis)", 1.7, "pmdk-slow",
               over_pmdk(("list, insert", "list, delete", "list, read all")), note=IN_MEMORY),
    Experiment("snapshot", "Figure 10 b", "the B-tree there", "insert 3.4, delete 4.1, read 364.5 (thesis)", 3.4,
               "pmdk-slow", over_pmdk(("btree, insert", "btree, delete", "btree, read")), note=IN_MEMORY),
    Experiment("snapshot", "Figure 10 c", "the key-value store there",
               "up to 10.9, read-modify-write 0.81 (thesis)", 0.81, "pmdk-slow-kv",
               over_pmdk(tuple(f"kv, {mix}" for mix in "ABCDEFG")), note=IN_MEMORY),
    Experiment("snapshot", "boost.interprocess", "an allocator that knows of nothing survives kills",
               "no line changed (thesis)", run="kills-of-boost"),
)

FASL = (
    Experiment("fasl", "Figure 5", "dbbench where the data exceed log and memory", run="dbbench-exceeds",
               ratios=(Ratio("ops_per_s", {"side": ("memlith-log",)}, {"side": PEERS}, by=("workload",)),
                       Ratio("ops_per_s", {"side": ("memlith-log",)}, {"side": ("memlith",)}, by=("workload",),
                             label="with the log over without")),
               note="5 M records (580 MB), 192 MiB of memory, page cache included, a log of 64 MiB."),
    Experiment("fasl", "Backends", "four ways to the device, with and without the application log",
               run="dbbench-fits",
               ratios=(Ratio("ops_per_s", {"side": ("memlith-log",)}, {"side": ("memlith",)},
                             by=("workload", "backend"), label="with the log over without"),),
               note="Files with system calls and with io_uring; raw devices and NVMe commands take a device to lose: "
                    "`--backends raw --device DEVICE`, `--backends nvme --namespace DEVICE`."),
    Experiment("fasl", "Figure 6", "Redis, 10 M keys of 128 B, a log of 1/30 of the data: durable SETs",
               run="redis-mixes", ratios=(Ratio("ops_per_s", {"side": ("memlith-strong",)}, {"side": ("aof-always",)},
                                                by=("workload", "threads")),)),
    Experiment("fasl", "Figure 7", "the same with a log as large as the data", run="redis-mixes-log",
               ratios=(Ratio("ops_per_s", {"side": ("memlith-strong",)}, {"side": ("aof-always",)},
                             by=("workload", "threads")),)),
    Experiment("fasl", "Table 4", "the start of Redis with a full log", run="redis-start",
               ratios=(Ratio("seconds", {"side": ("memlith-strong",), "workload": ("start, after kill -9",)},
                             {"side": ("aof-no",)}, less_is_better=True, label="after a kill, over an append-only "
                                                                               "file"),)),
    Experiment("fasl", "Redis, rewrites", "SETs while plain Redis writes its file anew", run="redis-pauses",
               ratios=(Ratio("p999_us", {"side": ("memlith-strong",), "workload": ("100% SET, nothing beside",)},
                             {"side": ("aof-always",), "workload": ("100% SET, BGREWRITEAOF",)}, less_is_better=True,
                             label="99.9th percentile"),)),
    Experiment("fasl", "Retwis", "transactions of three replicas beside raft-wal, etcd, and raft without persistence, "
               "10 and 60 clients", run="retwis",
               ratios=tuple(Ratio("tx_per_s", {"side": ("memlith",)}, {"side": (side,)}, by=("clients",), label=label)
                            for side, label in (("raft-wal", "over raft-wal"), ("etcd", "over etcd"),
                                                ("memory", "over raft in memory")))),
    Experiment("fasl", "Retwis, recovery", "a replica that recovers from its disk, beside one that starts empty",
               "65 s to 1.2 s (issue)", 54.0,
               "retwis-replica", (Ratio("seconds", {"side": ("memlith",)}, base_field="empty_seconds",
                                        less_is_better=True, label="with its disk over empty"),
                                  Ratio("seconds", {"side": ("memlith",)}, {"side": ("raft-wal",)},
                                        less_is_better=True, label="with its disk, over raft-wal"),
                                  Ratio("empty_seconds", {"side": ("memlith",)}, {"side": ("raft-wal",)},
                                        less_is_better=True, label="empty, over raft-wal")),
               note="10 M keys; the paper's size is not known. An empty replica puts each record that it is sent into "
                    "its own store, while bbolt's snapshot is a copy of the file."),
    Experiment("fasl", "Retwis, timeline", "throughput while the leader and then all replicas die: the longest time "
               "without a commit", run="retwis-timeline",
               ratios=tuple(Ratio(f"{event}_gap_s", {"side": ("memlith",)}, {"side": ("raft-wal",)},
                                  less_is_better=True, label=f"{label}, over raft-wal")
                            for event, label in (("one_dies", "after the leader's death"),
                                                 ("all_return", "after all returned"))),
               note="Three replicas on one disk; a new leader is elected after 1 s or longer on both sides."),
)

EXPERIMENTS = (*MEMSNAP, *FAMS, *ACIKV, *SNAPSHOT, *FASL)
COUNTED_BY_THE_AUDITS = 64
