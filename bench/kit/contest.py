"""For benchmarks in Python: options, sides that take turns, medians, and the lines that say what was measured."""
import argparse
import contextlib
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile

from loop_device import loop_device

PERCENTILES = ("p50_us", "p99_us", "p999_us")
HIDDEN = ("suite", "workload", "side")  # of a line for people: the suite, and what begins it


class Failed(SystemExit):
    """A program did not succeed; the text says which, and how. Ends the benchmark, if it does not go on by itself."""


def said_by(command, **more):
    """The program's standard output."""
    words = [str(word) for word in command]
    done = subprocess.run(words, stdout=subprocess.PIPE, text=True, check=False, **more)
    if done.returncode != 0:
        raise Failed(f"{' '.join(words)} ended with {done.returncode}{': ' if done.stderr else ''}{done.stderr or ''}")
    return done.stdout


def told_by(command, **more):
    """The object of JSON that the program prints."""
    return json.loads(said_by(command, **more))


# ---- options -------------------------------------------------------------------------------------------------------

def numbers(text):
    return [int(word) for word in text.split(",")]


def names(known):
    """The type of an option: some of the known words."""
    def split(text):
        words = text.split(",")
        if unknown := set(words) - set(known):
            raise argparse.ArgumentTypeError(f"{', '.join(sorted(unknown))}: there are {', '.join(known)}")
        return words
    return split


def options_of(description, *, folder, rounds, suites=()):
    """The options of every benchmark; without a suite, all suites."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    if suites:
        parser.add_argument("suites", nargs="*", type=names(suites), default=list(suites), metavar="SUITE",
                            help=f"of {', '.join(suites)}; none: all")
    path = {"type": lambda text: pathlib.Path(text).resolve()}
    parser.add_argument("--bin", required=True, **path, help=argparse.SUPPRESS)
    parser.add_argument("--dir", required=True, **path, help=f"{folder}; default build/bench")
    parser.add_argument("--json", action="store_true", help="one object a line")
    parser.add_argument("--rounds", type=int, default=rounds, help="turns of each side")
    return parser


def chosen(given):
    """The names of the suites, in the order that was asked for."""
    return [name for each in given.suites for name in ([each] if isinstance(each, str) else each)]


def disk_options(parser, mib):
    parser.add_argument("--here", action="store_true", help="in the folder itself, not on a loop device in it")
    parser.add_argument("--disk-mib", type=int, default=mib, help="of the loop device")


# ---- places --------------------------------------------------------------------------------------------------------

def say_aside(text):
    print(text, file=sys.stderr, flush=True)


@contextlib.contextmanager
def own_disk(given, name, make=("mkfs.ext4", "-qF")):
    """A folder, and True if it is on a file system of its own, on a loop device; with --here, or where that is not
    possible, a folder in that of the options."""
    given.dir.mkdir(parents=True, exist_ok=True)
    with contextlib.nullcontext() if given.here else loop_device(given.dir, given.disk_mib, make, "loop",
                                                                 say_aside) as disk:
        folder = disk or given.dir / name
        folder.mkdir(exist_ok=True)
        yield folder, disk is not None


@contextlib.contextmanager
def own_folder(parent, prefix):
    """A folder that is removed at the end, also if a file in it has gone meanwhile."""
    parent = pathlib.Path(parent)
    parent.mkdir(parents=True, exist_ok=True)
    folder = pathlib.Path(tempfile.mkdtemp(prefix=prefix, dir=parent))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def need_compiler(options):
    """Ends the program where memlith's compiler was not built."""
    if not shutil.which("clang++-19") or not (options.bin / "memlith-c++").exists():
        sys.exit("memlith-c++ is not built: it needs the Debian packages clang-19, lld-19 and llvm-19-dev")


def linked_to(options):
    """The words for a compiler that link a program to the library."""
    library = options.bin.parent / "lib"
    return [f"-L{library}", "-lmemlith", f"-Wl,-rpath,{library}"]


def sync(folder):
    subprocess.run(["sync", "-f", folder], check=True)


# ---- turns ---------------------------------------------------------------------------------------------------------

def in_turns(rounds, sides, measure, rotate=False):
    """{side: what measure(side) returned in each round}. With `rotate`, each side is first, and last, in its turn."""
    runs = {side: [] for side in sides}
    order = list(runs)
    for turn in range(rounds):
        first = turn % len(order) if rotate else 0
        for side in order[first:] + order[:first]:
            runs[side].append(measure(side))
    return runs


def middle(runs, field):
    """The run with the median of the field; of two, the one with the lower."""
    return sorted(runs, key=lambda run: run[field])[(len(runs) - 1) // 2]


def percentiles(times):
    """Percentiles of times in microseconds."""
    times = sorted(times)
    return {name: times[min(len(times) - 1, int(len(times) * part))]
            for name, part in zip(PERCENTILES, (0.5, 0.99, 0.999))}


# ---- lines ---------------------------------------------------------------------------------------------------------

def number(value):
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
    return f"{value:,}" if isinstance(value, int) else str(value)


def say(given, line, **beside):
    """A line: with --json the object, else its fields, and what stands beside them for people."""
    if given.json:
        print(json.dumps(line), flush=True)
        return
    fields = [f"{name} {number(value)}" for name, value in (line | beside).items() if name not in HIDDEN]
    print(f"{line['workload']:28}  {line['side']:22}  " + "  ".join(fields), flush=True)
