"""Messages of runs for others, in an application log of the store."""

from __future__ import annotations

import struct
from typing import Any, Iterator, NamedTuple

from .._applog import AppLog
from .._dict import codec_of
from .._errors import Corrupt, Incompatible
from .._store import Store

LOG = "steps.outbox"
VERSION = 1
_FIXED = struct.Struct("<BBHI")


class Message(NamedTuple):
    number: int  # 1, 2, 3, ...
    run: str  # the id of the run whose step sent it; "" if none did
    position: int  # of that step
    content: Any


class Outbox:
    """The messages of a store: sent in the commits of steps, read when they are durable, in their order.

        with store.transaction():       # in a step of a run: run.outbox.append(...)
            outbox.append("hello")
        for message in outbox:          # one thread, of the process that writes the store
            deliver(message)
            outbox.consume(message.number)

    A message is read as long as it is not consumed, so after a crash the newest ones come again: a receiver tells them
    by `(run, position)`, or by `number`. In a transaction, `consume` is one with what the message has caused in the
    store: exactly once. Another process follows the store (`memlith.open(path, follow=True)`), keeps the number of the
    last message that it has dealt with, and reads those `after` that one; power cuts never take back what it has seen.
    """

    def __init__(self, store: Store) -> None:
        """Opens the outbox of the store, and creates it if it does not exist: 64 MiB, which grow as they are needed."""
        self._log = AppLog(store, LOG, when_full="grow", create=not store.read_only)

    def append(self, content: Any, *, codec: Any = "pickle", run: str = "", position: int = 0) -> None:
        """Sends a message: in a transaction with its commit, else durably on return."""
        name, dumps, _ = codec_of(codec)
        entry = pack(run, position, name, bytes(content) if dumps is None else dumps(content))
        if self._log.append(entry) is not None:
            self._log.write()

    def read(self, wait: float | None = 0, *, codec: Any = None) -> Message | None:
        """The next durable message that was not read. If there is none, waits up to `wait` seconds (None: for ever)."""
        entry = self._log.read(wait)
        return None if entry is None else unpack(entry.number, entry.content, codec)

    def __iter__(self) -> Iterator[Message]:
        """The durable messages that were not read, up to the last one that there is."""
        while (message := self.read()) is not None:
            yield message

    def after(self, number: int, *, codec: Any = None) -> Iterator[Message]:
        """The durable messages behind message `number`, without consumed ones: for readers with their own place."""
        info = self._log.info()
        for each in range(max(number, info["consumed"]) + 1, info["durable"] + 1):
            content = self._log.get(each)
            if content is not None:
                yield unpack(each, content, codec)

    def consume(self, number: int) -> None:
        """Every message up to that one, which was read, has been dealt with; its room is free."""
        self._log.consume(number)

    def rewind(self) -> None:
        """The next message to be read is the first that was not consumed, as after opening."""
        self._log.rewind()

    def info(self) -> dict[str, int]:
        """Size and room in bytes; the numbers `newest`, `durable`, `read` and `consumed`."""
        return self._log.info()


def pack(run: str, position: int, codec: str, content: bytes) -> bytes:
    name, of = run.encode(), codec.encode()
    return _FIXED.pack(VERSION, len(of), len(name), position) + of + name + content


def unpack(number: int, entry: bytes, codec: Any) -> Message:
    try:
        version, codec_bytes, run_bytes, position = _FIXED.unpack_from(entry)
        at = _FIXED.size + codec_bytes
        of, run = entry[_FIXED.size : at].decode(), entry[at : at + run_bytes].decode()
    except (struct.error, UnicodeDecodeError) as error:
        raise Corrupt(f"message {number} of the outbox makes no sense; run `memlith verify` on the store") from error
    if version != VERSION:
        raise Incompatible(f"message {number} of the outbox is of version {version}; this memlith reads {VERSION}")
    name, _, loads = codec_of(of if codec is None else codec)  # type: ignore[arg-type]
    if name != of:
        raise Incompatible(f'message {number} of the outbox is of the codec "{of}", not "{name}"')
    content = entry[at + run_bytes :]
    return Message(number, run, position, content if loads is None else loads(content))
