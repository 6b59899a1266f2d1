"""The head of a region that holds an array: shape and type, in front of the array's bytes.

The head lies in the region, so a rollback and a crash treat it like the array: shape and bytes are always of one
persist. A region whose head is all zeros was created and not persisted; it counts as new.
"""

from __future__ import annotations

import ast
import zlib
from typing import Any, NamedTuple

import numpy as np

from ._errors import Corrupt, Incompatible, Invalid

MAGIC = b"memlith array 1\n"
PAGE_BYTES = 4096
formats: Any = np.lib.format  # without types before NumPy 2
_FIXED_BYTES = len(MAGIC) + 8  # the length of the text and its checksum follow the magic


class Header(NamedTuple):
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    offset: int  # of the array's first byte in the region

    @property
    def array_bytes(self) -> int:
        return count_of(self.shape) * self.dtype.itemsize


def count_of(shape: tuple[int, ...]) -> int:
    count = 1
    for length in shape:
        count *= length
    return count


def shape_of(given: int | tuple[int, ...] | list[int]) -> tuple[int, ...]:
    lengths = (given,) if isinstance(given, (int, np.integer)) else tuple(given)
    shape = tuple(int(length) for length in lengths)
    if any(length < 0 for length in shape):
        raise Invalid(f"a shape has no negative lengths: {shape}")
    return shape


def dtype_of(given: Any) -> np.dtype[Any]:
    dtype: np.dtype[Any] = np.dtype(given)
    if dtype.hasobject:
        raise TypeError(f"an array of {dtype} holds pointers to Python objects, which mean nothing in another run; "
                        "use numbers, fixed-length strings, or structures of them")
    return dtype


def for_array(dtype: np.dtype[Any], shape: tuple[int, ...]) -> Header:
    # The lengths of the shape may gain digits in place, when the array grows.
    text_bytes = len(_text(dtype, shape, 0)) + 16 * (1 + len(shape))
    offset = -(-(_FIXED_BYTES + text_bytes) // PAGE_BYTES) * PAGE_BYTES
    return Header(dtype, shape, offset)


def _text(dtype: np.dtype[Any], shape: tuple[int, ...], offset: int) -> bytes:
    descr = formats.dtype_to_descr(dtype)
    return repr({"dtype": descr, "shape": shape, "offset": offset}).encode()


def write(memory: memoryview, header: Header) -> None:
    text = _text(*header)
    if _FIXED_BYTES + len(text) > header.offset:
        raise Invalid("the array's type and shape do not fit in front of it")
    whole = MAGIC + len(text).to_bytes(4, "little") + zlib.crc32(text).to_bytes(4, "little") + text
    memory[: len(whole)] = whole


def read(memory: memoryview, name: str) -> Header | None:
    """The head of a region; None if the region is new. Bytes from the disk are checked before they are believed."""
    fixed = bytes(memory[:_FIXED_BYTES])
    if not any(fixed):
        return None
    if fixed[: len(MAGIC)] != MAGIC:
        raise Incompatible(f'region "{name}" holds no array of this version; regions of other programs have no shape')
    length = int.from_bytes(fixed[-8:-4], "little")
    text = bytes(memory[_FIXED_BYTES : _FIXED_BYTES + length])
    if len(text) != length or zlib.crc32(text) != int.from_bytes(fixed[-4:], "little"):
        raise Corrupt(f'region "{name}": the head of the array fails its checksum; run `memlith verify` on the store')
    try:
        fields = ast.literal_eval(text.decode())  # the text of a .npy file's head, which holds nothing but literals
        dtype = dtype_of(formats.descr_to_dtype(fields["dtype"]))
        header = Header(dtype, shape_of(fields["shape"]), int(fields["offset"]))
    except (KeyError, TypeError, ValueError, SyntaxError, RecursionError, MemoryError) as error:
        raise Corrupt(f'region "{name}": the head of the array makes no sense: {error}') from error
    if header.offset < _FIXED_BYTES + length or header.offset + header.array_bytes > len(memory):
        raise Corrupt(f'region "{name}": its {len(memory)} bytes are too few for {header.dtype} {header.shape}')
    return header

