"""The web application of run_servers.py in Python: `application` for WSGI (gunicorn), `asgi` for ASGI (uvicorn).

/add/N adds one to row N in a transaction that reads first, /sum returns the sum, /mode what memlith says of the
database. A transaction that SQLite refuses is answered with 503.
"""
import os
import sqlite3
import threading

local = threading.local()


def connection():
    if getattr(local, "process", None) != os.getpid():
        local.process = os.getpid()
        local.db = sqlite3.connect(os.environ["DATABASE"], timeout=30, isolation_level=None)
    return local.db


def answer(path):
    db = connection()
    if path == "/mode":
        row = db.execute("pragma memlith_share").fetchone()
        return 200, row[0] if row else "plain"
    if path == "/sum":
        return 200, str(db.execute("select sum(v) from counter").fetchone()[0])
    row = int(path.rpartition("/")[2])
    try:
        db.execute("begin")
        value = db.execute("select v from counter where id = ?", (row,)).fetchone()[0] + 1
        db.execute("update counter set v = ? where id = ?", (value, row))
        db.execute("commit")
        return 200, str(value)
    except sqlite3.OperationalError as error:
        if db.in_transaction:
            db.execute("rollback")
        return 503, str(error)


def application(environ, start_response):
    code, text = answer(environ["PATH_INFO"])
    start_response(f"{code} answer", [("Content-Type", "text/plain"), ("Content-Length", str(len(text)))])
    return [text.encode()]


async def asgi(scope, _, send):
    if scope["type"] != "http":
        return
    code, text = answer(scope["path"])
    headers = [(b"content-type", b"text/plain"), (b"content-length", str(len(text)).encode())]
    await send({"type": "http.response.start", "status": code, "headers": headers})
    await send({"type": "http.response.body", "body": text.encode()})
