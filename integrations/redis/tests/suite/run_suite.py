#!/usr/bin/env python3
"""Redis's own tests with memlith on: ./dev soak redis-suite.

Runs each unit of `runtest` and of `runtest-cluster` with the plain server and with the directive `memlith yes`, and
holds what differs against known.txt, which says why. Exit code 0: nothing else passes on plain Redis and not on
memlith.
"""
import argparse
import collections
import pathlib
import re
import shutil
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1]))
sys.path.insert(0, str(HERE.parents[2] / "sqlite/tests/suite"))
from beside_plain import ending, read_reasons, run_for  # noqa: E402
from build import make  # noqa: E402

UNIT_SECONDS = 1200
# Units that need TLS, or an hour.
LEFT_OUT = ("unit/tls", "unit/printver", "integration/corrupt-dump-fuzzer", "unit/violations")
# Programs beside the server; the last three are the server under another name.
PROGRAMS = ("redis-cli", "redis-benchmark")
NAMES = ("redis-check-aof", "redis-check-rdb", "redis-sentinel")


def make_tree(work, source, server, kind):
    """Redis's tests beside this server."""
    tree = work / kind
    shutil.rmtree(tree, ignore_errors=True)
    (tree / "src").mkdir(parents=True)
    for name in ("tests", "utils"):
        shutil.copytree(source.parent / name, tree / name)
    for name in ("runtest", "runtest-cluster", "redis.conf", "sentinel.conf"):
        shutil.copy2(source.parent / name, tree / name)
    if kind == "memlith":
        # Tests of failovers and slots that switch the append-only file off before they kill, or its flushes, for speed.
        for path in (tree / "tests/cluster/tests").glob("*.tcl"):
            text = path.read_text(encoding="utf-8")
            asks = r"^(.* config set append(only no|fsync no)|test_slave_load_expired_keys no)$"
            path.write_text(re.sub(asks, "", text, flags=re.M), encoding="utf-8")
    shutil.copy2(server, tree / "src" / "redis-server")
    for name in PROGRAMS:
        shutil.copy2(source / name, tree / "src" / name)
    for name in NAMES:
        (tree / "src" / name).symlink_to("redis-server")
    return tree


def units_in(tree):
    listing = subprocess.run(["./runtest", "--list-tests"], cwd=tree, capture_output=True, text=True, check=True).stdout
    return [unit for unit in listing.split() if "/" in unit and not unit.startswith(LEFT_OUT)] + \
        sorted(f"cluster/{path.stem}" for path in (tree / "tests/cluster/tests").glob("*.tcl"))


def keep_log(tree, unit, given, code, text):
    """And the text without colours."""
    logs = given.work / f"logs-{tree.name}"
    logs.mkdir(exist_ok=True)
    (logs / f"{unit.replace('/', '-')}.log").write_text(f"{text}\nexit code {code}\n", encoding="utf-8")
    return re.sub(r"\x1b\[[0-9;]*m", "", text)


def run_cluster_unit(tree, unit, given):
    """{name: (outcome, why)} of a file of tests of twenty servers."""
    memlith = ["--config", "memlith", "yes", "--config", "memlith-log-size", "8mb"] if tree.name == "memlith" else []
    code, text = run_for(UNIT_SECONDS, ["./runtest-cluster", "--single", unit.replace("cluster/", "/") + ".tcl",
                                        *memlith], cwd=tree)
    text = keep_log(tree, unit, given, code, text)
    outcomes = {}
    for said in re.split(r"^\d\d:\d\d:\d\d> ", text, flags=re.M)[1:]:
        # Numbers of servers and epochs differ from run to run, so tests that differ in these only are one.
        name = f"{unit} " + re.sub(r"\d+", "N", re.split(r": FAILED|: \{|: (?=[^:]*$)", said.splitlines()[0])[0])
        how = "failed" if "FAILED" in said else "ok" if re.search(r"\bOK$", said, re.M) else "ended"
        if outcomes.get(name, ("ok",))[0] == "ok":
            outcomes[name] = how, said[:500]
    return outcomes | {f"{unit} (end)": ("ok" if code == 0 else "failed" if "test(s) failed" in text else ending(code),
                                        "" if code == 0 else text[-1500:])}


def run_unit(tree, unit, given):
    """{name: (outcome, why)} of the unit's tests."""
    options = [] if given.slow else ["--tags", "-slow"]
    memlith = ["--config", "memlith", "yes"] if tree.name == "memlith" else []
    port = 21000 if tree.name == "plain" else 31000
    code, text = run_for(UNIT_SECONDS, ["./runtest", "--single", unit, "--clients", "1", "--durable", "--baseport",
                                        str(port), *options, *memlith], cwd=tree)
    text = keep_log(tree, unit, given, code, text)
    outcomes = {f"{unit} {name}": ("ok", "") for name in re.findall(r"^\[ok\]: (.*?)(?: \(\d+ ms\))?$", text, re.M)}
    for name, why in re.findall(r"^\[err\]: (.*?) in tests/\S+\n(.*(?:\n.*){0,2})", text, re.M):
        outcomes[f"{unit} {name}"] = ("failed", why)
    for why in re.findall(r"^\[exception\]: (.*(?:\n.*){0,4})", text, re.M):
        outcomes[f"{unit} (exception)"] = ("failed", why)
    ended = "ok" if code == 0 or "[err]" in text else ending(code)
    if re.search(r"crashed by signal|ASSERTION FAILED|STACK TRACE", text):
        ended = "crashed"
    outcomes[f"{unit} (end)"] = (ended, text[-300:] if ended != "ok" else "")
    return outcomes


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--redis", required=True, type=pathlib.Path, help="what build.py has made")
    options.add_argument("--work", required=True, type=pathlib.Path)
    options.add_argument("--minutes", type=float, default=0, help="accepted like by every soak program")
    options.add_argument("--only", default="", help="a regular expression for the names of units")
    options.add_argument("--slow", action="store_true", help="tests that Redis calls slow, too")
    given = options.parse_args()
    given.work, given.redis = given.work.resolve(), given.redis.resolve()
    given.work.mkdir(parents=True, exist_ok=True)
    source = next(given.redis.glob("redis-7.*/src"))
    make(source, list(PROGRAMS), [])
    trees = [make_tree(given.work, source, given.redis / folder / "redis-server", kind)
             for kind, folder in (("plain", "plain"), ("memlith", "bin"))]
    counts, unexplained, reasons = collections.Counter(), 0, read_reasons(HERE / "known.txt")
    for unit in [unit for unit in units_in(trees[0]) if re.search(given.only, unit)]:
        run = run_cluster_unit if unit.startswith("cluster/") else run_unit
        plain, ours = [run(tree, unit, given) for tree in trees]
        for name in sorted(plain.keys() | ours.keys()):
            outcome, why = ours.get(name, ("not run", ""))
            before = plain.get(name, ("not run", ""))[0]
            counts[f"memlith: {outcome}"] += 1
            counts[f"plain: {before}"] += 1
            if before == outcome or outcome == "ok":
                continue
            known = next((reason for expression, reason in reasons if re.fullmatch(expression, name)), None)
            unexplained += known is None
            print(f"{name}: {before} on plain Redis, {outcome} on memlith: {known or 'NOT EXPLAINED'}"
                  f"{'' if known else chr(10) + why}", flush=True)
        print(f"-- {unit}: {len(plain)} and {len(ours)} tests", flush=True)
    print(", ".join(f"{count} {what}" for what, count in sorted(counts.items())))
    print(f"logs in {given.work / 'logs-memlith'} and {given.work / 'logs-plain'}")
    return 1 if unexplained else 0


if __name__ == "__main__":
    sys.exit(main())
