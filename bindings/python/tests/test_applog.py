"""memlith.AppLog: what was written is there, in order, in transactions with arrays and dictionaries or alone."""

import asyncio
import pathlib
import signal
import threading
import time

import pytest
from conftest import Program, kill

import memlith


def contents(log: memlith.AppLog) -> list[bytes]:
    return [entry.content for entry in log]


def test_entries_come_back_in_order(folder: pathlib.Path) -> None:
    with memlith.open(folder / "s") as store:
        log = memlith.AppLog(store, "orders")
        assert log.read() is None and log.name == "orders" and log.info()["newest"] == 0
        assert log.append(b"one") == 1
        assert log.append(bytearray(b"two"), memoryview(b"three"), b"") == 4
        assert contents(log) == [] or log.info()["durable"] == 4  # not before they are durable
        log.write()
        log.rewind()
        assert list(log) == [(1, b"one"), (2, b"two"), (3, b"three"), (4, b"")]
        assert log.get(3) == b"three" and log.get(5) is None
        log.append(b"x" * 100_000)
        log.write()
        assert log.get(5) == b"x" * 100_000 and log.read() == (5, b"x" * 100_000)
        log.consume(2)
        log.rewind()
        assert log.read() == memlith.Entry(3, b"three")
        assert log.get(2) is None
        assert {name: log.info()[name] for name in ("newest", "durable", "read", "consumed")} == {
            "newest": 5, "durable": 5, "read": 3, "consumed": 2}
        assert memlith.AppLog(store, "orders").read() == (4, b"")  # the same log, and place in it
    with memlith.open(folder / "s") as store:
        log = memlith.AppLog(store, "orders", create=False)
        assert [entry.number for entry in log] == [3, 4, 5]
        assert repr(log) == "<memlith.AppLog 'orders'>"
    assert log.closed
    with pytest.raises(memlith.Invalid, match="closed"):
        log.read()


def test_mistakes_are_told(folder: pathlib.Path) -> None:
    with memlith.open(folder / "s") as store:
        with pytest.raises(memlith.NotFound):
            memlith.AppLog(store, "log", create=False)
        with pytest.raises(memlith.Invalid):
            memlith.AppLog(store, "log", when_full="drop")  # type: ignore[arg-type]
        with pytest.raises(memlith.Invalid):
            memlith.AppLog(store, "log", size=-1)
        store.zeros("array", 10)
        with pytest.raises(memlith.Error):
            memlith.AppLog(store, "array")
        log = memlith.AppLog(store)
        assert log.name == "log" and store.names() == ["array"]
        with pytest.raises(TypeError):
            log.append("text")  # type: ignore[arg-type]
        with pytest.raises(TypeError):
            log.append(5)  # type: ignore[arg-type]
        with pytest.raises(memlith.Invalid):
            log.append()
        with pytest.raises(memlith.Invalid):
            log.consume(1)
        with pytest.raises(memlith.Error):
            memlith.AppLog(store, memlith.AppLog(store).name + "x" * 300)
        log.append(b"kept")
        log.close()
        log.close()
        assert log.closed
        with pytest.raises(memlith.Invalid, match="closed"):
            log.append(b"x")
        log = memlith.AppLog(store)
        assert contents(log) == [b"kept"]
        assert store.names() == ["array"]
        log.remove()
        with pytest.raises(memlith.NotFound):
            memlith.AppLog(store, create=False)
    with memlith.open(folder / "s", read_only=True) as store:
        with pytest.raises(memlith.NotFound):
            memlith.AppLog(store)


def test_by_number(folder: pathlib.Path) -> None:
    with memlith.open(folder / "s") as store:
        log = memlith.AppLog(store)
        log.append(*(b"%d" % number for number in range(1, 11)))
        log.write()
        log.truncate_after(7)
        assert log.append(b"eight") == 8
        log.truncate_before(4)
        log.write()
        assert list(log) == [(4, b"4"), (5, b"5"), (6, b"6"), (7, b"7"), (8, b"eight")]
        log.restart(100)
        assert log.append(b"new") == 100
        log.write()
    with memlith.open(folder / "s") as store:
        assert list(memlith.AppLog(store)) == [(100, b"new")]


def test_a_full_log(folder: pathlib.Path) -> None:
    with memlith.open(folder / "s") as store:
        log = memlith.AppLog(store, "fails", size=4096, when_full="fail")
        with pytest.raises(memlith.Full):
            for _ in range(1000):
                log.append(b"x" * 100)
        assert memlith.AppLog(store, "grows", size=4096, when_full="grow").append(*[b"x" * 100] * 1000) == 1000
        log = memlith.AppLog(store, "blocks", size=4096)
        with pytest.raises(memlith.Full):
            log.append(b"x" * 5000)  # there will never be room for it
        seen: list[int] = []

        def consume() -> None:
            while not seen or seen[-1] < 500:
                entry = log.read(10)
                assert entry is not None
                seen.append(entry.number)
                log.consume(entry.number)

        reader = threading.Thread(target=consume)
        reader.start()
        for number in range(1, 501):
            assert log.append(b"x" * 100) == number
        log.write()
        reader.join()
        assert seen == list(range(1, 501))


def test_threads_append_and_one_reads(folder: pathlib.Path) -> None:
    with memlith.open(folder / "s") as store:
        log = memlith.AppLog(store)

        def append(which: int) -> None:
            for number in range(50):
                log.append(b"%d %d" % (which, number))
                log.write()

        threads = [threading.Thread(target=append, args=(which,)) for which in range(4)]
        for thread in threads:
            thread.start()
        found = []
        while len(found) < 200:
            entry = log.read(None)
            assert entry is not None and entry.number == len(found) + 1
            found.append(entry.content)
        for thread in threads:
            thread.join()
        for which in range(4):
            assert [each for each in found if each.startswith(b"%d " % which)] == [
                b"%d %d" % (which, number) for number in range(50)]


def test_in_a_transaction(folder: pathlib.Path) -> None:
    with memlith.open(folder / "s") as store:
        log = memlith.AppLog(store)
        array = store.zeros("a", 4, "i8")
        numbers = memlith.Dict(store, "d")
        with store.transaction():
            assert log.append(b"one", b"two") is None
            assert log.append(b"three") is None
            array[0] = numbers["n"] = 1
            assert log.info()["newest"] == 0
            for call in (lambda: log.restart(5), lambda: log.truncate_after(0), lambda: log.truncate_before(1)):
                with pytest.raises(memlith.Invalid, match="transaction"):
                    call()
        assert contents(log) == [b"one", b"two", b"three"]
        with pytest.raises(ZeroDivisionError):
            with store.transaction():
                log.append(b"gone")
                log.consume(2)
                array[0] = 1 // 0
        assert log.info()["newest"] == 3 and log.info()["consumed"] == 0
        with numbers.transact():
            numbers["n"] = 2
            log.append(b"four")
            log.consume(2)
            with pytest.raises(KeyError):
                with numbers.transact():
                    log.append(b"undone with its block")
                    numbers["n"] = numbers["not there"]
        assert log.info()["newest"] == 4 and log.info()["consumed"] == 2
        with pytest.raises(memlith.Invalid):
            with store.transaction():
                array[1] = 9
                log.consume(4)  # which was not read
        assert array.tolist() == [1, 0, 0, 0] and log.info()["consumed"] == 2
        with pytest.raises(memlith.Invalid, match="closed within"):
            with store.transaction():
                log.append(b"lost")
                log.close()
        log = memlith.AppLog(store)
        transaction = store.begin()
        with transaction.use():
            log.append(b"five")
        transaction.rollback()
        assert list(log) == [(3, b"three"), (4, b"four")]


def test_weak_writes_and_tickets(folder: pathlib.Path) -> None:
    with memlith.open(folder / "s", window_ms=50) as store:
        log = memlith.AppLog(store)
        log.append(b"one")
        ticket = log.write_weak()
        ticket.result(10)
        assert log.info()["durable"] == 1

        async def write() -> None:
            log.append(b"two")
            await log.write_weak()

        asyncio.run(write())
        assert log.info()["durable"] == 2


def test_a_reader_beside_the_writer(folder: pathlib.Path) -> None:
    with memlith.open(folder / "s") as store:
        log = memlith.AppLog(store)
        log.append(b"one")
        log.write()
        with memlith.open(folder / "s", follow=True) as reader:
            shown = memlith.AppLog(reader)
            assert contents(shown) == [b"one"]
            with pytest.raises(memlith.ReadOnly):
                shown.append(b"x")
            log.append(b"two")
            log.write()
            reader.refresh()
            assert shown.get(2) == b"two"


def test_closing_waits_for_no_reader(folder: pathlib.Path) -> None:
    store = memlith.open(folder / "s")
    log = memlith.AppLog(store)
    told: list[str] = []

    def wait() -> None:
        try:
            log.read(None)
        except memlith.Invalid as error:
            told.append(str(error))

    thread = threading.Thread(target=wait)
    thread.start()
    store.close()
    thread.join()
    assert len(told) == 1 and "closed" in told[0]


WRITER = """
import memlith
with memlith.open("s") as store:
    log = memlith.AppLog(store)
    array = store.array("a", 2, "i8")
    numbers = memlith.Dict(store, "d")
    for _ in log:
        pass
    while True:
        number = int(array[0]) + 1
        with store.transaction():
            array[:] = number
            numbers["n"] = number
            log.append(b"%d" % number)
            if number > 3:
                entry = log.read()
                log.consume(number - 3)
        print(number, flush=True)
"""


def test_log_array_and_dictionary_agree_after_a_kill(program: Program) -> None:
    last = 0
    for lines in (1, 3, 10, 40):
        process = program.start(WRITER)
        assert process.stdout is not None
        for _ in range(lines):
            last = int(process.stdout.readline())
        last = max([last, *map(int, kill(process))])
        with memlith.open(program.folder / "s") as store:
            log = memlith.AppLog(store)
            number = int(store["a"][0])
            assert number in (last, last + 1) and store["a"].tolist() == [number] * 2
            assert memlith.Dict(store, "d")["n"] == number
            assert list(log) == [(each, b"%d" % each) for each in range(max(1, number - 2), number + 1)]


def test_a_wait_for_an_entry_hears_signals(program: Program) -> None:
    process = program.start("""
        import memlith
        with memlith.open("s") as store:
            try:
                print("waits", flush=True)
                memlith.AppLog(store).read(None)
            except KeyboardInterrupt:
                print("heard", flush=True)
        """)
    assert process.stdout is not None and process.stdout.readline() == "waits\n"
    time.sleep(0.3)
    process.send_signal(signal.SIGINT)
    assert process.communicate()[0] == "heard\n"
