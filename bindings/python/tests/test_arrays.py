"""Arrays in a store: what they are, what is refused, and what a reopened store shows."""

import os
import pathlib
import tempfile
import threading
import warnings

import numpy as np
import pytest

import memlith


def test_an_array_is_numpys_own_and_starts_with_zeros(folder: pathlib.Path) -> None:
    with memlith.open(folder / "s") as store:
        array = store.array("a", (3, 4), "f4")
        assert type(array) is np.ndarray
        assert array.dtype == np.float32 and array.shape == (3, 4) and not array.any()
        assert array.flags.c_contiguous and array.flags.aligned and array.flags.writeable
        assert "a" in store and store.names() == ["a"] and list(store) == ["a"] and len(store) == 1


def test_persisted_changes_are_kept_and_others_are_dropped(folder: pathlib.Path) -> None:
    with memlith.open(folder / "s") as store:
        array = store.array("a", 1000, "i8")
        array[:] = np.arange(1000)
        store.persist()
        array[:] = -1
    with memlith.open(folder / "s", create=False) as store:
        assert (store["a"] == np.arange(1000)).all()


@pytest.mark.parametrize("tracker", ["scan", "fault", "auto"])
@pytest.mark.parametrize("dtype", [
    "f8", "<i2", ">u4", "?", "c16", "S7", "U5", "M8[ns]",
    [("key", "i4"), ("value", "f8", (2, 3))],
    [("inner", [("x", "i1"), ("y", "S3")]), ("z", "U5")],
    np.dtype({"names": ["a", "b"], "formats": ["i1", "f8"], "offsets": [0, 8], "itemsize": 32}),
    np.dtype([("a", "i1"), ("b", "f8")], align=True),
])
def test_types_are_found_again(folder: pathlib.Path, dtype: object, tracker: memlith.Tracker) -> None:
    rng = np.random.default_rng(1)
    count = np.dtype(dtype).itemsize * 50
    with memlith.open(folder / "s") as store:
        array = store.array("a", 50, dtype, tracker=tracker)
        if array.dtype.kind in "SU?" or array.dtype.names or array.dtype.kind == "M":
            array[7] = np.ones(1, array.dtype)[0] if array.dtype.kind != "M" else np.datetime64(5, "ns")
        else:
            array.view("u1")[:] = rng.integers(0, 100, count, dtype="u1")
        store.persist()
        expected = array.copy()
    with memlith.open(folder / "s") as store:
        found = store.array("a", 50, dtype)
        assert found.dtype == np.dtype(dtype)
        assert (found == expected).all()


def test_a_type_with_axes_adds_them_to_the_shape(folder: pathlib.Path) -> None:
    with memlith.open(folder / "s") as store:
        assert store.zeros("a", 5, "(2,3)f4").shape == (5, 2, 3)
        assert store.array("a", 5, "(2,3)f4").shape == (5, 2, 3)


def test_shapes_without_elements_and_without_axes(folder: pathlib.Path) -> None:
    with memlith.open(folder / "s") as store:
        assert store.zeros("empty", (0, 3)).shape == (0, 3)
        store.zeros("scalar", ())[...] = 7
        store.persist()
    with memlith.open(folder / "s") as store:
        assert store["empty"].shape == (0, 3)
        assert store["scalar"] == 7 and store["scalar"].shape == ()


def test_full_and_from_array_are_durable_as_a_whole(folder: pathlib.Path) -> None:
    given = np.arange(24, dtype=">i2").reshape(2, 3, 4)[:, ::-1]
    with memlith.open(folder / "s") as store:
        assert store.full("f", (2, 2), 1.5).dtype == np.float64
        store.from_array("g", given)
    with memlith.open(folder / "s") as store:
        assert (store["f"] == 1.5).all()
        assert (store["g"] == given).all() and store["g"].dtype == given.dtype
        for make in (lambda: store.zeros("f", 1), lambda: store.full("f", 1, 1), lambda: store.from_array("f", [1])):
            with pytest.raises(memlith.Exists, match='"f"'):
                make()


def test_another_shape_or_type_is_refused(folder: pathlib.Path) -> None:
    with memlith.open(folder / "s") as store:
        store.array("a", (3, 4), "f4")
        with pytest.raises(memlith.Incompatible, match=r"\(3, 4\), not \(4, 3\)"):
            store.array("a", (4, 3), "f4")
        with pytest.raises(memlith.Incompatible, match="float32, not float64"):
            store.array("a", (3, 4), "f8")


def test_pointers_to_objects_are_refused(folder: pathlib.Path) -> None:
    with memlith.open(folder / "s") as store:
        for dtype in (object, [("a", "i4"), ("b", "O")]):
            with pytest.raises(TypeError, match="pointers"):
                store.array("a", 3, dtype)
        with pytest.raises(memlith.Invalid, match="give strings a length"):
            store.array("a", 3, "U")
        assert store.names() == []


def test_a_structure_can_be_a_view_or_a_record(folder: pathlib.Path) -> None:
    with memlith.open(folder / "s") as store:
        people = store.array("people", 3, [("name", "U10"), ("age", "i4")])
        people[1] = ("Ada", 36)
        people["age"][2] = 9
        store.persist()
    with memlith.open(folder / "s", read_only=True) as store:
        assert store["people"].view(np.recarray).name[1] == "Ada"
        assert list(store["people"]["age"]) == [0, 36, 9]


def test_arrays_that_do_not_exist(folder: pathlib.Path) -> None:
    with pytest.raises(memlith.NotFound):
        memlith.open(folder / "s", create=False)
    with memlith.open(folder / "s") as store:
        with pytest.raises(LookupError, match='no region "a"'):
            store["a"]
        with pytest.raises(memlith.NotFound):
            store.remove("a")
        assert "a" not in store


def test_resize(folder: pathlib.Path) -> None:
    with memlith.open(folder / "s") as store:
        before = store.from_array("a", np.ones((10, 3)))
        after = store.resize("a", (5000, 3))
        assert after.shape == (5000, 3) and after.sum() == 30
        after[10] = 2
        before[0] = 5
        assert (after[0] == 5).all()
        store.persist()
        small = store.resize("a", (4, 3))
        assert small.shape == (4, 3)
        large = store.resize("a", (20, 3))
        assert not large[4:].any()
        store.rollback()
        assert store["a"].shape == (5000, 3) and (store["a"][10] == 2).all()
        with pytest.raises(memlith.Invalid, match="first axis"):
            store.resize("a", (5, 4))
    with memlith.open(folder / "s") as store:
        assert store["a"].shape == (5000, 3) and store["a"].sum() == 3 * (5 + 9 + 2)


def test_growth_has_a_limit_that_can_be_chosen(folder: pathlib.Path) -> None:
    with memlith.open(folder / "s") as store:
        store.zeros("a", 10, "u1", max_bytes=1 << 16)
        with pytest.raises(memlith.Invalid, match="cannot grow"):
            store.resize("a", 1 << 17)
        assert store["a"].shape == (10,)


def test_remove(folder: pathlib.Path) -> None:
    with memlith.open(folder / "s") as store:
        old = store.from_array("a", [1.0, 2.0])
        del store["a"]
        assert list(old) == [1, 2]
        old[0] = 3
        assert store.zeros("a", 7, "i2").shape == (7,)
        assert list(old) == [3, 2]
    with memlith.open(folder / "s") as store:
        assert not store["a"].any()


def test_readers_see_the_last_persist_and_cannot_store(folder: pathlib.Path) -> None:
    with memlith.open(folder / "s") as store:
        store.from_array("a", np.arange(5))
    with memlith.open(folder / "s", read_only=True) as one, memlith.open(folder / "s", read_only=True) as two:
        with pytest.raises(memlith.Busy):
            memlith.open(folder / "s")
        array = one["a"]
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1
        with pytest.raises(ValueError):
            array.flags.writeable = True
        assert list(two["a"]) == list(array)  # elsewhere
        assert two["a"].ctypes.data != array.ctypes.data
        with pytest.raises(memlith.ReadOnly):
            one.array("b", 3)


def test_what_the_kernel_stores_is_found(folder: pathlib.Path) -> None:
    (folder / "bytes").write_bytes(os.urandom(50_000))
    with memlith.open(folder / "s") as store:
        scanned = store.array("scanned", 50_000, "u1")
        faulted = store.array("faulted", 50_000, "u1", tracker="fault")
        store.persist()
        with open(folder / "bytes", "rb", buffering=0) as file:
            assert file.readinto(scanned) == 50_000
        store.prepare("faulted", faulted)
        with open(folder / "bytes", "rb", buffering=0) as file:
            assert file.readinto(faulted) == 50_000
        store.persist()
    with memlith.open(folder / "s") as store:
        for name in ("scanned", "faulted"):
            assert store[name].tobytes() == (folder / "bytes").read_bytes()


def test_explicit_arrays_persist_what_is_touched(folder: pathlib.Path) -> None:
    with memlith.open(folder / "s") as store:
        array = store.array("a", (100, 100), "f4", tracker="explicit")
        array[3], array[5] = 1, 2
        store.touch("a", array[3])
        store.persist()
        assert store.tracker("a")[0] == "explicit"
        with pytest.raises(memlith.Invalid, match="no part"):
            store.touch("a", np.zeros(3))
    with memlith.open(folder / "s") as store:
        assert store["a"][3].all() and not store["a"][5].any()


def test_threads_persist_their_own_rows(folder: pathlib.Path) -> None:
    rows = 6
    with memlith.open(folder / "s") as store:
        grid = store.array("grid", (rows, 4096), "u1", thread_scope=True)
        assert store.tracker("grid")[0] == "fault"
        touched = store.zeros("touched", 8, thread_scope=True, tracker="explicit")
        grid[0], touched[:] = 1, 1
        store.touch("touched", touched)

        def work(row: int) -> None:
            grid[row] = row
            if row % 2:
                store.persist(scope="thread")
            else:
                store.persist_async(scope="thread").result()

        threads = [threading.Thread(target=work, args=(row,)) for row in range(1, rows)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        copy = store.snapshot("grid", "touched")
        assert copy["grid"][:, 0].tolist() == [0, 1, 2, 3, 4, 5] and not copy["touched"].any()
        store.persist(scope="thread")
        assert store.snapshot("touched")["touched"].all()


def test_thread_scope_that_cannot_be(folder: pathlib.Path) -> None:
    with memlith.open(folder / "s") as store:
        with pytest.raises(memlith.Unsupported, match="scan tracker does not tell threads apart"):
            store.array("a", 9, tracker="scan", thread_scope=True)
        store.array("a", 9)
        with pytest.raises(memlith.Unsupported, match="does not tell threads apart"):
            store.persist(scope="thread")
        with pytest.raises(memlith.Invalid, match="there are process, thread"):
            store.persist(scope="tread")  # type: ignore[arg-type]


def test_transactions(folder: pathlib.Path) -> None:
    with memlith.open(folder / "s") as store:
        a, b = store.zeros("a", 10), store.zeros("b", 10, tracker="fault")
        with store.transaction():
            a[:], b[:] = 1, 2
        with pytest.raises(ZeroDivisionError):
            with store.transaction():
                a[0], b[0] = 8, 9
                1 // 0
        assert (a == 1).all() and (b == 2).all()
        with pytest.raises(memlith.Invalid, match="do not nest"):
            with store.transaction():
                a[0] = 5
                with store.transaction():
                    pass
        assert a[0] == 1
        with store.transaction():
            for call in (store.persist, store.persist_async, store.rollback):
                with pytest.raises(memlith.Invalid, match="this thread has a transaction open"):
                    call()
            a[1] = 3
    with memlith.open(folder / "s") as store:
        assert store["a"][1] == 3 and store["a"][0] == 1 and (store["b"] == 2).all()


def test_a_transaction_that_is_too_large_is_rolled_back(folder: pathlib.Path) -> None:
    with memlith.open(folder / "s", log_bytes=1 << 20, log_max_bytes=1 << 20) as store:
        array = store.zeros("a", 1 << 20)
        with pytest.raises(memlith.Full):
            with store.transaction():
                array[:] = 1
        assert not array.any()
        with store.transaction():
            array[:100] = 1


def test_a_snapshot_never_changes(folder: pathlib.Path) -> None:
    with memlith.open(folder / "s") as store:
        a = store.from_array("a", np.arange(1000))
        store.from_array("b", np.ones(3))
        a[0] = 7
        views = store.snapshot()
        store.persist()
        assert views["a"][0] == 0 and set(views) == {"a", "b"}
        assert store.snapshot("a")["a"][0] == 7
    assert (views["a"] == np.arange(1000)).all() and not views["a"].flags.writeable


def test_options_and_counters(folder: pathlib.Path) -> None:
    with pytest.raises(TypeError, match="no option log_mib"):
        memlith.open(folder / "s", log_mib=1)
    with memlith.open(folder / "s", exclusive=True, log_bytes=1 << 22) as store:
        store.zeros("a", 3)
        assert (1 << 22) - 4096 <= store.info()["log_bytes"] <= 1 << 22
        assert store.stats()["frames"] >= 1
        store.checkpoint()
        store.release("a")
    with pytest.raises(memlith.Exists):
        memlith.open(folder / "s", exclusive=True)


def test_a_region_of_another_program_is_no_array(folder: pathlib.Path) -> None:
    with memlith.open(folder / "s") as store:
        store._core.open_region("raw", 8192, 0, 1, 1)
        memoryview(store._memory("raw"))[:4] = b"mine"
        with pytest.raises(memlith.Incompatible, match="no array"):
            store["raw"]
        array = store.zeros("a", 3)
        memoryview(store._memory("a"))[30] ^= 1
        with pytest.raises(memlith.Corrupt, match="checksum"):
            store["a"]
        assert array.shape == (3,)


def test_regions_of_other_programs_are_left_alone(folder: pathlib.Path) -> None:
    with memlith.open(folder / "s") as store:
        store._core.open_region("kv", 8192, 0, 1, 1)
        memoryview(store._memory("kv"))[:4] = b"mine"
        store.from_array("a", [1, 2])
        store.persist()
    for options in ({}, {"read_only": True}):
        with memlith.open(folder / "s", **options) as store:
            assert store.names() == ["a"] == list(store) and len(store) == 1
            assert "a" in store and "kv" not in store and "other" not in store
            assert store.snapshot()["a"].tolist() == [1, 2]
            assert not store._core.is_open("kv")
            with pytest.raises(memlith.Incompatible, match='"kv" holds no array'):
                store.remove("kv")
    with memlith.open(folder / "s") as store:
        store.remove("a")
        with pytest.raises(memlith.NotFound):
            store.remove("a")
        assert store.names() == [] and [region["name"] for region in store._core.regions()] == ["kv"]


def test_wrong_numbers_are_told_in_words_of_python(folder: pathlib.Path) -> None:
    for options in ({"log_bytes": -1}, {"log_max_bytes": 1 << 64}, {"io": 1 << 32}):
        with pytest.raises(memlith.Invalid, match=f"{[*options][0]} takes an integer from 0 to"):
            memlith.open(folder / "s", **options)
    with pytest.raises(TypeError, match="integer"):
        memlith.open(folder / "s", log_bytes="1")  # type: ignore[arg-type]
    with memlith.open(folder / "s", log_bytes=1 << 20, log_max_bytes=1 << 20) as store:
        with pytest.raises(memlith.Invalid, match="not negative"):
            store.set_window(-1)
        with pytest.raises(memlith.Invalid, match="max_bytes"):
            store.array("a", 3, max_bytes=-1)
        store.array("b", 1 << 20)[:] = 1
        with pytest.raises(memlith.Full, match=r"Raise the limit \(log_max_bytes= of memlith.open\)") as raised:
            store.persist()
        assert "memlith_" not in str(raised.value)
        store.rollback()


def test_every_category_has_an_exception() -> None:
    # Those of memlith.steps have no category of the library.
    classes = [each for each in memlith.Error.__subclasses__() if not each.__module__.startswith("memlith.steps")]
    assert sorted(each.category for each in classes) == list(range(1, 18))
    assert all(getattr(memlith, each.__name__) is each for each in classes)


def test_a_store_in_memory_is_warned_of() -> None:
    memory = pathlib.Path("/dev/shm")
    if not memory.is_dir():
        pytest.skip("there is no file system in memory")
    with tempfile.TemporaryDirectory(dir=memory) as place:
        with pytest.warns(RuntimeWarning, match="power"):
            memlith.open(pathlib.Path(place, "s")).close()
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            with pytest.raises(RuntimeWarning):
                memlith.open(pathlib.Path(place, "other"))
        memlith.open(pathlib.Path(place, "other")).close()  # it is not locked
