#!/usr/bin/env python3
"""memlith's own tests in a virtual machine with another kernel, or another processor.

The root file system is Debian's: packages that are unpacked and never configured (mmdebstrap). The clone is in the
machine under its own path, read-only; what tests write lies on ext4. Nothing is installed on the host but QEMU,
mmdebstrap and, for arm64, Debian's cross compiler.
"""
from __future__ import annotations

import argparse
import dataclasses
import json
import lzma
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/power/rig"))

from machine import cpio_entry, module_needs  # noqa: E402 (the path comes first)

MIRROR = "http://deb.debian.org/debian"
KERNELS = {"5.10": "bullseye", "6.1": "bookworm", "6.12": "trixie"}
BUILT_FOR = "bookworm"  # the suite of the libraries
PACKAGES = ["bash", "coreutils", "e2fsprogs", "findutils", "grep", "sed", "util-linux", "procps", "libc6-dev",
            "libstdc++-12-dev", "linux-libc-dev", "libblkid-dev", "libcli11-dev", "libfmt-dev", "libgtest-dev",
            "libncurses-dev", "libsqlite3-dev", "liburing-dev", "libxxhash-dev", "libzstd-dev", "nlohmann-json3-dev"]
MODULES = ["virtio_pci", "virtio_mmio", "virtio_blk", "crc32c_generic", "libcrc32c", "ext4", "9pnet_virtio", "9p",
           "loop"]
TESTS = ["unit_base", "unit_device", "unit_log", "unit_store", "unit_region", "unit_heap", "unit_kv", "unit_applog",
         "capi_tests", "fault_tests", "format_tests", "reader_tests", "isolation_tests", "model_tests", "crash_tests",
         "archive_tests", "sqlite_tests", "sqlite_shared_tests"]
SKIPPED = re.compile(rb"\[  SKIPPED \] (\S+)")

INIT = """#!/bin/busybox sh
/bin/busybox mkdir -p /proc /sys /dev /root
/bin/busybox --install -s /bin
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
for module in $(cat /modules); do insmod "/lib/$module.ko"; done
while ! [ -b /dev/vda ]; do sleep 0.1; done
mount -t ext4 /dev/vda /root
mount -t 9p -o trans=virtio,version=9p2000.L,cache=loose,ro,msize=262144 clone "/root@clone@"
mount -t 9p -o trans=virtio,version=9p2000.L,msize=262144 share "/root/share"
mount --move /proc /root/proc
mount --move /sys /root/sys
mount --move /dev /root/dev
mkdir -p /root/dev/shm /root/dev/pts
mount -t tmpfs shm /root/dev/shm
mount -t devpts pts /root/dev/pts
ifconfig lo 127.0.0.1 up
hostname guest
chroot /root /bin/bash /share/run
sync
poweroff -f
"""

RUN = """export HOME=/tmp PATH=/usr/sbin:/usr/bin:/sbin:/bin TMPDIR=/tmp LANG=C.UTF-8 MEMLITH_TEST_DIR=/tmp/data
mkdir -p /tmp/data
uname -rm >/share/uname
cd /tmp
while read -r name command; do
  echo "$name" >/share/now
  timeout --kill-after 10 @seconds@ bash -c "$command" >/share/$name.log 2>&1 </dev/null
  echo "$name $?" >>/share/results
  find /tmp /dev/shm -mindepth 1 -delete 2>/dev/null
  mkdir -p /tmp/data
done </share/jobs
dmesg | grep -E "Oops|BUG:|WARNING:|Call trace" >/share/kernel-says
"""


class Unable(Exception):
    """What is missing, and what to do."""


@dataclasses.dataclass(frozen=True)
class Processor:
    name: str  # Debian's
    qemu: str
    machine: list[str]
    console: str
    kernel: str


PROCESSORS = {
    "arm64": Processor("arm64", "qemu-system-aarch64", ["-machine", "virt", "-cpu", "max,pauth-impdef=on"], "ttyAMA0",
                       "linux-image-arm64"),
    "amd64": Processor("amd64", "qemu-system-x86_64", ["-machine", "q35", "-cpu", "max"], "ttyS0", "linux-image-amd64"),
}


def extract(folder: pathlib.Path, suite: str, arch: str, packages: list[str]) -> pathlib.Path:
    """Unpacks packages and what they need; once."""
    done = folder / "packages"
    wanted = "\n".join([suite, arch, *packages])
    if done.exists() and done.read_text(encoding="utf-8") == wanted:
        return folder
    shutil.rmtree(folder, ignore_errors=True)
    folder.parent.mkdir(parents=True, exist_ok=True)
    print(f"unpacking {len(packages)} packages of {suite} for {arch}, and what they need", flush=True)
    made = subprocess.run(["mmdebstrap", "--quiet", "--variant=extract", f"--architectures={arch}",
                           f"--include={','.join(packages)}", suite, str(folder), MIRROR],
                          capture_output=True, text=True, check=False)
    if made.returncode != 0:
        raise Unable(f"mmdebstrap failed: {made.stderr[-2000:]}")
    done.write_text(wanted, encoding="utf-8")
    return folder


def root_of(work: pathlib.Path, arch: str) -> pathlib.Path:
    root = extract(work / f"root-{arch}", BUILT_FOR, arch, [*PACKAGES, "busybox-static"])
    etc = root / "etc"
    (etc / "passwd").write_text("root:x:0:0:root:/root:/bin/bash\nnobody:x:65534:65534::/:/bin/false\n",
                                encoding="utf-8")
    (etc / "group").write_text("root:x:0:\nnogroup:x:65534:\n", encoding="utf-8")
    (etc / "hosts").write_text("127.0.0.1 localhost guest\n", encoding="utf-8")
    (root / "share").mkdir(exist_ok=True)
    (root / "tmp").mkdir(exist_ok=True)
    if not (root / "bin/sh").exists():
        (root / "bin/sh").symlink_to("bash")
    return root


def modules_of(kernel: pathlib.Path) -> dict[str, bytes]:
    found = {}
    for path in kernel.glob("**/lib/modules/**/*.ko*"):
        name = path.name.split(".ko")[0].replace("-", "_")
        found[name] = path
    order: dict[str, bytes] = {}

    def add(name: str) -> None:
        if name in order or name not in found:
            return
        content = found[name].read_bytes()
        if found[name].suffix == ".xz":
            content = lzma.decompress(content)
        for need in module_needs(content):
            add(need)
        order[name] = content

    for name in MODULES:
        add(name)
    return order


def make_initramfs(target: pathlib.Path, busybox: pathlib.Path, modules: dict[str, bytes]) -> None:
    files = {"init": (0o755, INIT.replace("@clone@", str(ROOT)).encode()),
             "bin/busybox": (0o755, busybox.read_bytes()),
             "modules": (0o644, "\n".join(modules).encode())}
    for name, content in modules.items():
        files[f"lib/{name}.ko"] = (0o644, content)
    archive = b"".join(cpio_entry(name, 0o040755, b"", number) for number, name in enumerate(["bin", "lib"], 1))
    archive += b"".join(cpio_entry(name, 0o100000 | mode, content, number)
                        for number, (name, (mode, content)) in enumerate(files.items(), 3))
    target.write_bytes(archive + cpio_entry("TRAILER!!!", 0, b"", 0))


def cross_build(root: pathlib.Path, build: pathlib.Path, targets: list[str]) -> None:
    launcher = "env;CCACHE_SLOPPINESS=pch_defines,time_macros;ccache"
    subprocess.run(["cmake", "-G", "Ninja", "-S", str(ROOT), "-B", str(build), "-DMEMLITH_WERROR=ON",
                    f"-DCMAKE_TOOLCHAIN_FILE={ROOT}/cmake/arm64.cmake", f"-DMEMLITH_SYSROOT={root}",
                    "-DCMAKE_BUILD_TYPE=RelWithDebInfo", "-DMEMLITH_PASS=OFF",
                    "-DCMAKE_CXX_FLAGS_RELWITHDEBINFO=-O2 -g1 -DNDEBUG",
                    "-DCMAKE_C_FLAGS_RELWITHDEBINFO=-O2 -g1 -DNDEBUG",
                    f"-DCMAKE_CXX_COMPILER_LAUNCHER={launcher}", f"-DCMAKE_C_COMPILER_LAUNCHER={launcher}"],
                   stdout=subprocess.DEVNULL, check=True)
    subprocess.run(["ninja", "-C", str(build), *targets], check=True)


def make_disk(root: pathlib.Path, disk: pathlib.Path) -> None:
    mount_point = root / str(ROOT).lstrip("/")
    mount_point.mkdir(parents=True, exist_ok=True)
    disk.unlink(missing_ok=True)
    subprocess.run(["mkfs.ext4", "-q", "-d", str(root), str(disk), "8G"], check=True)


def run_machine(settings: argparse.Namespace, processor: Processor, folder: pathlib.Path, kernel: pathlib.Path) -> None:
    share = folder / "share"
    vmlinuz = next(kernel.glob("boot/vmlinuz-*"))
    share_options = "security_model=none,multidevs=remap"
    command = [
        processor.qemu, *processor.machine, "-accel", settings.accel, "-smp", "2", "-m", str(settings.memory),
        "-nodefaults", "-no-user-config", "-display", "none", "-no-reboot", "-kernel", str(vmlinuz),
        "-initrd", str(folder / "initramfs"), "-append", f"console={processor.console} quiet panic=-1 loglevel=4",
        "-serial", f"file:{folder / 'console.log'}",
        "-drive", f"file={folder / 'disk'},format=raw,if=none,id=disk,cache=unsafe",
        "-device", "virtio-blk-pci,drive=disk",
        "-virtfs", f"local,path={ROOT},mount_tag=clone,readonly=on,{share_options}",
        "-virtfs", f"local,path={share},mount_tag=share,{share_options}",
    ]
    (folder / "command").write_text(shlex.join(command) + "\n", encoding="utf-8")
    with subprocess.Popen(command) as machine:
        told = ""
        began = time.monotonic()
        while machine.poll() is None:
            time.sleep(0.5)
            results = share / "results"
            now = results.read_text(encoding="utf-8") if results.exists() else ""
            for line in now[len(told):].splitlines():
                name, status = line.split(" ")
                print(f"{time.monotonic() - began:7.0f} s  {name}: {told_of(share, name, int(status))}", flush=True)
            told = now


def told_of(share: pathlib.Path, name: str, status: int) -> str:
    """In words, what became of a program of tests."""
    report = share / f"{name}.json"
    if not report.exists():
        return f"ended with status {status}; see {share / (name + '.log')}"
    counts = json.loads(report.read_text(encoding="utf-8"))
    skipped = len(set(SKIPPED.findall((share / f"{name}.log").read_bytes())))
    failed = counts["failures"] + counts["errors"]
    return f"{counts['tests']} tests, {failed} failed, {skipped} skipped" + ("" if status in (0, 1) else
                                                                            f", status {status}")


def summary(share: pathlib.Path, names: list[str]) -> int:
    results_file = share / "results"
    lines = results_file.read_text(encoding="utf-8").splitlines() if results_file.exists() else []
    results = dict(line.split(" ") for line in lines)
    bad = [name for name in names if results.get(name) != "0"]
    for name in names:
        if name not in results:
            print(f"{name} was not run: the machine ended before")
    uname = (share / "uname").read_text(encoding="utf-8").strip() if (share / "uname").exists() else "no machine"
    says = (share / "kernel-says").read_text(encoding="utf-8") if (share / "kernel-says").exists() else ""
    if says:
        print(f"the kernel says:\n{says}")
    print(f"{uname}: {len(names) - len(bad)} of {len(names)} programs passed"
          + (f"; failed: {' '.join(bad)}" if bad else "") + f"; their output is in {share}")
    return 1 if bad or says else 0


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], prog="./dev soak guests")
    parser.add_argument("--arch", choices=sorted(PROCESSORS), default="amd64", help="the processor (amd64)")
    parser.add_argument("--kernel", choices=sorted(KERNELS), default="6.1", help="Debian's kernel (6.1)")
    parser.add_argument("--tests", nargs="+", default=TESTS, metavar="PROGRAM", help="of the build's bin folder")
    parser.add_argument("--filter", default="*", help="of GoogleTest")
    parser.add_argument("--seconds", type=int, default=7200, help="that each program may take (7200)")
    parser.add_argument("--accel", default="tcg,thread=multi", help="QEMU's; kvm where that works (tcg,thread=multi)")
    parser.add_argument("--memory", type=int, default=4096, help="of the machine, MiB (4096)")
    parser.add_argument("--build", type=pathlib.Path, help="a build for that processor (arm64: it is made)")
    parser.add_argument("--work", type=pathlib.Path, default=ROOT / "build/guests")
    return parser.parse_args()


def main() -> int:
    settings = options()
    processor = PROCESSORS[settings.arch]
    for program in ["mmdebstrap", processor.qemu, "mkfs.ext4"]:
        if shutil.which(program) is None:
            raise Unable(f"{program} is missing")
    root = root_of(settings.work, settings.arch)
    build = (settings.build or ROOT / "build" / ("arm64" if settings.arch == "arm64" else "release")).resolve()
    if settings.arch == "arm64" and settings.build is None:
        cross_build(root, build, ["memlith", *settings.tests])
    suite = KERNELS[settings.kernel]
    kernel = extract(settings.work / f"kernel-{settings.kernel}-{settings.arch}", suite, settings.arch,
                     [processor.kernel])
    folder = settings.work / f"{settings.arch}-{settings.kernel}"
    shutil.rmtree(folder, ignore_errors=True)
    share = folder / "share"
    share.mkdir(parents=True)
    make_initramfs(folder / "initramfs", root / "bin/busybox", modules_of(kernel))
    make_disk(root, folder / "disk")
    (share / "run").write_text(RUN.replace("@seconds@", str(settings.seconds)), encoding="utf-8")
    jobs = [f"{name} {build / 'bin' / name} --gtest_filter={shlex.quote(settings.filter)} "
            f"--gtest_output=json:/share/{name}.json" for name in settings.tests]
    (share / "jobs").write_text("\n".join(jobs) + "\n", encoding="utf-8")
    run_machine(settings, processor, folder, kernel)
    return summary(share, settings.tests)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Unable as error:
        sys.exit(f"{error}")
