"""For a page of figures: what they were measured on, running the benchmarks, tables, pictures."""
import argparse
import datetime
import json
import os
import pathlib
import platform
import subprocess
import sys


def first_line(path, otherwise="unknown"):
    try:
        return pathlib.Path(path).read_text(encoding="utf-8").strip().splitlines()[0]
    except (OSError, IndexError):
        return otherwise


def processor():
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            for line in file:
                if line.startswith("model name"):
                    return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.machine()


def mount_of(folder):
    """Device and type of the file system a folder is on: of all mounts above it the longest."""
    real = os.path.realpath(folder)
    best = ("", "unknown", "unknown", "")
    with open("/proc/mounts", encoding="utf-8") as file:
        for line in file:
            device, target, kind, options = line.split()[:4]
            target = target.replace("\\040", " ")
            above = target == "/" or real == target or real.startswith(target + "/")
            if above and len(target) >= len(best[0]):
                best = (target, device, kind, options)
    return best


def device_text(folder):
    status = os.stat(folder)
    block = pathlib.Path(f"/sys/dev/block/{os.major(status.st_dev)}:{os.minor(status.st_dev)}")
    if (block / "partition").exists():
        block = block.resolve().parent
    name = block.resolve().name if block.exists() else mount_of(folder)[1]
    model = first_line(block / "device/model", "").strip()
    if not model and name.startswith("vd"):
        model = "virtio disk"
    cache = {"write back": "volatile write cache", "write through": "no volatile write cache"}
    found = cache.get(first_line(block / "queue/write_cache"), "write cache unknown")
    return f"{name}{f' ({model})' if model else ''}, {found}"


def commit(root):
    done = subprocess.run(["git", "-C", str(root), "describe", "--always", "--dirty"], capture_output=True, text=True,
                          check=False)
    return done.stdout.strip() or "not from git"


def measured(command, folder, program):
    """When, by what, on what; and a warning where no commit says what was measured."""
    _, _, kind, options = mount_of(folder)
    load = os.getloadavg()
    built_from = commit(pathlib.Path(__file__).parent)
    now = datetime.datetime.now(datetime.timezone.utc)
    yield f"Measured {now:%Y-%m-%d %H:%M} UTC by `{command}`: {program} ({built_from}), Linux {platform.release()},"
    yield (f"{len(os.sched_getaffinity(0))} cores ({processor()}), {device_text(folder)}, {kind} "
           f"({options.replace(',', ', ')});")
    yield f"load {load[0]:.1f} when it began."
    if built_from.endswith("-dirty"):
        yield ""
        yield ("**Measured with changes that no commit has (`-dirty`): these figures cannot be repeated from the "
               "commit "
               "that is named.**")


class Failed(Exception):
    """A benchmark did not succeed; the text is its message."""


def run(name, command, words, folder):
    """The JSON objects that a benchmark wrote. Raises Failed, and KeyboardInterrupt where a signal stopped it."""
    print(f"running: {name} {' '.join(words)}", file=sys.stderr, flush=True)
    done = subprocess.run([*command, *words, "--json", "--dir", folder], capture_output=True, text=True, check=False)
    if done.returncode == 130:
        raise KeyboardInterrupt
    try:
        rows = [json.loads(line) for line in done.stdout.splitlines()]
    except json.JSONDecodeError as error:
        raise Failed(f"exit code {done.returncode}, and not JSON: {error}; {done.stderr.strip()}") from error
    if done.returncode != 0:
        said = [str(row) for row in rows if "error" in row or "message" in row]
        raise Failed(done.stderr.strip() or " ".join(said) or f"exit code {done.returncode}")
    return rows


def table(titles, rows):
    yield "| " + " | ".join(titles) + " |"
    yield "|" + "---|" * len(titles)
    for row in rows:
        yield "| " + " | ".join(str(cell) for cell in row) + " |"
    yield ""


class Report:
    """A page of figures, written section by section. What a class below it defines: `program`, the file name of the
    benchmark; `command`, what a reader types before the words of a section."""

    def __init__(self, arguments, out):
        self.arguments, self.out = arguments, out
        self.failures, self.rows = 0, []

    def line(self, text=""):
        print(text, file=self.out, flush=True)

    def measure(self, title, note, words, name_of):
        """Heads a section, runs the benchmark, and returns its rows by table; none if it failed, which is noted."""
        self.line(f"\n## {title}\n\n{note}\n\n    {self.command} {' '.join(words)}\n")
        try:
            rows = run(self.program, [self.arguments.bench], words, self.arguments.dir)
        except Failed as failure:
            self.failures += 1
            self.line(f"FAILED: {failure}")
            return {}
        tables = {}
        for row in rows:
            tables.setdefault(name_of(row), []).append(row)
        return tables


def report_arguments(description, name):
    """The options of every page of figures."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bench", required=True, help="the program that measures; ./dev gives it")
    parser.add_argument("--dir", required=True, help="where the temporary stores go; ./dev gives build/bench")
    parser.add_argument("--out", required=True, help=f"the Markdown; ./dev gives build/bench/{name}.md")
    parser.add_argument("--plot", help="the picture")
    parser.add_argument("--quick", action="store_true", help="hardly anything, to see whether it works")
    return parser


QUICK = "**With `--quick`: the figures mean nothing.**"


def write_report(report_class, arguments, head, sections, draw=None):
    """Writes the page and the picture; `head` and `sections` write to the report. Returns the exit code."""
    with open(arguments.out, "w", encoding="utf-8") as out:
        report = report_class(arguments, out)
        head(report)
        if arguments.quick:
            report.line(QUICK)
        try:
            sections(report)
        except KeyboardInterrupt:
            print(f"report.py: interrupted; {arguments.out} holds what there was", file=sys.stderr)
            return 130
    if draw and arguments.plot:
        draw(report.rows, arguments.plot)
    if report.failures:
        print(f"report.py: {report.failures} benchmarks failed, see {arguments.out}", file=sys.stderr)
    return 1 if report.failures else 0


def pyplot():
    """matplotlib's pyplot, for a picture in a file."""
    try:
        import matplotlib
        matplotlib.use("Agg")
        import matplotlib.pyplot as plot
    except ImportError:
        sys.exit("report.py: no plot without matplotlib; on Debian: apt install python3-matplotlib")
    return plot
