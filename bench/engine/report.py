#!/usr/bin/env python3
"""Draws one run of all.py as a page of HTML that needs nothing else: pictures, the commands, and every figure.

    ./dev bench all --report FILE.html          runs the benchmarks and draws them
    report.py ROWS.jsonl FILE.html              draws a run that was kept

ROWS.jsonl is what all.py --rows writes: a line {"measured": [...]}, then for each command a line with its section, its
words and the JSON objects that it printed; or what went wrong.
"""
import html
import json
import math
import pathlib
import sys

WIDTH, LABEL, BAR, GAP = 860, 250, 15, 9
COLORS = ["#b3541e", "#5b7083", "#3f7d58", "#8a5a9e", "#b59a2c", "#4a6fa5", "#7d4040", "#333333"]
STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; color: #222;
       background: #fff; }
h2 { margin-top: 2.5rem; } svg { max-width: 100%; height: auto; } pre { background: #f4f4f4; padding: .5rem;
overflow-x: auto; font-size: .85rem; } table { border-collapse: collapse; font-size: .8rem; }
td, th { border: 1px solid #ddd; padding: .15rem .5rem; text-align: right; } .scroll { overflow-x: auto; }
.failed { color: #a00; } text { font: 12px system-ui, sans-serif; fill: #222; }
"""


def number(value):
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


# ---- pictures ------------------------------------------------------------------------------------------------------

def text(x, y, words, anchor="start"):
    return f'<text x="{x:.0f}" y="{y:.0f}" text-anchor="{anchor}">{html.escape(words)}</text>'


def svg(height, parts):
    size = f'viewBox="0 0 {WIDTH} {height:.0f}" width="{WIDTH}" height="{height:.0f}"'
    return f'<svg {size} role="img">{"".join(parts)}</svg>'


def legend(names, y):
    parts, x = [], LABEL
    for name, color in zip(names, COLORS):
        parts += [f'<rect x="{x}" y="{y - 10}" width="11" height="11" fill="{color}"/>', text(x + 16, y, name)]
        x += 30 + 7 * len(name)
        if x > WIDTH - 150:
            x, y = LABEL, y + 18
    return parts, y + 14


def bars(groups, series, unit):
    """Horizontal bars. `groups`: (label, the value of each series, or None)."""
    largest = max((value for _, values in groups for value in values if value), default=1)
    parts, y = legend(series, 16)
    for label, values in groups:
        parts.append(text(LABEL - 8, y + BAR * len(values) / 2 + 4, label, "end"))
        for value, color in zip(values, COLORS):
            if value is not None:
                length = (WIDTH - LABEL - 110) * value / largest
                parts += [f'<rect x="{LABEL}" y="{y}" width="{max(length, 1):.1f}" height="{BAR - 2}" fill="{color}"/>',
                          text(LABEL + length + 5, y + BAR - 4, f"{number(value)} {unit}")]
            y += BAR
        y += GAP
    return svg(y, parts)


def lines(curves, unit_x, unit_y):
    """Curves over logarithmic axes. `curves`: name -> [(x, y)]."""
    points = [point for curve in curves.values() for point in curve]
    (left, right), (low, high) = ((min(values), max(values)) for values in zip(*points))
    low, high = 10 ** math.floor(math.log10(low)), 10 ** math.ceil(math.log10(high))
    top, bottom, begin, end = 20, 320, 70, WIDTH - 200

    def place(x, y):
        share = (math.log(x / left) / math.log(right / left)) if right > left else 0.5
        return begin + (end - begin) * share, bottom - (bottom - top) * math.log(y / low) / math.log(high / low)

    parts = []
    for power in range(round(math.log10(low)), round(math.log10(high)) + 1):
        y = place(left, 10.0 ** power)[1]
        parts += [f'<line x1="{begin}" y1="{y:.0f}" x2="{end}" y2="{y:.0f}" stroke="#ddd"/>',
                  text(begin - 6, y + 4, f"{number(10.0 ** power)} {unit_y}", "end")]
    for x in sorted({x for x, _ in points}):
        parts.append(text(place(x, low)[0], bottom + 18, f"{number(x)} {unit_x}", "middle"))
    for at, ((name, curve), color) in enumerate(zip(curves.items(), COLORS * 3)):
        path = " ".join("{:.1f},{:.1f}".format(*place(*point)) for point in sorted(curve))
        parts += [f'<polyline points="{path}" fill="none" stroke="{color}" stroke-width="2"/>',
                  f'<rect x="{end + 14}" y="{top + 20 * at}" width="11" height="11" fill="{color}"/>',
                  text(end + 30, top + 20 * at + 10, name)]
    return svg(max(bottom + 30, top + 20 * len(curves) + 10), parts)


# ---- what is drawn of each section ---------------------------------------------------------------------------------

def of_persist(row):
    return f"{row['tracker']}, {row['pages']} pages of {row['bytes_per_page']} B"


def beside_raw(rows):
    return "Median until durable, beside a plain write and flush of as many bytes", bars(
        [(of_persist(row), [row["p50_us"], row["raw_p50_us"]]) for row in rows], ["memlith", "raw"], "µs")


def written(rows):
    return "Bytes of a persist", bars(
        [(of_persist(row) + (", the same" if row["same_pages"] else ""), [row["bytes_changed"], row["bytes_logged"]])
         for row in rows], ["changed", "written to the log"], "B")


def slowest(rows):
    sides = [(f"{row['tracker']}: {name.replace('_', ' ')}", row[name]) for row in rows
             for name in ("memlith", "raw_loaded", "raw_quiet")]
    return "The slowest ones", bars([(name, [side[key] for key in ("p50_us", "p99_us", "p999_us")])
                                     for name, side in sides], ["median", "99 %", "99.9 %"], "µs")


def of_peers(rows):
    curves = {}
    for row in rows:
        name = row["side"] if row["atomic"] or row["side"] == "raw" else f"{row['side']}, {row['file_system']}"
        curves.setdefault(name, []).append((row["kib"], row["p50_us"]))
    return "Median until durable, by the size of the change", lines(curves, "KiB", "µs")


def captured(rows):
    whole = [row for row in rows if "steps" not in row]
    return "Until an asynchronous persist has returned", bars(
        [(of_persist(row), [row["p50_us"], row["p99_us"]]) for row in whole], ["median", "99 %"], "µs")


def shared(rows):
    return "Durable commits a second of several threads", bars(
        [(f"{row['threads']} threads", [row["commits_per_s"], row["raw_commits_per_s"]]) for row in rows],
        ["memlith, shared flushes", "raw, each by itself"], "/s")


def recovered(rows):
    return "Recovery of a full log, beside writing and reading as much", bars(
        [(f"region of {row['region_mib']} MiB", [row["recovery_mb_per_s"], row["write_mb_per_s"], row["read_mb_per_s"]])
         for row in rows if "recovery_s" in row], ["recovery", "raw write", "raw read"], "MB/s")


PICTURES = {"persist, one thread": beside_raw, "Small changes, against whole pages": beside_raw,
            "Bytes written": written, "The slowest ones": slowest,
            "Beside the other ways to make memory durable": of_peers, "Asynchronous persist, and the steps": captured,
            "Group commit": shared, "Recovery and opening": recovered}


# ---- the page ------------------------------------------------------------------------------------------------------

def table(rows):
    names = [name for name, value in rows[0].items() if not isinstance(value, (dict, list))]
    head = "".join(f"<th>{html.escape(name)}</th>" for name in names)
    body = "".join("<tr>" + "".join(f"<td>{html.escape(number(row.get(name, '')))}</td>" for name in names) + "</tr>"
                   for row in rows)
    return f'<div class="scroll"><table><tr>{head}</tr>{body}</table></div>'


def page(records):
    measured, runs = records[0]["measured"], records[1:]
    parts = [f'<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
             f"<title>memlith: benchmarks</title><style>{STYLE}</style><h1>memlith: benchmarks</h1>"
             f"<p>{html.escape(' '.join(measured)).replace('**', '')}</p><p>Figures of another disk are other figures. "
             "Each section has the commands that repeat it, and every figure below the picture.</p>"]
    for section in dict.fromkeys(run["section"] for run in runs):
        these = [run for run in runs if run["section"] == section]
        rows = [row for run in these for row in run.get("rows", [])]
        parts.append(f"<h2>{html.escape(section)}</h2>")
        parts += [f'<p class="failed">{html.escape(run["failed"])}</p>' for run in these if "failed" in run]
        if rows:
            caption, picture = PICTURES[section](rows)
            parts.append(f"<p>{caption}</p>{picture}")
        commands = "\n".join("./dev bench " + " ".join(run["words"]) for run in these)
        parts.append(f"<pre>{html.escape(commands)}</pre>")
        parts += [f"<details><summary>{html.escape(' '.join(run['words']))}</summary>{table(run['rows'])}</details>"
                  for run in these if run.get("rows")]
    return "\n".join(parts) + "\n</html>\n"


def main():
    rows, out = map(pathlib.Path, sys.argv[1:])
    records = [json.loads(line) for line in rows.read_text(encoding="utf-8").splitlines()]
    out.write_text(page(records), encoding="utf-8")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main()
