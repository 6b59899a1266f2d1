"""Checkpoints of computations: whatever pickle takes, whose arrays are written only where they changed.

    checkpoint = memlith.checkpoint.Checkpoint("run")
    state = checkpoint.load() or {"weights": np.zeros(1000), "step": 0}
    while state["step"] < 1000:
        ...                        # compute
        checkpoint.save(state)     # durable: this state, or after a crash the one before

The state is any tree of dictionaries, lists, NumPy arrays, PyTorch tensors and objects that pickle takes. Tensors come
back as torch.save and torch.load have them: of any type and layout, parameters as parameters, and those that share
memory share it again. They come back in main memory. As with pickle, load only checkpoints that you trust.
"""

from __future__ import annotations

import io
import os
import pickle
import sys
from typing import Any, Callable, NamedTuple, cast

import numpy as np

from . import _core, _header
from ._errors import Corrupt, NotFound
from ._store import Array, Store
from ._ticket import Ticket
from ._transaction import Transaction

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
        """Makes the state durable, and returns how many bytes of its arrays had changed since the last one.

        A save that raises, or that a signal handler interrupts, leaves the state of the save before, in the store and
        in the arrays that load(copy=False) returned. An interruption may also come when the state is written and only
        waits to be durable; then it counts as saved.
        """
        with self._store.transaction():
            return self._write(state)

    def save_async(self, state: Any) -> Ticket:
        """Copies what changed, and returns. The state may change at once; the ticket tells when the copy is durable."""
        store = self._store
        with Transaction[None](store._core, store._threads.waiter, None, True, True, None):  # weak: it does not wait
            self._write(state)
        return store.persist_async()

    def load(self, copy: bool = True) -> Any:
        """The last state that was saved, or None. With copy=False, NumPy arrays are the checkpoint's own memory.

        A computation that changes these arrays in place saves without copying or comparing them. They show the state as
        of the last save after a crash, but not after an exception outside of save(): load again then, after closing the
        checkpoint.
        """
        try:
            whole = self._store["index"].tobytes()
        except NotFound:  # or its first save was cut off
            return None
        if not any(whole[:8]):  # its first save was cut off
            return None
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
        # An array in front may overwrite bytes that lie in the data already, unless they stay in their place.
        pairs = list(zip(pickler.arrays, slots))
        sources = [array.copy() if self._is_elsewhere(array, slot) else array for array, slot in pairs]
        for array, slot in zip(sources, slots):
            target = self._array(slot)
            if array.ctypes.data != target.ctypes.data:
                changed += _core.copy_changed(target, array)
        _core.copy_changed(self._store["index"][: len(index)], index)
        return changed

    def _room(self, name: str, count: int) -> None:
        try:
            length = len(self._store[name])
        except NotFound:  # or a crash has left it without a head
            self._store.zeros(name, max(count, 1), "u1", max_bytes=max(1 << 38, 4 * count))
            return
        if length < count:
            self._store.resize(name, count + count // 4)

    def _is_elsewhere(self, array: Array, slot: _Slot) -> bool:
        data = self._store["data"]
        return np.may_share_memory(array, data) and array.ctypes.data != data.ctypes.data + slot.offset


class _Pickler(pickle.Pickler):
    """Leaves large arrays and the storages of tensors out, and keeps them in the order in which they came."""

    def __init__(self, file: io.BytesIO) -> None:
        super().__init__(file, protocol=5)
        self.arrays: list[Array] = []
        self._numbers: dict[tuple[str, int], int] = {}
        self._kept: list[Any] = []  # so that no other object gets the identity of one that was numbered

    def persistent_id(self, thing: Any) -> tuple[str, int] | tuple[str, int, str] | None:
        if type(thing) is np.ndarray:
            if thing.dtype.hasobject or thing.nbytes < _INLINE_BYTES or not _has_descr(thing.dtype):
                return None
            return "numpy", self._number("numpy", id(thing), thing, lambda: np.ascontiguousarray(thing))
        torch = sys.modules.get("torch")
        if torch is None or not isinstance(thing, (torch.storage.TypedStorage, torch.storage.UntypedStorage)):
            return None
        # Tensors pickle themselves as views of a storage.
        untyped = _untyped(thing) if isinstance(thing, torch.storage.TypedStorage) else thing
        if untyped.nbytes() == 0:
            return None
        number = self._number("storage", untyped._cdata, untyped, lambda: _bytes_of(torch, untyped))
        return "storage", number, "" if untyped is thing else str(thing.dtype)

    def reducer_override(self, thing: Any) -> Any:
        torch = sys.modules.get("torch")
        if torch is None or type(thing) is not torch.Tensor or not (thing.is_conj() or thing.is_neg()):
            return NotImplemented
        # A view whose values are the conjugates of those in the storage, of which PyTorch 1 would keep the storage.
        plain = thing.detach().resolve_conj().resolve_neg().requires_grad_(thing.requires_grad)
        self._kept.append(plain)
        return plain.__reduce_ex__(5)

    def _number(self, kind: str, identity: int, thing: Any, array: Callable[[], Array]) -> int:
        number = self._numbers.setdefault((kind, identity), len(self.arrays))
        if number == len(self.arrays):
            self.arrays.append(array())
            self._kept.append(thing)
        return number


class _Unpickler(pickle.Unpickler):
    def __init__(self, file: io.BytesIO, arrays: list[Array], copy: bool) -> None:
        super().__init__(file)
        self._arrays = arrays
        self._copy = copy
        self._made: dict[tuple[str, int], Any] = {}

    def persistent_load(self, name: tuple[Any, ...]) -> Any:
        kind, number = name[:2]
        if (kind, number) not in self._made:
            array = self._arrays[number]
            if kind == "numpy":
                self._made[kind, number] = array.copy() if self._copy else array
            else:
                self._made[kind, number] = _tensor(array)
        made = self._made[kind, number]
        if kind != "storage":
            return made  # "torch" is a tensor of an earlier version
        import torch  # type: ignore[import-not-found,unused-ignore]

        untyped = _untyped(made.storage() if not hasattr(made, "untyped_storage") else made._typed_storage())
        if not name[2]:
            return untyped
        dtype = getattr(torch, name[2].rpartition(".")[2])
        try:
            return torch.storage.TypedStorage(wrap_storage=untyped, dtype=dtype, _internal=True)
        except TypeError:  # before PyTorch 2
            return torch.storage.TypedStorage(wrap_storage=untyped, dtype=dtype)


def _has_descr(dtype: np.dtype[Any]) -> bool:
    """True if a type can be told in text: not those of other packages, such as bfloat16."""
    if dtype.names is None and dtype.kind == "V" and dtype.subdtype is None and dtype.type is not np.void:
        return False
    return bool(_header.formats.descr_to_dtype(_header.formats.dtype_to_descr(dtype)) == dtype)


def _untyped(storage: Any) -> Any:
    return storage._untyped_storage if hasattr(storage, "_untyped_storage") else storage._storage  # before PyTorch 2


def _bytes_of(torch: Any, untyped: Any) -> Array:
    untyped = untyped if untyped.device.type == "cpu" else untyped.cpu()
    array: Array = torch.tensor([], dtype=torch.uint8).set_(untyped).numpy()
    return array


def _tensor(array: Array) -> Any:
    import torch

    return torch.from_numpy(array.copy())
