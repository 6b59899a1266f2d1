#!/usr/bin/env python3
"""Arrow and pandas over an array of a store, without a copy: frames.py FOLDER

The array is the data frame's memory. What changes in the array is seen by both, and `store.persist()` makes it durable.
"""
import sys

import numpy as np
import pandas as pd
import pyarrow as pa

import memlith

ROWS = 100_000


def main(folder: str) -> None:
    with memlith.open(folder) as store:
        prices = store.array("prices", (2, ROWS), "f8")  # a column each: Arrow and pandas want columns together
        prices[0] += np.arange(ROWS)
        prices[1] += 1

        frame = pd.DataFrame({"bid": prices[0], "ask": prices[1]}, copy=False)
        table = pa.table({name: pa.Array.from_buffers(pa.float64(), ROWS, [None, pa.py_buffer(column)])
                          for name, column in zip(("bid", "ask"), prices)})

        prices[1, 7] = -5
        store.persist()
        assert frame["ask"][7] == -5 and table["ask"][7].as_py() == -5  # the same memory
        assert table["bid"].chunk(0).buffers()[1].address == prices.ctypes.data
        assert np.shares_memory(frame["bid"].to_numpy(), prices)
        print(f"{len(frame)} rows, mean of the bids {frame['bid'].mean():.1f}, none of them copied")


if __name__ == "__main__":
    main(*sys.argv[1:])
