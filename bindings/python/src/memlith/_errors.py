"""The exceptions of memlith: one class for each category of the C interface, with memlith's own sentence as message."""

from . import _core


class Error(Exception):
    """Every error of memlith. The message says what failed, where, and what to do."""

    category = 0


class Invalid(Error, ValueError):
    """An argument is wrong, or a precondition of the call does not hold."""

    category = 1


class NotFound(Error, LookupError):
    """The store, file or region does not exist."""

    category = 2


class Exists(Error):
    """The store or region exists already."""

    category = 3


class Busy(Error):
    """The store or region is open, here or in another process, which the message names."""

    category = 4


class IOFailure(Error, OSError):
    """A read, write or flush failed. After a failed write or flush the store is poisoned."""

    category = 5


class Corrupt(Error):
    """The disk holds other bytes than were written; the message says where."""

    category = 6


class Incompatible(Error):
    """Another format version, not a memlith file, or an array of another shape or type."""

    category = 7


class Full(Error):
    """The transaction is larger than the log may grow to. Nothing changed; split the transaction."""

    category = 8


class NoSpace(Error, OSError):
    """The file system is full."""

    category = 9


class Poisoned(Error):
    """An earlier write or flush failed. Close and reopen the store."""

    category = 10


class Permission(Error, PermissionError):
    """The process may not do this to the files of the store."""

    category = 11


class ReadOnly(Error):
    """The store was opened read-only."""

    category = 12


class AddressTaken(Error):
    """The region's addresses are in use in this process."""

    category = 13


class Unsupported(Error):
    """Not available on this kernel or file system."""

    category = 14


class NoMemory(Error, MemoryError):
    """No memory. Nothing changed; the call can be tried again."""

    category = 15


class TooManyFiles(Error, OSError):
    """The process or the machine has no free descriptor. Nothing changed."""

    category = 16


class Conflict(Error):
    """Another transaction had the bytes for too long. Abort, and begin the transaction again."""

    category = 17


class NotPersisted(UserWarning):
    """A store was closed, and changes of arrays that no persist had made durable were dropped with it."""


_core.set_error_classes({each.category: each for each in Error.__subclasses__()})
