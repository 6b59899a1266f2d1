#!/usr/bin/env python3
"""bench copy: `memlith copy` of a store in use. What it costs the writer, and how fast it is beside cp.

    bench.py --bin FOLDER --dir FOLDER [--region-mib N] [--seconds N] [--turns N] [--json]

In turns: `memlith bench persist` alone, and the same while its store is copied over and over. Both are durable
persists. Then, also in turns, `memlith copy` of a store that no process has open, and `cp` and `sync` of its files, to
new files of the same folder, without reflink where cp has the choice. Both are durable when they end.
"""
import argparse
import json
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile
import time


def copied(memlith, store, target):
    """A copy, and what the command says of it; None if there is no store to copy any more."""
    done = subprocess.run([memlith, "copy", "--json", store, target], capture_output=True, text=True, check=False)
    if done.returncode == 0:
        return json.loads(done.stdout)
    category = json.loads(done.stdout or done.stderr)["error"]["category"]
    if category in ("not found", "busy"):
        return None
    raise SystemExit(f"memlith copy failed: {done.stdout}{done.stderr}")


def persist(memlith, folder, options, with_copies):
    """The p99 of persists in µs, and the copies that were made meanwhile."""
    copies = []
    with subprocess.Popen([memlith, "bench", "persist", "--json", "--tracker", "explicit", "--dir", folder,
                           "--region-mib", str(options.region_mib), "--seconds", str(options.seconds)],
                          stdout=subprocess.PIPE, text=True) as bench:
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
    return json.loads(line.splitlines()[-1])["p99_us"], copies


def speeds(memlith, folder, store, turns):
    """Bytes per second of memlith copy and of cp, a list each, in turns."""
    ours, plain = [], []
    for _ in range(turns):
        began = time.monotonic()
        told = copied(memlith, store, folder / "copy")
        ours.append(told["bytes"] / (time.monotonic() - began))
        shutil.rmtree(folder / "copy")
        began = time.monotonic()
        subprocess.run(["cp", "-r", "--reflink=never", store / "objects", folder / "plain"], check=True)
        subprocess.run(["sync", *(folder / "plain").iterdir(), folder / "plain"], check=True)
        plain.append(told["bytes"] / (time.monotonic() - began))
        shutil.rmtree(folder / "plain")
    return ours, plain


def make_store(memlith, folder, mib):
    """A closed store with so many MiB of records."""
    value = "0123456789abcdef" * 64
    lines = "".join(f" {number:012}\n {value}{number}\n" for number in range(mib * 1024))
    dump = folder / "dump"
    dump.write_text(f"memlith-kv-dump 1\nmap bench\n{lines}end\nmaps 1\n", encoding="utf-8")
    store = folder / "store"
    with open(dump, "rb") as given:
        subprocess.run([memlith, "kv", "load", store], stdin=given, stdout=subprocess.DEVNULL, check=True)
    dump.unlink()
    return store


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bin", type=pathlib.Path, required=True)
    parser.add_argument("--dir", type=pathlib.Path, required=True)
    parser.add_argument("--region-mib", type=int, default=256)
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    memlith = options.bin / "memlith"
    alone, beside, copies = [], [], []
    with tempfile.TemporaryDirectory(dir=options.dir, prefix="bench-copy-") as place:
        folder = pathlib.Path(place)
        for _ in range(options.turns):
            alone.append(persist(memlith, folder, options, False)[0])
            p99, made = persist(memlith, folder, options, True)
            beside.append(p99)
            copies += made
        ours, plain = speeds(memlith, folder, make_store(memlith, folder, options.region_mib), options.turns)
    result = {"bench": "copy", "region_mib": options.region_mib, "turns": options.turns,
              "alone_p99_us": statistics.median(alone), "p99_us": statistics.median(beside),
              "ratio_p99": statistics.median(beside) / statistics.median(alone), "copies": len(copies),
              "shared_bytes": max((each["shared_bytes"] for each in copies), default=0),
              "bytes_per_s": statistics.median(ours), "cp_bytes_per_s": statistics.median(plain),
              "ratio_speed": statistics.median(ours) / statistics.median(plain)}
    if options.json:
        print(json.dumps(result))
        return 0
    print(f"p99 of persists: {result['alone_p99_us']:.1f} µs alone, {result['p99_us']:.1f} µs beside {len(copies)} "
          f"copies: {result['ratio_p99']:.2f} times")
    print(f"speed of a copy: {result['bytes_per_s'] / 1e6:.0f} MB/s, of cp and sync "
          f"{result['cp_bytes_per_s'] / 1e6:.0f} MB/s: {result['ratio_speed']:.2f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
