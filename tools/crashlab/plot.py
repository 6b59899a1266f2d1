#!/usr/bin/env python3
"""Draws the report of `memlith-crashlab run --json`.

Usage: plot.py REPORT.json FILE.png
"""
import json
import sys

try:
    import matplotlib
    matplotlib.use("Agg")
    import matplotlib.pyplot as pyplot
except ImportError:
    sys.exit("memlith-crashlab: no plot without matplotlib; on Debian: apt install python3-matplotlib")


def bars(axes, rows, title, label):
    """Horizontal bars, the longest on top, on a logarithmic scale."""
    rows = sorted((value, name) for name, value in rows.items() if value > 0)
    axes.barh([name for _, name in rows], [value for value, _ in rows], color="#4878a8")
    axes.set_xscale("log")
    axes.set_title(title)
    axes.set_xlabel(label)
    axes.tick_params(axis="y", labelsize=7)


def main():
    with open(sys.argv[1], encoding="utf-8") as file:
        report = json.load(file)
    figure, axes = pyplot.subplots(2, 2, figsize=(13, 10))
    bars(axes[0][0], {name: row["distinct"] for name, row in report["workloads"].items()}, "by workload", "distinct crash states")
    bars(axes[0][1], {name: row["fired"] for name, row in report["faults"].items()}, "by fault", "times it struck")
    bars(axes[1][0], {name: row["distinct"] for name, row in report["operations"].items()}, "crash after this operation",
         "distinct crash states")
    progress = report["progress"]
    axes[1][1].plot([seconds for seconds, _ in progress], [states for _, states in progress], color="#4878a8")
    axes[1][1].set_title("over time")
    axes[1][1].set_xlabel("seconds")
    axes[1][1].set_ylabel("distinct crash states")
    axes[1][1].grid(alpha=0.3)
    figure.suptitle(f"{report['distinct_states']:,} distinct crash states, {report['violations']} violations, seed {report['seed']}")
    figure.tight_layout()
    figure.savefig(sys.argv[2], dpi=120)


main()
