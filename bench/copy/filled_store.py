"""A store with one region, written through the C interface. For bench.py."""
import ctypes
import os
import random

CREATE, EXPLICIT = 1, 2
BLOCK = 16 << 20
PAGE = 4096


class FilledStore:
    """Open for writing until close(). Half of the bytes are random, so that half of them compresses away."""

    def __init__(self, library, path, region_bytes, log_bytes):
        self._library = ctypes.CDLL(str(library))
        self._library.memlith_region_address.restype = ctypes.c_void_p
        self._library.memlith_touch.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint64]
        self._library.memlith_persist_all.argtypes = [ctypes.c_void_p, ctypes.c_uint32]
        self._store, self._region = ctypes.c_void_p(), ctypes.c_void_p()
        # struct_size, flags and io, log_bytes; struct_size, flags and tracker, size
        options = (ctypes.c_uint64 * 3)(24, CREATE, log_bytes)
        region_options = (ctypes.c_uint64 * 3)(24, CREATE | EXPLICIT << 32, region_bytes)
        self._check(self._library.memlith_store_open(os.fsencode(path), options, ctypes.byref(self._store)))
        self._check(self._library.memlith_region_open(self._store, b"bench", region_options,
                                                      ctypes.byref(self._region)))
        self._address = self._library.memlith_region_address(self._region)
        self._bytes = region_bytes
        self._random = random.Random(1)

    def _check(self, code):
        if code != 0:
            message = ctypes.create_string_buffer(1000)
            self._library.memlith_last_error(message, 1000)
            raise SystemExit(message.value.decode())

    def _content(self, count):
        return b"".join(self._random.randbytes(PAGE // 2) + b"0123456789abcdef" * (PAGE // 32)
                        for _ in range(count // PAGE))

    def _put(self, offset, content):
        ctypes.memmove(self._address + offset, content, len(content))
        self._check(self._library.memlith_touch(self._region, self._address + offset, len(content)))

    def fill(self):
        """All of the region, and home: nothing of it is left in the log."""
        content = self._content(min(BLOCK, self._bytes))
        for offset in range(0, self._bytes, BLOCK):
            self._put(offset, content[:self._bytes - offset])
            self._check(self._library.memlith_persist_all(self._store, 0))
        self._check(self._library.memlith_store_checkpoint(self._store))

    def change(self, log_bytes):
        """Persists of 16 random pages each, until they have filled so much of the log."""
        content = self._content(16 * PAGE)
        for _ in range(log_bytes // len(content)):
            for page in range(16):
                self._put(self._random.randrange(self._bytes // PAGE) * PAGE, content[page * PAGE:(page + 1) * PAGE])
            self._check(self._library.memlith_persist_all(self._store, 0))

    def close(self):
        self._check(self._library.memlith_store_close(self._store))
