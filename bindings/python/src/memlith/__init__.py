"""memlith: arrays and dictionaries that survive kill -9 and power loss.

    import memlith

    with memlith.open("state") as store:
        weights = store.array("weights", (1000, 1000), "f4")   # a numpy.ndarray, zeros in the first run
        weights[3] += 1
        store.persist()                                        # durable: all changes, or none
        memlith.Dict(store, "users")["ada"] = 1815             # durable when the line has run
"""

from . import archive, checkpoint, steps
from ._applog import AppLog, Entry
from ._cache import Cache, cached
from ._core import version
from ._deque import Deque
from ._dict import ABSENT, Codec, Dict, Estimate
from ._errors import (
    AddressTaken,
    Busy,
    Conflict,
    Corrupt,
    Error,
    Exists,
    Full,
    Incompatible,
    Invalid,
    IOFailure,
    NoMemory,
    NoSpace,
    NotFound,
    NotPersisted,
    Permission,
    Poisoned,
    ReadOnly,
    TooManyFiles,
    Unsupported,
)
from ._shared import SharedRegion, SharedTransaction
from ._shared_store import SharedBlock, SharedStore
from ._store import Scope, Store, Tracker, open, open_file  # noqa: A004
from ._ticket import Ticket
from ._transaction import Transaction

__version__ = version()

__all__ = [
    "ABSENT", "AddressTaken", "AppLog", "Busy", "Cache", "Codec", "Conflict", "Corrupt", "Deque", "Dict", "Entry",
    "Error", "Estimate", "Exists", "Full", "IOFailure", "Incompatible", "Invalid", "NoMemory", "NoSpace", "NotFound",
    "NotPersisted", "Permission", "Poisoned", "ReadOnly", "Scope", "SharedBlock", "SharedRegion", "SharedStore",
    "SharedTransaction", "Store", "Ticket", "TooManyFiles", "Tracker", "Transaction", "Unsupported",
    "archive", "cached", "checkpoint", "open", "open_file", "steps", "version",
]
