"""Checkpoints of computations: whatever pickle takes, whose arrays are written only where they changed.

    checkpoint = memlith.checkpoint.Checkpoint("run")
    state = checkpoint.load() or {"weights": np.zeros(1000), "step": 0}
    while state["step"] < 1000:
        ...                        # compute
        checkpoint.save(state)     # durable: this state, or after a crash the one before

The state is any tree of dictionaries, lists, NumPy arrays, PyTorch tensors and objects that pickle takes. As with
pickle, load only checkpoints that you trust.
"""

from __future__ import annotations

import io
import os
import pickle
import sys
from typing import Any, NamedTuple, cast

import numpy as np

from . import _core, _header
from ._errors import Corrupt
from ._store import Array, Store
from ._ticket import Ticket

__all__ = ["Checkpoint"]

_INLINE_BYTES = 4096  # smaller arrays are pickled with the rest
_ALIGNMENT = 64


class _Slot(NamedTuple):
    """Where an array lies in the data."""

    descr: Any  # of the type, as in a .npy file
    shape: tuple[int, ...]
    offset: int


class Checkpoint:
    """A store that holds one state of a computation. Use one thread at a time."""

    def __init__(self, path: str | bytes | os.PathLike[str] | os.PathLike[bytes], **options: Any) -> None:
        # The first save is one transaction of everything.
        self._store = Store(path, **{"log_max_bytes": 1 << 36, **options})

    def close(self) -> None:
        self._store.close()

    def __enter__(self) -> Checkpoint:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def save(self, state: Any) -> int:
        """Makes the state durable, and returns how many bytes of its arrays had changed since the last one."""
        changed = self._write(state)
        self._store.persist()
        return changed

    def save_async(self, state: Any) -> Ticket:
        """Copies what changed, and returns. The state may change at once; the ticket tells when the copy is durable."""
        self._write(state)
        return self._store.persist_async()

    def load(self, copy: bool = True) -> Any:
        """The last durable state, or None. With copy=False, NumPy arrays are the checkpoint's own memory.

        A computation that changes these arrays in place saves without copying or comparing them. They show the state as
        of the last save after a crash, but not after an exception: load again then, after closing the checkpoint.
        """
        if "index" not in self._store:
            return None
        whole = self._store["index"].tobytes()
        try:
            slots, skeleton = pickle.loads(whole[8 : 8 + int.from_bytes(whole[:8], "little")])
        except Exception as error:
            raise Corrupt(f"{os.fsdecode(self._store.path)}: the checkpoint's index cannot be read: {error}") from error
        arrays = [self._array(_Slot(*slot)) for slot in slots]
        return _Unpickler(io.BytesIO(skeleton), arrays, copy).load()

    def _array(self, slot: _Slot) -> Array:
        dtype = _header.formats.descr_to_dtype(slot.descr)
        return np.ndarray(slot.shape, dtype, cast(Any, self._store["data"]), slot.offset)

    def _write(self, state: Any) -> int:
        file = io.BytesIO()
        pickler = _Pickler(file)
        pickler.dump(state)
        slots: list[_Slot] = []
        end = 0
        for array in pickler.arrays:
            slots.append(_Slot(_header.formats.dtype_to_descr(array.dtype), array.shape, end))
            end += -(-array.nbytes // _ALIGNMENT) * _ALIGNMENT
        index = pickle.dumps(([tuple(slot) for slot in slots], file.getvalue()), protocol=5)
        index = len(index).to_bytes(8, "little") + index

        self._room("data", end)
        self._room("index", len(index))
        changed = 0
        # What lies in the data already may be overwritten by an array before it, unless it stays where it is.
        pairs = list(zip(pickler.arrays, slots))
        sources = [array.copy() if self._is_elsewhere(array, slot) else array for array, slot in pairs]
        for array, slot in zip(sources, slots):
            target = self._array(slot)
            if array.ctypes.data != target.ctypes.data:
                changed += _core.copy_changed(target, array)
        _core.copy_changed(self._store["index"][: len(index)], index)
        return changed

    def _room(self, name: str, count: int) -> None:
        if name not in self._store:
            self._store.zeros(name, max(count, 1), "u1", max_bytes=max(1 << 38, 4 * count))
        elif len(self._store[name]) < count:
            self._store.resize(name, count + count // 4)

    def _is_elsewhere(self, array: Array, slot: _Slot) -> bool:
        data = self._store["data"]
        return np.may_share_memory(array, data) and array.ctypes.data != data.ctypes.data + slot.offset


class _Pickler(pickle.Pickler):
    """Leaves large arrays out, and keeps them in the order in which they came."""

    def __init__(self, file: io.BytesIO) -> None:
        super().__init__(file, protocol=5)
        self.arrays: list[Array] = []
        self._numbers: dict[int, int] = {}
        self._kept: list[Any] = []  # so that no other object gets the identity of one that was numbered

    def persistent_id(self, thing: Any) -> tuple[str, int] | None:
        if type(thing) is np.ndarray:
            kind, array = "numpy", thing
        elif (torch := sys.modules.get("torch")) is not None and isinstance(thing, torch.Tensor):
            kind, array = "torch", thing.detach().cpu().numpy()
        else:
            return None
        if array.dtype.hasobject or array.nbytes < _INLINE_BYTES:
            return None
        number = self._numbers.setdefault(id(thing), len(self.arrays))
        if number == len(self.arrays):
            self.arrays.append(np.ascontiguousarray(array))
            self._kept.append(thing)
        return kind, number


class _Unpickler(pickle.Unpickler):
    def __init__(self, file: io.BytesIO, arrays: list[Array], copy: bool) -> None:
        super().__init__(file)
        self._arrays = arrays
        self._copy = copy
        self._made: dict[tuple[str, int], Any] = {}

    def persistent_load(self, name: tuple[str, int]) -> Any:
        if name not in self._made:
            array = self._arrays[name[1]]
            if name[0] == "torch":
                import torch  # type: ignore[import-not-found,unused-ignore]

                self._made[name] = torch.from_numpy(array.copy())
            else:
                self._made[name] = array.copy() if self._copy else array
        return self._made[name]
