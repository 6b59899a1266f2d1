"""A plugin of pytest's for the runs beside plain SQLite: writes what became of each test, and where the databases were
that the tests opened.

`-p pytest_recorder` with the environment variable TOLD naming the file, which is written when the last test is done: an
object with `outcomes`, {name: [outcome, why]}, and `connections`, how many were opened to files on `memlith`, on
`plain` SQLite, and in `memory`, and how many of all are `unasked`. """
import json
import os
import sqlite3
import sqlite3.dbapi2
import sys

outcomes = {}
connections = {"memlith": 0, "plain": 0, "memory": 0, "unasked": 0}


def connect(*args, **more):
    """Asks each connection where it is, before the test has it."""
    connection = connect_itself(*args, **more)
    ask = sqlite3.Connection.execute
    file = ask(connection, "pragma database_list").fetchone()[2]
    answer = ask(connection, "pragma memlith_durability").fetchone()
    if file and "JOURNAL_MODE" in os.environ:
        ask(connection, f"pragma journal_mode={os.environ['JOURNAL_MODE']}").fetchall()
    connections["memlith" if answer else "plain" if file else "memory"] += 1
    connections["unasked"] -= 1
    return connection


def watch(event, _):
    if event == "sqlite3.connect/handle":
        connections["unasked"] += 1  # until it is asked, which who went round `connect` escapes


connect_itself = sqlite3.connect
sqlite3.connect = sqlite3.dbapi2.connect = connect
sys.addaudithook(watch)


def pytest_runtest_logreport(report):
    worst = outcomes.setdefault(report.nodeid, ["ok", ""])
    if report.skipped and worst[0] == "ok":
        worst[0] = "skipped"
    if report.failed and worst[0] != "failed":
        outcomes[report.nodeid] = ["failed", report.longreprtext]


def pytest_sessionfinish():
    with open(os.environ["TOLD"], "w", encoding="utf-8") as file:
        json.dump({"outcomes": outcomes, "connections": connections}, file)
