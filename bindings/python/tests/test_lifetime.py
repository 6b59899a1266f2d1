"""Who may outlive whom: arrays, stores, threads, and the interpreter."""

import gc
import os
import pathlib
import subprocess
import sys
import threading
import warnings
import weakref

import numpy as np
import pytest
from conftest import Program

import memlith


@pytest.mark.parametrize("tracker", ["scan", "fault", "explicit"])
@pytest.mark.parametrize("bytes_", [100, 40 << 20])
def test_an_array_outlives_its_store_with_its_values(folder: pathlib.Path, tracker: memlith.Tracker,
                                                     bytes_: int) -> None:
    with memlith.open(folder / "s") as store:
        array = store.array("a", bytes_, "u1", tracker=tracker)
        array[:: max(1, bytes_ // 1000)] = 3
        store.touch("a", array)
        store.persist()
        persisted = array[1]
        array[1] = 9
        expected = array.copy()
        part = array[10:20]
        del array
    assert (part == expected[10:20]).all()
    part[:] = 77
    with memlith.open(folder / "s") as store:
        assert store["a"][1] == persisted
        assert (part == expected[10:20]).all()  # the array is of the store again, as it was persisted


def test_a_reopened_store_takes_its_old_arrays_along(folder: pathlib.Path) -> None:
    arrays = []
    for run in range(20):
        with memlith.open(folder / "s") as store:
            arrays.append(store.array("a", (500, 100), "i4"))
            arrays[-1][run] = run
            assert all((each[run] == run).all() for each in arrays)
            arrays[0][run, 0] = 100
            store.persist()
    assert all((each[:20, 0] == 100).all() for each in arrays)


def test_old_writable_arrays_do_not_fault_when_the_store_is_opened_read_only(folder: pathlib.Path) -> None:
    with memlith.open(folder / "s") as store:
        array = store.array("a", 5000)
    with memlith.open(folder / "s", read_only=True) as store:
        assert not store["a"].flags.writeable
        array[:] = 1
    array[:] = 2
    with memlith.open(folder / "s") as store:
        assert not store["a"].any()


def test_a_copied_store_cannot_take_the_addresses_of_living_arrays(folder: pathlib.Path) -> None:
    import shutil

    with memlith.open(folder / "s") as store:
        array = store.from_array("a", [1, 2, 3])
    shutil.copytree(folder / "s", folder / "copy")
    with memlith.open(folder / "copy") as copy:
        with pytest.raises(memlith.AddressTaken, match='array "a" of another store .* Delete the array'):
            copy["a"]
        del array
        copy["a"][0] = 5
        copy.persist()
    with memlith.open(folder / "s") as store:
        assert list(store["a"]) == [1, 2, 3]


def test_an_array_keeps_its_store_open(folder: pathlib.Path) -> None:
    array = memlith.open(folder / "s").array("a", 10)
    with pytest.raises(memlith.Busy):
        memlith.open(folder / "s")
    array[0] = 1
    del array
    memlith.open(folder / "s").close()


def test_an_opening_waits_for_the_process_before_it(folder: pathlib.Path) -> None:
    server = subprocess.Popen(
        [sys.executable, "-c", "import memlith, sys\n"
         "with memlith.open(sys.argv[1]) as store:\n"
         "    memlith.Dict(store, 'd')['served'] = 'yes'\n"
         "    print('open', flush=True)\n"
         "    sys.stdin.read()\n", str(folder / "s")], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert server.stdin is not None and server.stdout is not None
    assert server.stdout.readline() == "open\n"
    with pytest.raises(memlith.Busy, match="is in use by"):
        memlith.open(folder / "s", wait=0.02)
    ends = threading.Timer(0.02, server.stdin.close)
    ends.start()
    with memlith.open(folder / "s", wait=600) as store:
        assert memlith.Dict(store, "d")["served"] == "yes"
    ends.join()
    assert server.wait() == 0
    for wait in (-1, 86_401, float("nan")):
        with pytest.raises(memlith.Invalid, match="0 to 86400 seconds"):
            memlith.open(folder / "s", wait=wait)


def test_reference_cycles_are_collected(folder: pathlib.Path) -> None:
    class Model:
        def __init__(self) -> None:
            self.store = memlith.open(folder / "s")
            self.weights = self.store.array("w", 10)
            self.me = self
            self.ticket = self.store.persist_async()
            self.ticket.add_done_callback(lambda ticket: None)

    seen = weakref.ref(Model())
    gc.collect()
    assert seen() is None
    memlith.open(folder / "s").close()


def test_calls_on_a_closed_store_raise(folder: pathlib.Path) -> None:
    store = memlith.open(folder / "s")
    array = store.array("a", 10)
    ticket = store.persist_async()
    store.close()
    store.close()
    assert store.closed and "closed" in repr(store)
    for call in (store.persist, store.persist_async, store.rollback, store.checkpoint, store.info, store.stats,
                 store.names, store.snapshot, lambda: store.array("a"), lambda: store.array("b", 3),
                 lambda: store.resize("a", 3), lambda: store.remove("a"), lambda: store.touch("a", array),
                 lambda: store.set_window(1), lambda: store.transaction().__enter__()):
        with pytest.raises(memlith.Invalid, match="closed"):
            call()
    assert ticket.done() and ticket.result() is None and array.sum() == 0


def test_a_store_is_closed_while_threads_use_it(folder: pathlib.Path) -> None:
    for _ in range(5):
        store = memlith.open(folder / "s")
        array = store.array("a", 100_000)
        unexpected: list[BaseException] = []

        def work(number: int) -> None:
            try:
                for step in range(10_000):
                    array[number * 1000 + step % 1000] = step
                    store.persist() if number else store.persist_async().result()
            except memlith.Invalid as error:
                assert "closed" in str(error)
            except BaseException as error:
                unexpected.append(error)

        threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        store.close()
        for thread in threads:
            thread.join()
        assert not unexpected


def test_threads_that_store_and_persist(folder: pathlib.Path) -> None:
    with memlith.open(folder / "s") as store:
        array = store.zeros("a", (8, 4096), "i8")

        def work(number: int) -> None:
            for step in range(1, 101):
                array[number] = step
                store.persist()

        threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    with memlith.open(folder / "s") as store:
        assert (store["a"] == 100).all()


def test_transactions_of_threads_come_one_after_the_other(folder: pathlib.Path) -> None:
    with memlith.open(folder / "s") as store:
        array = store.zeros("a", 2, "i8")

        def work(number: int) -> None:
            for step in range(50):
                try:
                    with store.transaction():
                        array[0] += 1
                        if step % 3 == number % 3:
                            raise KeyError
                        store.array(f"b{number}", 10)
                        array[1] += 1
                except KeyError:
                    pass

        threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for _ in range(20):
            store.persist()
        for thread in threads:
            thread.join()
        assert array[0] == array[1] == sum(1 for n in range(4) for s in range(50) if s % 3 != n % 3)


@pytest.mark.parametrize("tracker", ["scan", "fault"])
def test_an_array_longer_than_what_is_found_again(folder: pathlib.Path, tracker: memlith.Tracker) -> None:
    with memlith.open(folder / "s") as store:
        store.zeros("a", (30, 257), "i2", tracker=tracker)
        grown = store.resize("a", (60_000, 257))
        grown[:] = 1
    assert grown.sum() == 60_000 * 257
    for read_only in (True, True, False, False):  # what was not persisted is gone, and the memory is there
        with memlith.open(folder / "s", read_only=read_only) as store:
            array = store.array("a", tracker=tracker)
            assert array.shape == (30, 257) and grown[:30].sum() == 0
            grown.sum()
            if not read_only:
                assert (store.resize("a", (60_000, 257))[30:] == 0).all()
                store.rollback()
        grown.sum()


def test_the_interpreter_ends_with_open_stores(program: Program) -> None:
    endings = [("pass", 0), ("import sys; sys.exit(3)", 3), ("raise KeyError('x')", 1),
               ("import threading; threading.Thread(target=lambda: store.persist_async().result(5)).start()", 0),
               ("store.autosave(0.001); import time; time.sleep(0.05)", 0),
               ("store.transaction().__enter__()", 0),
               ("import threading, itertools; daemon = lambda: [store.persist() for _ in itertools.count()]; "
                "[threading.Thread(target=daemon, daemon=True).start() for _ in range(4)]", 0),
               ("import gc; gc.disable(); x = [store, array]; x.append(x); del store, array", 0)]
    for ending, status in endings:
        ended = program.run(f"""
            import memlith
            store = memlith.open("s")
            array = store.array("a", 1000)
            array[:] = 1
            store.persist()
            tickets = [store.persist_async() for _ in range(10)]
            tickets[3].add_done_callback(lambda ticket: None)
            {ending}
            """)
        assert ended.returncode == status, ended
        assert "Fatal" not in ended.stderr and "memlith: closing" not in ended.stderr
        with memlith.open(program.folder / "s") as store:
            assert store.info()["was_clean"] == 1
            assert (store["a"] == 1).all()


def test_numpy_results_are_ordinary_arrays(folder: pathlib.Path) -> None:
    import copy
    import pickle

    with memlith.open(folder / "s") as store:
        array = store.from_array("a", np.arange(6).reshape(2, 3))
        for made in (array + 1, array.copy(), copy.deepcopy(array), pickle.loads(pickle.dumps(array)),
                     array.sum(axis=0)):
            assert made.base is None or not np.shares_memory(made, array)
        with pytest.raises(ValueError):
            array.resize(100)


def test_a_forgotten_persist_is_told(folder: pathlib.Path) -> None:
    def changed(store: memlith.Store) -> None:
        store.array("a", 3)[0] += 1
        store.array("b", 3)

    with pytest.warns(memlith.NotPersisted, match='changes of "a" that no persist') as told:
        with memlith.open(folder / "s") as store:
            changed(store)
    assert [warning.filename for warning in told] == [__file__]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with memlith.open(folder / "s") as store:  # nothing was changed
            assert store["a"][0] == 0
        with memlith.open(folder / "s") as store:
            changed(store)
            store.persist()
        with memlith.open(folder / "s") as store:
            changed(store)
            store.rollback()
        with pytest.raises(KeyError), memlith.open(folder / "s") as store:
            changed(store)
            raise KeyError
        with memlith.open(folder / "s", read_only=True) as store:
            assert store["a"][0] == 1


def test_a_cell_that_is_run_twice_is_told_who_holds_the_store(folder: pathlib.Path) -> None:
    with memlith.open(folder / "s") as store:
        with pytest.raises(memlith.Busy, match=f"this very process, process {os.getpid()} .* close it first"):
            memlith.open(folder / "s")
        assert not store.closed


def test_a_larger_limit_than_the_first_is_honoured(folder: pathlib.Path) -> None:
    with memlith.open(folder / "s") as store:
        store.array("a", 10, max_bytes=1 << 20)
        with pytest.raises(memlith.Invalid, match="open it again with a larger max_size"):
            store.resize("a", 1 << 18)
    with memlith.open(folder / "s") as store:
        store.array("a", 10, max_bytes=1 << 22)
        assert len(store.resize("a", 1 << 18)) == 1 << 18
