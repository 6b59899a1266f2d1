"""LangGraph's checkpoints in a store: `graph.compile(checkpointer=memlith.langgraph.Saver(store))`.

Needs the package langgraph-checkpoint: pip install "memlith[langgraph]".
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    WRITES_IDX_MAP,
    BaseCheckpointSaver,
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    get_checkpoint_id,
    get_checkpoint_metadata,
)
from langgraph.checkpoint.serde.base import SerializerProtocol

from . import _core
from ._dict import Dict
from ._errors import Invalid
from ._store import Store
from .steps._format import pack_parts, split_parts

# Keys, behind the thread and its namespace: (_CHECKPOINT, id), (_VALUE, channel, version), (_WRITE, id, task, index).
_CHECKPOINT, _VALUE, _WRITE = 0, 1, 2
_EMPTY = "empty"  # the type of a channel without a value


class Saver(BaseCheckpointSaver[str]):
    """Keeps the checkpoints of graphs in the dictionary `name` of a store. Any thread or task may use it.

    A checkpoint with its values is one commit, and so are the writes of a task; both are durable on return, in the
    order of the calls. With weak=True they return when they are in memory, and are durable within 100 ms, in order: a
    crash leaves a prefix, so that a thread has no checkpoint without the writes that came before. In a transaction of
    the store (`with store.transaction():`, and `tx.use()` in other threads) a checkpoint is one commit with the data.
    """

    def __init__(self, store: Store, name: str = "langgraph", *, serde: SerializerProtocol | None = None,
                 weak: bool = False) -> None:
        super().__init__(serde=serde)
        self._records: Dict[bytes] = Dict(store, name, codec="raw", weak=weak)

    # ---- reading ----

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        thread, space, checkpoint = _place(config)
        if checkpoint is None:
            first, end = _core.encode_prefix((thread, space, _CHECKPOINT))
            keys, found, _ = self._records.batch(first, end, True, 1, True)
            return self._tuple(thread, space, keys[0][3], found[0]) if keys else None
        data = self._records.get((thread, space, _CHECKPOINT, checkpoint))
        return None if data is None else self._tuple(thread, space, checkpoint, data)

    def list(self, config: RunnableConfig | None, *, filter: dict[str, Any] | None = None,  # noqa: A002
             before: RunnableConfig | None = None, limit: int | None = None) -> Iterator[CheckpointTuple]:
        thread, space, wanted = _place(config) if config else (None, None, None)
        if config and "checkpoint_ns" not in config["configurable"]:
            space = None
        earlier = get_checkpoint_id(before) if before else None
        count = 0
        for key in self._places(thread, space):
            for (_, _, _, checkpoint), data in self._records.items_in(prefix=(*key, _CHECKPOINT), reverse=True):
                if limit is not None and count >= limit:
                    return
                if wanted is not None and checkpoint != wanted or earlier is not None and checkpoint >= earlier:
                    continue
                found = self._tuple(*key, checkpoint, data)
                if all(found.metadata.get(name) == value for name, value in (filter or {}).items()):
                    count += 1
                    yield found

    def _places(self, thread: str | None, space: str | None) -> Iterator[tuple[str, str]]:
        """The threads and namespaces that have something, each once."""
        if thread is not None and space is not None:
            yield thread, space
            return
        first, end = _core.encode_prefix(() if thread is None else (thread,))
        while keys := self._records.batch(first, end, False, 1, False)[0]:
            place = keys[0][:2]
            yield place
            first = _core.encode_prefix(place)[1]

    def _tuple(self, thread: str, space: str, checkpoint: str, data: bytes) -> CheckpointTuple:
        content, metadata, parent = self._split(data)
        found: Checkpoint = self.serde.loads_typed(content)
        values = {}
        for channel, version in found["channel_versions"].items():
            value = self._records.get((thread, space, _VALUE, channel, version))
            if value is not None and (typed := _typed(value))[0] != _EMPTY:
                values[channel] = self.serde.loads_typed(typed)
        writes = []
        for (*_, task, index), write in self._records.items_in(prefix=(thread, space, _WRITE, checkpoint)):
            kind, typed_content, written_to, path = split_parts(write, 0, 4)
            loaded = self.serde.loads_typed((kind.decode(), typed_content))
            writes.append((path.decode(), task, index, written_to.decode(), loaded))
        writes.sort(key=lambda write: write[:3])  # as the tasks were applied
        return CheckpointTuple(
            config=_config(thread, space, checkpoint), checkpoint={**found, "channel_values": values},
            metadata=self.serde.loads_typed(metadata), parent_config=_config(thread, space, parent) if parent else None,
            pending_writes=[(task, channel, value) for _, task, _, channel, value in writes])

    @staticmethod
    def _split(data: bytes) -> tuple[tuple[str, bytes], tuple[str, bytes], str]:
        kind, content, kind_of_metadata, metadata, parent = split_parts(data, 0, 5)
        return (kind.decode(), content), (kind_of_metadata.decode(), metadata), parent.decode()

    # ---- writing ----

    def put(self, config: RunnableConfig, checkpoint: Checkpoint, metadata: CheckpointMetadata,
            new_versions: ChannelVersions) -> RunnableConfig:
        thread, space, parent = _place(config)
        content: dict[str, Any] = dict(checkpoint)
        values = content.pop("channel_values")
        kind, data = self.serde.dumps_typed(content)
        kind_of_metadata, about = self.serde.dumps_typed(get_checkpoint_metadata(config, metadata))
        record = pack_parts(kind.encode(), data, kind_of_metadata.encode(), about, (parent or "").encode())
        typed = {channel: self.serde.dumps_typed(values[channel]) if channel in values else (_EMPTY, b"")
                 for channel in new_versions}
        with self._records.transact():
            for channel, version in new_versions.items():
                of, value = typed[channel]
                self._records[(thread, space, _VALUE, channel, version)] = pack_parts(of.encode(), value)
            self._records[(thread, space, _CHECKPOINT, checkpoint["id"])] = record
        return _config(thread, space, checkpoint["id"])

    def put_writes(self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str,
                   task_path: str = "") -> None:
        thread, space, checkpoint = _place(config)
        if checkpoint is None:
            raise Invalid("writes belong to a checkpoint: the configuration has no checkpoint_id")
        packed = []
        for index, (channel, value) in enumerate(writes):
            kind, data = self.serde.dumps_typed(value)
            packed.append((WRITES_IDX_MAP.get(channel, index),
                           pack_parts(kind.encode(), data, channel.encode(), task_path.encode())))
        with self._records.transact():
            for index, record in packed:
                key = (thread, space, _WRITE, checkpoint, task_id, index)
                if index < 0 or key not in self._records:  # a task that is executed again has written it already
                    self._records[key] = record

    # ---- removing and copying ----

    def delete_thread(self, thread_id: str) -> None:
        self._records.remove_range(prefix=(str(thread_id),))

    def delete_for_runs(self, run_ids: Sequence[str]) -> None:
        """Deletes the checkpoints of these runs, and their writes, in one commit."""
        wanted = set(run_ids)
        with self._records.transact():
            for key in list(self._places(None, None)):
                gone = []
                for (_, _, _, checkpoint), data in self._records.items_in(prefix=(*key, _CHECKPOINT)):
                    metadata = self.serde.loads_typed(self._split(data)[1])
                    if metadata.get("run_id") in wanted:
                        gone.append(checkpoint)
                self._drop(*key, gone)

    def copy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """Copies all checkpoints, values and writes of a thread, in one commit."""
        with self._records.transact():
            for key, data in list(self._records.items_in(prefix=(str(source_thread_id),))):
                self._records[(str(target_thread_id), *key[1:])] = data

    def prune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """Deletes all of these threads ("delete"), or all but the newest checkpoint of each namespace ("keep_latest").

        Earlier checkpoints from which a channel of the newest one is computed stay, too. A thread is one commit.
        """
        if strategy not in ("keep_latest", "delete"):
            raise Invalid(f'strategy is {strategy!r}; it can be "keep_latest" or "delete"')
        for thread_id in thread_ids:
            if strategy == "delete":
                self.delete_thread(thread_id)
                continue
            with self._records.transact():
                for key in list(self._places(str(thread_id), None)):
                    self._drop(*key, self._before_newest(*key))

    def _before_newest(self, thread: str, space: str) -> Sequence[str]:
        all_of_it = {checkpoint: data for (_, _, _, checkpoint), data
                     in self._records.items_in(prefix=(thread, space, _CHECKPOINT))}
        at: str | None = max(all_of_it, default=None)
        missing: set[str] | None = None  # channels of the newest one whose values lie further back
        while at is not None and at in all_of_it:
            content, _, parent = self._split(all_of_it.pop(at))
            found = {channel for channel, version in self.serde.loads_typed(content)["channel_versions"].items()
                     if self._has_value((thread, space, _VALUE, channel, version))}
            if missing is None:
                missing = set(self.serde.loads_typed(content)["channel_versions"]) - found
            missing -= found
            at = parent if missing and parent else None
        return list(all_of_it)

    def _has_value(self, key: tuple[Any, ...]) -> bool:
        value = self._records.get(key)
        return value is not None and _typed(value)[0] != _EMPTY

    def _drop(self, thread: str, space: str, checkpoints: Sequence[str]) -> None:
        """Removes checkpoints with their writes, and the values that none of the others has. In a transaction."""
        if not checkpoints:
            return
        for checkpoint in checkpoints:
            del self._records[(thread, space, _CHECKPOINT, checkpoint)]
            self._records.remove_range(prefix=(thread, space, _WRITE, checkpoint))
        used = set()
        for _, data in self._records.items_in(prefix=(thread, space, _CHECKPOINT)):
            used.update(self.serde.loads_typed(self._split(data)[0])["channel_versions"].items())
        for key in list(self._records.irange(prefix=(thread, space, _VALUE))):
            if key[3:] not in used:
                del self._records[key]

    def get_next_version(self, current: str | None, channel: None) -> str:
        """Versions differ between branches of a thread: a number, and a random one behind it."""
        number = 0 if current is None else current if isinstance(current, int) else int(current.split(".")[0])
        return f"{number + 1:032}.{random.random():016}"

    # ---- asyncio: in threads, because each waits for the disk ----

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        return await asyncio.to_thread(self.get_tuple, config)

    async def alist(self, config: RunnableConfig | None, *, filter: dict[str, Any] | None = None,  # noqa: A002
                    before: RunnableConfig | None = None, limit: int | None = None) -> AsyncIterator[CheckpointTuple]:
        found = self.list(config, filter=filter, before=before, limit=limit)
        while (each := await asyncio.to_thread(next, found, None)) is not None:
            yield each

    async def aput(self, config: RunnableConfig, checkpoint: Checkpoint, metadata: CheckpointMetadata,
                   new_versions: ChannelVersions) -> RunnableConfig:
        return await asyncio.to_thread(self.put, config, checkpoint, metadata, new_versions)

    async def aput_writes(self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str,
                          task_path: str = "") -> None:
        await asyncio.to_thread(self.put_writes, config, writes, task_id, task_path)

    async def adelete_thread(self, thread_id: str) -> None:
        await asyncio.to_thread(self.delete_thread, thread_id)

    async def adelete_for_runs(self, run_ids: Sequence[str]) -> None:
        await asyncio.to_thread(self.delete_for_runs, run_ids)

    async def acopy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        await asyncio.to_thread(self.copy_thread, source_thread_id, target_thread_id)

    async def aprune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        await asyncio.to_thread(self.prune, thread_ids, strategy=strategy)


def _place(config: RunnableConfig) -> tuple[str, str, str | None]:
    found = config["configurable"]
    return str(found["thread_id"]), found.get("checkpoint_ns", ""), get_checkpoint_id(config)


def _config(thread: str, space: str, checkpoint: str) -> RunnableConfig:
    return {"configurable": {"thread_id": thread, "checkpoint_ns": space, "checkpoint_id": checkpoint}}


def _typed(data: bytes) -> tuple[str, bytes]:
    kind, content = split_parts(data, 0, 2)
    return kind.decode(), content
