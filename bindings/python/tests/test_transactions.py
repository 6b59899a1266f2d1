"""Transactions as objects: signals, threads, tasks, and those that are never ended."""

import asyncio
import concurrent.futures
import contextlib
import contextvars
import gc
import pathlib
import shutil
import signal
import subprocess
import threading
import time
from typing import Any, Callable, Iterator

import pytest
from conftest import Program

import memlith


SEEN = """if True:
    import os, signal
    import memlith
    store = memlith.open("s")
    weak, other = memlith.Dict(store, "weak", weak=True), memlith.Dict(store, "other")
    weak["n"] = weak.get("n", 0) + 1
    with store.transaction() if weak["n"] % 2 == 0 else other.transact():
        print(weak["n"], flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""


class Stop(Exception):
    """Raised by a signal handler."""


@pytest.fixture
def store(folder: pathlib.Path) -> Iterator[memlith.Store]:
    with memlith.open(folder / "s") as store:
        yield store
        store.rollback()


@contextlib.contextmanager
def stopped_after(seconds: float) -> Iterator[None]:
    """The block of code is a notebook's cell that is stopped: a signal handler raises in it."""
    def stop(number: int, frame: object) -> None:
        raise Stop

    before = signal.signal(signal.SIGALRM, stop)
    try:
        signal.setitimer(signal.ITIMER_REAL, seconds)
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def in_thread(work: Callable[[], Any]) -> Any:
    """The result or error of `work`, in a thread of its own."""
    with concurrent.futures.ThreadPoolExecutor(1) as executor:
        return executor.submit(work).result(60)


@pytest.mark.parametrize("what", ["transaction", "transact", "update", "ticket"])
def test_a_signal_at_any_moment_leaves_nothing_open(store: memlith.Store, what: str) -> None:
    array = store.array("a", 10, "i8")
    d: memlith.Dict[int] = memlith.Dict(store, "d", weak=True)
    d["n"] = 0
    store.persist()
    kept = []  # as a notebook keeps the last traceback
    for step in range(400):
        try:
            with stopped_after(0.00002 + step % 40 * 0.000015):
                while True:
                    if what == "transaction":
                        with store.transaction():
                            array[0] += 1
                            d["n"] += 1
                    elif what == "transact":
                        with d.transact():
                            d["n"] += 1
                    elif what == "update":
                        d.update(n=step, m=step)
                    else:
                        store.persist_async().result(60)
        except Stop as error:
            kept.append(error)
        in_thread(lambda: d.update({"other": step}))
        assert what != "transaction" or (array[0] == d["n"] and in_thread(lambda: d["n"]) == d["n"])
    store.persist()
    called = threading.Event()
    store.persist_async().add_done_callback(lambda ticket: called.set())
    assert called.wait(60) and len(kept) > 300


@pytest.mark.parametrize("what", ["transaction", "transact", "set", "persist", "delete"])
def test_waiting_for_a_transaction_hears_signals(store: memlith.Store, what: str) -> None:
    d: memlith.Dict[int] = memlith.Dict(store, "d")
    d["a"] = 1
    began, end = threading.Event(), threading.Event()

    def hold() -> None:
        with store.transaction():
            d["a"] = 2
            began.set()
            end.wait(60)

    holder = threading.Thread(target=hold)
    holder.start()
    assert began.wait(60)
    since = time.monotonic()
    calls: dict[str, Callable[[], Any]] = {
        "transaction": lambda: store.transaction().__enter__(), "transact": lambda: d.transact().__enter__(),
        "set": lambda: d.__setitem__("b", 1), "persist": store.persist, "delete": lambda: d.__delitem__("a")}
    with pytest.raises(Stop), stopped_after(0.2):
        calls[what]()
    assert time.monotonic() - since < 5
    end.set()
    holder.join()
    assert d["a"] == 2
    d["b"] = 3
    store.persist()


def test_a_signal_while_a_store_closes_leaves_nothing_open(folder: pathlib.Path) -> None:
    closed = 0
    for step in range(200):
        store = memlith.open(folder / "s")
        d: memlith.Dict[int] = memlith.Dict(store, "d", weak=True)
        d["n"] = step
        store.autosave(60)
        store.persist_async().add_done_callback(lambda ticket: None)  # a thread waits for it
        began = False
        with contextlib.suppress(Stop), stopped_after(0.0001 + step % 40 * 0.00005):
            for _ in range(5000):  # the signal comes in the first close, or behind it; a callback may swallow it
                began = True
                store.close()
        closed += began and store.closed
        store.close()
        assert threads_of_stores() == []
        with memlith.open(folder / "s") as again:  # not Busy
            assert memlith.Dict(again, "d")["n"] == step
    assert closed > 100


def threads_of_stores() -> list[str]:
    """Those that have not ended within a while."""
    deadline = time.monotonic() + 20
    while True:
        names = [each.name for each in threading.enumerate() if each.name.startswith("memlith-")]
        if not names or time.monotonic() > deadline:
            return names
        time.sleep(0.001)


SLOW = """
#include <dlfcn.h>
#include <sys/uio.h>
#include <unistd.h>
int fdatasync(int fd) {
  while (access("slow", F_OK) == 0) usleep(10000);
  return ((int (*)(int))dlsym(RTLD_NEXT, "fdatasync"))(fd);
}
ssize_t pwritev2(int fd, const struct iovec* pieces, int count, off_t at, int flags) {  // durable with flags
  while (flags != 0 && access("slow", F_OK) == 0) usleep(10000);
  return ((ssize_t (*)(int, const struct iovec*, int, off_t, int))dlsym(RTLD_NEXT, "pwritev2"))(fd, pieces, count, at,
                                                                                              flags);
}
"""


@pytest.mark.parametrize("call", ["store.persist()", "d.update(a=1)", "store.persist_async().result()",
                                  "d.append([('z', 1)])", "d.__setitem__('a', 1)", "block()", "store.copy('copy')",
                                  "store.checkpoint()", "memlith.open('other')"])
def test_waiting_for_the_disk_hears_signals(program: Program, call: str) -> None:
    if shutil.which("cc") is None:
        pytest.skip("there is no C compiler, which makes a disk slow here")
    (program.folder / "slow.c").write_text(SLOW)
    subprocess.run(["cc", "-shared", "-fPIC", "-D_GNU_SOURCE", "-o", "slow.so", "slow.c", "-ldl"], check=True,
                   cwd=program.folder)
    ended = program.run(f"""
        import ctypes, os, pathlib, signal, sys, time
        if "slow.so" not in os.environ.get("LD_PRELOAD", ""):
            before = os.environ.get("LD_PRELOAD", "")
            os.environ["LD_PRELOAD"] = os.path.abspath("slow.so") + (":" + before if before else "")
            os.execv(sys.executable, [sys.executable, "-c", sys.orig_argv[2]])
        import memlith
        store = memlith.open("s")
        a, d = store.array("a", 10), memlith.Dict(store, "d")
        slow = pathlib.Path("slow")
        slow.touch()
        time.sleep(0.01)
        a[0] = 7
        def block():
            with store.transaction():
                d["x"] = 1
        def stop(number, frame):
            raise KeyboardInterrupt
        signal.signal(signal.SIGALRM, stop)
        signal.setitimer(signal.ITIMER_REAL, 0.3)
        began = time.monotonic()
        try:
            {call}
            print("not stopped")
        except KeyboardInterrupt:
            print("stopped" if time.monotonic() - began < 5 else "late")
        slow.unlink()
        store.persist()
        for _ in range(1000):  # until the opening that was stopped has ended
            try:
                memlith.open("other").close()
                break
            except memlith.Busy:
                time.sleep(0.01)
        print(a[0])
        """)
    assert ended.stdout == "stopped\n7.0\n", (ended.stdout, ended.stderr)


def test_a_transaction_is_handed_from_thread_to_thread(store: memlith.Store) -> None:
    array = store.array("a", 10, "i8")
    d: memlith.Dict[int] = memlith.Dict(store, "d")
    for ends in ("commit", "rollback", "with", "raise"):
        tx: memlith.Transaction[Any] = in_thread(store.begin)
        assert tx.open

        def work() -> None:
            with tx.use():
                array[0] += 1
                d[ends] = 1
                with d.transact():
                    d["n"] = d.get("n", 0) + 1

        def end() -> None:
            if ends in ("commit", "rollback"):
                getattr(tx, ends)()
                return
            with tx:
                if ends == "raise":
                    raise Stop

        in_thread(work)
        assert ends not in d  # this thread is not in the transaction
        with contextlib.suppress(Stop):
            in_thread(end)
        assert not tx.open and (ends in d) == (ends in ("commit", "with"))
        for call in (tx.commit, tx.rollback, tx.use().__enter__, tx.__enter__):
            with pytest.raises(memlith.Invalid, match="ended"):
                call()
    assert array[0] == 2 == d["n"]


def test_the_error_names_the_transaction_in_front(store: memlith.Store) -> None:
    d: memlith.Dict[int] = memlith.Dict(store, "d")
    with store.begin():
        with pytest.raises(memlith.Busy, match='thread "MainThread" began [0-9.]+ s ago at .*test_transactions.py:'):
            in_thread(lambda: store.begin(wait=0.05))
        with pytest.raises(memlith.Busy, match="wait=.*tx.use"):
            in_thread(lambda: store.transaction(wait=0).__enter__())
    with d.transact():
        with pytest.raises(memlith.Busy, match="MainThread"):
            in_thread(lambda: d.transact(wait=0.05).__enter__())
    tx = in_thread(store.begin)
    with pytest.raises(memlith.Busy, match="a thread that has ended"):
        store.begin(wait=0)
    tx.rollback()
    store.begin(wait=0).rollback()


def test_a_new_thread_is_not_taken_for_one_that_has_ended(store: memlith.Store) -> None:
    d: memlith.Dict[int] = memlith.Dict(store, "d")
    tx: list[Any] = []
    taken: list[bool] = []

    def begin() -> int:
        tx.append(store.begin())
        d["a"] = 0  # from here on, dictionaries are a part of it
        return threading.get_ident()

    first = in_thread(begin)

    def set_it() -> None:
        if threading.get_ident() == first and not taken:
            taken.append(True)
            d["a"] = 1

    for _ in range(200):  # until one gets the number of the first
        second = threading.Thread(target=set_it)
        second.start()
        second.join(0.3)
        if second.is_alive():
            break
    assert second.is_alive() and taken == [True]  # it waits
    tx[0].rollback()
    second.join()
    assert d["a"] == 1


def test_a_transaction_that_is_dropped_is_undone(store: memlith.Store) -> None:
    array = store.array("a", 10, "i8")
    d: memlith.Dict[int] = memlith.Dict(store, "d")

    def abandon() -> None:
        tx = store.begin()
        with tx.use():
            array[0] = 5
            d["a"] = 5

    for run in (abandon, lambda: in_thread(abandon), lambda: store.transaction().__enter__()):
        run()
        gc.collect()
        assert array[0] == 0 and "a" not in d
        in_thread(lambda: d.update(b=1))


def test_tasks_have_transactions_of_their_own(store: memlith.Store) -> None:
    array = store.array("a", 10, "i8")
    d: memlith.Dict[int] = memlith.Dict(store, "d")
    d["n"] = 0

    async def work(number: int) -> None:
        async with store.transaction() as same:
            assert same is store
            before = d["n"]
            array[0] += 1
            await asyncio.sleep(0.001)
            await asyncio.to_thread(d.__setitem__, ("of", number), 1)  # a copy of the context: in the transaction
            with pytest.raises(memlith.Invalid, match="this thread has a transaction open"):
                store.persist()
            d["n"] = before + 1
            if number % 4 == 0:
                raise Stop

    async def blocks(number: int) -> None:
        async with d.transact():
            before = d.get("blocks", 0)
            await asyncio.sleep(0.001)
            async with d.transact():
                d["blocks"] = before + 1

    async def all_of_them() -> None:
        found = await asyncio.gather(*(work(number) for number in range(20)), *(blocks(number) for number in range(20)),
                                     return_exceptions=True)
        assert sum(isinstance(each, Stop) for each in found) == 5, found
        assert sum(each is None for each in found) == 35, found
        async with store.transaction():
            d["all"] = 1
            outside = contextvars.Context()
            since = time.monotonic()
            with pytest.raises(memlith.Busy, match="async with"):
                outside.run(d.__setitem__, "a", 1)
            with pytest.raises(memlith.Busy, match="MainThread"):
                await asyncio.get_running_loop().create_task(impatient(), context=outside)  # type: ignore[call-arg]
            assert time.monotonic() - since < 5

    async def impatient() -> None:
        async with store.transaction(wait=0.05):
            pass

    asyncio.run(all_of_them())
    assert d["n"] == 15 == array[0] and d["blocks"] == 20 and "a" not in d
    assert len(list(d.irange(prefix=("of",)))) == 15


@pytest.mark.parametrize("hand_on", [True, False])
def test_a_web_frameworks_dependency(store: memlith.Store, hand_on: bool) -> None:
    """FastAPI enters a generator, calls the endpoint, and leaves the generator, each in a thread of a pool, with a copy
    of the request's context."""
    d: memlith.Dict[int] = memlith.Dict(store, "d")

    @contextlib.contextmanager
    def dependency() -> Iterator[memlith.Transaction[Any]]:
        with store.begin(wait=60) as tx:
            d["requests"] = 1  # from here on, dictionaries are a part of it
            yield tx

    def endpoint(tx: memlith.Transaction[Any]) -> None:
        with tx.use() if hand_on else contextlib.nullcontext():
            if not hand_on:
                with d.transact(wait=0.05):  # a short wait; a plain change waits for 10 s, and raises the same
                    pass
            d["n"] = d.get("n", 0) + 1

    async def request(executor: concurrent.futures.Executor) -> None:
        loop = asyncio.get_running_loop()

        async def call(work: Callable[..., Any], *arguments: Any) -> Any:
            return await loop.run_in_executor(executor, contextvars.copy_context().run, work, *arguments)

        block = dependency()
        tx = await call(block.__enter__)
        try:
            await call(endpoint, tx)
        except BaseException as error:
            await call(block.__exit__, type(error), error, error.__traceback__)
            raise
        await call(block.__exit__, None, None, None)

    async def all_of_them() -> list[Any]:
        with concurrent.futures.ThreadPoolExecutor(41) as executor:
            return await asyncio.gather(*(request(executor) for _ in range(40)), return_exceptions=True)

    found = asyncio.run(all_of_them())
    if hand_on:
        assert found == [None] * 40 and d["n"] == 40
    else:
        assert all(isinstance(each, memlith.Busy) for each in found) and "n" not in d
    in_thread(lambda: d.update(b=1))


def test_what_a_block_has_read_is_durable(program: Program) -> None:
    """docs/guarantees.md, "Transaction of the store" and "Kv transaction": a block that only reads waits at its end."""
    for number in range(1, 11):
        process = program.start(SEEN)
        assert process.communicate()[0] == f"{number}\n"
