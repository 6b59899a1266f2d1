#!/usr/bin/env python3
"""A side of bench.py: an array in a region of the C interface. library.py LIBMEMLITH.SO STORE BYTES

For each line of JSON from standard input, stores `value` to `rows` (null: to everything), persists, and prints the
seconds that both took together.
"""
import ctypes
import json
import os
import sys
import time

import numpy as np

CREATE, SCAN = 1, 1


def main(library, path, size):
    library = ctypes.CDLL(library)
    library.memlith_region_address.restype = ctypes.c_void_p

    def check(code):
        if code != 0:
            message = ctypes.create_string_buffer(1000)
            library.memlith_last_error(message, 1000)
            sys.exit(message.value.decode())

    store, region = ctypes.c_void_p(), ctypes.c_void_p()
    store_options = (ctypes.c_uint64 * 2)(16, CREATE)  # struct_size, and the fields up to there
    region_options = (ctypes.c_uint64 * 3)(24, CREATE | SCAN << 32, size)
    check(library.memlith_store_open(os.fsencode(path), store_options, ctypes.byref(store)))
    check(library.memlith_region_open(store, b"a", region_options, ctypes.byref(region)))
    memory = (ctypes.c_char * size).from_address(library.memlith_region_address(region))
    array = np.frombuffer(memory, "f8").reshape(-1, 512)
    array.sum()  # in memory, as an array that is in use
    for line in sys.stdin:
        request = json.loads(line)
        began = time.perf_counter()
        if request["rows"] is None:
            array[:] = request["value"]
        else:
            for row in request["rows"]:
                array[row] = request["value"]
        check(library.memlith_persist_all(store, 0))
        print(time.perf_counter() - began, flush=True)
    check(library.memlith_store_close(store))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
