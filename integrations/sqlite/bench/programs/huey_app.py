"""A task queue in SQLite with huey, whose tasks change another database: what servers.py runs in four processes. The
queue is as durable as the database: huey's own default does not flush it."""
import os
import sqlite3

from huey import SqliteHuey

DATABASE = os.environ["DATABASE"]
huey = SqliteHuey(filename=f"{DATABASE}-queue", fsync=True, journal_mode=os.environ["JOURNAL"], results=False)


@huey.task(retries=1000)
def add(number):
    db = sqlite3.connect(DATABASE, timeout=5)
    try:
        with db:
            db.execute("update counter set value = value + 1 where id = ?", (number,))
            db.execute("insert into visit(counter_id, text) values(?, 'a visit')", (number,))
    finally:
        db.close()
