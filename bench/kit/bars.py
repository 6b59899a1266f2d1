#!/usr/bin/env python3
"""Draws the lines that a benchmark recorded, a panel for each workload: bars.py FIELD RECORD.jsonl PICTURE.png

FIELD is ops_per_s, mean_us, p50_us or open_ms."""
import json
import math
import pathlib
import sys

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402
from matplotlib.ticker import MaxNLocator  # noqa: E402

COLUMNS = 6


def unit_of(field, values):
    if field == "ops_per_s":
        return 1, "operations a second"
    if field == "open_ms":
        return 1, "ms until open"
    what = {"mean_us": "mean", "p50_us": "median"}[field]
    return (1e-3, f"ms, {what}") if max(values) >= 1000 else (1, f"µs, {what}")


def panel_of(line):
    counts = [f"{line[what]} {what}" for what in ("threads", "processes", "readers") if line.get(what, 0) > 1]
    return ", ".join([line["workload"], *counts, *([f"of {line['region_mib']} MiB"] if "region_mib" in line else [])])


def is_ours(line):
    return line["side"].startswith("memlith") or line.get("tracker", "none") != "none"


def more_of(line):
    window = f", {line['window_ms']} ms" if "window_ms" in line else ""
    return window + (f", log of {line['log_mib']} MiB" if "log_mib" in line else "")


def main(field, record, picture):
    lines = [json.loads(line) for line in pathlib.Path(record).read_text(encoding="utf-8").splitlines()]
    panels = {}
    for line in lines:
        panels.setdefault(panel_of(line), []).insert(0, line)
    rows = math.ceil(len(panels) / COLUMNS)
    columns = math.ceil(len(panels) / rows)
    height = max(3.2, 0.28 * max(len(chosen) for chosen in panels.values()))
    figure, axes = plt.subplots(rows, columns, figsize=(3.6 * columns, height * rows), squeeze=False)
    for axis in axes.flat[len(panels):]:
        axis.set_visible(False)
    for axis, (title, chosen) in zip(axes.flat, panels.items()):
        media = {line.get("medium") for line in chosen}
        below = [f"{line['durability']}{more_of(line)}" +
                 (f", {line.get('medium')}" if len(media) > 1 else "") for line in chosen]
        names = [line["side"] + (f"\n{text}" if len(set(below)) > 1 else "") for line, text in zip(chosen, below)]
        colours = ["tab:blue" if is_ours(line) else "tab:gray" for line in chosen]
        scale, label = unit_of(field, [line[field] for line in chosen])
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
        axis.set_title(title if len(set(below)) > 1 else f"{title}: {below[0]}", fontsize=9)
        axis.set_xlabel(label, fontsize=8)
    figure.tight_layout()
    figure.savefig(picture, dpi=110)


if __name__ == "__main__":
    main(*sys.argv[1:])
