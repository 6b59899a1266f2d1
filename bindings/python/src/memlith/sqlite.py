"""SQLite on memlith, through Python's own sqlite3: durable commits for one write and one flush each.

The plugin is part of the package. It needs no load_extension, which many Pythons lack. docs/sqlite.md explains it.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import pathlib
import sqlite3
import threading
import urllib.parse
from typing import Any, Literal

from ._errors import Invalid, Unsupported

__all__ = ["connect", "plugin_path", "register", "uri"]

Durability = Literal["full", "weak"]
_lock = threading.Lock()
_registered = False


def plugin_path() -> pathlib.Path:
    """The plugin, for programs that load it themselves or by LD_PRELOAD."""
    return pathlib.Path(__file__).with_name("memlith_sqlite.so")


def register(as_default: bool = False) -> None:
    """Registers the VFS "memlith" with the process's SQLite; as the default, for every connection opened later."""
    global _registered
    with _lock:
        if _registered and not as_default:
            return
        if not plugin_path().exists():
            raise Unsupported(f"{plugin_path()} is missing: the package was built without the SQLite plugin")
        if not (_registered_from_outside(as_default) or _loaded_as_extension(as_default)):
            raise Unsupported("this Python's SQLite takes no VFS of memlith: it loads no extensions and is linked "
                              "statically, encrypts, or is older than 3.22; MEMLITH_SQLITE_LOG=stderr says which")
        _registered = True


def _registered_from_outside(as_default: bool) -> bool:
    """True where the dynamic loader sees the SQLite's functions."""
    code: int = ctypes.CDLL(str(plugin_path())).memlith_sqlite_register(int(as_default))
    return code == 0


def _loaded_as_extension(as_default: bool) -> bool:
    """True where the SQLite lies inside Python, as uv and mise install it, and loads extensions."""
    entry = "sqlite3_memlithdefault_init" if as_default else "sqlite3_memlithsqlite_init"
    with contextlib.closing(sqlite3.connect(":memory:")) as connection:
        try:
            connection.enable_load_extension(True)
            connection.execute("select load_extension(?, ?)", (str(plugin_path()), entry))
        except (AttributeError, sqlite3.Error):
            return False
    return True


def uri(path: str | os.PathLike[str], durability: Durability = "full", **parameters: int | str) -> str:
    """The URI of a database on memlith, for sqlite3.connect(..., uri=True). docs/sqlite.md lists the parameters."""
    if durability not in ("full", "weak"):
        raise Invalid(f'durability is "full" or "weak", not {durability!r}')
    query = urllib.parse.urlencode({"vfs": "memlith", "durability": durability, **parameters})
    # An absolute path: SQLite takes what follows file:// up to a slash for the name of a host.
    return f"file:{urllib.parse.quote(os.path.abspath(path))}?{query}"


def connect(
    path: str | os.PathLike[str],
    *,
    durability: Durability = "full",
    window_ms: int | None = None,
    window_bytes: int | None = None,
    log_mib: int | None = None,
    log_max_mib: int | None = None,
    memory_max_mib: int | None = None,
    **arguments: Any,
) -> sqlite3.Connection:
    """Opens a database on memlith; `arguments` are those of sqlite3.connect.

    "full": a commit is durable when it returns. "weak": a commit returns at the speed of memory, and is durable within
    window_ms (100) or window_bytes (16 MiB), in order.
    """
    register()
    parameters = {"window_ms": window_ms, "window_bytes": window_bytes, "log_mib": log_mib, "log_max_mib": log_max_mib,
                  "memory_max_mib": memory_max_mib}
    given = {name: value for name, value in parameters.items() if value is not None}
    opened: sqlite3.Connection = sqlite3.connect(uri(path, durability, **given), uri=True, **arguments)
    return opened
