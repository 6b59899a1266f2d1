#!/usr/bin/env python3
"""The five papers, table by table: what `./dev bench paper [SECTION...]` runs; without a section, all of them, which
takes a night.

    --dry      run nothing: print the sections, their commands and about how long they take, and write the page
    --again    run what has a valid result, too; else a section goes on where it was stopped
    --quick    a section's commands in their smallest form, which means nothing; for a test

experiments.py lists the rows and the commands. Each command's result is a small file, results/papers/NAME.json, with
the ratios, the commit, the machine, the date and how long it took; the lines that the command printed are kept beside
its other files (--dir). A result is valid until a file below the paths of its command changes. After each command the
page results/papers.md is written anew, of all results that there are.
"""
import argparse
import contextlib
import datetime
import json
import os
import pathlib
import platform
import subprocess
import sys
import time
from typing import Any, Iterator

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(HERE), str(HERE.parent / "kit")]
import machine  # noqa: E402 pylint: disable=wrong-import-position
import page  # noqa: E402 pylint: disable=wrong-import-position
from experiments import EXPERIMENTS, RUNS, Ratio, Run  # noqa: E402 pylint: disable=wrong-import-position

Line = dict[str, Any]


class Failed(Exception):
    """A command did not succeed, or its lines lack what a ratio needs; the text says which."""


# ---- ratios --------------------------------------------------------------------------------------------------------

def value_of(line: Line, field: str) -> Any:
    """The value at a path with dots; None where there is none."""
    value: Any = line
    for name in field.split("."):
        if not isinstance(value, dict) or name not in value:
            return None
        value = value[name]
    return value


def matching(lines: list[Line], wanted: dict[str, tuple], field: str) -> list[Line]:
    """The lines with one of the wanted values in each field, and with a number in `field`."""
    return [line for line in lines if all(value_of(line, name) in values for name, values in wanted.items())
            and isinstance(value_of(line, field), (int, float))]


def ratios_of(ratio: Ratio, lines: list[Line]) -> Iterator[dict[str, Any]]:
    """Each value of a ratio: its label, both numbers, and ours as "times as good"."""
    best = min if ratio.less_is_better else max
    for own in matching(lines, ratio.ours, ratio.field):
        same = {name: (value_of(own, name),) for name in ratio.by}
        label = ", ".join([*([ratio.label] if ratio.label else []), *(str(value_of(own, name)) for name in ratio.by)])
        if not ratio.base and not ratio.base_field:
            yield {"label": label, "field": ratio.field, "ours": value_of(own, ratio.field)}
            continue
        field = ratio.base_field or ratio.field
        others = [own] if ratio.base_field else matching(lines, ratio.base | shared_by(lines, ratio.base, same), field)
        if not others:
            continue
        other = best(others, key=lambda line, field=field: value_of(line, field))
        ours, base = value_of(own, ratio.field), value_of(other, field)
        good, bad = (base, ours) if ratio.less_is_better else (ours, base)
        if not bad:
            continue
        named = "" if ratio.base_field else str(other.get("side", other.get("system", "")))
        yield {"label": label, "field": ratio.field, "ours": ours, "base": base, "base_side": named,
               "ratio": round(good / bad, 4)}


def shared_by(lines: list[Line], base: dict[str, tuple], same: dict[str, tuple]) -> dict[str, tuple]:
    """The fields of `same` that lines of the other side have: only memlith's sides have a backend."""
    others = [line for line in lines if all(value_of(line, name) in values for name, values in base.items())]
    return {name: values for name, values in same.items() if any(value_of(line, name) is not None for line in others)}


# ---- running -------------------------------------------------------------------------------------------------------

def git(*words: str) -> str:
    """The output of a git command in this tree; empty where it is none."""
    done = subprocess.run(["git", "-C", str(ROOT), *words], capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else ""


def lines_of(run: Run, words: tuple[str, ...], programs: pathlib.Path, folder: pathlib.Path) -> list[Line]:
    """The objects of JSON that the command printed; none of one that only passes or fails."""
    if words[0] != "bench":
        if subprocess.run([ROOT / "dev", *words], stdout=sys.stderr, check=False).returncode != 0:
            raise Failed(f"{run.name}: ./dev {' '.join(words)} failed")
        return []
    place = folder / run.name
    place.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-B", ROOT / "bench/run.py", "--bin", programs, *words[1:], "--json", "--dir", place]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    (folder / f"{run.name}.jsonl").write_text(done.stdout, encoding="utf-8")
    if done.returncode == 130:
        raise KeyboardInterrupt
    if done.returncode != 0:
        raise Failed(f"{run.name}: ./dev {' '.join(words)} ended with {done.returncode}")
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def result_of(run: Run, words: tuple[str, ...], programs: pathlib.Path, folder: pathlib.Path) -> dict[str, Any]:
    """Runs the command; the object of its file."""
    load, commit, began = os.getloadavg()[0], git("rev-parse", "HEAD"), time.monotonic()
    lines = lines_of(run, words, programs, folder)
    took_s = time.monotonic() - began
    rows = {}
    for each in EXPERIMENTS:
        if each.run == run.name:
            found = [value for ratio in each.ratios for value in ratios_of(ratio, lines)]
            if each.ratios and not found:
                raise Failed(f"{run.name}: no line has what \"{each.number}\" compares")
            rows[f"{each.paper}: {each.number}"] = found
    return {"run": run.name, "command": f"./dev {' '.join(words)}", "commit": commit,
            "dirty": bool(git("status", "--porcelain", "--", *run.paths)),
            "date": f"{datetime.datetime.now(datetime.timezone.utc):%Y-%m-%d}", "seconds": round(took_s, 1),
            "kernel": platform.release(), "processor": f"{len(os.sched_getaffinity(0))} x {machine.processor()}",
            "device": machine.device_text(folder), "file_system": machine.mount_of(folder)[2], "load": round(load, 1),
            "rows": rows}


def stale(result: dict[str, Any], run: Run) -> str:
    """Why a result is not of the newest build: empty if no file below the paths of its command has changed since, nor
    the command."""
    if result["command"] not in (f"./dev {' '.join(words)}" for words in (run.words, run.quick)):
        return "measured by a command that has changed"
    if result["dirty"] or not result["commit"]:
        return "measured with changes that no commit has"
    if not git("cat-file", "-t", result["commit"]):
        return "of a commit that is not here"
    changed = git("log", "-1", "--format=%h", f"{result['commit']}..HEAD", "--", *run.paths)
    return f"older than the last change of its path, {changed}" if changed else ""


def results_in(folder: pathlib.Path) -> dict[str, dict[str, Any]]:
    """The results that there are, by the name of their run, each with `stale`."""
    found = {}
    for run in RUNS:
        with contextlib.suppress(FileNotFoundError):
            result = json.loads((folder / f"{run.name}.json").read_text(encoding="utf-8"))
            found[run.name] = result | {"stale": stale(result, run)}
    return found


def sections() -> list[str]:
    """The names of the sections, in order."""
    return list(dict.fromkeys(run.section for run in RUNS))


def chosen(words: list[str]) -> list[Run]:
    """The runs of the sections that the arguments name, or all; for the plan of ./dev, which sees options, too."""
    named = [word for word in words if word in sections()]
    return [run for run in RUNS if not named or run.section in named]


def arguments_of(words: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="./dev bench paper", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sections", nargs="*", metavar="SECTION", help=f"of {', '.join(sections())}; none: all")
    parser.add_argument("--bin", required=True, type=pathlib.Path, help=argparse.SUPPRESS)
    parser.add_argument("--dir", required=True, type=lambda text: pathlib.Path(text).resolve(),
                        help="where the files of the commands go; default build/bench")
    parser.add_argument("--results", type=pathlib.Path, default=ROOT / "results/papers",
                        help="where the results are kept; default results/papers")
    for name in ("dry", "again", "quick"):
        parser.add_argument(f"--{name}", action="store_true", help="see above")
    given = parser.parse_args(words)
    if unknown := set(given.sections) - set(sections()):
        parser.error(f"there is no section {', '.join(sorted(unknown))}; there are {', '.join(sections())}")
    if given.quick and given.results == ROOT / "results/papers":
        parser.error("--quick takes --results FOLDER: its figures mean nothing")
    return given


def plan(runs: list[Run]) -> None:
    """The sections with their commands, and about how long they take."""
    for section in dict.fromkeys(run.section for run in runs):
        own = [run for run in runs if run.section == section]
        print(f"{section}: about {sum(run.minutes for run in own)} minutes")
        for run in own:
            print(f"    ./dev {' '.join(run.words)}")


def run_all(given: argparse.Namespace, runs: list[Run]) -> int:
    """Runs what has no valid result, and writes the page after each; the number of failures."""
    failures, began = 0, time.monotonic()
    for number, run in enumerate(runs, 1):
        known = results_in(given.results).get(run.name)
        if known and not known["stale"] and not given.again:
            page.say(f"{run.name}: has a result of {known['date']}, which is valid")
            continue
        words = run.quick if given.quick else run.words
        page.say(f"{run.name} ({number} of {len(runs)}, about {run.minutes} minutes): ./dev {' '.join(words)}")
        try:
            result = result_of(run, words, given.bin, given.dir / "papers")
        except Failed as failure:
            page.say(f"FAILED: {failure}")
            failures += 1
            continue
        given.results.mkdir(parents=True, exist_ok=True)
        file = given.results / f"{run.name}.json"
        file.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
        page.say(f"{run.name}: took {result['seconds'] / 60:.1f} minutes; {file}")
        page.write(given.results.parent / "papers.md", results_in(given.results))
    page.say(f"took {(time.monotonic() - began) / 60:.1f} minutes")
    return failures


def main(words: list[str]) -> int:
    given = arguments_of(words)
    runs = [run for run in chosen(given.sections) if run.quick or not given.quick]
    target = given.results.parent / "papers.md"
    if given.dry:
        plan(runs)
        page.write(target, results_in(given.results))
        return 0
    (given.dir / "papers").mkdir(parents=True, exist_ok=True)
    try:
        failures = run_all(given, runs)
    except KeyboardInterrupt:
        page.say("stopped; the same command goes on from here")
        return 130
    page.write(target, results_in(given.results))
    page.say(f"the page: {target}")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
