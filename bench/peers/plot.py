#!/usr/bin/env python3
"""Draws what `memlith bench persist --peers --record FILE.jsonl` wrote: time of a durable change over its size.

Usage: plot.py FILE.jsonl FILE.png
Left the median, with a bar up to the 99th percentile; right how many times raw's median it is. Both axes are
logarithmic.
"""
import json
import sys

try:
    import matplotlib
    matplotlib.use("Agg")
    import matplotlib.pyplot as pyplot
except ImportError:
    sys.exit("plot.py: no plot without matplotlib; on Debian: apt install python3-matplotlib "
             "(./dev bench persist --plot does it, as root or with sudo)")

# memlith in strong colours and solid lines, the others dashed; raw, the floor, in black.
STYLES = {
    "explicit": {"color": "#1b6ca8", "marker": "o"},
    "fault": {"color": "#c8442e", "marker": "s"},
    "scan": {"color": "#2e8b57", "marker": "^"},
    "auto": {"color": "#6a4c93", "marker": "v"},
    "msync": {"color": "#b8860b", "marker": "D", "linestyle": "--"},
    "raw": {"color": "black", "marker": ".", "linestyle": ":"},
}
PWRITE_COLOURS = ["#8a8a8a", "#d081b8", "#7aa5c4"]


def label_of(row):
    if row["atomic"]:
        return f"memlith, {row['side']} (atomic)"
    if row["side"] == "raw":
        return "raw write + fdatasync, in one piece"
    name = "pwrite each + fsync" if row["side"] == "pwrite+fsync" else "mmap + msync"
    loop = " on a loop device" if "loop device" in row["detail"] else ""
    return f"{name}, {row['file_system']}{loop} (not atomic)"


def style_of(row, pwrites):
    if row["side"] != "pwrite+fsync":
        return STYLES[row["side"]]
    if row["file_system"] not in pwrites:
        pwrites.append(row["file_system"])
    return {"color": PWRITE_COLOURS[pwrites.index(row["file_system"]) % len(PWRITE_COLOURS)], "marker": "x",
            "linestyle": "--"}


def size_text(kib):
    return f"{kib} KiB" if kib < 1024 else f"{kib // 1024} MiB"


def time_text(microseconds):
    return f"{microseconds:g} µs" if microseconds < 1000 else f"{microseconds / 1000:g} ms"


def read(path):
    """Rows by label, each sorted by size, in the order of the file."""
    series = {}
    with open(path, encoding="utf-8") as file:
        for line in file:
            row = json.loads(line)
            series.setdefault(label_of(row), []).append(row)
    if not series:
        sys.exit(f"plot.py: {path} holds no measurement")
    return {label: sorted(rows, key=lambda row: row["kib"]) for label, rows in series.items()}


def set_marks(axes, values, candidates, text_of):
    """Labels the y axis at those of the candidates that lie among the values."""
    marks = [mark for mark in candidates if min(values) / 1.4 < mark < max(values) * 1.4]
    axes.set_yticks(marks, [text_of(mark) for mark in marks])


def draw(series, path):
    figure, (times, ratios) = pyplot.subplots(1, 2, figsize=(14, 7.2))
    pwrites, first = [], next(iter(series.values()))[0]
    sizes = sorted({row["kib"] for rows in series.values() for row in rows})
    for index, (label, rows) in enumerate(series.items()):
        style = {"linestyle": "-", "linewidth": 1.7, "markersize": 6, **style_of(rows[0], pwrites)}
        kib = [row["kib"] for row in rows]
        p50 = [row["p50_us"] for row in rows]
        upward = [[0] * len(rows), [max(row["p99_us"] - row["p50_us"], 0) for row in rows]]
        # A little apart, or the bars would hide each other.
        apart = 2 ** (0.07 * (index - (len(series) - 1) / 2))
        times.errorbar([size * apart for size in kib], p50, yerr=upward, label=label, elinewidth=0.7, capsize=2.5,
                       **style)
        ratios.plot(kib, [row["ratio_p50"] for row in rows], **style)
    for axes in times, ratios:
        axes.set_xscale("log", base=2)
        axes.set_yscale("log")
        axes.set_xticks(sizes, [size_text(kib) for kib in sizes])
        axes.minorticks_off()
        axes.set_xlabel(f"{first['order']} dirty pages of 4 KiB, together")
        axes.grid(alpha=0.3)
    times.set_ylabel("time until durable: median, bar up to the 99th percentile")
    set_marks(times, [row[key] for rows in series.values() for row in rows for key in ("p50_us", "p99_us")],
              [digit * 10 ** power for power in range(7) for digit in (1, 2, 5)], time_text)
    times.set_title("Time")
    ratios.set_ylabel("median over the median of raw")
    set_marks(ratios, [row["ratio_p50"] for rows in series.values() for row in rows],
              [0.3, 0.5, 0.7, 1, 1.5, 2, 3, 5, 7, 10, 15, 20, 30, 50, 100], lambda mark: f"{mark:g}×")
    ratios.set_title("Against the device")
    where = (f"region of {first['region_mib']} MiB on {first['file_system']}, Linux {first['kernel']}, "
             f"{first['rounds']} rounds, {first['time']}")
    changed = "" if first["bytes_per_page"] == 4096 else f"{first['bytes_per_page']} bytes stored in each page; "
    figure.suptitle(f"Making {first['order']} dirty pages durable, one thread\n{changed}{where}", fontsize=12)
    # Under both, where no line runs.
    figure.legend(*times.get_legend_handles_labels(), loc="lower center", ncols=3, frameon=False)
    rows_of_legend = (len(series) + 2) // 3
    figure.tight_layout(rect=(0, 0.01 + 0.03 * rows_of_legend, 1, 1))
    figure.savefig(path, dpi=120)


def main():
    if len(sys.argv) != 3:
        sys.exit("usage: plot.py FILE.jsonl FILE.png")
    draw(read(sys.argv[1]), sys.argv[2])


main()
