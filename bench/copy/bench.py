#!/usr/bin/env python3
"""bench copy: `memlith copy` of a store in use, and restoring an archive. What a copy costs the writer, and how fast it
is beside cp.

In turns: `memlith bench persist` alone, and the same while its store is copied over and over. In both, plain writes and
flushes of as many bytes take turns with the persists, and show what the disk charges by itself. Everything is durable.
Then, also in turns, `memlith copy` of a store that no process has open, and `cp` and `sync` of its files, to new files
of the same folder, without reflink where cp has the choice. At last a store of --restore-mib is archived, so many MiB
of log are added, and the archive is restored. Each is durable when it ends. With the defaults, all takes a minute.
"""
import json
import pathlib
import shutil
import statistics
import subprocess
import sys
import time

from filled_store import FilledStore

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "kit"))
import contest  # noqa: E402 pylint: disable=wrong-import-position


def told_by(memlith, *words):
    """Runs the command; returns its output and how long it took."""
    began = time.monotonic()
    told = contest.told_by([memlith, *words, "--json"])
    return told, time.monotonic() - began


def copied(memlith, store, target):
    """The command's report of a copy; None if there is no store to copy any more."""
    done = subprocess.run([memlith, "copy", "--json", store, target], capture_output=True, text=True, check=False)
    if done.returncode == 0:
        return json.loads(done.stdout)
    category = json.loads(done.stdout or done.stderr)["error"]["category"]
    if category in ("not found", "busy"):
        return None
    raise SystemExit(f"memlith copy failed: {done.stdout}{done.stderr}")


def persist(memlith, folder, options, with_copies):
    """The line of `memlith bench persist`, and the copies that were made meanwhile."""
    copies = []
    with subprocess.Popen([memlith, "bench", "persist", "--json", "--tracker", "explicit", "--dir", folder,
                           "--pages", str(options.pages), "--region-mib", str(options.region_mib),
                           "--seconds", str(options.seconds)], stdout=subprocess.PIPE, text=True) as bench:
        store, target = folder / f"memlith-bench-{bench.pid}" / "store", folder / "copy"
        while with_copies and bench.poll() is None:
            told = copied(memlith, store, target) if (store / "log").exists() else None
            if told is None:
                time.sleep(0.02)
                continue
            copies.append(told)
            shutil.rmtree(target)
        line = bench.communicate()[0]
    if bench.returncode != 0:
        raise SystemExit("memlith bench persist failed")
    return json.loads(line.splitlines()[-1]), copies


def bench_persists(memlith, folder, options):
    runs = contest.in_turns(options.rounds, (False, True), lambda copied: persist(memlith, folder, options, copied))
    alone, beside = ([line for line, _ in turns] for turns in runs.values())
    copies = [each for _, made in runs[True] for each in made]

    def median(lines, field):
        return statistics.median(line[field] for line in lines)

    result = {"alone_p99_us": median(alone, "p99_us"), "p99_us": median(beside, "p99_us"),
              "raw_alone_p99_us": median(alone, "raw_p99_us"), "raw_p99_us": median(beside, "raw_p99_us"),
              "copies": len(copies), "shared_bytes": max((each["shared_bytes"] for each in copies), default=0)}
    result["ratio_p99"] = result["p99_us"] / result["alone_p99_us"]
    result["ratio_raw_p99"] = result["raw_p99_us"] / result["raw_alone_p99_us"]
    return result


def copy_plainly(store, target):
    """Seconds of cp and sync of a store's data files."""
    began = time.monotonic()
    subprocess.run(["cp", "-r", "--reflink=never", store / "objects", target], check=True)
    subprocess.run(["sync", *target.iterdir(), target], check=True)
    seconds = time.monotonic() - began
    shutil.rmtree(target)
    return seconds


def bench_speeds(memlith, library, folder, options):
    """Bytes per second of memlith copy, and of cp."""
    filled = FilledStore(library, folder / "store", options.region_mib << 20, 64 << 20)
    filled.fill()
    filled.close()
    told = {}

    def seconds_of(side):
        if side == "cp":
            return copy_plainly(folder / "store", folder / "plain")
        last, seconds = told_by(memlith, "copy", folder / "store", folder / "copy")
        told.update(last)
        shutil.rmtree(folder / "copy")
        return seconds

    runs = contest.in_turns(options.rounds, ("memlith", "cp"), seconds_of)
    ours, plain = (told["bytes"] / statistics.median(seconds) for seconds in runs.values())
    result = {"bytes_per_s": ours, "cp_bytes_per_s": plain}
    result["ratio_speed"] = result["bytes_per_s"] / result["cp_bytes_per_s"]
    shutil.rmtree(folder / "store")
    return result


def bench_restore(memlith, library, folder, options):
    store, target, restored = folder / "archived", folder / "archive", folder / "restored"
    log_bytes = options.restore_log_mib << 20
    filled = FilledStore(library, store, options.restore_mib << 20, 4 * log_bytes + (64 << 20))
    filled.fill()
    full_copy = told_by(memlith, "archive", "--once", store, target)[1]
    filled.change(log_bytes)
    segments = told_by(memlith, "archive", "--once", store, target)[1]
    filled.close()
    plain = copy_plainly(store, folder / "plain")
    told, seconds = told_by(memlith, "restore", target, restored)
    return {"restore_mib": options.restore_mib, "restore_log_mib": options.restore_log_mib,
            "archive_bytes": sum(part.stat().st_size for part in target.iterdir()), "full_copy_s": full_copy,
            "archive_log_s": segments, "restore_segments": told["segments"], "restore_s": seconds,
            "restore_cp_s": plain}


def main():
    parser = contest.options_of(__doc__, folder="where the stores go", rounds=3)
    parser.add_argument("--region-mib", type=int, default=256)
    parser.add_argument("--pages", type=int, default=16, help="changed by each persist")
    parser.add_argument("--seconds", type=float, default=3, help="of persists and plain writes, in each turn")
    parser.add_argument("--restore-mib", type=int, default=1024, help="the store that is archived and restored")
    parser.add_argument("--restore-log-mib", type=int, default=64, help="what its log has beyond the full copy")
    options = parser.parse_args()
    memlith = options.bin / "memlith"
    library = options.bin.parent / "lib" / "libmemlith.so"
    result = {"bench": "copy", "region_mib": options.region_mib, "pages": options.pages, "turns": options.rounds}
    with contest.own_folder(options.dir, "bench-copy-") as folder:
        result.update(bench_persists(memlith, folder, options))
        result.update(bench_speeds(memlith, library, folder, options))
        result.update(bench_restore(memlith, library, folder, options))
    if options.json:
        print(json.dumps(result))
        return 0
    print("p99 of persists: {alone_p99_us:.1f} µs alone, {p99_us:.1f} µs beside {copies} copies: {ratio_p99:.2f} "
          "times; of plain writes and flushes {raw_alone_p99_us:.1f} µs and {raw_p99_us:.1f} µs: {ratio_raw_p99:.2f} "
          "times".format(**result))
    print(f"speed of a copy: {result['bytes_per_s'] / 1e6:.0f} MB/s, of cp and sync "
          f"{result['cp_bytes_per_s'] / 1e6:.0f} MB/s: {result['ratio_speed']:.2f}")
    print("archive of {restore_mib} MiB and {restore_log_mib} MiB of log: {full_copy_s:.1f} s for the full copy, "
          "{archive_log_s:.1f} s for the log, {mib:.0f} MiB; restored in {restore_s:.1f} s, cp and sync of the store "
          "{restore_cp_s:.1f} s".format(**result, mib=result["archive_bytes"] / (1 << 20)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
