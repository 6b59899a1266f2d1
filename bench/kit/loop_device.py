"""A file system on a loop device, for benchmarks that compare file systems."""
import contextlib
import os
import pathlib
import shutil
import subprocess
import tempfile


@contextlib.contextmanager
def loop_device(parent, mib, make, options, say):
    """A folder on a file system of so many MiB, made by the command `make` and mounted with the options; its image lies
    in the folder `parent`. None where that is not possible, and say() is told why."""
    if os.geteuid() != 0 or not shutil.which(make[0]):
        say(f"({' '.join(make)} is left out: it takes root and {make[0]})")
        yield None
        return
    with tempfile.TemporaryDirectory(prefix="memlith-bench-loop.", dir=parent) as folder:
        image, target = pathlib.Path(folder, "image"), pathlib.Path(folder, "mounted")
        target.mkdir()
        # Written, not only reserved: a flush must not have to note that blocks of the image are in use now.
        make_image = ["dd", "if=/dev/zero", f"of={image}", "bs=1M", f"count={mib}", "conv=fsync", "status=none"]
        mounted = all(subprocess.run(words, check=False, stdout=subprocess.DEVNULL).returncode == 0
                      for words in (make_image, [*make, image], ["mount", "-o", options, image, target]))
        if mounted:
            device = subprocess.run(["findmnt", "-no", "SOURCE", target], stdout=subprocess.PIPE, text=True,
                                    check=False).stdout.strip()
            subprocess.run(["losetup", "--direct-io=on", device], check=False, stderr=subprocess.DEVNULL)
        else:
            say(f"({' '.join(make)} is left out: it cannot be made or mounted)")
        try:
            yield target if mounted else None
        finally:
            if mounted:
                subprocess.run(["umount", target], check=False)
