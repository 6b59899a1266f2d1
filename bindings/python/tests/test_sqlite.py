"""SQLite on memlith: through sqlite3, SQLAlchemy and Django."""

import os
import pathlib
import signal
import sqlite3

import pytest
from conftest import Program

import memlith.sqlite


def durability(connection: sqlite3.Connection) -> list[tuple[str]]:
    return connection.execute("pragma memlith_durability").fetchall()


def test_a_database_is_on_memlith(folder: pathlib.Path) -> None:
    path = folder / "with ?#%20 blanks.db"
    for level in ("full", "weak"):
        connection = memlith.sqlite.connect(path, durability=level, window_ms=5, isolation_level=None)
        assert durability(connection) == [(level,)]
        connection.execute("create table if not exists t(a)")
        connection.execute("insert into t values (?)", (level,))
        assert pathlib.Path(f"{path}.memlith").exists()
        connection.close()
    plain = sqlite3.connect(path)
    assert plain.execute("select * from t").fetchall() == [("full",), ("weak",)]
    assert durability(plain) == []
    plain.close()
    with pytest.raises(memlith.Invalid, match="full"):
        memlith.sqlite.connect(path, durability="strong")  # type: ignore[arg-type]


def test_a_killed_program_loses_no_commit(program: Program) -> None:
    ended = program.run("""
        import os, signal
        import memlith.sqlite
        db = memlith.sqlite.connect("app.db")
        db.execute("create table t(a)")
        for number in range(10):
            db.execute("insert into t values (?)", (number,))
            db.commit()
        db.execute("insert into t values (77)")
        os.kill(os.getpid(), signal.SIGKILL)
        """)
    assert ended.returncode == -signal.SIGKILL, ended.stderr
    db = memlith.sqlite.connect(program.folder / "app.db")
    assert db.execute("select count(*), max(a) from t").fetchall() == [(10, 9)]
    db.close()


def test_a_sqlite_inside_python_loads_the_plugin_as_an_extension(program: Program) -> None:
    if not hasattr(sqlite3.Connection, "enable_load_extension"):
        pytest.skip("this Python's sqlite3 loads no extensions")
    program.run("""
        import sqlite3
        import memlith.sqlite
        memlith.sqlite._registered_from_outside = lambda as_default: False  # no SQLite that the loader sees
        db = memlith.sqlite.connect("app.db")
        assert db.execute("pragma memlith_durability").fetchall() == [("full",)]
        assert sqlite3.connect("plain.db").execute("pragma memlith_durability").fetchall() == []
        memlith.sqlite.register(as_default=True)
        assert sqlite3.connect("default.db").execute("pragma memlith_durability").fetchall() == [("full",)]
        """).check_returncode()


def test_sqlalchemy(folder: pathlib.Path) -> None:
    sqlalchemy = pytest.importorskip("sqlalchemy")
    engine = sqlalchemy.create_engine(f"sqlite+memlith:///{folder}/app.db?durability=weak&timeout=7")
    with engine.begin() as connection:
        assert connection.exec_driver_sql("pragma memlith_durability").fetchall() == [("weak",)]
        connection.exec_driver_sql("create table t(a)")
        connection.execute(sqlalchemy.text("insert into t values (5)"))
    with engine.connect() as connection:
        assert connection.execute(sqlalchemy.text("select a from t")).scalar() == 5
    engine.dispose()
    with sqlalchemy.create_engine("sqlite+memlith://").connect() as connection:
        assert durability(connection.connection.dbapi_connection) == []


def test_django(program: Program) -> None:
    pytest.importorskip("django")
    ended = program.run("""
        import django
        from django.conf import settings
        settings.configure(INSTALLED_APPS=["django.contrib.contenttypes", "django.contrib.auth"],
                           DATABASES={"default": {"ENGINE": "memlith.django", "NAME": "app.db",
                                                  "OPTIONS": {"durability": "weak", "timeout": 9}}})
        django.setup()
        from django.contrib.auth.models import User
        from django.core.management import call_command
        from django.db import connection, transaction
        call_command("migrate", verbosity=0)
        User.objects.create(username="ada")
        try:
            with transaction.atomic():
                User.objects.create(username="bob")
                raise KeyError
        except KeyError:
            pass
        assert list(User.objects.values_list("username", flat=True)) == ["ada"]
        with connection.cursor() as cursor:
            cursor.execute("pragma memlith_durability")
            assert cursor.fetchall() == [("weak",)]
        connection.close()
        """)
    assert ended.returncode == 0, ended.stderr
    plain = sqlite3.connect(os.path.join(program.folder, "app.db"))
    assert plain.execute("select username from auth_user").fetchall() == [("ada",)]
    plain.close()
