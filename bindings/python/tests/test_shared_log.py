"""`memlith.AppLog(..., processes=True)`: several processes append to one log, and are killed, and so is the keeper."""

import os
import pathlib
import random
import signal
import threading
import time

import pytest
from test_shared_dict import in_child, kill_keeper, status_of

import memlith


def test_is_a_log(folder: pathlib.Path) -> None:
    log = memlith.AppLog(folder / "store", "orders", processes=True)
    assert log.name == "orders" and log.read() is None
    assert log.append(b"one") == 1
    assert log.append(bytearray(b"two"), memoryview(b"three"), b"") == 4
    log.write()
    assert list(log) == [(1, b"one"), (2, b"two"), (3, b"three"), (4, b"")]
    assert log.get(3) == b"three" and log.get(5) is None
    log.append(b"x" * 100_000)
    log.write()
    assert log.get(5) == b"x" * 100_000 and log.read() == (5, b"x" * 100_000)
    log.consume(2)
    log.rewind()
    assert log.read() == memlith.Entry(3, b"three")
    log.truncate_after(4)
    log.truncate_before(4)
    assert {name: log.info()[name] for name in ("newest", "durable", "consumed")} == {
        "newest": 4, "durable": 4, "consumed": 3}
    log.restart(100)
    assert log.append(b"last") == 100
    for call in (log.write_weak, log.remove):
        with pytest.raises(memlith.Unsupported, match="several processes"):
            call()
    log.close()
    log.close()
    assert log.closed
    with pytest.raises(memlith.Invalid, match="closed"):
        log.read()


def test_lies_beside_dictionaries(folder: pathlib.Path) -> None:
    with memlith.SharedStore(folder / "store") as store:
        log = memlith.AppLog(store, "orders", size=1 << 16, when_full="fail")
        stock = memlith.Dict(store, "stock")
        stock["marble"] = 1
        with pytest.raises(memlith.Full):
            for _ in range(100):
                log.append(b"x" * 1000)
        log.close()
    with pytest.raises(TypeError, match="processes=True"):
        memlith.AppLog(folder / "store")
    for _ in range(200):  # until the keeper has ended
        try:
            alone = memlith.open(folder / "store")
            break
        except memlith.Busy:
            time.sleep(0.05)
    with alone:
        assert len(list(memlith.AppLog(alone, "orders"))) > 10
        with pytest.raises(TypeError, match="give its path"):
            memlith.AppLog(alone, "orders", processes=True)


def test_a_forked_process_goes_on(folder: pathlib.Path) -> None:
    log = memlith.AppLog(folder / "store", processes=True)
    log.append(b"of the parent")
    log.write()
    assert log.read() == (1, b"of the parent")

    def child() -> None:
        assert log.read() == (1, b"of the parent")  # from a place of its own
        log.append(b"of the child")
        log.write()
        log.consume(1)

    assert status_of(in_child(child)) == 0
    assert log.read(10) == (2, b"of the child")
    assert log.info()["consumed"] == 1


def test_an_append_waits_for_another_process(folder: pathlib.Path) -> None:
    log = memlith.AppLog(folder / "store", processes=True, size=1 << 16)
    while log.info()["room"] > 2000:
        log.append(b"x" * 1000)

    def child() -> None:
        time.sleep(0.1)
        entry = log.read(10)
        assert entry is not None
        log.consume(entry.number)

    consumer = in_child(child)
    log.append(b"y" * 2000)
    assert status_of(consumer) == 0
    # An interruption ends a wait.
    signal.signal(signal.SIGALRM, lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    signal.setitimer(signal.ITIMER_REAL, 0.2)
    with pytest.raises(KeyboardInterrupt):
        while True:
            log.append(b"y" * 2000)


def test_the_keepers_end_is_told_once(folder: pathlib.Path) -> None:
    log = memlith.AppLog(folder / "store", processes=True)
    log.append(b"kept")
    log.write()
    assert log.read() == (1, b"kept")
    log.append(b"lost")
    kill_keeper(folder / "store")
    with pytest.raises((memlith.Poisoned, memlith.IOFailure)):
        log.append(b"lost, too")
    try:
        number = log.append(b"behind it")
    except memlith.Poisoned:  # the call before was under way
        number = log.append(b"behind it")
    assert number == 2
    log.write()
    assert list(log) == [(1, b"kept"), (2, b"behind it")]


def test_what_is_acknowledged_stays(folder: pathlib.Path) -> None:
    place = folder / "store"

    def worker(number: int, acknowledged: int) -> None:
        log = memlith.AppLog(place, processes=True)
        count = 0
        while True:
            count += 1
            try:
                log.append(b"%d %d" % (number, count))
                log.write()
            except (memlith.Poisoned, memlith.IOFailure):
                continue
            os.write(acknowledged, b"%d %d\n" % (number, count))

    ends = os.pipe()
    numbers = iter(range(1000))

    def start() -> int:
        number = next(numbers)
        return in_child(lambda: worker(number, ends[1]))

    workers = [start() for _ in range(4)]
    told = bytearray()
    reader = threading.Thread(target=lambda: [told.extend(part) for part in iter(lambda: os.read(ends[0], 4096), b"")])
    reader.start()
    for _ in range(12):
        time.sleep(random.random() * 0.1)
        if random.random() < 0.4:
            kill_keeper(place)
        else:
            victim = random.randrange(4)
            os.kill(workers[victim], signal.SIGKILL)
            os.waitpid(workers[victim], 0)
            workers[victim] = start()
    for each in workers:
        os.kill(each, signal.SIGKILL)
        os.waitpid(each, 0)
    os.close(ends[1])
    reader.join()
    os.close(ends[0])
    there = [entry.content for entry in memlith.AppLog(place, processes=True)]
    acknowledged = bytes(told).split(b"\n")[:-1]
    assert len(acknowledged) > 12 and len(set(there)) == len(there)
    assert set(acknowledged) <= set(there)
    for number in {each.split()[0] for each in there}:
        counts = [int(each.split()[1]) for each in there if each.split()[0] == number]
        assert counts == sorted(counts)
