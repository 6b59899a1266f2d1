"""A Redis server under test, and a client that speaks to it. For the tests and the benchmark."""
import os
import pathlib
import random
import re
import select
import shutil
import signal
import socket
import subprocess
import sys
import time

# At the end: the rig has modules of the same names as others.
sys.path.append(str(pathlib.Path(__file__).resolve().parents[3] / "tests/power/rig"))
from foreign import Unanswered, Wrong, until  # noqa: E402 pylint: disable=wrong-import-position

START_SECONDS = 60


def run_tests(functions, only, *arguments):
    """Runs the functions test_... of which `only` finds the name, with the arguments, and ends the program."""
    failed = []
    try:
        for name, test in list(functions.items()):
            if not name.startswith("test_") or not re.search(only, name):
                continue
            began = time.monotonic()
            try:
                test(*arguments)
                print(f"{name}: ok, {time.monotonic() - began:.1f} s", flush=True)
            except (AssertionError, Unanswered, OSError, subprocess.SubprocessError) as why:
                failed.append(name)
                print(f"{name}: FAILED: {why!r}"[:4000], flush=True)
                Server.kill_all()
    finally:
        Server.kill_all()
    sys.exit(f"failed: {', '.join(failed)}" if failed else 0)


def free_port(*beside):
    """Below the ports that the system gives to clients, so that it stays free until the server takes it; so do those
    that are so many above it."""
    for port in random.sample(range(10000, 20000), 200):
        try:
            for offset in (0, *beside):
                with socket.socket() as probe:
                    probe.bind(("127.0.0.1", port + offset))
            return port
        except OSError:
            pass
    raise AssertionError("no free port")


class Refused(Unanswered):
    """The server answered with an error."""


class Gone(Unanswered):
    """The connection was cut."""


def encode(arguments):
    parts = [b"*%d\r\n" % len(arguments)]
    for each in arguments:
        text = each if isinstance(each, bytes) else str(each).encode()
        parts.append(b"$%d\r\n%s\r\n" % (len(text), text))
    return b"".join(parts)


class Client:
    def __init__(self, path, db=0):
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(START_SECONDS)
        self.rest = b""
        try:
            self.socket.connect(str(path))
        except OSError as why:
            raise Gone from why
        if db:
            self("SELECT", db)

    def _line(self):
        while b"\r\n" not in self.rest:
            self._more()
        line, self.rest = self.rest.split(b"\r\n", 1)
        return line

    def _more(self):
        try:
            got = self.socket.recv(1 << 16)
        except OSError as why:
            raise Gone from why
        if not got:
            raise Gone
        self.rest += got

    def _reply(self):
        line = self._line()
        kind, text = line[:1], line[1:]
        if kind == b"+":
            return text
        if kind == b"-":
            return Refused(text.decode())
        if kind == b":":
            return int(text)
        count = int(text)
        if count < 0:
            return None
        if kind == b"*":
            return [self._reply() for _ in range(count)]
        while len(self.rest) < count + 2:
            self._more()
        value, self.rest = self.rest[:count], self.rest[count + 2:]
        return value

    def ready(self, seconds):
        """True if a reply comes within this time."""
        return bool(self.rest) or bool(select.select([self.socket], [], [], seconds)[0])

    def send(self, *arguments):
        try:
            self.socket.sendall(encode(arguments))
        except OSError as why:
            raise Gone from why

    def __call__(self, *arguments):
        self.send(*arguments)
        reply = self._reply()
        if isinstance(reply, Refused):
            raise reply
        return reply

    def transaction(self, *commands):
        """The replies of a MULTI ... EXEC."""
        for each in (("MULTI",), *commands, ("EXEC",)):
            self.send(*each)
        for _ in range(len(commands) + 1):
            reply = self._reply()
            if isinstance(reply, Refused):
                raise reply
        replies = self._reply()
        for each in replies:
            if isinstance(each, Refused):
                raise each
        return replies

    def close(self):
        self.socket.close()


class Server:
    """A redis-server in a folder of its own. With `memlith` None, a plain one."""

    started = []

    def __init__(self, program, folder, memlith="strong", directives=(), environment=None):
        self.program, self.folder = pathlib.Path(program).resolve(), pathlib.Path(folder).resolve()
        self.directives = [("port", 0), ("unixsocket", "s"), ("dir", self.folder), ("logfile", "log"),
                           ("daemonize", "no"), ("enable-debug-command", "yes"), *directives]
        if memlith:
            self.directives += [("memlith", "yes"), ("memlith-durability", memlith)]
        self.environment, self.process = environment, None

    @classmethod
    def kill_all(cls):
        """Ends the processes that a failed test has left."""
        for process in cls.started:
            if process.poll() is None:
                process.kill()
                process.wait()

    def fresh(self):
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True)
        return self

    def log(self):
        path = self.folder / "log"
        return path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""

    def begin(self, arguments=()):
        """Starts the process and does not wait."""
        config = self.folder / "redis.conf"
        if not config.exists():
            config.write_text("".join(f"{name} {value}\n" for name, value in self.directives), encoding="utf-8")
        (self.folder / "s").unlink(missing_ok=True)
        with open(self.folder / "said", "ab") as said:
            self.process = subprocess.Popen([self.program, config, *arguments], cwd=self.folder, stdout=said,
                                            stdin=subprocess.DEVNULL, stderr=said, env=self.environment)
            self.started.append(self.process)

    def start(self):
        self.begin()
        return self.wait()

    def wait(self):
        """Until it answers."""
        def answers():
            if self.process.poll() is None:
                client = self.client()
                client("PING")
                client.close()
            return True

        def told():
            return f"{self.log()[-3000:]}\n{(self.folder / 'said').read_text(errors='replace')[-2000:]}"

        until(answers, lambda: f"the server answers:\n{told()}", START_SECONDS)
        if self.process.poll() is not None:
            raise Wrong(f"the server does not start:\n{told()}")
        return self

    def refuses_to_start(self):
        """The server's output."""
        self.begin()
        assert self.process.wait(START_SECONDS) != 0, "the server ended without an error"
        return self.log() + (self.folder / "said").read_text(errors="replace")

    def client(self, db=0):
        return Client(os.path.relpath(self.folder / "s"), db)

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def stop(self):
        if self.process and self.process.poll() is None:
            self.process.terminate()
            self.process.wait(START_SECONDS)

    def info(self, client=None):
        own = client or self.client()
        lines = own("INFO").decode().split("\r\n")
        if not client:
            own.close()
        return dict(line.split(":", 1) for line in lines if ":" in line)
