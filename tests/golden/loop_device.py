"""A block device that is a file."""
import contextlib
import subprocess


class NoLoopDevice(Exception):
    """Only root can make one, and not in every container."""


@contextlib.contextmanager
def loop_device(image):
    made = subprocess.run(["losetup", "-f", "--show", image], capture_output=True, text=True, check=False)
    if made.returncode != 0:
        raise NoLoopDevice(made.stderr.strip())
    device = made.stdout.strip()
    try:
        yield device
    finally:
        subprocess.run(["losetup", "-d", device], check=True)
