"""The database backend that Django loads for ENGINE = "memlith.django"."""

from __future__ import annotations

from typing import Any

from django.db.backends.sqlite3 import base

from memlith import sqlite

_PARAMETERS = ("durability", "window_ms", "window_bytes", "log_mib", "log_max_mib", "memory_max_mib")


class DatabaseWrapper(base.DatabaseWrapper):  # type: ignore[misc]
    """Django's own backend with files on memlith. A database in memory, as tests use it, stays SQLite's own."""

    display_name = "SQLite on memlith"

    def get_connection_params(self) -> dict[str, Any]:
        params: dict[str, Any] = super().get_connection_params()
        given = {name: params.pop(name) for name in _PARAMETERS if name in params}
        name = str(params["database"])
        if name != ":memory:" and not name.startswith("file:"):
            sqlite.register()
            params["database"] = sqlite.uri(name, **given)
            params["uri"] = True
        return params
