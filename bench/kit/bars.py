#!/usr/bin/env python3
"""Draws the lines that a benchmark recorded, a panel for each workload: bars.py FIELD RECORD.jsonl PICTURE.png

FIELD is ops_per_s or p50_us."""
import json
import math
import pathlib
import sys

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402
from matplotlib.ticker import MaxNLocator  # noqa: E402

SCALES = {"ops_per_s": (1, "operations a second"), "p50_us": (1e-3, "ms until saved, median")}
COLUMNS = 6


def panel_of(line):
    threads = line["threads"]
    return line["workload"] + (f", {threads} threads" if threads > 1 else "")


def main(field, record, picture):
    scale, label = SCALES[field]
    lines = [json.loads(line) for line in pathlib.Path(record).read_text(encoding="utf-8").splitlines()]
    panels = {}
    for line in lines:
        panels.setdefault(panel_of(line), []).insert(0, line)
    columns = min(COLUMNS, len(panels))
    rows = math.ceil(len(panels) / columns)
    figure, axes = plt.subplots(rows, columns, figsize=(3.6 * columns, 3.2 * rows), squeeze=False)
    for axis in axes.flat[len(panels):]:
        axis.set_visible(False)
    for axis, (title, chosen) in zip(axes.flat, panels.items()):
        names = [f"{line['side']}\n{line['durability']}" for line in chosen]
        colours = ["tab:blue" if line["side"].startswith("memlith") else "tab:gray" for line in chosen]
        values = [line[field] * scale for line in chosen]
        bars = axis.barh(names, values, color=colours)
        axis.bar_label(bars, labels=[f"{value:,.0f}" if value >= 1000 else f"{value:.3g}" for value in values],
                       padding=2, fontsize=7)
        if max(values) > 20 * min(values):
            axis.set_xscale("log")
            axis.set_xlim(10 ** math.floor(math.log10(min(values))) / 2, 4 * max(values))
        else:
            axis.set_xlim(0, 1.3 * max(values))
            axis.xaxis.set_major_locator(MaxNLocator(4))
            axis.ticklabel_format(axis="x", style="plain")
        axis.tick_params(labelsize=7)
        axis.set_title(title, fontsize=9)
        axis.set_xlabel(label, fontsize=8)
    figure.tight_layout()
    figure.savefig(picture, dpi=110)


if __name__ == "__main__":
    main(*sys.argv[1:])
