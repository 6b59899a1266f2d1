"""A block device that is a file, for tests of raw devices. Only root can make one, and not in every container."""
import contextlib
import subprocess


class NoLoopDevice(Exception):
    """There can be none here; the message says why."""


def attach(image, *words):
    """The path of a loop device over the image; `words` are further options of losetup."""
    try:
        made = subprocess.run(["losetup", "-f", "--show", *words, image], capture_output=True, text=True, check=False)
    except FileNotFoundError as error:
        raise NoLoopDevice("there is no losetup") from error
    if made.returncode != 0:
        raise NoLoopDevice(made.stderr.strip())
    return made.stdout.strip()


def detach(device):
    subprocess.run(["losetup", "-d", device], check=True)


def see_new_size(device):
    """The image has become longer."""
    subprocess.run(["losetup", "-c", device], check=True)


def attach_for(test, image, *words):
    """The same for a unittest.TestCase: it is detached when the test ends, if the test has not done that, and the test
    is skipped where there can be none."""
    try:
        device = attach(image, *words)
    except NoLoopDevice as why:
        test.skipTest(f"skip: no loop device (losetup needs root): {why}")
    test.addCleanup(subprocess.run, ["losetup", "-d", device], check=False, capture_output=True)
    return device


@contextlib.contextmanager
def loop_device(image):
    device = attach(image)
    try:
        yield device
    finally:
        detach(device)
