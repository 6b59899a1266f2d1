#!/usr/bin/env python3
"""Durable changes of NumPy arrays, dictionaries, and checkpoints of a computation, beside what people use for them.

    bench.py [--json] [--mib N] [--seconds S] [--dir FOLDER] [--library libmemlith.so] [--only WORKLOAD]

The sides take turns, operation by operation (with threads, in turns of a fifth of the time), so that all of them meet
the same disk. An operation stores to so many random rows of 4 KiB (or to the whole array) and makes that durable, as
far as the side can; the column "durability" says how far. With --library, the C interface does the same, without the
Python package.
"""
import argparse
import itertools
import json
import os
import pathlib
import pickle
import shutil
import subprocess
import sys
import tempfile
import threading
import time

import dictionaries
import numpy as np

import memlith
from memlith.checkpoint import Checkpoint

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "kit"))
import machine  # noqa: E402 pylint: disable=wrong-import-position

ROW = 512  # float64: 4 KiB
THREADS = 8


def sync_file(file):
    file.flush()
    os.fsync(file.fileno())


def sync_path(path):
    descriptor = os.open(path, os.O_RDONLY)
    os.fsync(descriptor)
    os.close(descriptor)


class Memlith:
    name, durability = "memlith", "durable, atomic"

    def __init__(self, folder, rows):
        self.store = memlith.open(folder / "memlith")
        self.array = self.store.zeros("a", (rows, ROW))
        self.array.sum()  # in memory, as an array that is in use

    def change(self, chosen, value):
        for row in chosen:
            self.array[row] = value
        self.store.persist()

    def whole(self, value):
        self.array[:] = value
        self.store.persist()

    def close(self):
        self.store.close()


class Library:
    """The C interface by itself, in a process of its own: two copies of the library do not fit in every process."""

    name, durability = "memlith, C interface", "durable, atomic"
    path = None

    def __init__(self, folder, rows):
        command = [sys.executable, "-B", pathlib.Path(__file__).with_name("library.py"), self.path, folder / "library",
                   str(rows * ROW * 8)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def ask(self, **request):
        print(json.dumps(request), file=self.process.stdin, flush=True)
        return json.loads(self.process.stdout.readline())

    def change(self, chosen, value):
        return self.ask(rows=[int(row) for row in chosen], value=value)

    def whole(self, value):
        return self.ask(rows=None, value=value)

    def close(self):
        self.process.communicate()


class Save:
    name, durability = "numpy.save, fsync, rename", "durable, atomic"

    def __init__(self, folder, rows):
        self.folder, self.array = folder, np.full((rows, ROW), 1.0)

    def save(self):
        with open(self.folder / "array.new", "wb") as file:
            np.save(file, self.array)
            sync_file(file)
        os.rename(self.folder / "array.new", self.folder / "array.npy")
        sync_path(self.folder)

    def change(self, chosen, value):
        for row in chosen:
            self.array[row] = value
        self.save()

    def whole(self, value):
        self.array[:] = value
        self.save()

    def close(self):
        pass


class Memmap:
    name, durability = "numpy.memmap.flush", "durable, not atomic"

    def __init__(self, folder, rows):
        self.array = np.lib.format.open_memmap(folder / "memmap.npy", "w+", "f8", (rows, ROW))
        self.whole(0)

    def change(self, chosen, value):
        for row in chosen:
            self.array[row] = value
        self.array.flush()

    def whole(self, value):
        self.array[:] = value
        self.array.flush()

    def close(self):
        pass


class Zarr:
    name, durability = "zarr", "not durable"

    def __init__(self, folder, rows):
        import zarr

        self.array = zarr.open(str(folder / "zarr"), mode="w", shape=(rows, ROW), chunks=(64, ROW), dtype="f8")

    def change(self, chosen, value):
        for row in chosen:
            self.array[int(row)] = value

    def whole(self, value):
        self.array[:] = value

    def close(self):
        pass


class Hdf5:
    name, durability = "h5py, flush, fsync", "durable, not atomic"

    def __init__(self, folder, rows):
        import h5py

        self.path = folder / "array.h5"
        self.file = h5py.File(self.path, "w")
        self.array = self.file.create_dataset("a", (rows, ROW), "f8")
        self.whole(0)

    def flush(self):
        self.file.flush()
        sync_path(self.path)

    def change(self, chosen, value):
        for row in chosen:
            self.array[int(row)] = value
        self.flush()

    def whole(self, value):
        self.array[:] = value
        self.flush()

    def close(self):
        self.file.close()


class Training:
    """A state of which every step changes one part in 64, as with embeddings."""

    def __init__(self, folder, rows):
        self.folder, self.count = folder, rows
        self.state = {"weights": np.zeros((rows, ROW)), "step": 0}

    def step(self, chosen, value):
        self.state["weights"][chosen] = value
        self.state["step"] += 1
        self.save()

    def close(self):
        pass


class MemlithCheckpoint(Training):
    name, durability = "memlith.checkpoint", "durable, atomic"

    def __init__(self, folder, rows):
        super().__init__(folder, rows)
        self.checkpoint = Checkpoint(folder / "checkpoint")

    def save(self):
        self.checkpoint.save(self.state)

    def close(self):
        self.checkpoint.close()


class FileCheckpoint(Training):
    durability = "durable, atomic"

    def save(self):
        with open(self.folder / f"{type(self).__name__}.new", "wb") as file:
            self.write(file)
            sync_file(file)
        os.rename(file.name, self.folder / type(self).__name__)
        sync_path(self.folder)


class Pickle(FileCheckpoint):
    name = "pickle, fsync, rename"

    def write(self, file):
        pickle.dump(self.state, file, protocol=5)


class TorchSave(FileCheckpoint):
    name = "torch.save, fsync, rename"

    def __init__(self, folder, rows):
        import torch

        super().__init__(folder, rows)
        self.torch = torch

    def write(self, file):
        self.torch.save({**self.state, "weights": self.torch.from_numpy(self.state["weights"])}, file)


class Savez(FileCheckpoint):
    name = "numpy.savez, fsync, rename"

    def write(self, file):
        np.savez(file, **self.state)


def measure(workload, sides, operate, seconds, at_once=1):
    """Rounds in which every side does some operations. A side stops when its time is up, but not before 4 rounds."""
    taken = {side.name: [] for side in sides}
    rng = np.random.default_rng(1)
    for number in range(100_000):
        waiting = [side for side in sides if sum(taken[side.name]) < seconds or len(taken[side.name]) < 4 * at_once]
        if not waiting:
            break
        draw = rng.integers(0, 1 << 60, 1 << 16)
        for side in waiting:
            for each in range(at_once):
                given = draw if at_once == 1 else draw[each]
                began = time.perf_counter()
                measured = operate(side, given, float(number + 1))  # by the side itself, if it is another process
                taken[side.name].append(measured or time.perf_counter() - began)
    for side in sides:
        times = taken[side.name][at_once:]  # the first round meets cold caches
        yield line_of(workload, side, 1, times, sum(times))


def line_of(workload, side, threads, times, seconds):
    times = 1e6 * np.sort(times)
    return {"suite": "python", "side": side.name, "workload": workload, "durability": side.durability,
            "threads": threads, "operations": len(times), "ops_per_s": len(times) / seconds,
            **{f"p{label}_us": float(np.quantile(times, quantile, method="inverted_cdf"))
               for label, quantile in (("50", 0.5), ("99", 0.99), ("999", 0.999))}}


def measure_threads(workload, sides, operate, seconds, threads, turns=5):
    """Turns in which every side works in so many threads for a part of its time."""
    taken = {side.name: [] for side in sides}
    spent = dict.fromkeys(taken, 0.0)
    for turn in range(turns + 1):
        for side in sides:
            times, took = side_by_side(side, operate, seconds / turns, threads, turn)
            if turn > 0:  # the first turn meets cold caches
                taken[side.name] += times
                spent[side.name] += took
    for side in sides:
        yield line_of(workload, side, threads, taken[side.name], spent[side.name])


def side_by_side(side, operate, seconds, threads, turn):
    times = []
    start = threading.Barrier(threads + 1)

    def work(number):
        draw = np.random.default_rng([turn, number]).integers(0, 1 << 60, 1 << 16)
        mine = []
        start.wait()
        end = began = time.perf_counter()
        for each in itertools.cycle(draw):
            if end - first[0] >= seconds:
                break
            operate(side, each, float(turn))
            end = time.perf_counter()
            mine.append(end - began)
            began = end
        times.extend(mine)

    workers = [threading.Thread(target=work, args=(number,)) for number in range(threads)]
    for worker in workers:
        worker.start()
    first = [time.perf_counter()]
    start.wait()
    for worker in workers:
        worker.join()
    return times, time.perf_counter() - first[0]


def opened(kinds, *arguments):
    """A side of each kind whose package is installed."""
    sides = []
    for kind in kinds:
        try:
            sides.append(kind(*arguments))
        except ImportError as error:
            print(f"{kind.__name__} is left out: {error}", file=sys.stderr)
    return sides


def measure_dictionaries(options, folder):
    for kinds, durable, workloads in (
            (dictionaries.DURABLE, True, {"dict set, durable": (dictionaries.set_some, 10)}),
            (dictionaries.ALL, False, {"dict set, weak": (dictionaries.set_some, 500),
                                       "dict get": (dictionaries.get_some, 500)})):
        chosen = {name: work for name, work in workloads.items() if options.only in (None, name, "dict")}
        if not chosen:
            continue
        with tempfile.TemporaryDirectory(prefix="python-bench.", dir=folder) as place:
            sides = opened(kinds, pathlib.Path(place), durable)
            for side in sides:
                side.fill(dictionaries.items())
            for workload, (operate, at_once) in chosen.items():
                yield from measure(workload, sides, operate, options.seconds, at_once)
                if durable:  # threads that wait for the disk can share flushes
                    several = [side for side in sides if side.has_threads]
                    yield from measure_threads(workload, several, operate, options.seconds, THREADS)
            for side in sides:
                side.close()


def measurements(options, folder):
    rows = options.mib * (1 << 20) // (ROW * 8)
    peers = [Memlith, Save, Memmap, Zarr, Hdf5]
    if options.library:
        Library.path = options.library
        peers.insert(1, Library)

    def change(count):
        return lambda side, draw, value: side.change(draw[:count] % rows, value)

    arrays = {f"{count} {'row' if count == 1 else 'rows'}": change(count) for count in (1, 16, 256)}
    arrays["whole array"] = lambda side, draw, value: side.whole(value)
    training = {"checkpoint": lambda side, draw, value: side.step(draw[: max(1, rows // 64)] % rows, value)}
    for kinds, workloads in ((peers, arrays), ([MemlithCheckpoint, Pickle, Savez, TorchSave], training)):
        chosen = {name: work for name, work in workloads.items() if options.only in (None, name, "arrays")}
        if not chosen:
            continue
        with tempfile.TemporaryDirectory(prefix="python-bench.", dir=folder) as place:
            sides = opened(kinds, pathlib.Path(place), rows)
            for workload, operate in chosen.items():
                yield from measure(workload, sides, operate, options.seconds)
            for side in sides:
                side.close()
    yield from measure_dictionaries(options, folder)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="one object a line")
    parser.add_argument("--mib", type=int, default=64, help="size of the array (64)")
    parser.add_argument("--seconds", type=float, default=2, help="time of each side and workload (2)")
    parser.add_argument("--dir", type=pathlib.Path, default=pathlib.Path("."), help="where the files go")
    parser.add_argument("--library", type=pathlib.Path, help="libmemlith.so, to measure the C interface, too")
    parser.add_argument("--record", type=pathlib.Path, help="writes the objects of --json to this file, too")
    parser.add_argument("--only", help='one workload, such as "16 rows"; or "dict", "arrays"')
    options = parser.parse_args()
    free = shutil.disk_usage(options.dir).free
    if free < 12 * options.mib << 20:
        sys.exit(f"{options.dir}: the files take up to {12 * options.mib} MiB, and {free >> 20} MiB are free")
    record = options.record.open("w", encoding="utf-8") if options.record else None
    lines = recorded(measurements(options, options.dir), record)
    if options.json:
        for line in lines:
            print(json.dumps(line), flush=True)
        return
    print(f"An array of {options.mib} MiB, rows of 4 KiB\n")
    for text in machine.table(["workload", "side", "durability", "p50", "p99", "operations/s",
                               "memlith's over these"], cells(lines)):
        print(text, flush=True)


def recorded(lines, record):
    for line in lines:
        if record:
            print(json.dumps(line), file=record, flush=True)
        yield line


def cells(lines):
    base = {}
    for line in lines:
        workload = line["workload"] + (f", {line['threads']} threads" if line["threads"] > 1 else "")
        first = base.setdefault(workload, line)
        yield [workload, line["side"], line["durability"], spoken(line["p50_us"]), spoken(line["p99_us"]),
               f"{line['ops_per_s']:,.0f}", f"{first['ops_per_s'] / line['ops_per_s']:.2f}"]


def spoken(us):
    return f"{us:.2f} µs" if us < 10 else f"{us:.0f} µs" if us < 1e4 else f"{us / 1e3:.0f} ms"


if __name__ == "__main__":
    main()
