"""`store.copy`: a whole store of its own, as the newest persist left it, beside persists that go on."""

import threading

import pytest

import memlith


def test_a_copy_has_what_was_persisted(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with memlith.open("store") as store:
        (tmp_path / "elsewhere").mkdir()
        monkeypatch.chdir(tmp_path / "elsewhere")
        numbers = store.zeros("numbers", 1000, "i8")
        numbers[:] = 7
        memlith.Dict(store, "words")["one"] = 1
        store.persist()
        numbers[0] = 8
        lsn = store.copy(tmp_path / "copy")
        assert 0 < lsn <= store.info()["durable_lsn"]
        with pytest.raises(memlith.Exists):
            store.copy(tmp_path / "copy")
    del numbers
    with memlith.open(tmp_path / "copy", create=False) as copy:
        assert (copy.array("numbers", 1000, "i8") == 7).all()
        assert memlith.Dict(copy, "words")["one"] == 1


def test_copies_beside_a_thread_that_persists(tmp_path):
    with memlith.open(tmp_path / "store", log_bytes=1 << 20) as store:
        numbers = store.zeros("numbers", 4096, "i8")
        store.persist()
        ended = threading.Event()

        def count():
            while not ended.is_set():
                numbers[:] += 1
                store.persist()

        thread = threading.Thread(target=count)
        thread.start()
        try:
            for turn in range(3):
                store.copy(tmp_path / f"copy{turn}")
        finally:
            ended.set()
            thread.join()
    del numbers
    seen = []
    for turn in range(3):
        with memlith.open(tmp_path / f"copy{turn}", create=False) as copy:
            copied = copy.array("numbers", 4096, "i8")
            assert (copied == copied[0]).all()
            seen.append(int(copied[0]))
            del copied
    assert seen == sorted(seen)
