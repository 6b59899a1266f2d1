#!/usr/bin/env python3
"""examples/tycoon under `memlith run` and kill -9: what the server acknowledged is there when it is started again, and
nothing that no client asked for; Kyoto Cabinet finds its database whole.

Usage: tycoon_test.py MEMLITH TYCOON
"""
import contextlib
import http.client
import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest

MEMLITH, TYCOON = sys.argv[1:3]
LIVES = 6
CLIENTS = 4
KEYS = 40


class Server:
    def __init__(self, folder, name, options=()):
        self.process = subprocess.Popen([MEMLITH, "run", "--match", "data.kc*", "--commit", "fsync", *options, "--",
                                         TYCOON, name, "0"], cwd=folder, stdout=subprocess.PIPE, text=True)
        line = self.process.stdout.readline()
        assert line, f"the server ended with {self.process.wait()}"
        self.port = int(line.rsplit(":", 1)[1])

    def connect(self):
        return contextlib.closing(http.client.HTTPConnection("127.0.0.1", self.port, timeout=60))

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        self.process.stdout.close()


def ask(connection, method, key, body=None):
    connection.request(method, "/" + key, body)
    reply = connection.getresponse()
    return reply.status, reply.read()


class Client(threading.Thread):
    """Changes keys of its own until the server is gone. `states`: what each key may hold; None is nothing."""

    def __init__(self, server, number, states, seed):
        super().__init__()
        self.server, self.number, self.states, self.random = server, number, states, random.Random(seed)
        self.acknowledged, self.wrong = 0, None

    def run(self):
        with contextlib.suppress(OSError, http.client.HTTPException), self.server.connect() as connection:
            while self.wrong is None:
                self.change(connection)

    def change(self, connection):
        key = f"{self.number}-{self.random.randrange(KEYS)}"
        known = self.states.get(key, {None})
        if self.random.random() < 0.2:
            value, wanted = None, (204, 404)
        else:
            value, wanted = self.random.randbytes(self.random.randrange(1500)), (204,)
        self.states[key] = known | {value}
        status, _ = ask(connection, "DELETE" if value is None else "PUT", key, value)
        if status not in wanted:
            self.wrong = f"{key}: {status}"
        self.states[key] = {value}
        self.acknowledged += 1


class Tycoon(unittest.TestCase):
    def setUp(self):
        made = tempfile.TemporaryDirectory(dir=os.environ.get("MEMLITH_TEST_DIR"), prefix="memlith-tycoon-")
        self.addCleanup(made.cleanup)
        self.folder = pathlib.Path(made.name)

    def check_states(self, server, states):
        with server.connect() as connection:
            for key, allowed in states.items():
                status, body = ask(connection, "GET", key)
                self.assertIn(body if status == 200 else None, allowed, key)
                states[key] = {body if status == 200 else None}

    def lives(self, name, options=()):
        seed = int(os.environ.get("MEMLITH_SEED") or random.randrange(1 << 32))
        print(f"MEMLITH_SEED={seed}")
        draw = random.Random(seed)
        states = {}
        acknowledged = 0
        for _ in range(LIVES):
            server = Server(self.folder, name, options)
            self.check_states(server, states)
            parts = [{key: value for key, value in states.items() if key.startswith(f"{i}-")} for i in range(CLIENTS)]
            clients = [Client(server, i, parts[i], draw.random()) for i in range(CLIENTS)]
            for client in clients:
                client.start()
            time.sleep(draw.uniform(0.02, 0.3))
            server.kill()
            for client in clients:
                client.join()
                self.assertIsNone(client.wrong)
                states.update(client.states)
                acknowledged += client.acknowledged
        self.assertGreater(acknowledged, 0)
        server = Server(self.folder, name, options)
        self.check_states(server, states)
        server.kill()
        subprocess.run([MEMLITH, "recover", str(self.folder / name)], check=True, capture_output=True)
        checker = shutil.which("kchashmgr" if name.endswith(".kch") else "kctreemgr")
        if checker is not None:
            subprocess.run([checker, "check", str(self.folder / name)], check=True, capture_output=True)

    def test_a_hash_database(self):
        self.lives("data.kch")

    def test_a_tree_that_is_guarded(self):
        self.lives("data.kct", ["--guard"])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
