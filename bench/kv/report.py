#!/usr/bin/env python3
"""Runs the heap's suites of memlith-kv-bench and writes their figures as Markdown, each table below the command that
repeats it; draws them.

    ./dev bench heap all [--out FILE.md] [--plot FILE.png] [--quick]

Takes five minutes; --quick, seconds, with figures that mean nothing. A suite that fails leaves its message where its
tables would be, the others go on, and the exit code is 1.
"""
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "kit"))
import machine  # noqa: E402

COLOURS = {"memlith-instrumented": "#123f66", "memlith-fault": "#1b6ca8", "memlith-scan": "#2e8b57",
           "memlith-btree-fault": "#4f9bd0", "memlith-btree-scan": "#6fbf8f", "memlith-hash-fault": "#9cc7e6",
           "memlith-hash-scan": "#b0dcc0",
           "memlith": "#1b6ca8", "leveldb": "#c8442e", "rocksdb": "#d08a3c", "sqlite": "#6a4c93",
           "lmdb": "#8a8a8a", "kyoto-tree-tran": "#b8860b", "malloc": "#8a8a8a",
           "boost-rbtree": "#d08a3c", "pmemobj": "#c8442e"}


def us(value):
    return f"{value:,.1f}" if value >= 10 else f"{value:,.3f}"


def map_cells(row):
    return [row["side"], f"{row['ops_per_s']:,.0f}", f"{row['ratio'] or 0:.2f}", us(row["p50_us"]),
            us(row["p99_us"]), us(row["p999_us"])]


MAP_TITLES = ["side", "operations/s", "over LevelDB", "p50 µs", "p99 µs", "p99.9 µs"]


def allocate_cells(row):
    return [row["side"], f"{row['ops_per_s'] / 1e6:,.2f}", f"{row['ratio'] or 0:.2f}",
            f"{row['metadata_bytes_allocate']} / {row['metadata_bytes_free']}", row["metadata_bytes_p99"],
            f"{row['metadata_pages_per_op']:.2f}", f"{row['space_ratio']:.2f}"]


ALLOCATE_TITLES = ["side", "million operations/s", "over malloc", "bytes of metadata: allocate / free, median",
                   "p99 of both", "pages of metadata", "space / bytes asked for"]


def thread_allocate_cells(row):
    return [row["side"], f"{row['ops_per_s'] / 1e6:,.2f}", f"{row['ratio'] or 0:.2f}"]


def open_cells(row):
    return [f"{row['heap_mib']:,} MiB, {row['blocks']:,} blocks", f"{row['p50_us'] / 1000:,.2f}",
            f"{row['first_allocate_us']:,.0f}", f"{row['store_open_ms']:,.1f}"]


def form_of(row):
    if row["suite"] == "open":
        return ["heap", "heap opened, ms", "first allocation, µs", "store opened before that, ms"], open_cells
    if row["suite"] == "allocate":
        return ALLOCATE_TITLES, allocate_cells
    if row["workload"] == "allocate":
        return ["side", "million operations/s", "over malloc"], thread_allocate_cells
    return MAP_TITLES, map_cells


def name_of(row):
    """The fields that tell this table from the others of its suite."""
    words = [row["workload"]]
    if "keys" in row:
        words.append("each durable" if row["durability"] == "sync" else "without any sync")
    if row["suite"] == "threads":
        words.append(f"{row['threads']} thread{'s' if row['threads'] > 1 else ''}")
    return ", ".join(words)


class Report(machine.Report):
    program = "memlith-kv-bench"
    command = "./dev bench heap"

    def section(self, title, note, *words):
        for name, table in self.measure(title, note, words, name_of).items():
            self.rows += table
            titles, cells = form_of(table[0])
            self.line(f"**{name[0].upper()}{name[1:]}**\n")
            for text in machine.table(titles, map(cells, table)):
                self.line(text)

    def sides(self):
        """A sentence about each side, once."""
        self.line("\n## The sides\n")
        seen = {}
        for row in self.rows:
            seen.setdefault((row["side"], row["side_version"], row["does"]))
        for text in machine.table(["side", "version", "what it does"], seen):
            self.line(text)


def bars(axis, title, rows, key, label):
    rows = [row for row in rows if row.get(key) is not None]
    axis.barh([row["side"] for row in rows][::-1], [row[key] for row in rows][::-1],
              color=[COLOURS.get(row["side"], "#7aa5c4") for row in rows][::-1])
    axis.set(title=title, xlabel=label)
    axis.grid(True, axis="x", alpha=0.3)


def lines(axis, title, rows):
    """Operations a second over the number of threads, a line for each side."""
    for side in dict.fromkeys(row["side"] for row in rows):
        chosen = sorted((row["threads"], row["ops_per_s"]) for row in rows if row["side"] == side)
        axis.plot(*zip(*chosen), marker="o", label=side, color=COLOURS.get(side, "#7aa5c4"))
    axis.set(title=title, xlabel="threads", ylabel="operations a second", yscale="log",
             xticks=sorted({row["threads"] for row in rows}))
    axis.grid(True, alpha=0.3)
    axis.set_xlim(right=1.7 * max(row["threads"] for row in rows) if rows else None)
    axis.legend(fontsize=7, loc="center right")


def draw(rows, path):
    pyplot = machine.pyplot()
    figure, grid = pyplot.subplots(3, 4, figsize=(20, 10.5))
    for line, suite, keys in (0, "table2", "1,000 keys"), (1, "table2-large", "100,000 keys"):
        for column, operation in enumerate(("insert", "replace", "delete")):
            chosen = [row for row in rows
                      if (row["suite"], row["workload"], row["durability"]) == (suite, operation, "sync")]
            bars(grid[line][column], f"{operation}, {keys}, each durable", chosen, "p50_us", "µs, median")
    threads = [row for row in rows if row["suite"] == "threads"]
    lines(grid[0][3], "replace, each durable",
          [row for row in threads if row["workload"] == "replace" and row["durability"] == "sync"])
    lines(grid[1][3], "allocate and free, 16 to 256 bytes", [row for row in threads if row["workload"] == "allocate"])
    allocate = [row for row in rows if row["suite"] == "allocate"]
    for column, sizes in (0, "small"), (2, "mixed"):
        chosen = [row for row in allocate if row["workload"].startswith(sizes)]
        title = chosen[0]["workload"].split(", ")[1] if chosen else sizes
        bars(grid[2][column], f"metadata dirtied, {title}", chosen, "metadata_bytes_per_op",
             "bytes an operation, median")
        bars(grid[2][column + 1], f"space after churn, {title}", chosen, "space_ratio",
             "bytes kept over bytes asked for")
    figure.suptitle("Values of 1 KiB in random order; the time until an operation is durable. Below: allocation alone")
    figure.tight_layout()
    figure.savefig(path, dpi=80)


def head(report):
    report.line("# Heap: figures\n")
    for text in machine.measured("./dev bench heap all", report.arguments.dir, "containers on a heap"):
        report.line(text)


def sections(report):
    few = report.arguments.quick
    report.section("A small map",
                   "As table 2 of the EuroSys 2013 paper on failure-atomic msync: 1,000 keys of 16 bytes with "
                   "values of 1 KiB are inserted, replaced and deleted in random order; then the same without "
                   "any sync, as its table 3.", "table2",
                   *(["--keys", "20", "--repetitions", "1"] if few else []))
    report.section("A larger map", "The same operations on a store that holds 100,000 keys.", "table2-large",
                   *(["--keys", "200", "--operations", "20"] if few else []))
    report.section("Allocation alone",
                   "Blocks of random sizes come and go. Metadata is counted by comparing all memory of an "
                   "allocator before and after single operations, freed blocks included; memory that need not "
                   "survive counts for malloc only, which has no other. Space is what the allocator keeps "
                   "after five times 32 MiB have come and gone.", "allocate",
                   *(["--rounds", "20", "--trace-mib", "1"] if few else []))
    report.section("Opening a large heap",
                   "A heap with many blocks, a quarter of which were freed at random, with a cold page cache. "
                   "The store is opened first, and replays the log after a crash.", "open",
                   *(["--heap-mib", "8", "--blocks", "2000"] if few else
                     ["--heap-mib", "1024", "--blocks", "2500000"]))
    report.section("Threads", "Threads replace values of one map; and each allocates and frees blocks of its "
                              "own, of 16 to 256 bytes.", "threads",
                   *(["--threads", "1,2", "--seconds", "0.05", "--keys", "50"] if few else []))
    report.sides()


def main():
    arguments = machine.report_arguments(__doc__, "heap").parse_args()
    return machine.write_report(Report, arguments, head, sections, draw)


if __name__ == "__main__":
    sys.exit(main())
