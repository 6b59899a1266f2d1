"""SQLAlchemy on memlith: create_engine("sqlite+memlith:///app.db?durability=weak")."""

from __future__ import annotations

from typing import Any

from sqlalchemy.dialects.sqlite.pysqlite import SQLiteDialect_pysqlite
from sqlalchemy.engine import URL

from . import sqlite

_PARAMETERS = ("durability", "window_ms", "window_bytes", "log_mib", "log_max_mib", "memory_max_mib")


class MemlithDialect(SQLiteDialect_pysqlite):
    """Python's sqlite3 with files on memlith. A database in memory stays SQLite's own."""

    driver = "memlith"
    supports_statement_cache = True

    def create_connect_args(self, url: URL) -> Any:
        given = {name: url.query[name] for name in _PARAMETERS if name in url.query}
        arguments, options = super().create_connect_args(url.difference_update_query(list(given)))
        name = arguments[0]
        if name != ":memory:" and not name.startswith("file:"):
            sqlite.register()
            arguments[0] = sqlite.uri(name, **given)  # type: ignore[arg-type]
            options["uri"] = True
        return arguments, options


dialect = MemlithDialect
