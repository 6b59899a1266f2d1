"""The program memlith-rocksdb-load: a database under load, which is killed, and whose state tells what it has."""
import contextlib
import pathlib
import random
import signal
import subprocess
import sys
import threading

sys.path.append(str(pathlib.Path(__file__).resolve().parents[3] / "tests/power/rig"))
from foreign import Wrong  # noqa: E402 pylint: disable=wrong-import-position

# A database with prepared transactions in its log is opened as such only, as is one with memtables in a region.
DATABASES = {"batches": ["plain", "pipelined", "two-queues", "late"], "transactions": ["two-phase"],
             "memtables": ["memtable", "memtable-pipelined"]}
THREADS = 3


class Load(threading.Thread):
    """One process. `acknowledged` follows what it says until it ends."""

    def __init__(self, program, database, acknowledged, *words):
        super().__init__()
        self.process = subprocess.Popen([program, database, "--threads", str(THREADS), *words, "--acknowledged",
                                         *map(str, acknowledged)], stdout=subprocess.PIPE, text=True)
        self.acknowledged, self.count, self.said = list(acknowledged), 0, ""
        self.is_open = threading.Event()
        self.start()

    def run(self):
        for line in self.process.stdout:
            words = line.split()
            if words[0] == "state":
                self.acknowledged = [int(each) for each in words[1:]]
                self.is_open.set()
            elif self.is_open.is_set() and len(words) == 2 and line.endswith("\n"):
                self.acknowledged[int(words[0])] = int(words[1])
                self.count += 1
            else:
                self.said += line
        self.is_open.set()

    def wait_until_open(self):
        self.is_open.wait()
        if self.said:
            raise Wrong(self.said)

    def end(self):
        """Its exit code."""
        code = self.process.wait()
        self.join()
        if code not in (0, -signal.SIGKILL):
            raise Wrong(f"exit code {code}: {self.said}")
        return code

    def close(self):
        """Waits for a process that ends by itself."""
        self.wait_until_open()
        if self.end() != 0:
            raise Wrong("the database cannot be closed")

    def kill(self):
        with contextlib.suppress(ProcessLookupError):
            self.process.kill()
        with contextlib.suppress(Wrong):
            self.end()


def words_for(chance: random.Random, database: str, *, unsynced: bool) -> list[str]:
    """How a session writes and opens."""
    words = ["--mode", chance.choice(DATABASES[database])]
    # Without sync, a kill takes what memtables in a region were not persisted with.
    if unsynced and database != "memtables" and chance.random() < 0.3:
        words.append("--unsynced")
    return words
