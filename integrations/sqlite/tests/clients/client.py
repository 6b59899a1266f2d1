"""A client of one of Python's modules: client.py MODULE work|loop|count DATABASE (run_clients.py).

MODULE is pysqlite3, apsw, or both: pysqlite3 and Python's own sqlite3 in one process, on the same database.
"""
import sys
import threading

module, command, name = sys.argv[1:4]
if module == "apsw":
    import apsw
    ADVICE

    def open_database():
        connection = apsw.Connection(name)
        connection.set_busy_timeout(10000)
        return connection
else:
    import pysqlite3

    def open_database(library=pysqlite3):
        connection = library.connect(name, timeout=10, isolation_level=None)
        return connection


def value(connection, sql):
    row = connection.cursor().execute(sql).fetchone()
    return row[0] if row else "plain"


db = open_database()
db.cursor().execute("create table if not exists t(a integer primary key, b text)")
if command == "work":
    db.cursor().execute("begin")
    for i in range(100):
        db.cursor().execute("insert into t(b) values(?)", (f"row {i}",))
    db.cursor().execute("commit")
    for sql in ["begin", "delete from t", "rollback"]:
        db.cursor().execute(sql)
    other = open_database()
    value(db, "pragma journal_mode = wal")
    if module == "both":
        import sqlite3

        def work(library):
            mine = open_database(library)
            for _ in range(100):
                mine.execute("insert into t(b) values('beside')")
            mine.close()
        threads = [threading.Thread(target=work, args=(library,)) for library in [sqlite3, pysqlite3, sqlite3]]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
        assert value(db, "select count(*) from t where b = 'beside'") == 300
        db.execute("delete from t where b = 'beside'")
    other.cursor().execute("insert into t(b) values('other')")
    print(value(db, "select count(*) from t"), value(db, "pragma memlith_durability"))
    other.close()
elif command == "loop":
    while True:
        db.cursor().execute("insert into t(b) values('kept')")
        print(value(db, "select last_insert_rowid()"), flush=True)
else:
    print(value(db, "select count(*) from t"), value(db, "pragma integrity_check"))
db.close()
