"""The virtual machines of the rigs: Debian's kernel, and an initramfs with busybox, the modules and the workload.

Nothing of it is installed: the kernel's package is downloaded with apt-get and unpacked below the work folder, once.
"""
from __future__ import annotations

import dataclasses
import json
import pathlib
import re
import shlex
import shutil
import socket
import subprocess
import tarfile
import time
from typing import TextIO

from common import PATIENCE_S, RigError, Settings, Unable, need_programs

META_PACKAGE = "linux-image-amd64"
MODULE_FOLDERS = re.compile(r"/kernel/(fs/(ext4|jbd2|mbcache|xfs|btrfs|configfs)|fs/mbcache|block|lib|crypto|"
                            r"arch/x86/crypto|"
                            r"drivers/(acpi|virtio|block|char|nvdimm|nvme|md|dax))\b")
MEMORY_MIB = 256


@dataclasses.dataclass(frozen=True)
class Guest:
    """The kind of machines of a rig."""
    name: str
    modules_early: list[str]
    modules_late: list[str]  # loaded when a session begins
    prepare: str  # what init does once the early modules are loaded
    attach: str  # and once the late ones are
    mount: str  # of the file system $fs; the workload then works in $where
    workload: str  # options
    machine: str = "q35,accel=tcg"
    memory: str = str(MEMORY_MIB)
    benchmark: bool = False  # is in it, too


# The memory of the booted machine must know nothing of any disk.
DISK_GUEST = Guest("vm", ["virtio_pci", "virtio_console", "crc32c_generic", "crc32c_intel", "xxhash_generic",
                          "blake2b_generic", "sha256_generic", "ext4", "xfs", "btrfs"], ["virtio_blk"], "", "",
                   'mount -t "$fs" /dev/vda /mnt', "")

# QEMU's own NVMe device (7.2) takes writes with forced unit access and leaves them in the cache. So the machine's
# kernel makes a namespace of the virtio disk, and serves it to itself: such a write is followed by a flush of the disk.
ATTACH_NVME = """
mount -t configfs none /sys/kernel/config
ifconfig lo 127.0.0.1 up
cd /sys/kernel/config/nvmet
mkdir subsystems/disk subsystems/disk/namespaces/1 ports/1
echo 1 >subsystems/disk/attr_allow_any_host
echo /dev/vda >subsystems/disk/namespaces/1/device_path
echo 1 >subsystems/disk/namespaces/1/enable
echo tcp >ports/1/addr_trtype
echo ipv4 >ports/1/addr_adrfam
echo 127.0.0.1 >ports/1/addr_traddr
echo 4420 >ports/1/addr_trsvcid
ln -s /sys/kernel/config/nvmet/subsystems/disk ports/1/subsystems/disk
cd /
echo transport=tcp,traddr=127.0.0.1,trsvcid=4420,nqn=disk >/dev/nvme-fabrics
while ! [ -b /dev/nvme0n1 ] || ! [ -c /dev/ng0n1 ]; do sleep 0.1; done
"""
MOUNT_NVME = """case $fs in
raw) where='/dev/nvme0n1 --device' format=--format ;;
passthrough) where='/dev/ng0n1 --device' format=--format ;;
*) mount -t "$fs" /dev/nvme0n1 /mnt ;;
esac"""
NVME_GUEST = dataclasses.replace(DISK_GUEST, name="nvme", modules_late=["virtio_blk", "nvmet_tcp", "nvme_tcp"],
                                 attach=ATTACH_NVME, mount=MOUNT_NVME)
COUNTED_GUEST = dataclasses.replace(NVME_GUEST, name="nvme-count", memory="1536", benchmark=True)

# Says how many commands to the namespace, bytes written to it, and system calls so many commits of a program take, of
# which all are alike: N commits writes forced-writes flushes others bytes calls. The program is what follows --count,
# and ends with the option that takes the number. One commit beforehand makes what is made once.
COUNT = """
  mount -t tracefs none /sys/kernel/tracing
  mount -t tmpfs -o size=600m none /tmp
  block=$(cat /sys/block/nvme0n1/queue/logical_block_size)
  cd /sys/kernel/tracing
  echo 100000 >buffer_size_kb
  echo 'comm ~ "power-workload*" || comm ~ "memlith*" || comm ~ "rocksdb*"' >events/raw_syscalls/sys_enter/filter
  echo 1 >events/raw_syscalls/sys_enter/enable
  echo 1 >events/nvme/nvme_setup_cmd/enable
  set -- ${mode#--count}
  [ "$1" = power-workload ] || format=
  "$@" 1 $format >/tmp/message 2>&1
  for commits in $deaths; do
    echo >trace
    "$@" $commits >/tmp/message 2>&1 || echo "Q $(tr '\\n' ' ' </tmp/message)" >&3
    sync
    cat trace >/tmp/trace
    awk -v block=$block -v commits=$commits '
      /sys_enter:/ { calls++ }
      /nvme_setup_cmd:/ {
        if (/nvme_cmd_write /) {
          writes++
          if (/ctrl=0x4/) forced++
          match($0, /len=[0-9]+/)
          bytes += (substr($0, RSTART + 4, RLENGTH - 4) + 1) * block
        } else if (/nvme_cmd_flush/) flushes++
        else others++
      }
      END { printf "N %d %d %d %d %d %d %d\\n", commits, writes, forced, flushes, others, bytes, calls }
    ' /tmp/trace >&3
    rm /tmp/trace
  done
  echo D >&3
  sleep 100000
"""

INIT = """#!/bin/busybox sh
/bin/busybox mkdir -p /proc /sys /dev /mnt /bin /tmp
/bin/busybox --install -s /bin
export PATH=/bin
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
for module in $(cat /modules.early); do insmod "/modules/$module.ko"; done
@prepare@
exec 3<>/dev/vport0p1
echo R >&3
read -r fs seed life deaths mode <&3
[ "$deaths" = - ] && deaths=
[ "$mode" = - ] && mode=
deaths=$(echo "$deaths" | tr ',' ' ')
mode=$(echo "$mode" | tr ',' ' ')
for module in $(cat /modules.late); do insmod "/modules/$module.ko"; done
@attach@
where=/mnt # and options of the workload
format=
mount_it() {
  @mount@
}
if ! mount_it 2>/tmp/message; then
  echo "M $(tr '\\n' ' ' </tmp/message)" >&3
  sleep 100000
fi
case $mode in
--count*) @count@ ;;
esac
number=0
for die in $deaths 0; do
  echo "L" >&3
  power-workload $where --seed "$seed" --life "$life$number" --die-ms "$die" --report-fd 3 @workload@ $mode
  status=$?
  if [ "$die" = 0 ] || [ "$status" != 137 ]; then echo "Q $status" >&3; fi
  number=$((number + 1))
  mode=${mode%--format}
done
umount /mnt
poweroff -f
"""


def kernel_package() -> str:
    for update in (False, True):
        if update:
            subprocess.run(["apt-get", "-qq", "update"], check=False)
        depends = subprocess.run(["apt-cache", "depends", META_PACKAGE], capture_output=True, text=True, check=False)
        if found := re.search(r"Depends: (linux-image-[0-9]\S+)", depends.stdout):
            return found[1]
    raise Unable(f"apt knows no {META_PACKAGE}")


def module_needs(module: bytes) -> list[str]:
    """The names in a module's own depends= line."""
    found = re.search(rb"(?:^|\0)depends=([^\0]*)\0", module)
    return [name for name in found[1].decode().replace("-", "_").split(",") if name] if found else []


def fetch_kernel(folder: pathlib.Path, guest: Guest) -> str:
    """Leaves `vmlinuz`, `modules/*.ko` and `order` in the folder; returns the kernel's version."""
    version_file = folder / "version"
    if version_file.exists():
        return version_file.read_text(encoding="utf-8")
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "modules").mkdir(parents=True)
    package = kernel_package()
    print(f"fetching and unpacking {package}", flush=True)
    if subprocess.run(["apt-get", "-qq", "download", package], cwd=folder, check=False).returncode != 0:
        raise Unable(f"apt-get cannot download {package}")
    archive = next(folder.glob("*.deb"))
    found: dict[str, bytes] = {}
    with subprocess.Popen(["dpkg-deb", "--fsys-tarfile", str(archive)], stdout=subprocess.PIPE) as unpack:
        with tarfile.open(fileobj=unpack.stdout, mode="r|") as tar:
            for member in tar:
                content = tar.extractfile(member) if member.isfile() else None
                if content is None:
                    continue
                if "/boot/vmlinuz-" in member.name:
                    (folder / "vmlinuz").write_bytes(content.read())
                elif member.name.endswith(".ko") and MODULE_FOLDERS.search(member.name):
                    found[pathlib.Path(member.name).stem.replace("-", "_")] = content.read()
    order: list[str] = []

    def add(name: str) -> None:
        if name in found and name not in order:
            for need in module_needs(found[name]):
                add(need)
            order.append(name)

    for name in guest.modules_early:
        add(name)
    early = list(order)
    for name in guest.modules_late:
        add(name)
    for name in order:
        (folder / "modules" / f"{name}.ko").write_bytes(found[name])
    (folder / "modules.early").write_text("\n".join(early) + "\n", encoding="utf-8")
    (folder / "modules.late").write_text("\n".join(order[len(early):]) + "\n", encoding="utf-8")
    archive.unlink()
    version = package.removeprefix("linux-image-")
    version_file.write_text(version, encoding="utf-8")
    return version


def cpio_entry(name: str, mode: int, content: bytes, number: int) -> bytes:
    """One member of a "newc" archive."""
    path = name.encode() + b"\0"
    fields = [number, mode, 0, 0, 1, 0, len(content), 0, 0, 0, 0, len(path), 0]
    head = b"070701" + b"".join(b"%08X" % field for field in fields) + path
    head += bytes(-len(head) % 4)
    return head + content + bytes(-len(content) % 4)


def libraries_of(program: pathlib.Path) -> list[str]:
    listed = subprocess.run(["ldd", str(program)], capture_output=True, text=True, check=True).stdout
    return re.findall(r"(/\S+) \(0x", listed)


def make_initramfs(settings: Settings, guest: Guest, kernel: pathlib.Path, target: pathlib.Path) -> None:
    busybox = shutil.which("busybox")
    if busybox is None or subprocess.run(["ldd", busybox], capture_output=True, check=False).returncode == 0:
        raise Unable("busybox-static is missing")  # the other busybox wants libraries
    init = INIT.replace("@prepare@", guest.prepare).replace("@attach@", guest.attach)
    init = init.replace("@mount@", guest.mount).replace("@count@", COUNT)
    files: dict[str, tuple[int, bytes]] = {
        "init": (0o755, init.replace("@workload@", guest.workload).encode()),
        "bin/busybox": (0o755, pathlib.Path(busybox).read_bytes()),
        "modules.early": (0o644, (kernel / "modules.early").read_bytes()),
        "modules.late": (0o644, (kernel / "modules.late").read_bytes()),
    }
    for module in (kernel / "modules").iterdir():
        files[f"modules/{module.name}"] = (0o644, module.read_bytes())
    programs = {"power-workload": settings.workload}
    if guest.benchmark:
        programs[settings.benchmark.name] = settings.benchmark
    for name, program in programs.items():
        stripped = target.with_suffix(".program")
        subprocess.run(["strip", "-o", str(stripped), str(program)], check=True)
        files[f"bin/{name}"] = (0o755, stripped.read_bytes())
        stripped.unlink()
        for library in libraries_of(program):
            files[library.lstrip("/")] = (0o755, pathlib.Path(library).read_bytes())
    folders = sorted({str(parent) for name in files for parent in pathlib.PurePath(name).parents} - {"."})
    archive = b"".join(cpio_entry(name, 0o040755, b"", number) for number, name in enumerate(folders, 1))
    archive += b"".join(cpio_entry(name, 0o100000 | mode, content, number)
                        for number, (name, (mode, content)) in enumerate(sorted(files.items()), len(folders) + 1))
    target.write_bytes(archive + cpio_entry("TRAILER!!!", 0, b"", 0))


class Machine:
    """The system that boots, and its memory once booted."""

    def __init__(self, settings: Settings, guest: Guest = DISK_GUEST) -> None:
        self.guest = guest
        need_programs("qemu-system-x86_64", "busybox", "ldd", "strip", "apt-get", "dpkg-deb")
        self.folder = settings.work / guest.name
        self.kernel = self.folder / "kernel"
        self.folder.mkdir(parents=True, exist_ok=True)
        self.version = fetch_kernel(self.kernel, guest)
        self.initramfs = self.folder / f"initramfs-{settings.sabotage or 'honest'}"
        self.memory = self.folder / f"memory-{settings.sabotage or 'honest'}"
        self.console = self.folder / "console.log"
        make_initramfs(settings, guest, self.kernel, self.initramfs)

    def command(self, devices: list[str]) -> list[str]:
        return [
            "qemu-system-x86_64", "-machine", self.guest.machine, "-m", self.guest.memory, "-smp", "1", "-nodefaults",
            "-no-user-config", "-display", "none", "-no-reboot", "-kernel", str(self.kernel / "vmlinuz"),
            "-initrd", str(self.initramfs), "-append", "console=ttyS0 quiet panic=-1 no_timer_check mitigations=off",
            "-serial", f"file:{self.console}", "-chardev", "stdio,id=report,signal=off", "-device",
            # Without ioeventfd a report is in the pipe when the write of the guest returns, before it goes on.
            "virtio-serial-pci,ioeventfd=off",
            "-device", "virtserialport,chardev=report", *devices
        ]

    def boot(self, devices: list[str], cold: bool = True) -> subprocess.Popen[bytes]:
        extra = [] if cold else ["-incoming", f"exec:cat {shlex.quote(str(self.memory))}"]
        return subprocess.Popen(self.command([*devices, *extra]), stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def save_memory(self, devices: list[str], socket_folder: pathlib.Path) -> None:
        """Boots up to the moment where the machine asks what to do, and keeps its memory."""
        control = socket_folder / "qmp"
        machine = subprocess.Popen(self.command([*devices, "-qmp", f"unix:{control},server=on,wait=off"]),
                                   stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        try:
            assert machine.stdout is not None
            if machine.stdout.readline() != b"R\n":
                raise RigError(f"the machine did not boot; see {self.console}")
            with socket.socket(socket.AF_UNIX) as connection:
                connection.connect(str(control))
                with connection.makefile("rw", encoding="utf-8") as qmp:
                    json.loads(qmp.readline())
                    _execute(qmp, {"execute": "qmp_capabilities"})
                    # Not stopped before: a machine that is saved while it stands still goes on standing still.
                    _execute(qmp, {"execute": "migrate",
                                   "arguments": {"uri": f"exec:cat > {shlex.quote(str(self.memory))}"}})
                    end = time.monotonic() + PATIENCE_S
                    while (status := _execute(qmp, {"execute": "query-migrate"}).get("status")) != "completed":
                        if status == "failed" or time.monotonic() > end:
                            raise RigError("the machine's memory could not be saved")
                        time.sleep(0.1)
        finally:
            machine.kill()
            machine.wait()


def _execute(qmp: TextIO, command: dict[str, object]) -> dict[str, object]:
    qmp.write(json.dumps(command) + "\n")
    qmp.flush()
    while True:
        answer = json.loads(qmp.readline())
        if "error" in answer:
            raise RigError(f"QEMU: {answer['error']}")
        if "return" in answer:
            value: dict[str, object] = answer["return"]
            return value
