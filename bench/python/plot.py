#!/usr/bin/env python3
"""Draws what bench.py recorded: plot.py RECORD.jsonl PICTURE.png"""
import json
import pathlib
import sys

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402


def main(record, picture):
    lines = [json.loads(line) for line in pathlib.Path(record).read_text(encoding="utf-8").splitlines()]
    workloads = list(dict.fromkeys(line["workload"] for line in lines))
    figure, axes = plt.subplots(1, len(workloads), figsize=(3.6 * len(workloads), 3.2))
    for axis, workload in zip([axes] if len(workloads) == 1 else axes, workloads):
        chosen = [line for line in lines if line["workload"] == workload][::-1]
        names = [f"{line['side']}\n{line['durability']}" for line in chosen]
        colours = ["tab:blue" if line["side"].startswith("memlith") else "tab:gray" for line in chosen]
        bars = axis.barh(names, [line["p50_us"] / 1e3 for line in chosen], color=colours)
        axis.bar_label(bars, labels=[f"{line['p50_us'] / 1e3:.3g}" for line in chosen], padding=2, fontsize=7)
        axis.set_xscale("log")
        axis.set_xmargin(0.2)
        axis.tick_params(labelsize=7)
        axis.set_title(workload, fontsize=9)
        axis.set_xlabel("ms until saved, median", fontsize=8)
    figure.tight_layout()
    figure.savefig(picture, dpi=110)


if __name__ == "__main__":
    main(*sys.argv[1:])
