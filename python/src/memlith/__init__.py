"""memlith: arrays that survive kill -9 and power loss.

    import memlith

    with memlith.open("state") as store:
        weights = store.array("weights", (1000, 1000), "f4")   # a numpy.ndarray, zeros in the first run
        weights[3] += 1
        store.persist()                                        # durable: all changes, or none
"""

from . import checkpoint
from ._core import version
from ._errors import (
    AddressTaken,
    Busy,
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
    Permission,
    Poisoned,
    ReadOnly,
    TooManyFiles,
    Unsupported,
)
from ._store import Store, Tracker, open  # noqa: A004
from ._ticket import Ticket

__version__ = version()

__all__ = [
    "AddressTaken", "Busy", "Corrupt", "Error", "Exists", "Full", "IOFailure", "Incompatible", "Invalid", "NoMemory",
    "NoSpace", "NotFound", "Permission", "Poisoned", "ReadOnly", "Store", "Ticket", "TooManyFiles", "Tracker",
    "Unsupported",
    "checkpoint", "open", "version",
]
