#!/usr/bin/env python3
"""examples/cache under kill -9: what the server acknowledged is there when it is started again, and nothing else.

Usage: cache_test.py CACHE
"""
import contextlib
import http.client
import os
import pathlib
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest

CACHE = sys.argv[1]
LIVES = 12
CLIENTS = 4


class Server:
    def __init__(self, file, mebibytes=64):
        self.process = subprocess.Popen([CACHE, str(file), "0", str(mebibytes)], stdout=subprocess.PIPE, text=True)
        line = self.process.stdout.readline()
        assert line, f"the server ended with {self.process.wait()}"
        self.values = int(line.split()[0])
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
    """Changes keys of its own until the server is gone. `states`: what each key may hold now; None is nothing."""

    def __init__(self, server, number, states, seed):
        super().__init__()
        self.server, self.number, self.states, self.random = server, number, states, random.Random(seed)
        self.acknowledged, self.wrong = 0, None

    def run(self):
        with contextlib.suppress(OSError, http.client.HTTPException), self.server.connect() as connection:
            self.change(connection)

    def change(self, connection):
        for change in range(100000):
            key = f"client {self.number} key {self.random.randrange(40)}".replace(" ", "%20")
            before = self.states.get(key, {None})
            if self.random.random() < 0.2:
                after, (method, body) = None, ("DELETE", None)
            else:
                after = f"{self.number}/{change}/".encode() * self.random.randrange(1, 300)
                method, body = "PUT", after
            self.states[key] = before | {after}
            status, _ = ask(connection, method, key, body)
            if status not in (204, 404) or (status == 404 and None not in before):
                self.wrong = f"{method} {key}: {status}"
                return
            self.states[key] = {after}
            self.acknowledged += 1


class Killed(unittest.TestCase):
    def setUp(self):
        self.seed = int(os.environ.get("MEMLITH_SEED", random.randrange(1 << 32)))
        print(f"seed {self.seed}")
        self.folder = tempfile.TemporaryDirectory(dir=os.environ.get("MEMLITH_TEST_DIR") or None)
        self.file = pathlib.Path(self.folder.name) / "cache"
        self.addCleanup(self.folder.cleanup)

    def check(self, server, states):
        with server.connect() as connection:
            for key in states:
                status, body = ask(connection, "GET", key)
                found = body if status == 200 else None
                self.assertIn(found, states[key], key)
                states[key] = {found}
        self.assertEqual(server.values, sum(states[key] != {None} for key in states))

    def test_what_was_acknowledged_is_there(self):
        states, acknowledged, draw = {}, 0, random.Random(self.seed)
        for life in range(LIVES):
            server = Server(self.file)
            self.check(server, states)
            clients = [Client(server, number, {}, self.seed + life * CLIENTS + number) for number in range(CLIENTS)]
            for client in clients:
                prefix = f"client%20{client.number}%20"
                client.states = {key: value for key, value in states.items() if key.startswith(prefix)}
                client.start()
            time.sleep(0.05 + 0.2 * draw.random())
            server.kill()
            for client in clients:
                client.join()
                self.assertIsNone(client.wrong)
                states.update(client.states)
                acknowledged += client.acknowledged
        self.assertGreater(acknowledged, 10 * LIVES, "the clients did not get far")
        server = Server(self.file)
        self.check(server, states)
        server.kill()

    def test_what_was_not_used_for_longest_goes(self):
        server = Server(self.file, 1)
        with server.connect() as connection:
            for number in range(30):
                self.assertEqual(ask(connection, "PUT", f"key{number}", b"x" * 100_000)[0], 204)
                self.assertEqual(ask(connection, "GET", "key0")[0], 200)
            self.assertEqual(ask(connection, "PUT", "large", b"x" * 1_100_000)[0], 413)
            self.assertEqual(ask(connection, "POST", "key0", b"x")[0], 501)
        server.kill()
        server = Server(self.file, 1)
        with server.connect() as connection:
            there = [number for number in range(30) if ask(connection, "GET", f"key{number}")[0] == 200]
        self.assertEqual(there, [0, *range(21, 30)])
        server.kill()


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
