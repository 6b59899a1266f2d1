"""The runs in the machines, their users and file systems; and the tables of the results."""
from __future__ import annotations

import dataclasses
import json
import pathlib
import re
import shlex
import subprocess

FOLDER = pathlib.Path(__file__).resolve().parent
FILE_SYSTEMS = ["ext4", "xfs", "btrfs", "overlay", "tmpfs"]
# The users: root; an ordinary one; the same as root of a user namespace; containers with Docker's default profile, of
# version 20.10 and, without io_uring, of 25 and later; root without userfaultfd.
USERS = ["root", "user", "namespace", "docker", "docker-25", "refused"]
IO_URING = ["io_uring_setup", "io_uring_enter", "io_uring_register"]

# Name: the targets of the build, and the command; {bin}, {lib} and {root} are folders.
OTHERS = {
    "golden.stores": (["golden_store", "memlith_cli", "memlith_sqlite"],
                      "python3 -B {root}/tests/golden/golden_test.py {bin}/golden_store {bin}/memlith "
                      "{lib}/memlith_sqlite.so"),
    "cli.info": (["memlith_cli", "hello_c", "hello_cpp"],
                 "python3 -B {root}/tests/cli/info_test.py {bin}/memlith {bin}/hello_c"),
    "cli.kv": (["memlith_cli"], "python3 -B {root}/tests/cli/kv_test.py {bin}/memlith"),
    "cli.copy": (["memlith_cli"], "python3 -B {root}/tests/cli/copy_test.py {bin}/memlith"),
    "cli.archive": (["memlith_cli"], "python3 -B {root}/tests/cli/archive_test.py {bin}/memlith"),
    "cli.raw_device": (["memlith_cli"], "python3 -B {root}/tests/cli/raw_device_test.py {bin}/memlith"),
    "cli.words": (["memlith_cli", "hello_c"], "python3 -B {root}/tests/cli/words_test.py {bin}/memlith {bin}/hello_c"),
    "cli.bank": (["bank_example"], "python3 -B {root}/tests/cli/bank_test.py {bin}/bank"),
    "cli.counter": (["counter_example"], "python3 -B {root}/tests/cli/counter_test.py {bin}/counter"),
    "run.behaviour": (["memlith_cli", "memlith_run"], "python3 -B {root}/tests/run/run_test.py {bin}/memlith"),
    "run.calls": (["memlith_cli", "memlith_run", "run_calls"],
                  "python3 -B {root}/tests/run/calls_test.py {bin}/memlith {bin}/run-calls"),
    "run.fsx": (["memlith_cli", "memlith_run", "run_fsx"],
                "python3 -B {root}/tests/run/fsx_test.py {bin}/memlith {bin}/run-fsx"),
    "containers.boost": (["containers_boost"],
                         "python3 -B {root}/tests/containers/run.py boost {bin}/containers_boost"),
    "containers.interprocess": (["containers_interprocess"],
                                "python3 -B {root}/tests/containers/run.py interprocess {bin}/containers_interprocess"),
    "lab.run": (["memlith_crashlab"], "{bin}/memlith-crashlab run --states {states}"),
    "lab.schedules": (["memlith_crashlab"], "{bin}/memlith-crashlab schedule run --in-flight 1 --preemptions 1"),
}
SLOW_STATES = 20000  # in an emulated machine; 500,000 elsewhere
# The suite, but benchmarks: programs of GoogleTest, and others.
TESTS = ["unit_base", "unit_device", "unit_log", "unit_store", "unit_region", "unit_heap", "unit_kv", "unit_applog",
         "capi_tests", "fault_tests", "format_tests", "reader_tests", "isolation_tests", "model_tests", "crash_tests",
         "archive_tests", "shared_tests", "sqlite_tests", "sqlite_shared_tests", *OTHERS]
# Tests whose subject differs on another kernel, file system, or with fewer rights.
PLACE_TESTS = ["unit_device", "unit_region"]
SKIPPED = re.compile(rb"\[  SKIPPED \] (\S+)")
SKIPPED_BECAUSE = re.compile(r"Skipped\n(.*)\n")


@dataclasses.dataclass(frozen=True)
class Job:
    name: str
    file_system: str  # one of FILE_SYSTEMS, or "here": of the machine itself
    user: str
    command: str
    program: str

    def line(self) -> str:
        return "\t".join([self.name, self.file_system, self.user, self.command])


def targets_of(tests: list[str]) -> list[str]:
    wanted = ["memlith_cli", "memlith_run", "hello_c"]
    for test in tests:
        wanted += OTHERS[test][0] if test in OTHERS else [test]
    return sorted(set(wanted))


def command_of(test: str, build: pathlib.Path, filters: str) -> str:
    if test in OTHERS:
        return OTHERS[test][1].format(root=shlex.quote(str(FOLDER.parents[1])), bin=shlex.quote(str(build / "bin")),
                                      lib=shlex.quote(str(build / "lib")), states=SLOW_STATES)
    return f"{shlex.quote(str(build / 'bin' / test))} --gtest_filter={shlex.quote(filters)}"


def jobs_in(file_systems: list[str], users: list[str], tests: list[str], build: pathlib.Path, filters: str
            ) -> list[Job]:
    """Each program in each place; a place is tried first with what facts.sh does."""
    facts = f"bash {shlex.quote(str(FOLDER / 'facts.sh'))} {shlex.quote(str(build / 'bin'))}"
    jobs = []
    for file_system in file_systems:
        for user in users:
            place = f"{file_system}.{user}"
            jobs.append(Job(f"facts.{place}", file_system, user, facts, "facts"))
            jobs += [Job(f"{test}.{place}", file_system, user, command_of(test, build, filters), test)
                     for test in tests]
    return jobs


def write_filters(share: pathlib.Path, arch: str, users: list[str], profile: pathlib.Path | None) -> None:
    """The seccomp filters of the users who have one."""
    def write(user: str, source: str, refused: list[str]) -> None:
        subprocess.run(["/usr/bin/python3", "-B", str(FOLDER / "docker_filter.py"), source, arch,
                        str(share / f"{user}.bpf"), *refused], check=True)

    if "docker" in users:
        write("docker", str(profile), [])
    if "docker-25" in users:
        write("docker-25", str(profile), IO_URING)
    if "refused" in users:
        write("refused", "-", ["userfaultfd", *IO_URING])


def report_of(share: pathlib.Path, name: str) -> dict | None:
    path = share / f"{name}.json"
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, json.JSONDecodeError):
        return None


def log_of(share: pathlib.Path, name: str) -> bytes:
    path = share / f"{name}.log"
    return path.read_bytes() if path.exists() else b""


def failures(report: dict) -> list[str]:
    return [f"{suite['name']}.{test['name']}" for suite in report["testsuites"] for test in suite["testsuite"]
            if "failures" in test]


def told_of(share: pathlib.Path, name: str, status: str) -> str:
    """In words, what became of a job."""
    if status in ("124", "137"):  # timeout(1)
        return f"ended after the time that it may take (--seconds); see {share / (name + '.log')}"
    report = report_of(share, name)
    if report is None:
        return "ok" if status == "0" else f"ended with status {status}; see {share / (name + '.log')}"
    skipped = len(set(SKIPPED.findall(log_of(share, name))))
    failed = failures(report)
    return (f"{report['tests']} tests, {len(failed)} failed, {skipped} skipped"
            + ("" if status in ("0", "1") else f", status {status}") + (f": {' '.join(failed)}" if failed else ""))


def reasons(share: pathlib.Path, jobs: list[Job]) -> dict[str, int]:
    """Why tests were skipped, and how many."""
    counted: dict[str, int] = {}
    for job in jobs:
        for reason in SKIPPED_BECAUSE.findall(log_of(share, job.name).decode("utf-8", "replace")):
            counted[reason] = counted.get(reason, 0) + 1
    return counted


def facts_of(share: pathlib.Path, job: Job) -> dict[str, str]:
    lines = log_of(share, job.name).decode("utf-8", "replace").splitlines()
    return dict(line.split("\t", 1) for line in lines if line.count("\t") == 1)


def table(share: pathlib.Path, jobs: list[Job], results: dict[str, str]) -> str:
    """The places, a line each."""
    lines = []
    for job in jobs:
        if job.program != "facts":
            continue
        facts = facts_of(share, job)
        place = (job.file_system, job.user)
        tests = [other for other in jobs if (other.file_system, other.user) == place and other.program != "facts"]
        counts = [report_of(share, test.name) for test in tests]
        passed = sum(report["tests"] - len(failures(report)) for report in counts if report)
        bad = [test.program for test in tests if results.get(test.name) != "0"]
        says = facts.get("refused") or f"scan: {facts.get('scan', '?')}; {facts.get('log I/O', '?')}"
        lines.append(f"{job.file_system:8} {job.user:10} {'ok' if results.get(job.name) == '0' else 'FAILS':5} "
                     f"{passed} tests passed{', not ' + ' '.join(bad) if bad else ''}; {says}"
                     f"{'; ' + facts['medium'] if facts.get('medium') else ''}")
    return "\n".join(lines)
