#!/usr/bin/env python3
"""Runs the SQLite benchmarks and writes their figures as Markdown, each table below the command that repeats it; draws
them.

    ./dev bench sqlite all [--out FILE.md] [--plot FILE.png] [--repetitions N] [--seconds S] [--quick]

Takes about ten minutes; --quick, seconds, with figures that mean nothing. All systems take turns within each table. A
benchmark that fails leaves its message where its table would be, the others go on, and the exit code is 1.
"""
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[3] / "bench" / "kit"))
import machine  # noqa: E402

NAMES = {"memlith": "memlith, full", "memlith-weak": "memlith, weak", "wal-full": "WAL, FULL",
         "wal-normal": "WAL, NORMAL", "wal-off": "WAL, OFF", "delete-full": "DELETE, FULL",
         "raw": "raw write + fdatasync"}
STYLES = {"memlith": ("#1b6ca8", "o", "-"), "memlith-weak": ("#7aa5c4", "s", "-"), "wal-full": ("#c8442e", "^", "--"),
          "wal-normal": ("#d08a3c", "v", "--"), "wal-off": ("#8a8a8a", "x", ":"), "delete-full": ("#6a4c93", "D", "--")}


def number(value, places):
    return "" if value is None else f"{value:,.{places}f}"


def cells(row):
    durable = "yes" if row["durable_at_return"] else row["durability"]
    return [NAMES.get(row["system"], row["system"]), number(row["operations_per_s"], 0),
            number(row["throughput_over_wal_full"], 2),
            number(row["samples_per_turn"], 0),
            *(number(row[name], 0) for name in ("p50_us", "p99_us", "p999_us", "max_us")),
            number(row["device_bytes_per_commit"], 0), durable]


def call_cells(row):
    calls = row["calls"]
    kinds = [calls[kind] for kind in ("read", "write", "durable", "name")]
    return [NAMES.get(row["system"], row["system"]), number(calls["us_per_operation"], 0),
            *(text for kind in kinds for text in (number(kind["per_operation"], 1),
                                                  number(kind["us_per_operation"], 0))),
            number(row["user_us_per_operation"], 0), number(row["system_us_per_operation"], 0)]


def ratios_of(rows):
    full, weak = (next(row for row in rows if row["system"] == system) for system in ("memlith", "memlith-weak"))
    said = [("p50 over raw's and WAL, OFF's together", full["p50_over_raw_plus_off"]),
            ("p99.9 over WAL, FULL's", full["p999_over_wal_full"]),
            ("throughput over DELETE, FULL", full["throughput_over_delete_full"])]
    text = "; ".join(f"{what} {value:.2f}" for what, value in said if value is not None)
    over_off = number(weak["throughput_over_wal_off"], 2)
    return f"memlith, full: {text}. memlith, weak: throughput over WAL, OFF {over_off}."


CALL_TITLES = ["system", "us", "reads", "us", "writes", "us", "made durable", "us",
               "files opened, looked for, removed", "us", "processor, user us", "processor, kernel us"]
TITLES = ["system", "a second", "over WAL, FULL", "timed a turn", "p50 us", "p99 us", "p99.9 us", "max us",
          "device bytes a commit", "durable at return"]


def name_of(row):
    """The fields that tell this table from the others of its benchmark."""
    words = [row["pattern"]] if "pattern" in row else []
    words += [f"{row[key]:,} {unit}"
              for key, unit in (("transaction_kib", "KiB a transaction"), ("subscribers", "subscribers")) if key in row]
    return ", ".join(words)


class Report(machine.Report):
    program = "memlith-sqlite-bench"
    command = "./dev bench sqlite"

    def section(self, title, note, *words, titles=None, cells_of=cells):
        """Runs one benchmark; a table for each of its sizes."""
        words = [*words, "--repetitions", str(self.arguments.repetitions)]
        for name, table in self.measure(title, note, words, name_of).items():
            if titles is None:
                self.rows += table
            else:
                table = [row for row in table if row["system"] != "raw"]
            if name:
                self.line(f"**{name}**\n")
            for text in machine.table(titles or TITLES, map(cells_of, table)):
                self.line(text)
            if titles is None:
                self.line(ratios_of(table))
            self.line()


def draw(rows, path):
    pyplot = machine.pyplot()
    figure, axes = pyplot.subplots(1, 3, figsize=(15, 4.6))
    for axis, (title, benchmark, pattern, key, label) in zip(axes, (
            ("dbbench, random", "dbbench", "random", "transaction_kib", "KiB a transaction"),
            ("dbbench, sequential", "dbbench", "sequential", "transaction_kib", "KiB a transaction"),
            ("TATP", "tatp", None, "subscribers", "subscribers"))):
        for system, (colour, marker, dashes) in STYLES.items():
            points = sorted((row[key], row["operations_per_s"]) for row in rows if row["benchmark"] == benchmark and
                            row["system"] == system and (pattern is None or row["pattern"] == pattern))
            if points:
                axis.plot(*zip(*points), color=colour, marker=marker, linestyle=dashes, label=NAMES[system])
        axis.set(title=title, xlabel=label, ylabel="transactions a second", xscale="log", yscale="log")
        axis.grid(True, which="major", alpha=0.3)
    axes[0].legend(fontsize=8)
    figure.suptitle("SQLite on memlith and plain SQLite: solid lines are memlith; medians of the turns")
    figure.tight_layout()
    figure.savefig(path, dpi=110)


def head(report):
    report.line("# SQLite: figures\n")
    for text in machine.measured("./dev bench sqlite all", report.arguments.dir, "SQLite on memlith"):
        report.line(text)
    report.line("\nPercentiles are of the turn's latencies, \"timed a turn\" many in the turn that has the fewest: "
                "without 100 of them there is no p99, without 1,000 no p99.9.")


def sections(report):
    few = report.arguments.quick
    for indexes in ("0", "1"):
        report.section(f"Single rows updated, "
                       f"{'with an index on what changes' if indexes == '1' else 'no index'}",
                       "Each update is a transaction.", "update", "--indexes", indexes,
                       *(["--rows", "200", "--commits", "20"] if few else []))
    report.section("dbbench", "Values of 128 bytes put to keys, many in a transaction; bytes and latencies are "
                              "a transaction's.", "dbbench",
                   *(["--keys", "2000", "--writes", "64"] if few else []))
    report.section("Where a transaction's time goes", "As tables 7 and 8 of the MemSnap paper: what SQLite "
                                                      "asks of its VFS in a transaction of dbbench, how often, "
                                                      "and "
                   "the time in all of it, counted by a VFS before the real one, the same for all; and the "
                   "processor's time, of all "
                   "threads. Means over all transactions. On memlith a write goes to memory, and a commit is "
                   "one persist.", "dbbench",
                   "--calls", "--transaction-kib", "4,64",
                   *(["--keys", "2000", "--writes", "64"] if few else []),
                   titles=CALL_TITLES, cells_of=call_cells)
    report.section("TATP", "80 % reads, 20 % changes; latencies are those of transactions that changed "
                           "something.", "tatp", "--seconds",
                   "0.05" if few else report.arguments.seconds, *(["--subscribers", "1000"] if few else []))
    report.section("A mix of everything", "Latencies are those of single statements that commit.", "speed",
                   *(["--size", "1"] if few else []))


def main():
    parser = machine.report_arguments(__doc__, "sqlite")
    parser.add_argument("--repetitions", type=int, default=5, help="turns of each system (5)")
    parser.add_argument("--seconds", default="1", help="of a turn of TATP (1)")
    return machine.write_report(Report, parser.parse_args(), head, sections, draw)


if __name__ == "__main__":
    sys.exit(main())
