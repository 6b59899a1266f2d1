#!/usr/bin/env python3
"""Runs tests of a build with ctest, and says which took long: `./dev test` calls this.

Usage: run.py BUILD [CTEST ARGS...]

Foreign servers have clocks and ports of their own. A test of their suites (UNSTABLE) that fails is run once more by
itself; if the test passes then, so does the run, which says `unstable: NAME` and keeps both outputs in BUILD/unstable.
Everywhere else a failure is a failure.

The crash tests print how many distinct states of a medium they recovered from; their sum is printed. Faults that are
injected no more, unnoticed, prove nothing, so a run of the suite crash without any state fails.

tests/budgets.txt holds a budget in seconds for each suite, the sum of its tests' times on 2 cores. A suite that takes
more than twice as long is named; the run does not fail, because machines differ.
"""
import collections
import json
import os
import pathlib
import re
import subprocess
import sys
import xml.etree.ElementTree as ElementTree

HERE = pathlib.Path(__file__).resolve().parent
UNSTABLE = {"redis", "postgres", "etcd", "raft", "python"}
SLOWEST = 20
OUTPUT_BYTES = "10000000"  # of a test; ctest cuts the end off, where crash tests tell their states
STATES = re.compile(r"distinct crash states: ([0-9,]+)")
NO_SUITES = {"quick", "memory"}  # labels that are no suite


def suites_of(build, arguments):
    """The suite of each test that these arguments of ctest choose."""
    listed = subprocess.run(["ctest", "--test-dir", build, "--show-only=json-v1", *arguments], check=True,
                            capture_output=True, text=True).stdout
    suites = {}
    for test in json.loads(listed)["tests"]:
        labels = next((each["value"] for each in test.get("properties", ()) if each["name"] == "LABELS"), [])
        suites[test["name"]] = next((label for label in labels if label not in NO_SUITES), "none")
    return suites


def run(build, arguments, log, report):
    """ctest's status. What it prints goes to the log and, but for lines about beginnings, to the standard output."""
    command = ["ctest", "--test-dir", build, "--output-on-failure", "--no-tests=error", "--output-junit", report,
               "--test-output-size-passed", OUTPUT_BYTES, "--test-output-size-failed", OUTPUT_BYTES, *arguments]
    with open(log, "w", encoding="utf-8") as kept:
        running = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                   errors="replace")
        for line in running.stdout:
            kept.write(line)
            if not re.match(r" +Start +\d+: ", line):
                print(line, end="", flush=True)
        return running.wait()


def results_of(report):
    """(name, seconds, passed or skipped, output) of each test that was run."""
    for case in ElementTree.parse(report).getroot().iter("testcase"):
        output = case.findtext("system-out") or ""
        yield case.get("name"), float(case.get("time", 0)), case.get("status") != "fail", output


def run_again(build, failed, outputs):
    """The tests of `failed` that fail once more by themselves."""
    kept = build / "unstable"
    kept.mkdir(exist_ok=True)
    still = []
    for name in failed:
        (kept / f"{name}.first.log").write_text(outputs[name], encoding="utf-8")
        print(f"\n{name} failed; once more, by itself:", flush=True)
        status = run(build, ["-R", f"^{re.escape(name)}$"], kept / f"{name}.second.log", kept / "junit.xml")
        if status != 0:
            still.append(name)
        else:
            print(f"unstable: {name}; both outputs are in {kept}")
    return still


def budgets():
    """The budget of each suite in seconds."""
    lines = (line.split("#")[0].split() for line in (HERE / "budgets.txt").read_text(encoding="utf-8").splitlines())
    return {words[0]: float(words[1]) for words in lines if words}


def tell_times(times, suites, is_measured):
    print(f"\nThe {SLOWEST} slowest tests:")
    for name, seconds in sorted(times.items(), key=lambda each: -each[1])[:SLOWEST]:
        print(f"{seconds:8.1f} s  {name}")
    sums = collections.Counter()
    for name, seconds in times.items():
        sums[suites.get(name, "none")] += seconds
    known = budgets() if is_measured else {}
    print("\nSuites, in seconds, and their budgets:")
    for suite, seconds in sums.most_common():
        budget = known.get(suite)
        late = "" if budget is None or seconds <= 2 * budget else "  TWICE OVER ITS BUDGET"
        shown = "no budget" if budget is None else f"{budget:.0f}"
        print(f"{seconds:8.1f}  {suite} ({shown}){late}")


def main():
    build, arguments = pathlib.Path(sys.argv[1]).resolve(), sys.argv[2:]
    report = build / "tests.xml"
    report.unlink(missing_ok=True)
    if not any(word in ("-j", "--parallel") for word in arguments):
        arguments += ["--parallel", str(len(os.sched_getaffinity(0)))]
    status = run(build, arguments, build / "ctest.log", report)
    if not report.is_file():
        return status or 1
    suites = suites_of(build, arguments)
    times, outputs, failed = {}, {}, []
    for name, seconds, passed, output in results_of(report):
        times[name], outputs[name] = seconds, output
        if not passed:
            failed.append(name)
    tell_times(times, suites, is_measured=build.name == "release")  # sanitizers take their time
    states = sum(int(found.replace(",", "")) for output in outputs.values() for found in STATES.findall(output))
    if states > 0:
        print(f"\ndistinct crash states: {states:,}")
    elif "crash" in {suites.get(name) for name in times}:
        print("\nFAILED: no crash test reported any crash state")
        return 1
    if status == 0 or not failed or any(suites.get(name) not in UNSTABLE for name in failed):
        return status
    return 1 if run_again(build, failed, outputs) else 0


if __name__ == "__main__":
    sys.exit(main())
