"""Tickets: as futures, in asyncio, and the flush window."""

import asyncio
import concurrent.futures
import pathlib
import signal
import threading

import pytest
from conftest import Program

import memlith


def test_a_ticket_is_like_a_future(folder: pathlib.Path) -> None:
    with memlith.open(folder / "s") as store:
        array = store.array("a", 1000)
        tickets = []
        for step in range(100):
            array[step] = step
            tickets.append(store.persist_async())
        assert [ticket.number for ticket in tickets] == sorted({ticket.number for ticket in tickets})
        called = threading.Event()
        tickets[-1].add_done_callback(lambda ticket: called.set() if ticket is tickets[-1] else None)
        assert tickets[-1].result(60) is None and tickets[-1].result() is None
        assert called.wait(60)
        for ticket in tickets:
            assert ticket.done() and not ticket.running() and ticket.exception() is None
            assert not ticket.cancel() and not ticket.cancelled() and "done" in repr(ticket)


def test_a_ticket_stays_open_within_the_flush_window_until_somebody_waits(folder: pathlib.Path) -> None:
    with memlith.open(folder / "s") as store:
        array = store.array("a", 1000)
        store.set_window(3600)
        array[0] = 1
        first = store.persist_async()
        array[1] = 1
        second = store.persist_async()
        assert not first.done() and not second.done() and "not durable" in repr(second)
        try:
            first.result(0)
        except concurrent.futures.TimeoutError:
            pass
        assert first.result(60) is None
        second.result()
        assert second.done()


@pytest.mark.parametrize("with_array", [False, True])
def test_a_ticket_is_of_dictionaries_too(program: Program, folder: pathlib.Path, with_array: bool) -> None:
    ended = program.run("""
        import os, signal, sys
        import memlith
        store = memlith.open("s")
        words = memlith.Dict(store, "words", weak=True)
        if eval(sys.argv[1]):
            store.array("numbers", 10)
        store.persist()
        words["a"] = 1
        store.persist_async().result()
        os.kill(os.getpid(), signal.SIGKILL)
        """, with_array)
    assert ended.returncode == -signal.SIGKILL, ended.stderr
    with memlith.open(folder / "s") as store:
        assert memlith.Dict(store, "words") == {"a": 1}


def test_await(folder: pathlib.Path) -> None:
    async def write(store: memlith.Store, array: object, number: int) -> int:
        for step in range(20):
            array[number, step] = step + 1  # type: ignore[index]
            await store.persist_async()
        return number

    async def everything(store: memlith.Store) -> None:
        array = store.array("a", (10, 20), "i4")
        assert sorted(await asyncio.gather(*(write(store, array, number) for number in range(10)))) == list(range(10))
        assert array.all()
        # A task that is cancelled, and a loop that ends, while a persist is under way.
        store.set_window(3600)
        array[:] = 7
        waiting = asyncio.ensure_future(_wait(store.persist_async()))
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting

    async def _wait(ticket: memlith.Ticket) -> None:
        await ticket

    with memlith.open(folder / "s") as store:
        asyncio.run(everything(store))
    with memlith.open(folder / "s") as store:
        assert (store["a"] == 7).all()


def test_autosave(folder: pathlib.Path) -> None:
    with memlith.open(folder / "s") as store:
        array = store.array("a", 1000)
        store.autosave(0.005)
        array[:] = 1
        began = store.info()["frames"]
        event = threading.Event()
        while store.info()["frames"] == began:
            event.wait(0.005)
        with store.transaction():
            array[:] = 2
            frames = store.info()["frames"]
            event.wait(0.05)
            assert store.info()["frames"] == frames
        store.autosave(None)
        array[0] = 3
        with pytest.raises(ValueError):
            store.autosave(0)
    with memlith.open(folder / "s") as store:
        assert (store["a"] == 2).all()


def test_a_callback_that_raises_ends_nothing(folder: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    raised: list[object] = []
    monkeypatch.setattr(threading, "excepthook", lambda arguments: raised.append(arguments.exc_type))
    with memlith.open(folder / "s") as store:
        store.array("a", 10)[0] = 1
        store.persist_async().add_done_callback(lambda ticket: 1 // 0)
        event = threading.Event()
        store.persist_async().add_done_callback(lambda ticket: event.set())
        assert event.wait(60)
    assert raised == [ZeroDivisionError]
