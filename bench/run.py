#!/usr/bin/env python3
"""Runs the benchmarks: what `./dev bench` calls once the programs are built.

    run.py --plan NAME [ARGS...]        prints what NAME needs: a line of build targets, a line of Debian packages
    run.py --bin FOLDER NAME [ARGS...]  runs it

NAME is `all`, `sqlite`, `heap`, `ycsb`, `dbbench`, `kvcalls`, `files`, `copy`, `applog`, `processes`, `shared`,
`replica`, `bbolt`, `etcd`, `redis`, `rocksdb`, `postgres`, `bytes`, `instrumented`, `pmdk`, `python`, `steps`,
`transparent`, `paper` (the tables of the five papers, by the other commands: papers/paper.py), or a command of
`memlith bench`. Files go to build/bench unless --dir names another folder. What a benchmark prints is all there is on
standard output, so that --json can be piped.

`persist --peers` also measures on an XFS and a Btrfs, which are made for it on loop devices where that is possible (as
root, with mkfs.xfs and mkfs.btrfs). --plot FILE.png draws the peers; `ycsb`, `dbbench`, `kvcalls`, `files`, `applog`,
`pmdk`, `python`, `transparent`, `sqlite writers` and `instrumented kyoto` take it, too, and write their lines to
FILE.jsonl. `all` runs every benchmark of the engine once and writes Markdown (--out FILE.md), with --report FILE.html a
page with pictures, and then those of the heap (heap.md beside it). `heap SUITE`, `ycsb`, `dbbench`, `kvcalls`, `applog`
and `processes` are suites of `memlith-kv-bench`, and `transparent` ends with one; `heap` and `heap all`, all of the
heap as Markdown.
"""
import argparse
import contextlib
import os
import pathlib
import shutil
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent / "kit"))
from loop_device import loop_device  # noqa: E402 pylint: disable=wrong-import-position

ROOT = pathlib.Path(__file__).resolve().parents[1]
INTEGRATIONS = ROOT / "integrations"
PLOT_PACKAGES = ["python3-matplotlib"]
PYTHON_PACKAGES = {"python": ["python3-dev", "python3-torch", "python3-venv"],  # pip installs the other peers
                   "steps": ["python3-dev", "python3-venv"],
                   "sqlite": ["python3-venv"]}
KV_TARGET = "bin/memlith-kv-bench"
# These mount file systems for a while: as root they run in a mount namespace, which ends with them.
MOUNTING = ("all", "persist", "files", "rocksdb", "postgres", "bytes", "pmdk")


class Misused(Exception):
    """The typed arguments make no sense; the message says what does."""


def say(text):
    print(text, file=sys.stderr)


def on_further_file_systems(parent, mib, command):
    """Runs the command with `--fsync-dir FOLDER` for an XFS and a Btrfs of `mib` on loop devices; without those that
    cannot be made."""
    with contextlib.ExitStack() as mounted:
        for make in ("mkfs.xfs", "mkfs.btrfs"):
            folder = mounted.enter_context(loop_device(parent, mib, [make, "-q", "-f"], "loop", say))
            command = [*command, *(["--fsync-dir", folder] if folder else [])]
        return subprocess.run(command, check=False).returncode


def plotting_python():
    """A Python that has matplotlib: Debian's package is for the system's own, which need not come first."""
    for python in ("python3", "/usr/bin/python3"):
        if subprocess.run([python, "-c", "import matplotlib"], capture_output=True, check=False).returncode == 0:
            return python
    return "python3"


def draw(record, picture):
    status = subprocess.run([plotting_python(), "-B", ROOT / "bench/peers/plot.py", record, picture],
                            check=False).returncode
    if status == 0:
        say(f"drawn: {picture}; the figures: {record}")
    return status


class Options(argparse.ArgumentParser):
    """Takes the options that are ours and leaves all others to the program."""

    def __init__(self, *names):
        super().__init__(add_help=False, allow_abbrev=False, exit_on_error=False)
        for name in names:
            self.add_argument(f"--{name}")

    def split(self, words):
        try:
            return self.parse_known_args(words)
        except argparse.ArgumentError as error:
            raise Misused(f"{error}; ./dev bench NAME --help says what it takes") from error


def folder_of(given):
    folder = pathlib.Path(given or ROOT / "build/bench")
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def run_engine(programs, words):
    """`memlith bench NAME`, in a folder of ours."""
    place = [] if not words or "--dir" in words or any(word.startswith("--dir=")
                                                       for word in words) else ["--dir", folder_of(None)]
    command = [programs / "memlith", "bench", *words] if words else [programs / "memlith", "bench", "--help"]
    return subprocess.run([*command, *place], check=False).returncode


def run_persist(programs, words):
    """`memlith bench persist`; with --peers or --plot, with further file systems beside it, and drawn."""
    options, rest = Options("plot", "dir", "record", "region-mib").split(words)
    if "--help" in words or not (options.plot or "--peers" in words):
        return run_engine(programs, ["persist", *words])
    folder = folder_of(options.dir)
    record = options.record or (options.plot and str(pathlib.Path(options.plot).with_suffix(".jsonl")))
    command = [programs / "memlith", "bench", "persist", *(["--peers"] if "--peers" not in rest else []), *rest,
               "--dir", folder]
    command += ["--record", record] if record else []
    command += ["--region-mib", options.region_mib] if options.region_mib else []
    if any(word.split("=")[0] == "--fsync-dir" for word in rest):
        status = subprocess.run(command, check=False).returncode
    else:
        status = on_further_file_systems(folder, 512 + int(options.region_mib or 64), command)
    return draw(record, options.plot) if status == 0 and options.plot else status


def run_protect(programs, words):
    """`memlith bench protect`, which writes no file."""
    return subprocess.run([programs / "memlith", "bench", "protect", *Options("dir").split(words)[1]],
                          check=False).returncode


def run_all(programs, words):
    """Every benchmark of the engine once, as one section of Markdown."""
    options, rest = Options("plot", "dir", "out", "report").split(words)
    folder = folder_of(options.dir)
    out, record, rows = options.out or folder / "performance.md", folder / "peers.jsonl", folder / "performance.jsonl"
    status = on_further_file_systems(folder, 768, [
        sys.executable, "-B", ROOT / "bench/engine/all.py", "--bench", programs / "memlith", "--dir", folder, "--out",
        out, "--record", record, "--rows", rows, *rest])
    say(f"the figures: {out}")
    if options.report:
        status = subprocess.run([sys.executable, "-B", ROOT / "bench/engine/report.py", rows, options.report],
                                check=False).returncode or status
        say(f"drawn: {options.report}; the figures: {rows}")
    if options.plot:
        status = draw(record, options.plot) or status
    if status == 130:
        return status
    quick = [word for word in rest if word == "--quick"]
    status = run_heap(programs, ["all", "--dir", str(folder), *quick]) or status
    # Two minutes; what it prints goes beside the other figures.
    ycsb = [programs / "memlith-kv-bench", "ycsb", "--dir", folder, "--records", "1000" if quick else "100000",
            "--seconds"]
    done = 0
    with open(folder / "ycsb.txt", "w", encoding="utf-8") as figures:
        for more in (["0.05" if quick else "0.7"],
                     ["0.05" if quick else "0.7", "--durability", "sync", "--workloads", "write", "--threads", "1,8"],
                     ["0.05" if quick else "0.5", "--workloads", "write", "--sides", "memlith", "--window-ms",
                      "1,10,100,1000", "--window-mib", "4096"],
                     ["1", "--recovery-log-mib", "1" if quick else "64"]):
            done = subprocess.run([*ycsb, *more], stdout=figures, check=False).returncode or done
    say(f"the figures: {folder / 'ycsb.txt'}")
    return done or status


def run_heap(programs, words):
    """A suite of the heap of `memlith-kv-bench`, or all of them as Markdown."""
    program = programs / "memlith-kv-bench"
    if words and words[0] != "all" and not words[0].startswith("--"):
        place = any(word.split("=")[0] == "--dir" for word in words)
        return subprocess.run([program, *words, *([] if place else ["--dir", folder_of(None)])], check=False).returncode
    if "--help" in words:
        return subprocess.run([program, "--help"], check=False).returncode
    options, rest = Options("dir", "out").split(words[1:] if words[:1] == ["all"] else words)
    folder = folder_of(options.dir)
    out = options.out or folder / "heap.md"
    status = subprocess.run([plotting_python(), "-B", ROOT / "bench/kv/report.py", "--bench", program, "--dir",
                             folder, "--out", out, *rest], check=False).returncode
    if status == 0:
        say(f"the figures: {out}")
    return status


def bars(field, record, picture):
    status = subprocess.run([plotting_python(), "-B", ROOT / "bench/kit/bars.py", field, record, picture],
                            check=False).returncode
    if status == 0:
        say(f"drawn: {picture}; the figures: {record}")
    return status


def run_in_folder(command, words, field="ops_per_s"):
    """A program that takes --dir and --json; with --plot, its lines go to a file beside the picture, which shows the
    field."""
    options, rest = Options("plot", "dir").split(words)
    command = [*command, *rest, *([] if "--help" in words else ["--dir", folder_of(options.dir)])]
    if not options.plot:
        return subprocess.run(command, check=False).returncode
    record = pathlib.Path(options.plot).with_suffix(".jsonl")
    with open(record, "w", encoding="utf-8") as out:
        status = subprocess.run([*command, "--json"], stdout=out, check=False).returncode
    return status or bars(field, record, options.plot)


def enter_namespace(name, words):
    """Starts the program anew in a mount namespace of its own, where that is possible and wanted."""
    variable = "MEMLITH_BENCH_NAMESPACE"
    if name in MOUNTING and variable not in os.environ and os.geteuid() == 0 and shutil.which("unshare"):
        os.environ[variable] = "own"
        os.execvp("unshare", ["unshare", "--mount", "--propagation", "private", sys.executable, "-B", __file__, *words])


def run_shared(programs, words):
    """`memlith-shared-bench`: commits of a shared region, through its keeper, beside those of one process."""
    return run_in_folder([programs / "memlith-shared-bench"], words, "p50_us")


def run_kv(suite):
    """`memlith-kv-bench SUITE`."""
    def run(programs, words):
        opens = any(word.split("=")[0] == "--recovery-log-mib" for word in words)
        return run_in_folder([programs / "memlith-kv-bench", suite], words, "open_ms" if opens else "ops_per_s")
    return run


def run_transparent(programs, words):
    """The price of saying nothing of one's stores: `memlith bench transparent`, of pages, then the suite `entries` of
    `memlith-kv-bench`, of maps. Takes the options of both, and --quick for figures that mean nothing."""
    if "--help" in words:
        return max(subprocess.run([programs / "memlith", "bench", "transparent", "--help"], check=False).returncode,
                   subprocess.run([programs / "memlith-kv-bench", "entries", "--help"], check=False).returncode)
    pages, rest = Options("region-mib", "pages", "bytes-per-page", "filled-mib", "log-mib").split(words)
    entries, rest = Options("keys", "value-bytes", "changes", "sides").split(rest)
    options, rest = Options("dir", "plot").split(rest)
    commands = [[programs / "memlith", "bench", "transparent"], [programs / "memlith-kv-bench", "entries"]]
    if "--quick" in rest:
        rest = [*(word for word in rest if word != "--quick"), "--rounds", "20"]
        pages.region_mib, pages.filled_mib = pages.region_mib or "2,4", pages.filled_mib or "2"
        entries.keys = entries.keys or "500"
    for command, own in zip(commands, (pages, entries)):
        command += [word for name, value in vars(own).items() if value
                    for word in (f"--{name.replace('_', '-')}", value)]
        command += [*rest, "--dir", folder_of(options.dir)]
    if not options.plot:
        return max(subprocess.run(command, check=False).returncode for command in commands)
    record = pathlib.Path(options.plot).with_suffix(".jsonl")
    with open(record, "w", encoding="utf-8") as out:
        status = max(subprocess.run([*command, "--json"], stdout=out, check=False).returncode for command in commands)
    return status or bars("p50_us", record, options.plot)


def run_processes(programs, words):
    """`memlith-kv-bench processes`; with redb, if cargo can build it."""
    redb = folder_of(None) / "redb"
    has_redb = "--help" not in words and shutil.which("cargo") and subprocess.run(
        ["cargo", "build", "--quiet", "--release", "--manifest-path", ROOT / "bench/kv/redb/Cargo.toml", "--target-dir",
         redb], stdout=sys.stderr, check=False).returncode == 0
    if not has_redb and "--help" not in words:
        say("redb is not measured: it cannot be built, which takes cargo and crates.io")
    more = ["--redb", redb / "release/memlith-bench-redb"] if has_redb else []
    return run_in_folder([programs / "memlith-kv-bench", "processes", *more], words, "ops_per_s")


def build_redis(programs, words):
    """The status."""
    if "--help" in words:
        return 0
    folder = programs.resolve().parent
    return subprocess.run([sys.executable, "-B", INTEGRATIONS / "redis/build.py", "--work", folder / "redis",
                           "--library", folder / "lib/libmemlith.a"], stdout=sys.stderr, check=False).returncode


def run_redis(programs, words):
    """integrations/redis/bench/bench.py, with Redis built before."""
    return build_redis(programs, words) or run_in_folder([
        sys.executable, "-B", INTEGRATIONS / "redis/bench/bench.py", "--bin", programs, "--redis",
        programs.resolve().parent / "redis"], words)


def run_bytes(programs, words):
    """bench/bytes/bytes.py: bytes to the device per byte of user data, by face."""
    return build_redis(programs, words) or run_in_folder(
        [sys.executable, "-B", ROOT / "bench/bytes/bytes.py", "--bin", programs], words, "disk_bytes_per_byte")


def run_rocksdb(programs, words):
    """integrations/rocksdb/bench/bench.py."""
    return run_in_folder([sys.executable, "-B", INTEGRATIONS / "rocksdb/bench/bench.py", "--bin",
                          programs], words)


def run_postgres(programs, words):
    """integrations/postgres/bench/bench.py."""
    return run_in_folder([sys.executable, "-B", INTEGRATIONS / "postgres/bench/bench.py", "--bin",
                          programs], words)


def run_sqlite(programs, words):
    """`memlith-sqlite-bench NAME`, or all of them as Markdown; `servers`: integrations/sqlite/bench/servers.py."""
    if words[:1] == ["servers"]:
        return run_in_folder([sys.executable, "-B", INTEGRATIONS / "sqlite/bench/servers.py", "--bin", programs],
                             words[1:])
    program = programs / "memlith-sqlite-bench"
    if words[:1] == ["writers"] and "--help" not in words:
        return run_in_folder([program, "writers"], words[1:])
    if words[:1] != ["all"]:
        named = words and not words[0].startswith("-") and not any(word.split("=")[0] == "--dir" for word in words)
        return subprocess.run([program, *words, *(["--dir", folder_of(None)] if named else [])], check=False).returncode
    options, rest = Options("dir", "out").split(words[1:])
    folder = folder_of(options.dir)
    out = options.out or folder / "sqlite.md"
    status = subprocess.run([plotting_python(), "-B", INTEGRATIONS / "sqlite/bench/report.py", "--bench", program,
                             "--dir", folder, "--out", out, *rest], check=False).returncode
    if status == 0:
        say(f"the figures: {out}")
    return status


def run_instrumented(programs, words):
    """The cost of recording stores, built with clang and with memlith-cc; `kyoto`: Kyoto Cabinet compiled with
    memlith-c++ beside its own transactions."""
    if words[:1] == ["kyoto"]:
        return run_in_folder([sys.executable, "-B", ROOT / "bench/instrumented/kyoto.py", "--bin", programs], words[1:])
    place = [] if any(word.split("=")[0] in ("--dir", "--help") for word in words) else ["--dir", folder_of(None)]
    return subprocess.run([sys.executable, "-B", ROOT / "bench/instrumented/overhead.py", "--bin", programs, *place,
                           *words], check=False).returncode


def run_pmdk(programs, words):
    """Data structures on memlith and on PMDK, and how lines are written; the files lie in /dev/shm."""
    return run_in_folder([sys.executable, "-B", ROOT / "bench/pmdk/pmdk.py", "--bin", programs], words)


def run_copy(programs, words):
    """bench/copy/bench.py: copies of a store in use, beside persists and beside cp."""
    return run_in_folder([sys.executable, "-B", ROOT / "bench/copy/bench.py", "--bin", programs], words)


def run_replica(programs, words):
    """Raft's storage in turns, on memlith, raft-wal and raft-boltdb: `puts` of three nodes (clusterbench), or appends
    of the `log` alone (storebench). `retwis`: transactions of three nodes on memlith, on raft-wal with bbolt, and of
    etcd, if its modules can be had; their recovery, or a timeline, with --measure."""
    if words[:1] not in (["log"], ["puts"], ["retwis"]):
        raise Misused("./dev bench replica log, ./dev bench replica puts, or ./dev bench replica retwis")
    place, library = folder_of(None) / "replica", programs.resolve().parent / "lib"
    place.mkdir(exist_ok=True)
    environment = {**os.environ, "CGO_LDFLAGS": f"-L{library} -Wl,-rpath,{library}"}
    for name in ("storebench", "clusterbench", "retwis", "kvnode"):
        built = subprocess.run(["go", "build", "-o", place / name, f"./cmd/{name}"], cwd=INTEGRATIONS / "raft",
                               env=environment, stdout=sys.stderr, check=False).returncode
        if built != 0:
            return built
    if words[0] == "log":
        return run_in_folder([place / "storebench"], words[1:], "entries_per_s")
    if words[0] == "retwis":
        built = subprocess.run(["go", "build", "-modfile=stock.mod", "-o", place / "etcd", "./cmd/retwis"],
                               cwd=INTEGRATIONS / "etcd", env={**os.environ, "GOTOOLCHAIN": "local"}, stdout=sys.stderr,
                               check=False).returncode
        if built != 0:
            say("etcd is not measured: it cannot be built")
        etcd = [] if built else ["-etcd", place / "etcd"]
        return run_in_folder([place / "retwis", "-node", place / "kvnode", *etcd], words[1:], "tx_per_s")
    return run_in_folder([place / "clusterbench", "-node", place / "kvnode"], words[1:])


def run_bbolt(programs, words):
    """Go's bbolt and integrations/bbolt in turns: durable puts, and reads beside them (bboltbench)."""
    place, library = folder_of(None) / "bbolt", programs.resolve().parent / "lib"
    place.mkdir(exist_ok=True)
    environment = {**os.environ, "CGO_LDFLAGS": f"-L{library} -Wl,-rpath,{library}"}
    built = subprocess.run(["go", "build", "-o", place / "bboltbench", "./cmd/bboltbench"],
                           cwd=INTEGRATIONS / "bbolt/bboltconvert", env=environment, stdout=sys.stderr,
                           check=False).returncode
    return built or run_in_folder([place / "bboltbench"], words)


def run_etcd(programs, words):
    """etcd with memlith below it, with memlith below its database alone, and as it comes, in turns."""
    options, rest = Options("dir", "rounds", "keys", "seconds").split(words)
    if rest:
        raise Misused("./dev bench etcd [--rounds N] [--keys N] [--seconds N]")
    library = programs.resolve().parent / "lib"
    environment = {**os.environ, "CGO_LDFLAGS": f"-L{library} -Wl,-rpath,{library}"}
    for name, value in (("KEYS", options.keys), ("SECONDS", options.seconds)):
        if value:
            environment[f"MEMLITH_ETCD_{name}"] = value
    return subprocess.run([INTEGRATIONS / "etcd/bench.sh", folder_of(options.dir) / "etcd", options.rounds or "3"],
                          env=environment, check=False).returncode


def run_files(programs, words):
    """bench/files/bench.py, which also measures on other file systems."""
    return run_in_folder([sys.executable, "-B", ROOT / "bench/files/bench.py", "--bin", programs], words,
                         "mean_us")


def make_package(python, place, libraries, requirements, *words):
    """A virtual environment with this build's package and the peers of a file of requirements."""
    return subprocess.run([python, "-B", ROOT / "bindings/python/tests/environment.py", "make", "--folder", place,
                           "--prebuilt", libraries, "--requirements", ROOT / "bench/python" / requirements, *words],
                          stdout=sys.stderr, check=False).returncode


def run_steps(programs, words):
    """bench/python/steps.py in a virtual environment of its own, beside LangGraph's saver and DBOS."""
    options, rest = Options("dir").split(words)
    place = folder_of(None) / "steps"
    made = make_package(sys.executable, place, programs.resolve().parent / "lib", "steps-requirements.txt")
    if made != 0:
        return made
    return subprocess.run([place / "venv/bin/python", "-B", ROOT / "bench/python/steps.py", "--dir",
                           folder_of(options.dir), *rest], check=False).returncode


def run_python(programs, words):
    """bench/python/bench.py in a virtual environment of its own, with this build's package and its peers."""
    options, rest = Options("plot", "dir", "record").split(words)
    folder = folder_of(options.dir)
    record = options.record or (options.plot and str(pathlib.Path(options.plot).with_suffix(".jsonl")))
    libraries = programs.resolve().parent / "lib"
    place = folder_of(None) / "python"
    python = next(each for each in ("/usr/bin/python3", sys.executable) if pathlib.Path(each).exists())
    made = make_package(python, place, libraries, "requirements.txt", "--system-packages")
    if made != 0:
        return made
    status = subprocess.run([place / "venv/bin/python", "-B", ROOT / "bench/python/bench.py", "--dir", folder,
                             "--library", libraries / "libmemlith.so", *(["--record", record] if record else []),
                             *rest], check=False).returncode
    if status != 0 or not options.plot:
        return status
    return bars("p50_us", record, options.plot)


def run_paper(programs, words):
    """bench/papers/paper.py, which runs other subjects of this program."""
    place = [] if any(word.split("=")[0] == "--dir" for word in words) else ["--dir", folder_of(None)]
    return subprocess.run([sys.executable, "-B", ROOT / "bench/papers/paper.py", "--bin", programs, *place, *words],
                          check=False).returncode


def paper_subjects(words):
    """The subjects that the named sections run, or all sections; none if nothing is run."""
    if "--dry" in words:
        return []
    sys.path.insert(0, str(ROOT / "bench/papers"))
    import paper  # pylint: disable=import-outside-toplevel # `./dev bench NAME` works without it
    return sorted({run.words[1] for run in paper.chosen(words) if run.words[0] == "bench"})


# Each subject: the build targets, and what runs it. A new one gets a line here.
SUBJECTS = {"all": (f"bin/memlith {KV_TARGET}", run_all), "persist": ("bin/memlith", run_persist),
            "protect": ("bin/memlith", run_protect),
            "heap": (KV_TARGET, run_heap),
            **{suite: (KV_TARGET, run_kv(suite)) for suite in ("ycsb", "dbbench", "kvcalls", "applog")},
            "files": ("memlith_cli memlith_run memlith_files_msync memlith_files_size memlith_files_http "
                      "memlith_files_kyoto tycoon_example", run_files),
            "processes": (KV_TARGET, run_processes),
            "copy": ("memlith memlith_cli", run_copy), "replica": ("memlith", run_replica),
            "bbolt": ("memlith", run_bbolt),
            "etcd": ("memlith", run_etcd),
            "shared": ("memlith_shared_bench", run_shared),
            "redis": ("memlith_static memlith_redis_load", run_redis),
            "rocksdb": ("memlith_cli memlith_run memlith_rocksdb memlith_rocksdb_bench", run_rocksdb),
            "postgres": ("memlith_postgres", run_postgres),
            "bytes": ("memlith memlith_static memlith_sqlite memlith_rocksdb memlith_rocksdb_bench memlith_redis_load "
                      "memlith_postgres", run_bytes),
            "instrumented": ("memlith memlith_cli memlith_run memlith_track_runtime", run_instrumented),
            "pmdk": ("memlith memlith_track_runtime", run_pmdk),
            "python": ("memlith memlith_static memlith_sqlite", run_python),
            "steps": ("memlith_static memlith_sqlite", run_steps),
            "transparent": (f"bin/memlith {KV_TARGET}", run_transparent),
            "sqlite": ("bin/memlith-sqlite-bench memlith_sqlite", run_sqlite),
            "paper": ("", run_paper)}  # the targets and packages of what it runs


def packages_of(name):
    """The packages that cmake/packages.sh names for the peers, or for memlith-cc."""
    groups = {"all": ("kv", "heap_bench", "peers"), "persist": ("peers",), "heap": ("kv", "heap_bench"),
              "ycsb": ("kv",), "dbbench": ("kv",),
              "kvcalls": ("kv",), "processes": ("kv",), "transparent": ("pass", "kv"),
              "files": ("files_bench",), "instrumented": ("pass", "sqlite_suite"),
              "redis": ("redis",), "rocksdb": ("rocksdb", "perf"), "postgres": ("postgres",),
              "bytes": ("redis", "rocksdb", "postgres"),
              "pmdk": ("pass", "heap_bench")}.get(name, ())
    command = 'source "$1" && echo ' + " ".join(f'"${{packages_{group}[@]}}"' for group in groups)
    return subprocess.run(["bash", "-c", command, "plan", ROOT / "cmake/packages.sh"], capture_output=True, text=True,
                          check=True).stdout.split()


def plan(words):
    name = words[0] if words else ""
    plots = [number for number, word in enumerate(words) if word.split("=")[0] == "--plot"]
    for number in plots:
        value = words[number].partition("=")[2] or (words[number + 1] if number + 1 < len(words) else "")
        if not value or value.startswith("-"):
            raise Misused("--plot takes the name of the picture: --plot FILE.png")
    names = paper_subjects(words[1:]) if name == "paper" else [name]
    targets = [target for each in names for target in SUBJECTS.get(each, ("bin/memlith", None))[0].split()]
    print(*dict.fromkeys(targets or ["bin/memlith"]))
    print(*dict.fromkeys(package for each in names for package in (*packages_of(each), *PYTHON_PACKAGES.get(each, ()))),
          *(PLOT_PACKAGES if plots else []))


def main(words):
    try:
        if words[:1] == ["--plan"]:
            plan(words[1:])
            return 0
        if words[:1] != ["--bin"] or len(words) < 2:
            raise Misused(__doc__)
        enter_namespace(words[2] if len(words) > 2 else "", words)
        programs, words = pathlib.Path(words[1]), words[2:]
        if words and words[0] in SUBJECTS:
            return SUBJECTS[words[0]][1](programs, words[1:])
        return run_engine(programs, words)
    except Misused as misused:
        say(f"dev: {misused}")
        return 2
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
