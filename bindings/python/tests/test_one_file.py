"""memlith.open_file: one ordinary file as a store, of an array, of dictionaries or of an application log."""

import pathlib
import shutil

import numpy as np
import pytest
from conftest import Program

import memlith


def test_an_array_in_a_file(folder: pathlib.Path) -> None:
    path = folder / "weights.array"
    with memlith.open_file(path) as store:
        weights = store.array("file", (100, 10), "f4")
        weights[3] = 7
        store.persist()
        weights[4] = 8
        store.rollback()
        assert store.one_file and store.names() == ["file"]
    assert path.is_file()
    with memlith.open_file(path, create=False) as store:
        assert store["file"][3].tolist() == [7] * 10 and store["file"].sum() == 70
        with store.transaction():
            store.resize("file", (200, 10))[150] = 1
    with memlith.open_file(path, read_only=True) as store:
        assert store["file"].shape == (200, 10) and store["file"].sum() == 80


def test_the_file_alone_has_everything_after_a_close(folder: pathlib.Path) -> None:
    with memlith.open_file(folder / "a") as store:
        store.from_array("file", np.arange(1000))
    shutil.copy(folder / "a", folder / "b")
    with memlith.open_file(folder / "b") as store:
        assert store["file"].tolist() == list(range(1000))


def test_a_copy_of_a_file_in_use(folder: pathlib.Path, program: Program) -> None:
    with memlith.open_file(folder / "a") as store:
        array = store.zeros("file", 10, "i8")
        array[:] = 5
        store.persist()
        array[:] = 6
        store.copy(folder / "b")
        store.rollback()
    # In another process: the copy has its original's addresses.
    shown = program.run("""
        import memlith
        with memlith.open_file("b", create=False) as copy:
            print(copy["file"].tolist())
        """)
    assert shown.stdout == f"{[5] * 10}\n", shown.stderr


def test_dictionaries_in_a_file(folder: pathlib.Path) -> None:
    with memlith.open_file(folder / "users") as store:
        users, sizes = memlith.Dict(store, "users"), memlith.Dict(store, "sizes")
        with store.transaction():
            users["ada"] = 1815
            sizes["ada"] = [1, 2]
        assert store.names() == []
    with memlith.open_file(folder / "users", create=False) as store:
        assert dict(memlith.Dict(store, "users")) == {"ada": 1815}
        assert dict(memlith.Dict(store, "sizes")) == {"ada": [1, 2]}
        assert store.names() == []


def test_a_log_in_a_file(folder: pathlib.Path) -> None:
    with memlith.open_file(folder / "orders") as store:
        log = memlith.AppLog(store, size=1 << 20)
        log.append(b"one")
    with memlith.open_file(folder / "orders", create=False) as store:
        assert list(memlith.AppLog(store)) == [(1, b"one")]


def test_another_kind_is_refused(folder: pathlib.Path) -> None:
    with memlith.open_file(folder / "array") as store:
        store.zeros("file", 10)
        with pytest.raises(memlith.Error):
            store.zeros("other", 10)
    with memlith.open_file(folder / "array") as store:
        with pytest.raises(memlith.Incompatible):
            memlith.Dict(store, "d")
        with pytest.raises(memlith.Incompatible):
            memlith.AppLog(store)
        assert store["file"].shape == (10,)
    with memlith.open_file(folder / "dict") as store:
        memlith.Dict(store, "d")["a"] = 1
    with memlith.open_file(folder / "dict") as store:
        with pytest.raises(memlith.Incompatible):
            store.array("file", 10)
        with pytest.raises(memlith.Incompatible):
            memlith.AppLog(store)
    text = folder / "text"
    text.write_bytes(b"a text " * 1000)
    with memlith.open_file(text) as store:
        with pytest.raises(memlith.Incompatible):
            store.array("file", 10)
        with pytest.raises(memlith.Incompatible):
            memlith.Dict(store, "d")
    assert text.read_bytes() == b"a text " * 1000


def test_folders_and_files_are_told_apart(folder: pathlib.Path) -> None:
    with memlith.open(folder / "folder"):
        pass
    with pytest.raises(memlith.Error):
        memlith.open_file(folder / "folder")
    with memlith.open_file(folder / "file") as store:
        store.zeros("file", 10)
    with pytest.raises(memlith.Error):
        memlith.open(folder / "file")
    with pytest.raises(memlith.NotFound):
        memlith.open_file(folder / "none", create=False)
    with pytest.raises(memlith.Exists):
        memlith.open_file(folder / "file", exclusive=True)
    with memlith.open_file(folder / "file"), pytest.raises(memlith.Busy):
        memlith.open_file(folder / "file")
    with pytest.raises(TypeError):
        memlith.open_file(folder / "file", unknown=1)
