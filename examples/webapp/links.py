#!/usr/bin/env python3
"""A link shortener with Flask and Python's own sqlite3, on plain SQLite or on memlith: the database's URI decides. See
README.md.

Usage: links.py [URI] [--port N]
URI is `file:links.db` unless given, or what LINKS_DATABASE says; with `file:links.db?vfs=memlith` it is on memlith.
MEMLITH_PLUGIN says where memlith_sqlite.so is. Nothing else in here knows of memlith. A link that was answered with 201
is on the disk.
"""
import argparse
import ctypes
import os
import re
import secrets
import signal
import sqlite3
import sys
from urllib.parse import urlsplit

from flask import Flask, Response, abort, current_app, g, jsonify, redirect, render_template, request, url_for
from werkzeug.exceptions import HTTPException
from werkzeug.serving import WSGIRequestHandler, make_server

BUSY_SECONDS = 10  # a writer waits so long for the others
NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")  # no dot: links.json and engine.txt are pages of ours
URL_CHARACTERS_MAX = 2000
SCHEMA = """
create table if not exists links(
  id integer primary key,
  name text not null unique,
  url text not null,
  hits integer not null default 0,
  created text not null default current_timestamp)
"""

app = Flask(__name__, static_folder=None)
app.config["MAX_CONTENT_LENGTH"] = 64 * 1024


def load_plugin(path):
    """Makes SQLite know the VFS `memlith`; connections that do not name it stay as they are."""
    # The path whole, or the loader would look for a bare name among the system's libraries.
    if ctypes.CDLL(os.path.abspath(path)).memlith_sqlite_register(0) != sqlite3.SQLITE_OK:
        raise OSError(f"{path} found no SQLite in this process")


def connect(uri):
    # Without Python's implicit transactions: a statement is one, and has been committed when execute() returns.
    return sqlite3.connect(uri, uri=True, timeout=BUSY_SECONDS, isolation_level=None)


def database():
    """The connection of this request, which runs in a thread of its own."""
    if "database" not in g:
        g.database = connect(current_app.config["DATABASE"])
        g.database.row_factory = sqlite3.Row
    return g.database


@app.teardown_appcontext
def disconnect(_):
    if opened := g.pop("database", None):
        opened.close()


@app.errorhandler(sqlite3.Error)
def storage_failed(error):
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF
    if code == sqlite3.SQLITE_BUSY:
        return say("The database is busy; nothing was changed. Try again.", 503, {"Retry-After": "1"})
    if code == sqlite3.SQLITE_FULL:
        return say("The disk is full; nothing was changed.", 507)
    app.logger.error("%s %s: %s", request.method, request.path, error)
    return say("The database failed; what you sent may have been kept or not.", 500)


@app.errorhandler(HTTPException)
def refused(error):
    return say(error.description, error.code)


def say(text, status, headers=None):
    return Response(f"{text}\n", status, headers, mimetype="text/plain")


def checked_url():
    url = request.form.get("url", "").strip()
    try:
        parts = urlsplit(url)
    except ValueError:
        parts = urlsplit("")
    # Also keeps `javascript:` out of the page's links.
    if parts.scheme not in ("http",
                            "https") or not parts.netloc or len(url) > URL_CHARACTERS_MAX or not url.isprintable():
        abort(400, f"url has to be an http or https address of up to {URL_CHARACTERS_MAX} characters.")
    return url


def add(name, url):
    database().execute("insert into links(name, url) values(?, ?)", (name, url))


@app.post("/")
def shorten():
    url, name = checked_url(), request.form.get("name", "").strip()
    if name:
        if not NAME.fullmatch(name):
            abort(400, "name has to be 1 to 64 letters, digits, - and _.")
        try:
            add(name, url)
        except sqlite3.IntegrityError:
            abort(409, "There is a link of that name.")
    else:
        while not name:
            try:
                add(name := secrets.token_urlsafe(6), url)
            except sqlite3.IntegrityError:
                name = ""  # taken by chance; another one
    if request.accept_mimetypes.best_match(["text/plain", "text/html"]) == "text/html":
        return redirect(url_for("page"), 303)  # a browser, which would send the form again when the page is reloaded
    return say(url_for("follow", name=name, _external=True), 201)


@app.get("/")
def page():
    rows = database().execute("select name, url, hits, created from links order by id desc limit 50").fetchall()
    return render_template("links.html", links=rows, engine=engine_line().split(":")[0])


@app.get("/<name>")
def follow(name):
    counted = database().execute("update links set hits = hits + 1 where name = ?", (name,)).rowcount
    if not counted:
        abort(404, "There is no such link.")
    return redirect(database().execute("select url from links where name = ?", (name,)).fetchone()["url"])


@app.get("/links.json")
def listing():
    """All links in the order they were added, 1000 at a time; ?after=ID goes on behind one."""
    after = request.args.get("after", 0, type=int)
    if abs(after) >= 1 << 63:
        abort(400, "after has to be the id of a link.")
    rows = database().execute("select id, name, url, hits from links where id > ? order by id limit 1000", (after,))
    return jsonify([dict(row) for row in rows])


def engine_line():
    row = database().execute("pragma memlith_stats").fetchone()  # a pragma that SQLite does not know answers nothing
    # Without its first word, the database's path, which is no business of visitors.
    return f"memlith: {row[0].partition(' ')[2]}" if row else f"plain SQLite {sqlite3.sqlite_version}"


@app.get("/engine.txt")
def engine():
    return say(engine_line(), 200)


class Handler(WSGIRequestHandler):
    timeout = 10  # seconds for a client that connects and says nothing; or a clean stop would wait for it forever


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("uri", nargs="?", default=os.environ.get("LINKS_DATABASE", "file:links.db"))
    options.add_argument("--host", default="127.0.0.1")
    options.add_argument("--port", type=int, default=8000, help="0: any that is free")
    given = options.parse_args()
    try:
        if plugin := os.environ.get("MEMLITH_PLUGIN"):
            load_plugin(plugin)
        # Held as long as the server runs, or every request would be the last one to close the database, which tidies it
        # up.
        keeper = connect(given.uri)
        keeper.execute("pragma journal_mode = wal")  # readers beside the writer
        keeper.execute(SCHEMA)
    except (OSError, AttributeError, sqlite3.Error) as error:
        hint = "; set MEMLITH_PLUGIN to the path of memlith_sqlite.so" if "no such vfs" in str(error) else ""
        sys.exit(f"links.py: cannot open {given.uri}: {error}{hint}")
    app.config["DATABASE"] = given.uri
    server = make_server(given.host, given.port, app, threaded=True, request_handler=Handler)
    server.daemon_threads = False  # a stop waits for the requests under way
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # the clean stop of a service, like Ctrl-C
    print(f"{given.uri} on http://{given.host}:{server.port}/", flush=True)
    server.serve_forever()
    keeper.close()


if __name__ == "__main__":
    main()
