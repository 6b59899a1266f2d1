"""The page of the papers: a row for each experiment, table and figure, of the results that there are, and the figures
of each."""
import pathlib
import re
import sys
from typing import Any, Iterator

from experiments import COUNTED_BY_THE_AUDITS, EXPERIMENTS, PAPERS, RUNS, Experiment, Ratio

Result = dict[str, Any]  # the object of a command's file, with `stale`
Found = dict[str, Any]  # one of its ratios, or a figure alone

HEAD = """# The five papers, table by table

`./dev bench paper` writes this page from the results in `results/papers`, one for each of its commands; see
[performance.md](../docs/performance.md#the-papers). A row is an experiment, a table or a figure of a paper, or a part
of one. An audit counted {audited} experiments, tables and figures in the papers; it listed them without their numbers,
so this list is our own: {rows} rows, of which {made} have a command and {missing} have none yet, or cannot have one.
{results} rows have a result, {old} of them of an older build.

- Ratios are *times as good*: 2 means twice the rate, or half the time, of the other side in the same run. Above 1 ours
  is better. Of several, a row has the least and the greatest; its number leads to all of them, with both sides' figures
  and the whole command.
- The paper's ratio is given where its source is known: its abstract, its author's thesis, or an audit
  ([experiments.py](../bench/papers/experiments.py)). Everything else is *unknown*, because the papers' texts were not
  at hand.
- **Bold** is a ratio that misses the paper's. *Old* is a result from before the last change of what it measures.
- `./dev bench paper SECTION` makes a row again.
"""


def say(text: str) -> None:
    """Tells a person; standard output is for what was asked for."""
    print(text, file=sys.stderr, flush=True)


def number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def field_text(field: str) -> str:
    """The name of a field for a reader: its unit, which is the end of the name, in words."""
    text = re.sub(r"[._]", " ", field)
    return re.sub(r"(?<!per) (us|ms|s)\b", lambda unit: f" in {unit[1].replace('us', 'µs')}", text)


# ---- a row's figures -----------------------------------------------------------------------------------------------

def ratio_of(experiment: Experiment, found: Found) -> Ratio | None:
    """The ratio of the row that made this one; None: the row had it when it was measured, and has it no more."""
    own = [each for each in experiment.ratios if each.field == found["field"] and
           found["label"].startswith(each.label)]
    return max(own, key=lambda each: len(each.label), default=None)


def grouped(experiment: Experiment, found: list[Found]) -> Iterator[tuple[Ratio, list[Found]]]:
    """The ratios of a row that made something, each with what it made, in the order of the row."""
    for ratio in experiment.ratios:
        if own := [each for each in found if ratio_of(experiment, each) == ratio]:
            yield ratio, own


def values_of(ratio: Ratio, found: Found) -> list[str]:
    """The values of `ratio.by`. Only the first may have a comma."""
    rest = found["label"].removeprefix(ratio.label).removeprefix(", ")
    return rest.rsplit(", ", len(ratio.by) - 1) if ratio.by else []


def shown(experiment: Experiment, found: Found) -> str:
    """The ratio, bold where it misses the paper's, which is compared with those of the row's first; else the figure."""
    if "ratio" not in found:
        return number(found["ours"])
    text = number(found["ratio"])
    missed = experiment.at_least is not None and ratio_of(experiment, found) == experiment.ratios[0] and \
        found["ratio"] < experiment.at_least
    return f"**{text}**" if missed else text


def summary(experiment: Experiment, found: list[Found]) -> str:
    """The least and the greatest of each ratio of a row."""
    texts = []
    for ratio, own in grouped(experiment, found):
        name = ratio.label or ("" if "ratio" in own[0] else field_text(ratio.field))
        own = sorted(own, key=lambda each: each.get("ratio", each["ours"]))
        ends = [own[0], own[-1]] if len(own) > 1 else own
        texts.append((f"{name}: " if name else "") + " to ".join(shown(experiment, each) for each in ends))
    return "; ".join(texts)


def figures(experiment: Experiment, found: list[Found]) -> Iterator[str]:
    """Tables with all figures of a row: one for the ratios that are told apart by the same fields."""
    titles: tuple[str, ...] = ()
    for ratio, own in grouped(experiment, found):
        compared = "ratio" in own[0]
        wanted = (*map(field_text, ratio.by), "", "ours", *(("other side", "its figure", "times as good")
                                                           if compared else ()))
        if wanted != titles:
            titles = wanted
            yield ""
            yield f"| {' | '.join(titles)} |"
            yield "|" + "---|" * len(titles)
        for each in own:
            what = field_text(ratio.field) + (f", {ratio.label}" if ratio.label else "")
            cells = [*values_of(ratio, each), what, number(each["ours"])]
            if compared:
                cells += [each["base_side"] or field_text(ratio.base_field), number(each["base"]),
                          shown(experiment, each)]
            yield f"| {' | '.join(cells)} |"


# ---- the page ------------------------------------------------------------------------------------------------------

def heading(experiment: Experiment) -> str:
    return f"{PAPERS[experiment.paper][0]}, {experiment.number}"


def link(experiment: Experiment) -> str:
    """A row's number, which leads to its figures."""
    place = re.sub(r"[^a-z0-9 -]", "", heading(experiment).lower()).replace(" ", "-")
    return f"[{experiment.number}](#{place})"


def machine_text(result: Result) -> str:
    return f"Linux {result['kernel']}, {result['device']}, {result['file_system']}, {result['processor']}"


def found_of(experiment: Experiment, results: dict[str, Result]) -> list[Found] | None:
    """The findings of the row's command; None: there is no result. Empty where a command only passes or fails."""
    result = results.get(experiment.run)
    found = result["rows"].get(f"{experiment.paper}: {experiment.number}") if result else None
    if not found:
        return found
    return [each for each in found if ratio_of(experiment, each) is not None] or None


def row(experiment: Experiment, results: dict[str, Result], machines: dict[str, str]) -> str:
    """A row of the first tables."""
    found = found_of(experiment, results)
    name, where = experiment.number, ""
    if found is None:
        ours = experiment.missing or "not yet run"
    else:
        result = results[experiment.run]
        name, ours = link(experiment), summary(experiment, found) if experiment.ratios else "passed"
        where = f"{result['date']}, {result['commit'][:8]}, {machines[machine_text(result)]}"
        if result["stale"]:
            ours = f"*old* ({result['stale']}): {ours}"
    section = next((f"`{run.section}`" for run in RUNS if run.name == experiment.run), "")
    return f"| {name} | {experiment.compares} | {experiment.theirs} | {ours} | {section} | {where} |"


def lines_of(results: dict[str, Result]) -> Iterator[str]:
    """The lines of the page."""
    done = [(each, found) for each in EXPERIMENTS if (found := found_of(each, results)) is not None]
    machines = {text: f"machine {number}" for number, text in
                enumerate(dict.fromkeys(machine_text(results[each.run]) for each, _ in done), 1)}
    missing = sum(bool(each.missing) for each in EXPERIMENTS)
    yield HEAD.format(audited=COUNTED_BY_THE_AUDITS, rows=len(EXPERIMENTS), made=len(EXPERIMENTS) - missing,
                      missing=missing, results=len(done), old=sum(bool(results[each.run]["stale"]) for each, _ in done))
    for text, name in machines.items():
        yield f"- *{name.capitalize()}*: {text}."
    for paper, (name, title) in PAPERS.items():
        yield f"\n## {name}\n\n*{title}.*\n"
        yield "| | compares | the paper's ratio | ours | section | measured |"
        yield "|---|---|---|---|---|---|"
        yield from (row(each, results, machines) for each in EXPERIMENTS if each.paper == paper)
    yield "\n## Sections\n\nMinutes, as estimated and as measured:\n"
    yield "| section | estimated | took |"
    yield "|---|---|---|"
    for section in dict.fromkeys(run.section for run in RUNS):
        own = [run for run in RUNS if run.section == section]
        took = [results[run.name]["seconds"] / 60 for run in own if run.name in results]
        told = f"{sum(took):.0f}" if len(took) == len(own) else ""
        yield f"| {section} | {sum(run.minutes for run in own)} | {told} |"
    yield "\n## Figures"
    for each, found in done:
        yield f"\n### {heading(each)}\n\n    {results[each.run]['command']}"
        if each.note:
            yield f"\n{each.note}"
        yield from figures(each, found)


def write(target: pathlib.Path, results: dict[str, Result]) -> None:
    """Writes the page."""
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text("\n".join(lines_of(results)) + "\n", encoding="utf-8")
