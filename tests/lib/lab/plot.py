#!/usr/bin/env python3
"""Draws the report of `memlith-crashlab run --json`.

Usage: plot.py REPORT.json FILE.png
"""
import json
import os
import sys

DEBIAN_PYTHON = "/usr/bin/python3"  # the package python3-matplotlib is for this one, whatever PATH finds first

try:
    import matplotlib
    matplotlib.use("Agg")
    from matplotlib import pyplot, ticker
except ImportError:
    if os.path.exists(DEBIAN_PYTHON) and os.path.realpath(sys.executable) != os.path.realpath(DEBIAN_PYTHON):
        os.execv(DEBIAN_PYTHON, [DEBIAN_PYTHON, *sys.argv])
    sys.exit("memlith-crashlab: no plot without matplotlib; on Debian: apt install python3-matplotlib")

BLUE, ORANGE, GREY = "#3b6ea5", "#d08a3c", "#8c8c8c"


def short(number):
    """1234567 as 1.23 M."""
    for unit, size in (("M", 1e6), ("k", 1e3)):
        if number >= size:
            return f"{number / size:.3g} {unit}"
    return f"{number:.0f}"


def bars(axes, rows, title, label, color):
    """Horizontal bars, the longest on top, on a logarithmic scale, each with its number."""
    rows = sorted((value, name) for name, value in rows.items() if value > 0)
    axes.barh([name.replace("_", " ") for _, name in rows], [value for value, _ in rows], color=color, height=0.7)
    axes.set_xscale("log")
    for at, (value, _) in enumerate(rows):
        axes.text(value * 1.1, at, short(value), va="center", fontsize=8, color="#333333")
    if rows:
        axes.set_xlim(max(0.5, rows[0][0] / 3), rows[-1][0] * 4)
        axes.set_ylim(-0.7, len(rows) - 0.3)
    axes.set_title(title, loc="left", fontsize=11, fontweight="bold")
    axes.set_xlabel(label, fontsize=9)
    axes.xaxis.set_major_formatter(ticker.FuncFormatter(lambda value, _: short(value)))
    axes.xaxis.set_minor_formatter(ticker.NullFormatter())
    axes.tick_params(axis="y", labelsize=9, length=0)
    axes.tick_params(axis="x", labelsize=8)
    axes.grid(axis="x", which="major", alpha=0.25)
    axes.set_axisbelow(True)
    for side in "top", "right":
        axes.spines[side].set_visible(False)


def main():
    with open(sys.argv[1], encoding="utf-8") as file:
        report = json.load(file)
    workloads = {name: row["distinct"] for name, row in report["workloads"].items()}
    faults = {name: row["fired"] for name, row in report["faults"].items()}
    operations = {name: row["distinct"] for name, row in report["operations"].items()}
    rows = max(len(workloads), len(faults))
    figure, axes = pyplot.subplots(2, 2, figsize=(14, 4.6 + 0.24 * rows), constrained_layout=True,
                                   gridspec_kw={"height_ratios": [0.24 * rows, 4]})
    bars(axes[0][0], workloads, "Crash states by workload", "distinct states of the medium", BLUE)
    bars(axes[0][1], faults, "Faults", "times it struck", ORANGE)
    bars(axes[1][0], operations, "Crash states by the operation done last", "distinct states of the medium", BLUE)
    over_time = axes[1][1]
    progress = [[0, 0], *report["progress"]]
    minutes = progress[-1][0] > 300
    over_time.plot([seconds / (60 if minutes else 1) for seconds, _ in progress], [states for _, states in progress],
                   color=BLUE, linewidth=2)
    over_time.set_title("Growth", loc="left", fontsize=11, fontweight="bold")
    over_time.set_xlabel("minutes" if minutes else "seconds", fontsize=9)
    over_time.set_ylabel("distinct states of the medium", fontsize=9)
    over_time.yaxis.set_major_formatter(ticker.FuncFormatter(lambda value, _: short(value)))
    over_time.tick_params(labelsize=8)
    over_time.set_xlim(left=0)
    over_time.set_ylim(bottom=0)
    over_time.grid(alpha=0.25)
    for side in "top", "right":
        over_time.spines[side].set_visible(False)
    violations = report["violations"]
    figure.suptitle(f"{report['distinct_states']:,} distinct crash states, "
                    f"{violations or 'no'} violation{'' if violations == 1 else 's'}; "
                    f"{report['faults_fired']:,} faults struck; seed {report['seed']}",
                    fontsize=13, fontweight="bold", color="#a02020" if violations else "#222222")
    figure.savefig(sys.argv[2], dpi=110)


main()
