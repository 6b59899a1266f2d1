#!/usr/bin/env python3
"""Cuts the power under memlith, on real kernels and file systems; compares what is found with what was acknowledged.

`./dev soak power` runs it. Rigs: `loop` (quick), `vm` (another kernel, a whole machine), `nvme` (the same with an NVMe
disk that has forced unit access, also without a file system: `--fs raw,passthrough`), `kill` (kill -9 only), `dax`
(emulated persistent memory in a whole machine; `./dev soak dax`). A chain is one file system that lives through many
cuts. See docs/testing.md.
Exit code: 0 nothing lost; 1 a loss or an error; 77 with --or-skip, if this machine lacks what a rig needs. With
--sabotage it is 0 if the loss was noticed.
"""
from __future__ import annotations

import argparse
import copy
import json
import os
import pathlib
import random
import signal
import sys
import time
from collections.abc import Callable

import counts
from common import RAW, Cut, Rig, RigError, Settings, Tally, Unable, Unmountable
from dax_rig import DaxRig
from kill_rig import KillRig
from loop_rig import LoopRig
from oracle import DEVICE_STREAMS, STREAMS, Oracle, Violation, WorkloadError
from vm_rig import NvmeRig, VmRig

RIGS: dict[str, Callable[[Settings, str], Rig]] = {"loop": LoopRig, "vm": VmRig, "nvme": NvmeRig, "kill": KillRig,
                                                  "dax": DaxRig}
FILE_SYSTEMS = ["ext4", "xfs", "btrfs"]
RIG_FILE_SYSTEMS = {"kill": [*FILE_SYSTEMS, "host"], "dax": ["ext4", "xfs"],
                    "nvme": [*FILE_SYSTEMS, *RAW]}  # of the others: FILE_SYSTEMS
CHAIN_CUTS = 25
FAILURES_MAX = 20  # of one rig and file system: each is kept, and more of them tell no more
SKIPPED = 77
RECORD = "results.jsonl"  # in the working folder
SAY_EVERY_S = 20.0


def oracle_of(fs: str) -> Oracle:
    return Oracle(DEVICE_STREAMS if fs in RAW else STREAMS)


class Soak:
    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.settings = Settings(options.bin.resolve(), options.work.resolve(), options.sabotage)
        self.end = time.monotonic() + options.minutes * 60 if options.minutes else float("inf")
        self.said = time.monotonic()
        self.tallies: list[Tally] = []

    def say(self, text: str) -> None:
        print(text, file=sys.stderr if self.options.json else sys.stdout, flush=True)

    # ---- chains ------------------------------------------------------------------------------------------------------

    def run(self, turns: list[tuple[str, str]]) -> None:
        """A chain of each in turn, so that whenever it is stopped all have had their share."""
        self.settings.work.mkdir(parents=True, exist_ok=True)
        rigs: dict[tuple[str, str], Rig] = {}
        waiting = [(self.tally(rig, fs), chain) for chain in [self.options.chain] for rig, fs in turns]
        try:
            while waiting:
                tally, chain = waiting.pop(0)
                name = (tally.rig, tally.fs)
                began = time.monotonic()
                try:
                    if name not in rigs:
                        rigs[name] = RIGS[tally.rig](self.settings, tally.fs)
                    self.run_chain(rigs[name], tally, chain)
                finally:
                    tally.seconds += time.monotonic() - began
                if self.over(tally):
                    self.say(f"{tally.rig} {tally.fs}: {tally.cuts} cuts, {tally.recovered} recoveries compared, "
                             f"{tally.lost} lost, {tally.seconds:.0f} s")
                else:
                    waiting.append((tally, chain + 1))
        finally:
            for rig in rigs.values():
                rig.close()

    def tally(self, rig: str, fs: str) -> Tally:
        self.tallies.append(Tally(rig, fs))
        return self.tallies[-1]

    def over(self, tally: Tally) -> bool:
        failures = tally.lost + tally.unmountable + tally.errors
        noticed = bool(self.options.sabotage) and tally.lost + tally.unmountable > 0
        return tally.cuts >= self.options.cuts or time.monotonic() > self.end or failures >= FAILURES_MAX or noticed

    def run_chain(self, rig: Rig, tally: Tally, chain: int) -> None:
        """Ends after CHAIN_CUTS cuts, with a look at what the last one left; or with the first failure."""
        rng = random.Random(f"{self.options.seed}/{tally.rig}/{tally.fs}/{chain}")
        content = rng.getrandbits(31)
        oracle = oracle_of(tally.fs)
        rig.begin_chain()
        for number in range(CHAIN_CUTS + 1):
            last = number == CHAIN_CUTS or tally.cuts >= self.options.cuts or time.monotonic() > self.end
            cut = Cut.plan(rng, content, number, rig.operations_max, rig.deaths_ms_max)
            before = copy.deepcopy(oracle)
            oracle.begin_life()
            oracle.lives = 0
            commits, frames = oracle.commits, oracle.frames
            try:
                rig.session(Cut.none(content, number) if last else cut, oracle, tally, last)
                if last and not oracle.recovered:
                    raise WorkloadError("the last look did not see everything")
            except (Violation, Unmountable, WorkloadError, RigError) as failure:
                self.failed(failure, tally, chain, number, before, rig, cut)
                return
            finally:
                tally.commits += oracle.commits - commits
                tally.frames += oracle.frames - frames
            if number > 0:
                tally.recovered += 1 if oracle.lives > 0 else 0
                tally.in_recovery += 1 if oracle.lives == 0 else 0
            if time.monotonic() > self.said + SAY_EVERY_S:
                self.said = time.monotonic()
                self.say(f"  {tally.rig} {tally.fs}: chain {chain}, {tally.cuts} of {self.options.cuts} cuts, "
                         f"{tally.lost} lost")
            if last:
                return

    # ---- failures ----------------------------------------------------------------------------------------------------

    def failed(self, failure: Exception, tally: Tally, chain: int, number: int, before: Oracle,
               rig: Rig, cut: Cut) -> None:
        word = {Violation: "LOST", Unmountable: "UNMOUNTABLE"}.get(type(failure), "ERROR")
        tally.lost += word == "LOST"
        tally.unmountable += word == "UNMOUNTABLE"
        tally.errors += word == "ERROR"
        tally.failed_looks += number > 0
        self.say(f"{word}: {tally.rig} {tally.fs}, chain {chain}, cut {number}: {failure}")
        if self.options.sabotage:
            return
        folder = self.settings.work / "failures" / f"{tally.rig}-{tally.fs}-{self.options.seed}-{chain}-{number}"
        folder.mkdir(parents=True, exist_ok=True)
        story = {"rig": tally.rig, "fs": tally.fs, "content": cut.content, "life": cut.life, "failure": str(failure),
                 "acknowledged": before.acknowledged, "started": before.started, "reports": list(before.history)}
        (folder / "story.json").write_text(json.dumps(story, indent=1), encoding="utf-8")
        if rig.keep(folder):
            self.say(f"  again from the same bytes: ./dev soak power --replay '{folder}'")
        self.say(f"  again from the same seed:  ./dev soak power --rig {tally.rig} --fs {tally.fs} --seed "
                 f"{self.options.seed} --chain {chain} --cuts {CHAIN_CUTS}")

    def replay(self, folder: pathlib.Path) -> int:
        """Recovers a kept image once more, and compares."""
        story = json.loads((folder / "story.json").read_text(encoding="utf-8"))
        oracle = oracle_of(story["fs"])
        oracle.acknowledged, oracle.started = story["acknowledged"], story["started"]
        rig = RIGS[story["rig"]](self.settings, story["fs"])
        rig.restore(folder)
        self.say(f"expected: {oracle.bounds()}")
        try:
            rig.session(Cut.none(story["content"], story["life"]), oracle, Tally(story["rig"], story["fs"]), True)
        except (Violation, Unmountable, WorkloadError) as failure:
            self.say(f"{type(failure).__name__}: {failure}")
            return 1
        finally:
            rig.close()
        self.say("found:    " + ", ".join(f"{stream} {oracle.acknowledged[stream]}" for stream in oracle.streams))
        return 0

    # ---- the end -----------------------------------------------------------------------------------------------------

    def verdict(self) -> int:
        good = bool(self.options.sabotage) or sum(tally.recovered for tally in self.tallies) > 0
        for tally in self.tallies:
            if self.options.sabotage:
                good = good and tally.lost + tally.unmountable > 0
            else:
                good = good and tally.lost == tally.errors == 0
        return 0 if good else 1

    def record(self) -> None:
        """One line a rig and file system, for --table."""
        if self.options.sabotage:
            return
        with (self.settings.work / RECORD).open("a", encoding="utf-8") as file:
            for tally in self.tallies:
                if tally.cuts > 0:
                    file.write(json.dumps({"seed": self.options.seed, "day": time.strftime("%Y-%m-%d", time.gmtime()),
                                           "kernel": os.uname().release, **tally.as_json()}) + "\n")

    def table(self) -> int:
        """The record so far, by rig and file system, as docs/testing.md has it."""
        path = self.settings.work / RECORD
        lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.exists() else []
        columns = ["cuts", "recovered", "in_recovery", "not_looked_at", "lost", "unmountable", "errors", "kills",
                   "kept", "dropped", "commits", "frames"]
        sums: dict[tuple[str, str], dict[str, int]] = {}
        for line in lines:
            row = sums.setdefault((line["rig"], line["fs"]), dict.fromkeys(columns, 0))
            for name in columns:
                row[name] += line.get(name, 0)  # lines of before it was counted do not have all
        print("| rig | file system | cuts | recovered | in recovery | not looked at | lost | unmountable | errors | "
              "kills between | "
              "sectors kept | dropped | commits | frames replayed |\n|---|---|" + "---:|" * len(columns))
        order = [(rig, fs) for rig in RIGS for fs in [*FILE_SYSTEMS, "host", *RAW]]
        for rig, fs in sorted(sums, key=order.index):
            print(f"| {rig} | {fs} | " + " | ".join(f"{sums[rig, fs][name]:,}" for name in columns) + " |")
        for what in ("seed", "day", "kernel"):
            print(f"\n{what}s: " + ", ".join(str(one) for one in sorted({line[what] for line in lines})), end="")
        print()
        return 0

    def report(self) -> None:
        if self.options.json:
            total = {key: sum(getattr(tally, key) for tally in self.tallies)
                     for key in ("cuts", "recovered", "in_recovery", "not_looked_at", "lost", "unmountable", "errors",
                                 "kept", "dropped", "frames")}
            seconds = round(sum(tally.seconds for tally in self.tallies), 1)
            print(json.dumps({"seed": self.options.seed, "sabotage": self.options.sabotage, **total, "seconds": seconds,
                              "kernel": os.uname().release, "rigs": [tally.as_json() for tally in self.tallies]}))
            return
        columns = ["cuts", "recovered", "in_recovery", "not_looked_at", "lost", "unmountable", "errors", "kills",
                   "kept", "dropped", "commits", "frames", "flushes", "forced"]
        print("\nrig   fs     " + " ".join(f"{name.replace('_', ' '):>13}" for name in columns) + "      s/cut")
        for tally in self.tallies:
            print(f"{tally.rig:5} {tally.fs:6} " + " ".join(f"{getattr(tally, name):13,}" for name in columns) +
                  f" {tally.seconds / max(1, tally.cuts):10.2f}")
        print("\nrecovered: openings after a cut after which every byte was compared. in recovery: cuts that struck"
              "\nbefore that. not looked at: cuts at which a chain was ended. kept, dropped: unflushed sectors. "
              "commits: acknowledged. frames: replayed by opening.")
        if self.options.sabotage:
            print(f"sabotage {self.options.sabotage}: " + ("noticed" if self.verdict() == 0 else "NOT NOTICED"))


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="power", description=(__doc__ or "").split("\n\n", maxsplit=1)[0])
    parser.add_argument("--cuts", type=int, default=20, help="for each rig and file system (20)")
    parser.add_argument("--minutes", type=float, default=0, help="stop after so long")
    parser.add_argument("--rig", default="loop,vm,nvme,kill", help="some of loop,vm,nvme,kill,dax (all but dax)")
    parser.add_argument("--fs", default="",
                        help="some of ext4,xfs,btrfs, and for the kill rig host, for nvme raw,passthrough (all)")
    parser.add_argument("--seed", type=int, default=None, help="of everything (drawn, and printed)")
    parser.add_argument("--chain", type=int, default=0, help="begin with this chain of the seed")
    parser.add_argument("--sabotage", choices=["no-flush", "lying-disk"], default="",
                        help="a memlith that never flushes, or a disk that does not: succeeds if the loss is noticed")
    parser.add_argument("--replay", type=pathlib.Path, help="recover once more from the image kept in this folder")
    parser.add_argument("--table", action="store_true", help="print what all runs so far came to, and end")
    parser.add_argument("--count", action="store_true",
                        help="count the commands and system calls of a commit on the disk of the rig nvme, and end")
    parser.add_argument("--count-records", action="store_true",
                        help="the same for a durable put of `bench dbbench`, beside other key-value stores, and end")
    parser.add_argument("--json", action="store_true", help="end with one JSON object")
    parser.add_argument("--or-skip", action="store_true", help=f"exit with {SKIPPED} if this machine cannot run it")
    parser.add_argument("--bin", type=pathlib.Path, required=True, help="where the programs are")
    parser.add_argument("--work", type=pathlib.Path, required=True, help="where images and failures go")
    options = parser.parse_args()
    options.rigs = [name for name in options.rig.split(",") if name]
    options.file_systems = [name for name in options.fs.split(",") if name]
    for name in options.rigs:
        if name not in RIGS:
            parser.error(f"there is no rig {name}")
    for name in options.file_systems:
        if name not in [*FILE_SYSTEMS, "host", *RAW]:
            parser.error(f"there is nothing prepared for the file system {name}")
    if options.seed is None:
        options.seed = random.SystemRandom().getrandbits(31)
    return options


def main() -> int:
    options = parse()
    soak = Soak(options)
    for end in (signal.SIGINT, signal.SIGTERM):  # also where a shell without a terminal has it ignored
        signal.signal(end, signal.default_int_handler)
    try:
        if options.replay:
            return soak.replay(options.replay)
        if options.table:
            return soak.table()
        if options.count:
            return counts.of_commits(soak.settings, options.file_systems or RIG_FILE_SYSTEMS["nvme"])
        if options.count_records:
            return counts.of_records(soak.settings)
        soak.say(f"seed {options.seed}")
        soak.run([(rig, fs) for rig in options.rigs
                  for fs in options.file_systems or RIG_FILE_SYSTEMS.get(rig, FILE_SYSTEMS)
                  if fs in RIG_FILE_SYSTEMS.get(rig, FILE_SYSTEMS)])
    except Unable as why:
        soak.say(f"cannot run here: {why}")
        return SKIPPED if options.or_skip else 1
    except RigError as why:
        soak.say(f"the rig failed: {why}")
        return 1
    except KeyboardInterrupt:
        soak.say("interrupted")
    soak.record()
    soak.report()
    return soak.verdict()


if __name__ == "__main__":
    sys.exit(main())
