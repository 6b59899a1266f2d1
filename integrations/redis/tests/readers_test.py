#!/usr/bin/env python3
"""Who waits for a flush, where flushes are slow: readers_test.py --program REDIS-SERVER --work FOLDER

A library that is loaded before the server makes each flush slow, and holds flushes up as long as a file is there. While
one is held up, the order of replies tells who waits for it. Nothing here depends on how long something takes.
"""
import argparse
import os
import pathlib
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from server import Server, run_tests  # noqa: E402 pylint: disable=wrong-import-position

GATE = r"""
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>
static void gate(void) {
  usleep(3000);
  if (access(getenv("TEST_GATE"), F_OK) == 0) close(creat(getenv("TEST_REACHED"), 0600));
  while (access(getenv("TEST_GATE"), F_OK) == 0) usleep(500);
}
int fdatasync(int fd) { gate(); return (int)syscall(SYS_fdatasync, fd); }
ssize_t pwritev2(int fd, const struct iovec* pieces, int count, off_t at, int flags) {
  if (flags & RWF_DSYNC) gate();
  return syscall(SYS_pwritev2, fd, pieces, count, (long)at, 0L, flags);
}
"""


class Gate:
    """A server whose flushes are slow, and a way to hold them up."""

    def __init__(self, given, name):
        folder = pathlib.Path(given.work).resolve() / f"readers-{name}"
        self.closed = folder / "gate-is-closed"
        environment = {**os.environ, "LD_PRELOAD": str(library(given)), "TEST_GATE": str(self.closed),
                       "TEST_REACHED": str(folder / "gate-is-reached")}
        self.server = Server(given.program, folder, environment=environment).fresh().start()
        self.writer, self.reader, self.other = (self.server.client() for _ in range(3))
        for number in range(20):  # the server learns that flushes are slow
            self.writer("SET", f"key-{number}", "old")

    def close(self):
        self.closed.touch()

    def open(self):
        self.closed.unlink()

    def turns(self):
        """The server has been through some turns: what it had to answer before is answered."""
        for _ in range(5):
            assert self.reader("GET", "key-1") == b"old"

    def answers_now(self, client):
        self.turns()
        return client.ready(0)


def library(given):
    made = pathlib.Path(given.work).resolve() / "gate.so"
    made.parent.mkdir(parents=True, exist_ok=True)
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", made, "-x", "c", "-"], input=GATE, text=True, check=True)
    return made


def test_readers_go_on(given):
    gate = Gate(given, "go-on")
    gate.close()
    gate.writer.send("SET", "key-0", "new")
    assert not gate.answers_now(gate.writer), "a write was acknowledged before its flush"
    gate.other.send("MGET", "key-1", "key-2")
    assert gate.answers_now(gate.other) and gate.other._reply() == [b"old", b"old"]
    gate.other.send("GET", "key-0")
    assert not gate.answers_now(gate.other), "a read showed what a crash could take back"
    gate.open()
    assert gate.writer._reply() == b"OK" and gate.other._reply() == b"new"
    gate.server.stop()


def test_what_may_show_a_change_waits(given):
    """Each of these is answered when the flush is done, and not before; replies of one client stay in their order."""
    gate = Gate(given, "waits")
    waiting = [("DBSIZE",), ("KEYS", "*"), ("EVAL_RO", "return redis.call('get', 'key-0')", "1", "key-1"),
               ("MGET", "key-1", "key-0"), ("INFO",), ("TYPE", "key-0"), ("SORT_RO", "key-9"), ("SET", "key-3", "new")]
    clients = [gate.server.client() for _ in waiting]
    clients[0]("PING")
    gate.close()
    gate.writer.send("SET", "key-0", "new")
    gate.turns()
    for client, command in zip(clients, waiting):
        client.send(*command)
        client.send("PING")
    for client, command in zip(clients, waiting):
        assert not gate.answers_now(client), f"{command} was answered"
    gate.open()
    for client in [*clients, gate.writer]:
        client._reply()
    for client in clients:
        assert client._reply() == b"PONG"
    gate.server.stop()


def test_a_blocked_client_waits_for_what_it_gets(given):
    gate = Gate(given, "blocked")
    gate.other.send("BLPOP", "list", "0")
    gate.turns()
    gate.close()
    gate.writer.send("RPUSH", "list", "marble")
    assert not gate.answers_now(gate.other) and not gate.answers_now(gate.writer)
    gate.open()
    assert gate.other._reply() == [b"list", b"marble"] and gate.writer._reply() == 1
    gate.server.stop()


def test_a_kill_takes_back_nothing_that_was_shown(given):
    gate = Gate(given, "kill")
    gate.close()
    gate.writer.send("SET", "key-0", "new")
    gate.turns()
    gate.other.send("GET", "key-0")
    assert not gate.answers_now(gate.other) and not gate.answers_now(gate.writer)
    gate.server.kill()
    gate.open()
    gate.server.start()
    assert gate.server.client()("GET", "key-0") in (b"old", b"new")
    gate.server.stop()


def test_subscribers_and_replicas_make_all_wait(given):
    gate = Gate(given, "subscribers")
    subscriber = gate.server.client()
    subscriber.send("SUBSCRIBE", "channel")
    subscriber._reply()
    gate.writer("SET", "key-0", "old")  # the turn in which the server finds out
    gate.close()
    gate.writer.send("SET", "key-0", "new")
    while not gate.closed.with_name("gate-is-reached").exists():
        pass
    gate.other.send("GET", "key-1")
    assert not gate.other.ready(0.2), "the server is ahead of its flush, and has a subscriber"
    gate.open()
    assert gate.writer._reply() == b"OK" and gate.other._reply() == b"old"
    gate.server.stop()


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--program", required=True)
    options.add_argument("--work", required=True)
    options.add_argument("--only", default=".")
    given = options.parse_args()
    run_tests(globals(), given.only, given)


if __name__ == "__main__":
    main()
