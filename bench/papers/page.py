"""The page of the papers: a row for each experiment, table and figure, of the results that there are."""
import pathlib
import sys
from typing import Any, Iterator

from experiments import COUNTED_BY_THE_AUDITS, EXPERIMENTS, PAPERS, RUNS, Experiment

LISTED_MAX = 6  # of more ratios of a row, only the ends are shown
HEAD = """# The five papers, table by table

`./dev bench paper` writes this page from the results in `results/papers`, one for each of its commands; see
[performance.md](../docs/performance.md#the-papers). A row is an experiment, a table or a figure of a paper, or a part
of one. An audit counted {audited} experiments, tables and figures in the papers; it listed them without their numbers,
so this list is our own: {rows} rows, of which {made} have a command and {missing} have none yet, or cannot have one.
{results} rows have a result, {old} of them of an older build.

- Ratios are *times as good*: 2 means twice the rate, or half the time, of the other side in the same run. Above 1 ours
  is better.
- The paper's ratio is given where its source is known: its abstract, its author's thesis, or an audit
  ([experiments.py](../bench/papers/experiments.py)). Everything else is *unknown*, because the papers' texts were not
  at hand.
- **Bold** is a ratio that misses the paper's. *Old* is a result from before the last change of what it measures.
"""


def say(text: str) -> None:
    """Tells a person; standard output is for what was asked for."""
    print(text, file=sys.stderr, flush=True)


def number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def ratios_text(experiment: Experiment, found: list[dict[str, Any]]) -> str:
    """All ratios of a row, or the ends of many. The paper's is compared with those of the row's first."""
    first = experiment.ratios[0].label

    def shown(ratio: dict[str, Any]) -> str:
        if "ratio" not in ratio:
            return f"{ratio['label']}, {ratio['field']}: {number(ratio['ours'])}"
        text = number(ratio["ratio"])
        missed = experiment.at_least is not None and ratio["label"].startswith(first) and \
            ratio["ratio"] < experiment.at_least
        text = f"**{text}**" if missed else text
        return f"{ratio['label']}: {text}" if ratio["label"] else text

    compared = [ratio for ratio in found if "ratio" in ratio]
    if len(found) <= LISTED_MAX or not compared:
        return "; ".join(map(shown, found))
    ends = sorted(compared, key=lambda ratio: ratio["ratio"])
    others = [shown(ratio) for ratio in found if "ratio" not in ratio]
    return "; ".join([f"{shown(ends[0])}, to {shown(ends[-1])} ({len(ends)} ratios)", *others])


def ours_text(experiment: Experiment, results: dict[str, dict[str, Any]]) -> tuple[str, str]:
    """The cell with our figure, and the one with the machine and the date."""
    if experiment.missing:
        return experiment.missing, ""
    result = results.get(experiment.run)
    if result is None:
        return "not yet run", ""
    found = result["rows"].get(f"{experiment.paper}: {experiment.number}")
    if found is None:
        return "not yet run", ""
    text = ratios_text(experiment, found) if experiment.ratios else "passed"
    if result["stale"]:
        text = f"*old* ({result['stale']}): {text}"
    where = f"{result['date']}, {result['commit'][:8]}, Linux {result['kernel']}, {result['device']}, " \
            f"{result['file_system']}, {result['processor']}"
    return text, where


def lines_of(results: dict[str, dict[str, Any]]) -> Iterator[str]:
    """The lines of the page."""
    commands = {run.name: f"`./dev {' '.join(run.words)}`" for run in RUNS}
    rows = [(each, *ours_text(each, results)) for each in EXPERIMENTS]
    with_result = [each for each, _, where in rows if where]
    yield HEAD.format(audited=COUNTED_BY_THE_AUDITS, rows=len(rows), made=sum(not each.missing for each in EXPERIMENTS),
                      missing=sum(bool(each.missing) for each in EXPERIMENTS), results=len(with_result),
                      old=sum(bool(results[each.run]["stale"]) for each in with_result))
    for paper, title in PAPERS.items():
        yield f"## {title}\n"
        yield "| | compares | the paper's ratio | ours | command | measured |"
        yield "|---|---|---|---|---|---|"
        for each, ours, where in rows:
            if each.paper == paper:
                text = f"{ours} {each.note}" if each.note and where else ours
                yield f"| {each.number} | {each.compares} | {each.theirs} | {text} | " \
                      f"{commands.get(each.run, '')} | {where} |"
        yield ""
    yield "## Sections\n"
    yield "`./dev bench paper SECTION` runs a section. Minutes, as estimated and as measured:\n"
    yield "| section | estimated | took |"
    yield "|---|---|---|"
    for section in dict.fromkeys(run.section for run in RUNS):
        own = [run for run in RUNS if run.section == section]
        took = [results[run.name]["seconds"] / 60 for run in own if run.name in results]
        told = f"{sum(took):.0f}" if len(took) == len(own) else ""
        yield f"| {section} | {sum(run.minutes for run in own)} | {told} |"


def write(target: pathlib.Path, results: dict[str, dict[str, Any]]) -> None:
    """Writes the page."""
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text("\n".join(lines_of(results)) + "\n", encoding="utf-8")
