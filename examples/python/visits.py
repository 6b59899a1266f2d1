"""A web server whose worker processes count in one dictionary; a worker that is killed loses no visit.

    gunicorn --workers 4 --preload visits:app
    curl localhost:8000/ada

Without gunicorn: `python visits.py` starts four workers, sends them requests, and kills some of them meanwhile.
"""

import os
import random
import signal
import socket
import sys
import tempfile
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

import memlith

visits = memlith.Dict(os.environ.get("VISITS") or tempfile.mkdtemp(), "visits", processes=True)


def app(environ, start_response):
    name = environ["PATH_INFO"].strip("/") or "nobody"
    count = visits.incr(name)  # durable when the line has run; the same for a visitor of another worker
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [f"{name}: {count}\n".encode()]


class Quiet(WSGIRequestHandler):
    def log_message(self, *_):
        pass


def work(listener):
    """A worker, in a process of its own. The dictionary of the parent goes on here."""
    child = os.fork()
    if child == 0:
        server = WSGIServer(listener.getsockname(), Quiet, bind_and_activate=False)
        server.socket, server.server_name, server.server_port = listener, "localhost", listener.getsockname()[1]
        server.setup_environ()
        server.set_app(app)
        server.serve_forever()
    return child


def ask(port, name):
    """The count that a worker answers; None if the worker was killed before."""
    try:
        with socket.create_connection(("127.0.0.1", port)) as connection:
            connection.sendall(f"GET /{name} HTTP/1.0\r\n\r\n".encode())
            answer = b"".join(iter(lambda: connection.recv(4096), b""))
        return int(answer.rsplit(b": ", 1)[1])
    except (OSError, IndexError, ValueError):
        return None


def main():
    requests = int(sys.argv[1]) if len(sys.argv) > 1 else 200
    listener = socket.create_server(("127.0.0.1", 0))
    workers = [work(listener) for _ in range(4)]
    answered = killed = 0
    for number in range(requests):
        if number % 20 == 19:
            victim = random.randrange(4)
            os.kill(workers[victim], signal.SIGKILL)
            os.waitpid(workers[victim], 0)
            workers[victim] = work(listener)
            killed += 1
        count = ask(listener.getsockname()[1], "ada")
        answered += count is not None
        assert count is None or count >= answered, "a visit was lost"
    for worker in workers:
        os.kill(worker, signal.SIGKILL)
        os.waitpid(worker, 0)
    print(f"{killed} workers killed, {answered} visits answered, all of them counted: {visits['ada'] >= answered}")


if __name__ == "__main__":
    main()
