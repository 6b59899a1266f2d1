"""memlith.steps: calls that happen once, waits, workers, messages, and what is refused."""

import asyncio
import functools
import json
import os
import pathlib
import re
import subprocess
import sys
import threading
import time
from typing import Any, Iterator

import pytest
from conftest import Program, kill

import memlith
from memlith import steps
from memlith.steps import _engine, _format

PROOF = pathlib.Path(__file__).with_name("steps_kill.py")


@pytest.fixture
def store(folder: pathlib.Path) -> Iterator[memlith.Store]:
    with memlith.open(folder / "s") as store:
        yield store
        store.rollback()


class Crash(BaseException):
    """The end of the program, as far as a run can tell."""


# ---- steps ---------------------------------------------------------------------------------------------------------


def test_a_step_happens_once_with_all_that_it_changed(folder: pathlib.Path) -> None:
    calls = []

    def program(store: memlith.Store) -> Any:
        stock, log = memlith.Dict[int](store, "stock"), memlith.AppLog(store, "log")
        places = store.array("places", 4, "i8")
        run = steps.run(store, "order")

        @run.step
        def reserve(item: str, amount: int = 1) -> dict[str, int]:
            calls.append(item)
            stock[item] = stock.get(item, 10) - amount
            places[0] += amount
            log.append(item.encode())
            run.outbox.append({"reserved": item})
            return {"left": stock[item]}

        first, second = reserve("marble"), reserve("granite", amount=2)
        assert log.info()["newest"] == 2 and places[0] == 3
        assert [message.content for message in steps.Outbox(store).after(0)] == [
            {"reserved": "marble"}, {"reserved": "granite"}]
        return first, second, run.finish("done")

    for _ in range(3):
        with memlith.open(folder / "s") as store:
            assert program(store) == ({"left": 9}, {"left": 8}, "done")
            assert steps.result(store, "order") == "done"
            assert [(each.id, each.status, each.steps) for each in steps.runs(store)] == [("order", "done", 2)]
    assert calls == ["marble", "granite"]


def test_a_step_that_raises_has_changed_nothing_and_is_called_again(store: memlith.Store) -> None:
    counters, array = memlith.Dict[int](store, "counters"), store.array("a", 3)
    run = steps.run(store, "r")

    def fail(how: bool) -> int:
        counters["n"] = counters.get("n", 0) + 1
        array[0] += 1
        run.outbox.append("never")
        if how:
            raise ValueError("no")
        return counters["n"]

    with pytest.raises(ValueError):
        run.step(fail)(True)
    assert "n" not in counters and array[0] == 0 and steps.Outbox(store).info()["newest"] == 0
    again = steps.run(store, "r")
    run = again
    assert again.step(fail)(False) == 1 and array[0] == 1


def test_an_exception_that_the_program_survives_is_recorded(store: memlith.Store) -> None:
    calls = []

    def fail() -> None:
        calls.append("fail")
        raise KeyError("gone")

    for _ in range(3):
        run = steps.run(store, "r")
        with pytest.raises(KeyError, match="gone"):
            run.step(fail)()
        assert run.step(lambda: "else", name="other")() == "else"
    assert calls == ["fail"]
    with steps.run(store, "other") as run:
        class Local(Exception):
            """pickle does not find it."""

        def local() -> None:
            raise Local("text")

        with pytest.raises(Local):
            run.step(local)()
    run = steps.run(store, "other")
    with pytest.raises(steps.Failed, match="Local: text"):
        run.step(local)()


def test_a_step_within_a_step_is_a_part_of_it(store: memlith.Store) -> None:
    run = steps.run(store, "r")
    inner = run.step(lambda: 1, name="inner")
    assert run.step(lambda: inner() + inner(), name="outer")() == 2
    assert steps.info(store, "r").steps == 1
    with pytest.raises(memlith.Invalid, match="within a step"):
        run.step(lambda: run.effect(lambda: 1, name="e")(), name="o")()
    with pytest.raises(memlith.Invalid, match="in a call already"):
        run.step(lambda: run.sleep(1), name="p")()
    with pytest.raises(memlith.Invalid, match="in a step"):
        run.outbox.append("x")


def test_weak_steps_are_durable_in_order(store: memlith.Store) -> None:
    run = steps.run(store, "r", weak=True)
    assert [run.step(lambda: 5, name="a")(), run.step(lambda: 6, name="b", weak=False)()] == [5, 6]
    assert steps.info(store, "r").steps == 2


def test_code_that_does_not_match_is_told(store: memlith.Store) -> None:
    run = steps.run(store, "r")
    run.step(lambda: 1, name="reserve", version="2")()
    run = steps.run(store, "r")
    with pytest.raises(steps.Changed, match="step reserve of version 2 as call 0, and the program calls step charge"):
        run.step(lambda: 1, name="charge")()
    with pytest.raises(steps.Changed, match="effect reserve"):
        run.effect(lambda: 1, name="reserve")()
    with pytest.raises(steps.Changed, match="a wait for signal go"):
        run.wait_for("go")
    with pytest.raises(steps.Changed, match="has recorded 1: 'reserve' comes next"):
        run.finish()
    with pytest.raises(steps.Changed, match='version "" of its program, and this is version "3"'):
        steps.run(store, "r", version="3")
    with pytest.raises(memlith.Incompatible, match='codec "pickle", not by "raw"'):
        steps.run(store, "r", codec="raw")
    assert run.step(lambda: 7, name="reserve", version="2")() == 1
    run.finish()
    with pytest.raises(steps.Changed, match="is done"):
        run.step(lambda: 1, name="more")()


def test_another_object_takes_a_run_over(store: memlith.Store) -> None:
    one = steps.run(store, "r")
    one.step(lambda: 1, name="a")()
    two = steps.run(store, "r")
    with pytest.raises(memlith.Conflict, match="taken by another"):
        one.step(lambda: 2, name="b")()
    assert two.step(lambda: 9, name="a")() == 1


def test_one_thread_calls_a_run(store: memlith.Store) -> None:
    run = steps.run(store, "r")
    failures: list[BaseException] = []

    def other() -> None:
        try:
            run.step(lambda: 1, name="b")()
        except memlith.Invalid as error:
            failures.append(error)

    def work() -> None:
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()

    run.effect(work)()
    assert "one thread at a time" in str(failures[0])


def test_threads_of_a_step_work_in_its_transaction(store: memlith.Store) -> None:
    data = memlith.Dict[int](store, "data")
    run = steps.run(store, "r")
    with pytest.raises(memlith.Invalid, match="while one of its steps is called"):
        run.transaction  # noqa: B018

    def library() -> None:
        with run.transaction.use():
            data["n"] = data.get("n", 0) + 1

    def work() -> None:
        thread = threading.Thread(target=library)
        thread.start()
        thread.join()
        if data["n"] == 1:
            raise ValueError

    with pytest.raises(ValueError):
        run.step(work)()
    assert "n" not in data
    data["n"] = 1
    run.step(work)()
    assert data["n"] == 2


@pytest.mark.parametrize("codec", ["msgpack", "raw"])
def test_codecs(store: memlith.Store, codec: Any) -> None:
    value = {"a": [1, 2]} if codec == "msgpack" else b"bytes"
    run = steps.run(store, "r", codec=codec)
    assert run.step(lambda: value, name="a")() == value
    with pytest.raises(ValueError):
        run.step(lambda: int("x"), name="x")()
    run.step(lambda: run.outbox.append(value), name="send")()
    assert steps.Outbox(store).read() == (1, "r", 2, value)
    run.finish(value)
    run = steps.run(store, "r", codec=codec)
    assert run.step(lambda: value, name="a")() == value
    with pytest.raises(steps.Failed, match="ValueError: invalid literal"):
        run.step(lambda: 1, name="x")()
    assert steps.result(store, "r") == value


def test_names_and_limits(store: memlith.Store, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("", "a\0b", "x" * 251):
        with pytest.raises(memlith.Invalid):
            steps.run(store, name)
    monkeypatch.setattr(_format, "STEPS_MAX", 3)
    run = steps.run(store, "ü" * 125)
    for number in range(3):
        run.step(lambda: number, name="a")()
    with pytest.raises(memlith.Invalid, match="most that a run may have"):
        run.step(lambda: 1, name="a")()
    with pytest.raises(TypeError, match="asyncio.to_thread"):
        async def later() -> None:
            pass

        run.step(later)


# ---- effects -------------------------------------------------------------------------------------------------------


def test_an_effect_with_a_key_is_called_again_with_that_key(store: memlith.Store) -> None:
    seen = []

    def charge(cents: int, key: str) -> str:
        seen.append((cents, key))
        if len(seen) == 1:
            raise Crash
        return "paid"

    run = steps.run(store, "r")
    with pytest.raises(Crash):
        run.effect(charge, key=lambda r: r.key)(500)
    assert [(each.name, each.key, each.arguments) for each in run.unknown()] == [("charge", seen[0][1], ((500,), {}))]
    for _ in range(2):
        run = steps.run(store, "r")
        assert run.effect(charge, key=lambda r: r.key)(500) == "paid"
    assert len(seen) == 2 and seen[0] == seen[1] and run.unknown() == []
    assert run.effect(lambda key: key, key=lambda r: r.key)() != seen[0][1]


def test_an_effect_without_a_key_is_listed_and_decided(store: memlith.Store) -> None:
    calls = []

    def mail(to: str) -> str:
        calls.append(to)
        if len(calls) == 1:
            raise Crash
        return "sent"

    run = steps.run(store, "r")
    with pytest.raises(Crash):
        run.effect(mail)("ada")
    for again in (run, None):
        with pytest.raises(steps.Unknown, match="effect mail has happened"):
            (again or steps.run(store, "r")).effect(mail)("ada")
    steps.cancel(store, "r")
    with pytest.raises(steps.Cancelled):
        steps.run(store, "r").effect(mail)("ada")
    steps.retry(store, "r")
    with pytest.raises(Crash):
        calls.clear()
        steps.run(store, "r").effect(mail)("ada")
    run = steps.run(store, "r")
    assert [(each.position, each.name, each.key) for each in run.unknown()] == [(0, "mail", "")]
    run.repeat()
    assert run.unknown() == [] and run.effect(mail)("ada") == "sent" and calls == ["ada", "ada"]
    calls.clear()
    with pytest.raises(Crash):
        run.effect(mail)("eve")
    run.happened("sent before")
    assert run.effect(mail)("eve") == "sent before" and calls == ["eve"]
    with pytest.raises(memlith.NotFound):
        run.happened()


def test_an_effect_that_raises(store: memlith.Store) -> None:
    def decline(key: str = "") -> None:
        raise PermissionError("declined")

    for _ in range(2):
        run = steps.run(store, "survives")
        with pytest.raises(PermissionError):
            run.effect(decline, key="k")()
        assert run.step(lambda: "refund", name="refund")() == "refund"
    assert run.unknown() == []
    run = steps.run(store, "ends")
    with pytest.raises(PermissionError):
        run.effect(decline)()
    run.finish()
    run = steps.run(store, "ends")
    with pytest.raises(PermissionError):
        run.effect(decline)()
    assert steps.info(store, "ends").steps == 1


# ---- waits ---------------------------------------------------------------------------------------------------------


def test_a_sleep_ends_once(store: memlith.Store) -> None:
    run = steps.run(store, "r")
    run.sleep(0.01)
    again = steps.run(store, "r")
    again.sleep(100_000)  # it has ended: the time is that of the first call
    assert again.step(lambda: 1, name="a")() == 1


def test_signals_come_in_order_each_once(store: memlith.Store) -> None:
    run = steps.run(store, "r")
    for value in ("one", "two"):
        steps.signal(store, "r", "go", value)
    assert [run.wait_for("go"), run.wait_for("go"), run.wait_for("go", timeout=0.01, default="none")] == [
        "one", "two", "none"]
    run = steps.run(store, "r")
    steps.signal(store, "r", "go", "three")
    assert [run.wait_for("go"), run.wait_for("go"), run.wait_for("go", timeout=9, default=0), run.wait_for("go")] == [
        "one", "two", 0, "three"]
    threading.Timer(0.05, steps.signal, (store, "r", "late", 5)).start()
    assert run.wait_for("late", timeout=60) == 5
    threading.Timer(0.05, steps.cancel, (store, "r")).start()
    with pytest.raises(steps.Cancelled):
        run.wait_for("never")
    with pytest.raises(memlith.Invalid, match="cancelled"):
        steps.signal(store, "r", "go")
    with pytest.raises(memlith.NotFound):
        steps.signal(store, "none", "go")


# ---- workers -------------------------------------------------------------------------------------------------------


@steps.workflow(version="1")
def order(run: steps.Run, item: str, amount: int = 1) -> tuple[int, Any, Any]:
    stock = memlith.Dict[int](run._engine.store, "stock")
    left = run.step(lambda: stock.incr(item, -amount), name="take")()
    run.sleep(0.01)
    return left, run.wait_for("go", timeout=60), run.wait_for("never", timeout=0.01, default="none")


def test_workers_execute_what_was_accepted(folder: pathlib.Path) -> None:
    with memlith.open(folder / "s") as store:
        memlith.Dict(store, "stock")
        with store.transaction():
            assert steps.submit(store, order, "first", "marble")
        assert not steps.submit(store, order, "first", "marble")
        with pytest.raises(ZeroDivisionError), store.transaction():
            steps.submit(store, order, "none", "marble")
            raise ZeroDivisionError
        assert [each.status for each in steps.runs(store)] == ["ready"]
    with memlith.open(folder / "s") as store:
        with steps.worker(store, [order], threads=3) as worker:
            for number in range(10):
                steps.submit(store, order, f"n{number}", "granite", amount=2)
            for each in list(steps.runs(store)):
                steps.signal(store, each.id, "go", each.id)
            results = {each.id: steps.result(store, each.id, wait=60) for each in list(steps.runs(store))}
            assert worker.drain(60)
            with pytest.raises(memlith.Busy):
                steps.submit(store, order, "mine", "x", delay=100)
                steps.run(store, "mine", version="1")
        assert results.pop("first") == (-1, "first", "none")
        assert sorted(left for left, _, _ in results.values()) == list(range(-20, 0, 2))
        assert all(went == name for name, (_, went, _) in results.items())
        assert [each.id for each in steps.runs(store, status="ready")] == ["mine"]
        assert [each.id for each in steps.runs(store, prefix="n", status="done")] == [f"n{n}" for n in range(10)]


def test_a_step_submits_the_run_that_goes_on(store: memlith.Store) -> None:
    def part(run: steps.Run, left: int) -> int:
        if left:
            run.step(lambda: steps.submit(store, part, f"part-{left - 1}", left - 1), name="next")()
        return left

    with steps.worker(store, [part], threads=2):
        with pytest.raises(ZeroDivisionError), steps.run(store, "first") as run:
            def fails() -> None:
                steps.submit(store, part, "never", 1)
                raise ZeroDivisionError

            run.step(fails)()
        steps.submit(store, part, "part-5", 5)
        assert [steps.result(store, f"part-{left}", 60) if left == 5 else None for left in (5, 4)] == [5, None]
        while not any(each.id == "part-0" and each.status == "done" for each in steps.runs(store)):
            time.sleep(0.01)
    assert [each.id for each in steps.runs(store, status="done")] == [f"part-{left}" for left in range(6)]


def test_a_run_that_is_submitted_by_name_is_of_the_version_that_takes_it(store: memlith.Store) -> None:
    assert steps.submit(store, "named", "a")
    with steps.worker(store, {"named": steps.workflow(version="7")(lambda run: run.step(lambda: 1, name="s")())}):
        assert steps.result(store, "a", 60) == 1
    assert steps.info(store, "a").version == "7"


def test_failures_are_retried_and_told(store: memlith.Store) -> None:
    tries: dict[str, int] = {}

    def flaky(run: steps.Run, times: int) -> str:
        tries[run.id] = tries.get(run.id, 0) + 1
        first = run.step(lambda: tries[run.id], name="once")()
        if tries[run.id] <= times:
            raise OSError("no network")
        return f"{first} of {tries[run.id]}"

    with steps.worker(store, [flaky], retries=2, backoff=0.001):
        steps.submit(store, flaky, "a", 2)
        steps.submit(store, flaky, "b", 3)
        assert steps.result(store, "a", 60) == "1 of 3"
        with pytest.raises(steps.Failed, match='run "b" failed: OSError: no network'):
            steps.result(store, "b", 60)
        steps.retry(store, "b")
        assert steps.result(store, "b", 60) == "1 of 4"
    with pytest.raises(memlith.Invalid, match="is done"):
        steps.retry(store, "b")


def test_runs_that_need_a_decision_are_stopped(store: memlith.Store) -> None:
    calls = []

    def mails(run: steps.Run) -> str:
        def mail() -> str:
            calls.append(run.id)
            if calls.count(run.id) == 1:
                raise OSError("timeout")
            return "sent"

        sent: str = run.effect(mail)()
        return sent

    with steps.worker(store, [mails], backoff=0.001):
        for name in ("a", "b"):
            steps.submit(store, mails, name)
            with pytest.raises(steps.Failed, match="stopped: .* effect mail"):
                steps.result(store, name, 60)
        assert [each.status for each in steps.runs(store)] == ["stopped", "stopped"]
        steps.happened(store, "a", "sent by hand")
        for name, wanted in (("a", "sent by hand"), ("b", "sent")):
            steps.retry(store, name)
            assert steps.result(store, name, 60) == wanted
    assert calls == ["a", "b", "b"]
    steps.submit(store, order, "old", "marble")
    with steps.worker(store, {"order": steps.workflow(name="order", version="2")(lambda run, item: None)}):
        with pytest.raises(steps.Failed, match='stopped: run "old" was begun by version "1"'):
            steps.result(store, "old", 60)


def test_cancel_and_prune(store: memlith.Store) -> None:
    records = _engine.engine_of(store).records
    running, go_on = threading.Event(), threading.Event()

    def long(run: steps.Run) -> None:
        run.effect(lambda: (running.set(), go_on.wait(60))[0], name="wait")()
        run.step(lambda: None, name="never")()

    with steps.worker(store, [long, order]) as worker:
        memlith.Dict(store, "stock")
        steps.submit(store, long, "a")
        steps.submit(store, order, "b", "marble")
        assert running.wait(60)
        assert steps.info(store, "a").status == "running"
        command = os.environ.get("MEMLITH_COMMAND", "none")
        if os.path.exists(command):  # where the command was built, too
            said = subprocess.run([command, "steps", "show", str(store.path), "a", "--json"], capture_output=True,
                                  check=True)
            shown = json.loads(said.stdout)
            assert (shown["status"], shown["calls"][0]["state"]) == ("running", "began")
        with pytest.raises(memlith.Invalid, match="is running"):
            steps.retry(store, "a")
        assert steps.cancel(store, "a") and steps.cancel(store, "b") and not steps.cancel(store, "a")
        go_on.set()
        assert worker.drain(60)
        with pytest.raises(steps.Cancelled):
            steps.result(store, "a")
    assert steps.prune(store, older_than=3600) == 0 and len(list(steps.runs(store))) == 2
    with pytest.raises(memlith.Invalid):
        steps.prune(store, status=("ready",))
    assert steps.prune(store) == 2 and len(records) == 0
    assert steps.submit(store, order, "a", "marble")


def test_a_lease_ends_after_its_time(store: memlith.Store) -> None:
    begun, go_on, seen = threading.Semaphore(0), threading.Event(), []

    def slow(run: steps.Run) -> str:
        seen.append(run)
        if len(seen) == 1:
            begun.release()
            go_on.wait(60)
        return str(run.step(lambda: f"by {seen.index(run)}", name="a")())

    with steps.worker(store, [slow], threads=2, lease=0.05):
        steps.submit(store, slow, "a")
        assert begun.acquire(timeout=60)
        assert steps.result(store, "a", 60) == "by 1"
        go_on.set()
    assert len(seen) == 2 and steps.result(store, "a") == "by 1"


def test_runs_that_a_closed_worker_had_only_taken_are_due(store: memlith.Store) -> None:
    begun, go_on = threading.Semaphore(0), threading.Event()

    def slow(run: steps.Run) -> str:
        begun.release()
        assert go_on.wait(60)
        return run.id

    for number in range(4):
        steps.submit(store, slow, f"run-{number}")
    first = steps.worker(store, [slow], threads=1)
    assert begun.acquire(timeout=60)
    closing = threading.Thread(target=first.close)
    closing.start()
    while not first._stopped:
        time.sleep(0.001)
    go_on.set()
    closing.join()
    assert {each.status for each in steps.runs(store)} == {"done", "ready"}  # none is "running"
    with steps.worker(store, [slow], threads=1):
        assert [steps.result(store, f"run-{number}", 60) for number in range(4)] == [f"run-{n}" for n in range(4)]


def test_many_runs_at_once(folder: pathlib.Path) -> None:
    """Threads lead flushes for each other, and each waits for its own step."""
    with memlith.open(folder / "s") as store:
        total = memlith.Dict(store, "total")
        total["steps"] = 0

        def work(number: int) -> None:
            run = steps.run(store, f"run-{number}")
            step = run.step(lambda: total.incr("steps"), name="add")
            seen = [step() for _ in range(20)]
            assert seen == sorted(set(seen))

        threads = [threading.Thread(target=work, args=(number,)) for number in range(16)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert total["steps"] == 320
    with memlith.open(folder / "s") as store:
        assert memlith.Dict(store, "total")["steps"] == 320
        assert [each.steps for each in steps.runs(store)] == [20] * 16


def test_a_workers_store_that_is_closed(folder: pathlib.Path) -> None:
    store = memlith.open(folder / "s")
    worker = steps.worker(store, [order])
    store.close()
    worker.close()
    for mistake in ({"threads": 0}, {"workflows": []}, {"lease": 0}, {"workflows": [functools.partial(order)]}):
        with memlith.open(folder / "s") as store, pytest.raises(memlith.Invalid):
            steps.worker(store, **{"workflows": [order], **mistake})


def test_a_worker_that_is_killed_goes_on(program: Program) -> None:
    text = """
        import sys
        import memlith
        from memlith import steps
        store = memlith.open("s")
        def slow(run, number):
            for each in range(50):
                run.step(lambda: memlith.Dict(store, "n").incr(number, 1), name="one")()
            return number
        memlith.Dict(store, "n")
        with steps.worker(store, [slow]) as worker:
            print([steps.submit(store, slow, f"r{n}", n) for n in range(4)], flush=True)
            assert worker.drain()
        print(*(steps.result(store, f"r{n}") for n in range(4)), *memlith.Dict(store, "n").values())
        """
    process = program.start(text)
    assert process.stdout is not None
    assert process.stdout.readline() == "[True, True, True, True]\n"
    time.sleep(0.01)
    kill(process)
    done = program.run(text)
    assert done.stdout.splitlines() == ["[False, False, False, False]", "0 1 2 3 50 50 50 50"], done.stderr


def test_asyncio(store: memlith.Store) -> None:
    def program() -> int:
        with steps.run(store, "r") as run:
            return run.step(lambda: 5, name="a")()

    async def main() -> int:
        return await asyncio.to_thread(program)

    assert asyncio.run(main()) == 5 and asyncio.run(main()) == 5


# ---- readers -------------------------------------------------------------------------------------------------------


def test_the_outbox_and_the_runs_in_another_process(store: memlith.Store, program: Program) -> None:
    reader = program.start("""
        import memlith
        from memlith import steps
        store = memlith.open("s", follow=True)
        outbox, last = steps.Outbox(store), 0
        for line in iter(input, "end"):
            store.refresh()
            found = list(outbox.after(last))
            last = found[-1].number if found else last
            print([message.content for message in found], [(r.id, r.status, r.steps) for r in steps.runs(store)],
                  flush=True)
        """)
    assert reader.stdin is not None and reader.stdout is not None
    run = steps.run(store, "r")
    send = run.step(run.outbox.append, name="send")

    def look() -> str:
        reader.stdin.write("look\n")
        reader.stdin.flush()
        return str(reader.stdout.readline().strip())

    send("one")
    assert look() == "['one'] [('r', 'ready', 1)]"
    send("two")
    send("three")
    outbox = steps.Outbox(store)
    message = outbox.read()
    assert message is not None and (message.run, message.position, message.content) == ("r", 0, "one")
    with store.transaction():
        outbox.consume(1)
    assert look() == "['two', 'three'] [('r', 'ready', 3)]"
    assert look() == "[] [('r', 'ready', 3)]"
    outbox.append("alone")
    assert [each.content for each in outbox] == ["two", "three", "alone"]
    assert [each.content for each in outbox.after(3)] == ["alone"]
    reader.communicate("end\n")


def test_runs_of_cpp_and_of_python_are_the_same(folder: pathlib.Path) -> None:
    """The programs are examples/order.cpp and the command, of the build that MEMLITH_COMMAND is of."""
    command = pathlib.Path(os.environ.get("MEMLITH_COMMAND", "none"))
    order_program = command.parent / "order"
    if not order_program.exists():
        pytest.skip("examples/order.cpp was not built")
    with memlith.open(folder / "s") as store:
        run = steps.run(store, "py", codec="raw")
        run.step(lambda: b"\5\0\0\0", name="reserve")()
        steps.submit(store, "workflow", "later", delay=1000)
    subprocess.run([order_program, folder / "s", "cpp"], check=True)
    done = subprocess.run([order_program, folder / "s", "py"], check=True, capture_output=True, text=True)
    assert "reserve" not in done.stdout and "5 left" in done.stdout
    listed = subprocess.run([command, "steps", "list", folder / "s", "--json"], check=True, capture_output=True)
    rows = [json.loads(line) for line in listed.stdout.splitlines()]
    assert [(row["id"], row["status"], row["steps"], row["codec"]) for row in rows] == [
        ("cpp", "done", 2, "raw"), ("later", "ready", 0, "pickle"), ("py", "done", 2, "raw")]
    subprocess.run([command, "steps", "cancel", folder / "s", "later"], check=True)
    with memlith.open(folder / "s") as store:
        assert [(each.id, each.status, each.steps) for each in steps.runs(store)] == [
            ("cpp", "done", 2), ("later", "cancelled", 0), ("py", "done", 2)]
        assert steps.result(store, "cpp") == b"receipt for 500"
        run = steps.run(store, "cpp", codec="raw")
        assert run.step(lambda: b"", name="reserve")() == b"\x09\0\0\0"
        assert [each.content for each in steps.Outbox(store)] == [b"cpp reserved"]
        assert len(memlith.Dict(store, ".steps", codec="raw")) == len(list(_engine.engine_of(store).records))


def test_a_store_without_runs_that_is_read(folder: pathlib.Path) -> None:
    memlith.open(folder / "s").close()
    with memlith.open(folder / "s", read_only=True) as store:
        assert list(steps.runs(store)) == []


def test_records_that_are_damaged_or_newer_are_told(store: memlith.Store) -> None:
    run = steps.run(store, "r")
    run.step(lambda: 1, name="a")()
    records = _engine.engine_of(store).records
    for key in (_format.head_key("r"), _format.step_key("r", 0)):
        whole = records[key]
        for damage, error in ((b"\x02" + whole[1:], memlith.Incompatible), (whole[:-1], memlith.Corrupt),
                              (whole + b"x", memlith.Corrupt), (b"", memlith.Corrupt)):
            records[key] = damage
            with pytest.raises(error):
                steps.run(store, "r").step(lambda: 1, name="a")()
        records[key] = whole
    del records[_format.step_key("r", 0)]
    with pytest.raises(memlith.Corrupt, match="0 recorded steps, and its position is 1"):
        steps.run(store, "r").step(lambda: 1, name="a")()


def test_the_programs_of_the_page_run(program: Program) -> None:
    page = (PROOF.parents[3] / "docs/steps.md").read_text(encoding="utf-8")
    text = "".join(re.findall(r"(?<!-->\n)```python\n(.*?)```", page, re.DOTALL)) + "\nprint(receipt, dict(stock))\n"
    ended = [program.run(text) for _ in range(2)]
    for each in ended:
        assert each.returncode == 0, each.stderr
    assert ended[0].stdout == ended[1].stdout and "'marble': 8" in ended[0].stdout


def test_the_recipe_for_fastapi_runs(folder: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the extended tests: where FastAPI is installed."""
    pytest.importorskip("httpx")
    testclient = pytest.importorskip("fastapi.testclient")
    page = (PROOF.parents[3] / "docs/steps.md").read_text(encoding="utf-8")
    [recipe] = re.findall(r"installed -->\n```python\n(.*?)```", page, re.DOTALL)
    monkeypatch.chdir(folder)
    workflow = steps.workflow(name="order")(lambda run, item, cents: cents)
    names: dict[str, Any] = {"memlith": memlith, "steps": steps, "order": workflow}
    exec(recipe, names)  # noqa: S102
    for _ in range(2):
        with testclient.TestClient(names["app"]) as client:
            said = client.post("/orders/o1?item=marble").json()
            assert said["id"] == "o1"
            assert steps.result(names["app"].state.store, "o1", 60) == 500


# ---- the proof -----------------------------------------------------------------------------------------------------


def prove(folder: pathlib.Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run([sys.executable, "-B", PROOF, folder, *arguments], capture_output=True, text=True,
                          check=False)


def test_effects_are_counted_outside_of_a_program_that_is_killed(folder: pathlib.Path) -> None:
    """A few hundred kills; `./dev soak steps` has 10,000, and one at every call and return."""
    done = prove(folder, "--kills", "300")
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("planted, told", [
    ("result-before-state", "changes of|state|outbox"),
    ("position-before-result", "lost|Corrupt"),
    ("lease-without-its-end", "lost: run-[0-9] running"),
    ("effect-before-intent", "happened 2 times"),
    ("timer-before-lease", "lost: run-[0-9] (ready|waiting)"),
])
def test_planted_faults_are_found(folder: pathlib.Path, planted: str, told: str) -> None:
    done = prove(folder, "--kills", "2000", "--planted", planted)
    assert done.returncode == 1 and re.search(told, done.stdout), done.stdout + done.stderr
