"""The block layer's counts of a folder's disk, for benchmarks that tell writes, bytes and flushes."""
import pathlib
import subprocess


class DiskCounts:
    """Counts, if the folder has a device of its own; `is_own` says so."""

    def __init__(self, folder, is_own):
        device = subprocess.run(["findmnt", "-no", "SOURCE", "--target", folder], capture_output=True, text=True,
                                check=False).stdout.strip()
        stat = pathlib.Path("/sys/block", pathlib.Path(device).name, "stat")
        self.stat = stat if is_own and stat.exists() else None

    def now(self):
        """Since the device was made; empty without a device."""
        if not self.stat:
            return {}
        told = [int(each) for each in self.stat.read_text(encoding="ascii").split()]
        return {"disk_writes": told[4], "disk_bytes": told[6] * 512, "disk_flushes": told[15]}

    def since(self, before):
        after = self.now()
        return {name: after[name] - before[name] for name in before}
