#!/usr/bin/env python3
"""memlith's own tests under another kernel, on another processor, on other file systems, and with fewer rights.

A virtual machine has Debian's packages as its root file system, unpacked and never configured (mmdebstrap). The clone
is in the machine under its own path, read-only; what tests write lies on a disk of its own. With --kernel host there is
no machine: the same jobs run here, in a mount namespace. Nothing of it is installed.
"""
from __future__ import annotations

import argparse
import dataclasses
import lzma
import os
import pathlib
import shlex
import shutil
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/power/rig"))

import places  # noqa: E402 (the path comes first)
from machine import cpio_entry, module_needs  # noqa: E402

MIRROR = "http://deb.debian.org/debian"
# Debian's suite, and the package's name behind linux-image-ARCHITECTURE.
KERNELS = {"5.10": ("bullseye", ""), "6.1": ("bookworm", ""), "6.12": ("trixie", ""), "6.12-16k": ("trixie", "-16k")}
# Made here of Debian's source: with few addresses for programs, and with pages of 64 KiB.
OWN_KERNELS = {"6.12-39bit": ["CONFIG_ARM64_4K_PAGES=y", "CONFIG_ARM64_VA_BITS_39=y"],
               "6.12-64k": ["CONFIG_ARM64_64K_PAGES=y", "CONFIG_ARM64_VA_BITS_48=y"]}
SOURCE_PACKAGE = ("trixie", "linux-source-6.12")
BUILT_FOR = "bookworm"  # the suite of the libraries
PACKAGES = ["bash", "btrfs-progs", "bubblewrap", "coreutils", "e2fsprogs", "findutils", "g++", "grep", "mount", "sed",
            "util-linux", "procps", "libc-bin", "libc6-dev", "libstdc++-12-dev", "linux-libc-dev", "libblkid-dev",
            "libboost-dev", "libcli11-dev", "libfmt-dev", "libgtest-dev", "libncurses-dev", "libsqlite3-dev",
            "liburing-dev", "libxxhash-dev", "libzstd-dev", "nlohmann-json3-dev", "python3", "sqlite3", "xfsprogs"]
MODULES = ["virtio_pci", "virtio_mmio", "virtio_blk", "crc32c_generic", "libcrc32c", "xxhash_generic",
           "blake2b_generic", "sha256_generic", "ext4", "xfs", "btrfs", "overlay", "9pnet_virtio", "9p", "loop"]
PROFILE_PACKAGE = "golang-github-docker-docker-dev"
PROFILE = "usr/share/gocode/src/github.com/docker/docker/profiles/seccomp/default.json"

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
chmod 1777 /root/dev/shm
mount -t devpts pts /root/dev/pts
ifconfig lo 127.0.0.1 up
hostname guest
exec switch_root /root /bin/bash -c \
  'bash "@run@" /share /var/images "@seconds@" guest; /bin/busybox sync; /bin/busybox poweroff -f'
"""


class Unable(Exception):
    """The missing packages, and how to get them."""


@dataclasses.dataclass(frozen=True)
class Processor:
    name: str  # Debian's
    qemu: str
    machine: list[str]
    console: str
    accel: str


PROCESSORS = {
    "arm64": Processor("arm64", "qemu-system-aarch64", ["-machine", "virt", "-cpu", "max,pauth-impdef=on"], "ttyAMA0",
                       "tcg,thread=multi"),
    # With a thread for each processor, QEMU 7.2 sometimes runs into an instruction that Linux 6.12 is patching.
    "amd64": Processor("amd64", "qemu-system-x86_64", ["-machine", "q35", "-cpu", "max"], "ttyS0",
                       "tcg,thread=single"),
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


def download(folder: pathlib.Path, package: str) -> pathlib.Path:
    """Unpacks one package of this system's sources, and nothing that it needs; once."""
    done = folder / "packages"
    if done.exists():
        return folder
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    command = ["apt-get", "-qq", "-o", "APT::Sandbox::User=root", "download", package]
    if subprocess.run(command, cwd=folder, check=False).returncode != 0:
        raise Unable(f"apt-get cannot download {package}")
    archive = next(folder.glob("*.deb"))
    subprocess.run(["dpkg-deb", "--extract", str(archive), str(folder)], check=True)
    archive.unlink()
    done.write_text(package, encoding="utf-8")
    return folder


def root_of(work: pathlib.Path, arch: str) -> pathlib.Path:
    root = extract(work / f"root-{arch}", BUILT_FOR, arch, [*PACKAGES, "busybox-static"])
    etc = root / "etc"
    users = "root:x:0:0:root:/root:/bin/bash\nnobody:x:65534:65534::/:/bin/false\n"
    (etc / "passwd").write_text(users, encoding="utf-8")
    (etc / "group").write_text("root:x:0:\nnogroup:x:65534:\n", encoding="utf-8")
    (etc / "hosts").write_text("127.0.0.1 localhost guest\n", encoding="utf-8")
    for folder in ("share", "tmp", "var/images"):
        (root / folder).mkdir(parents=True, exist_ok=True)
    # Links that the packages' scripts and alternatives would have made.
    for name, of in (("bin/sh", "bash"), ("usr/bin/cc", "gcc"), ("usr/bin/c++", "g++")):
        if not (root / name).is_symlink():
            (root / name).symlink_to(of)
    return root


def make_kernel(work: pathlib.Path, name: str) -> pathlib.Path:
    """A folder with boot/vmlinuz-... of one of OWN_KERNELS, without modules."""
    done = work / f"kernel-{name}-arm64"
    if next(done.glob("boot/vmlinuz-*"), None) is not None:
        return done
    for program in ("flex", "bison", "bc"):
        if shutil.which(program) is None:
            raise Unable(f"{program} is missing; `apt install flex bison bc`")
    source_package = extract(work / "kernel-source", SOURCE_PACKAGE[0], "amd64", [SOURCE_PACKAGE[1]])
    source = work / "linux"
    shutil.rmtree(source, ignore_errors=True)
    source.mkdir(parents=True)
    print(f"unpacking and building the kernel {name}", flush=True)
    archive = source_package / "usr/src" / f"{SOURCE_PACKAGE[1]}.tar.xz"
    subprocess.run(["tar", "-xf", str(archive), "-C", str(source), "--strip-components=1"], check=True)
    make = ["make", "-s", "-C", str(source), "ARCH=arm64", "CROSS_COMPILE=aarch64-linux-gnu-"]
    wanted = (places.FOLDER / "kernel.config").read_text(encoding="utf-8").splitlines() + OWN_KERNELS[name]
    fragment = source / "wanted.config"
    fragment.write_text("\n".join(wanted) + "\n", encoding="utf-8")
    subprocess.run([*make, "allnoconfig", f"KCONFIG_ALLCONFIG={fragment}"], check=True, stdout=subprocess.DEVNULL)
    made = (source / ".config").read_text(encoding="utf-8").splitlines()
    lost = [line for line in wanted if line.endswith("=y") and line not in made]
    if lost:
        raise Unable(f"this kernel does not take {' '.join(lost)}")
    subprocess.run([*make, f"-j{os.cpu_count()}", "Image"], check=True)
    (done / "boot").mkdir(parents=True)
    shutil.copy(source / "arch/arm64/boot/Image", done / f"boot/vmlinuz-{name}")
    shutil.rmtree(source)
    return done


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


def make_initramfs(target: pathlib.Path, busybox: pathlib.Path, modules: dict[str, bytes], seconds: int) -> None:
    init = INIT.replace("@clone@", str(ROOT)).replace("@run@", str(places.FOLDER / "run.sh"))
    files = {"init": (0o755, init.replace("@seconds@", str(seconds)).encode()),
             "bin/busybox": (0o755, busybox.read_bytes()),
             "modules": (0o644, "\n".join(modules).encode())}
    for name, content in modules.items():
        files[f"lib/{name}.ko"] = (0o644, content)
    archive = b"".join(cpio_entry(name, 0o040755, b"", number) for number, name in enumerate(["bin", "lib"], 1))
    archive += b"".join(cpio_entry(name, 0o100000 | mode, content, number)
                        for number, (name, (mode, content)) in enumerate(files.items(), 3))
    target.write_bytes(archive + cpio_entry("TRAILER!!!", 0, b"", 0))


def make_build(arch: str, root: pathlib.Path | None, build: pathlib.Path, targets: list[str]) -> None:
    """The build of the preset release for this machine's processor, else the same with Debian's cross compiler."""
    if arch == "amd64":
        subprocess.run(["cmake", "--preset", "release", "-S", str(ROOT)], stdout=subprocess.DEVNULL, check=True,
                       cwd=ROOT)
    else:
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
    subprocess.run(["mkfs.ext4", "-q", "-d", str(root), str(disk), "10G"], check=True)


def machine_command(settings: argparse.Namespace, processor: Processor, folder: pathlib.Path, kernel: pathlib.Path
                    ) -> list[str]:
    share_options = "security_model=none,multidevs=remap"
    return [
        processor.qemu, *processor.machine, "-accel", settings.accel or processor.accel,
        "-smp", str(settings.processors), "-m", str(settings.memory),
        "-nodefaults", "-no-user-config", "-display", "none", "-no-reboot",
        "-kernel", str(next(kernel.glob("boot/vmlinuz-*"))), "-initrd", str(folder / "initramfs"),
        "-append", f"console={processor.console} quiet panic=-1 loglevel=4",
        "-serial", f"file:{folder / 'console.log'}",
        "-drive", f"file={folder / 'disk'},format=raw,if=none,id=disk,cache=unsafe",
        "-device", "virtio-blk-pci,drive=disk",
        "-virtfs", f"local,path={ROOT},mount_tag=clone,readonly=on,{share_options}",
        "-virtfs", f"local,path={folder / 'share'},mount_tag=share,{share_options}",
    ]


def prepare_machine(settings: argparse.Namespace, root: pathlib.Path, folder: pathlib.Path) -> list[str]:
    processor = PROCESSORS[settings.arch]
    if settings.kernel in OWN_KERNELS:
        kernel = make_kernel(settings.work, settings.kernel)
    else:
        suite, flavour = KERNELS[settings.kernel]
        kernel = extract(settings.work / f"kernel-{settings.kernel}-{settings.arch}", suite, settings.arch,
                         [f"linux-image-{settings.arch}{flavour}"])
    make_initramfs(folder / "initramfs", root / "bin/busybox", modules_of(kernel), settings.seconds)
    make_disk(root, folder / "disk")
    return machine_command(settings, processor, folder, kernel)


def prepare_host(settings: argparse.Namespace, folder: pathlib.Path) -> list[str]:
    """The jobs' /tmp lies in the folder. The namespace ends with its mounts and loop devices."""
    if os.geteuid() != 0:
        raise Unable("mounting file systems takes root")
    for name in ("tmp", "images"):
        (folder / name).mkdir()
    script = ('mount --bind "$1/tmp" /tmp && exec bash "$2" "$1/share" "$1/images" "$3" host')
    return ["unshare", "--mount", "--propagation", "private", "bash", "-c", script, "bash", str(folder),
            str(places.FOLDER / "run.sh"), str(settings.seconds)]


def run(command: list[str], folder: pathlib.Path) -> None:
    """Runs the machine, and prints each job's outcome when it is there."""
    share = folder / "share"
    (folder / "command").write_text(shlex.join(command) + "\n", encoding="utf-8")
    told = ""
    began = time.monotonic()

    def tell() -> None:
        nonlocal told
        results = share / "results"
        now = results.read_text(encoding="utf-8") if results.exists() else ""
        for line in now[len(told):].splitlines():
            name, status, seconds = line.split(" ")
            print(f"{time.monotonic() - began:7.0f} s  {name}: {places.told_of(share, name, status)}, {seconds} s",
                  flush=True)
        told = now

    with subprocess.Popen(command) as machine:
        while machine.poll() is None:
            time.sleep(0.5)
            tell()
    tell()


def summary(share: pathlib.Path, jobs: list[places.Job]) -> int:
    def text_of(name: str) -> str:
        return (share / name).read_text(encoding="utf-8").strip() if (share / name).exists() else ""

    results = dict(line.split(" ")[:2] for line in text_of("results").splitlines())
    bad = [job.name for job in jobs if results.get(job.name) != "0"]
    for job in jobs:
        if job.name not in results:
            print(f"{job.name} was not run: the machine ended before")
    counts = [report for job in jobs if (report := places.report_of(share, job.name)) is not None]
    print(places.table(share, jobs, results))
    for reason, count in sorted(places.reasons(share, jobs).items(), key=lambda each: -each[1]):
        print(f"skipped {count:4}: {reason}")
    says = text_of("kernel-says")
    if says:
        print(f"the kernel says:\n{says}")
    print(f"{time.strftime('%Y-%m-%d')}, {text_of('uname') or 'no machine'}, pages of {text_of('page-bytes')} bytes: "
          f"{len(jobs) - len(bad)} of {len(jobs)} programs passed, {sum(each['tests'] for each in counts)} tests, "
          f"{sum(len(places.failures(each)) for each in counts)} failed"
          + (f"; not passed: {' '.join(bad)}" if bad else "") + f"; their output is in {share}")
    return 1 if bad or says else 0


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], prog="./dev soak guests")
    parser.add_argument("--arch", choices=sorted(PROCESSORS), default="amd64", help="the processor (amd64)")
    parser.add_argument("--kernel", choices=[*KERNELS, *OWN_KERNELS, "host"], default="6.1",
                        help="Debian's kernel (6.1); 16k and 64k, with larger pages, and 39bit, with few addresses, "
                        "are of arm64; host: no virtual machine")
    parser.add_argument("--places", action="store_true", help="every file system as root, and every user on ext4")
    parser.add_argument("--file-systems", nargs="+", choices=["here", *places.FILE_SYSTEMS], default=["here"])
    parser.add_argument("--users", nargs="+", choices=places.USERS, default=["root"])
    parser.add_argument("--tests", nargs="*", metavar="PROGRAM", help="of the build's bin folder (all; with --places, "
                        f"{' '.join(places.PLACE_TESTS)})")
    parser.add_argument("--filter", default="*", help="of GoogleTest")
    parser.add_argument("--seconds", type=int, default=7200, help="that each program may take (7200)")
    parser.add_argument("--accel", help="QEMU's; kvm where that works (tcg)")
    parser.add_argument("--memory", type=int, default=4096, help="of the machine, MiB (4096)")
    parser.add_argument("--processors", type=int, default=2, help="of the machine (2)")
    parser.add_argument("--build", type=pathlib.Path, help="a build for that processor; else one is made")
    parser.add_argument("--work", type=pathlib.Path, default=ROOT / "build/guests")
    settings = parser.parse_args()
    settings.work = settings.work.resolve()
    if settings.tests is None:
        settings.tests = places.PLACE_TESTS if settings.places else places.TESTS
    if settings.kernel in ("6.12-16k", *OWN_KERNELS) and settings.arch != "arm64":
        parser.error(f"the kernel {settings.kernel} is for --arch arm64")
    return settings


def jobs_of(settings: argparse.Namespace, build: pathlib.Path) -> list[places.Job]:
    def jobs(file_systems: list[str], users: list[str]) -> list[places.Job]:
        return places.jobs_in(file_systems, users, settings.tests, build, settings.filter)

    if not settings.places:
        return jobs(settings.file_systems, settings.users)
    return jobs(places.FILE_SYSTEMS, ["root"]) + jobs(["ext4"], places.USERS[1:])


def main() -> int:
    settings = options()
    needs = ["mmdebstrap", "bwrap", "mkfs.ext4", "mkfs.xfs", "mkfs.btrfs"]
    for program in needs if settings.kernel == "host" else [*needs, PROCESSORS[settings.arch].qemu]:
        if shutil.which(program) is None:
            raise Unable(f"{program} is missing; `./dev soak guests` installs what it needs")
    build = (settings.build or ROOT / "build" / ("arm64" if settings.arch == "arm64" else "release")).resolve()
    root = None
    if settings.kernel != "host":
        root = root_of(settings.work, settings.arch)
    if settings.build is None:
        make_build(settings.arch, root, build, places.targets_of(settings.tests))
    folder = settings.work / f"{settings.arch}-{settings.kernel}"
    shutil.rmtree(folder, ignore_errors=True)
    share = folder / "share"
    share.mkdir(parents=True)
    jobs = jobs_of(settings, build)
    users = sorted({job.user for job in jobs})
    profile = None
    if any(user.startswith("docker") for user in users):
        profile = download(settings.work / "docker-profile", PROFILE_PACKAGE) / PROFILE
    places.write_filters(share, settings.arch, users, profile)
    (share / "jobs").write_text("".join(job.line() + "\n" for job in jobs), encoding="utf-8")
    run(prepare_host(settings, folder) if root is None else prepare_machine(settings, root, folder), folder)
    return summary(share, jobs)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Unable as error:
        sys.exit(f"{error}")
