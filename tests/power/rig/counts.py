"""A commit's, and a durable put's, requests to an NVMe disk, of memlith and of other key-value stores: counted by the
machine's kernel. Many of them less few, so that what opening and closing take is not in it.
"""
from __future__ import annotations

from common import Settings, Unable
from vm_rig import CountRig

HEAD = ("writes", "of these forced", "flushes", "other commands", "KiB written", "system calls")
COMMITS = [100, 300]
# Few enough that no store compacts, or checkpoints, in between.
PUTS = [200, 1200]
NAMESPACE = "/dev/ng0n1"
DISK = "/dev/nvme0n1"
# Backend of memlith: the file system, or what stands for it, and the option that names the device.
BACKENDS = {
    "file": ("ext4", []),
    "file-uring": ("ext4", []),
    "raw": ("raw", ["--device", DISK]),
    "nvme": ("passthrough", ["--namespace", NAMESPACE]),
}
PEERS = ["leveldb", "rocksdb", "lmdb", "sqlite"]


def of_commits(settings: Settings, file_systems: list[str]) -> int:
    print_head("a commit on an NVMe disk")
    for fs in file_systems:
        where = {"raw": [DISK, "--device"], "passthrough": [NAMESPACE, "--device"]}.get(fs, ["/mnt"])
        print_row(fs, counted(settings, fs, ["power-workload", *where, "--report-fd", "2", "--puts"], COMMITS))
    return 0


def of_records(settings: Settings) -> int:
    if not settings.benchmark.exists():
        raise Unable(f"{settings.benchmark.name} is not built: `./dev soak power --count-records` builds it")
    print_head("a durable put, keys in random order")
    for side in ["memlith", "memlith-log", *PEERS]:
        for backend, (fs, device) in BACKENDS.items():
            if side in PEERS and backend != "file":
                continue
            program = [settings.benchmark.name, "dbbench", "--dir", "/tmp" if device else "/mnt", "--backends", backend,
                       *device, "--sides", side, "--workloads", "fillrandom", "--records", "4000", "--rounds"]
            name = side if side in PEERS else f"{side}, {backend}"
            print_row(name, counted(settings, fs, program, PUTS))
    return 0


def counted(settings: Settings, fs: str, program: list[str], commits: list[int]) -> list[float]:
    rig = CountRig(settings, fs)
    try:
        few, many = rig.count(program, commits)
    finally:
        rig.close()
    each = [(b - a) / (commits[1] - commits[0]) for a, b in zip(few[1:], many[1:], strict=True)]
    each[4] /= 1024
    return each


def print_head(what: str) -> None:
    print(f"| {what} | " + " | ".join(HEAD) + " |\n|---|" + "---:|" * len(HEAD), flush=True)


def print_row(name: str, each: list[float]) -> None:
    print(f"| {name} | " + " | ".join(f"{number:.2f}" for number in each) + " |", flush=True)
