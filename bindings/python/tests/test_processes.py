"""Processes: kill -9 at any moment, fork, spawn, and readers."""

import multiprocessing
import multiprocessing.connection
import os
import pathlib
import random
import signal

import numpy as np
import pytest
from conftest import Program, kill
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test

import memlith

ROWS, COLUMNS = 50, 700  # a row is more than a page

# Commits that change every row, with a different value each, until it is killed.
WRITER = """
    import sys
    import memlith
    store = memlith.open("s")
    way = sys.argv[1]
    a = store.array("a", (50, 700), "i8")
    b = store.array("b", 50, "i8", tracker="fault")
    step = int(b[0])
    print(step, flush=True)
    while True:
        step += 1
        if way == "transaction":
            with store.transaction():
                a[:], b[:] = step, step
        else:
            a[:], b[:] = step, step
            if way == "persist":
                store.persist()
            else:
                ticket = store.persist_async()
                ticket.result()
        print(step, flush=True)
"""


@pytest.mark.parametrize("way", ["persist", "persist_async", "transaction"])
def test_kill_9(program: Program, way: str) -> None:
    rng = random.Random(os.environ.get("MEMLITH_SEED", way))
    last = 0
    for _ in range(5):
        process = program.start(WRITER, way)
        assert process.stdout is not None
        for _ in range(rng.randrange(1, 60)):
            last = int(process.stdout.readline())
        last = max([last, *map(int, kill(process))])
        with memlith.open(program.folder / "s") as store:
            found = int(store["b"][0])
            assert (store["a"] == found).all() and (store["b"] == found).all()
            assert last <= found <= last + 1
            last = found


def test_a_resize_that_is_killed_happened_or_did_not(program: Program) -> None:
    for _ in range(4):
        process = program.start("""
            import numpy as np
            import memlith
            store = memlith.open("s")
            a = store.array("a") if "a" in store else store.from_array("a", np.zeros((1, 100), "i4"))
            while True:
                n = len(a) + 1 if len(a) < 2000 else 1
                a = store.resize("a", (n, 100))
                a[:] = n
                store.persist()
                print(n, flush=True)
            """)
        assert process.stdout is not None
        for _ in range(40):
            process.stdout.readline()
        kill(process)
        with memlith.open(program.folder / "s") as store:
            assert (store["a"] == len(store["a"])).all()


def in_child(body: object) -> int:
    child = os.fork()
    if child == 0:
        status = 1
        try:
            status = body() or 0  # type: ignore[operator]
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def test_a_forked_child_reads_snapshots_and_disturbs_nobody(folder: pathlib.Path) -> None:
    with memlith.open(folder / "s") as store:
        array = store.from_array("a", np.arange(10_000))
        ticket = store.persist_async()
        ticket.add_done_callback(lambda done: None)
        view = store.snapshot("a")["a"]
        array[:] = -1

        def child() -> int:
            array[0] = 5
            for call in (store.persist, store.persist_async, store.rollback, store.names, ticket.result, store.info,
                         lambda: store.array("b", 3), store.transaction().__enter__):
                try:
                    call()
                    return 2
                except memlith.Invalid as error:
                    if "parent" not in str(error):
                        return 3
            if "parent" not in repr(store):
                return 4
            store.close()
            return 0 if (view == np.arange(10_000)).all() else 5

        assert in_child(child) == 0
        assert array[0] == -1
        array[1] = 7
        store.persist()
        assert in_child(lambda: 0) == 0
    with memlith.open(folder / "s") as store:
        assert store["a"][0] == -1 and store["a"][1] == 7


def test_a_child_that_ends_as_python_ends_disturbs_nobody(program: Program) -> None:
    ended = program.run("""
        import os, sys
        import memlith
        store = memlith.open("s")
        a = store.array("a", 100)
        store.autosave(0.01)
        if os.fork() == 0:
            del a
            sys.exit(0)
        assert os.waitstatus_to_exitcode(os.wait()[1]) == 0
        a[:] = 4
        store.persist()
        """)
    assert ended.returncode == 0, ended.stderr
    with memlith.open(program.folder / "s") as store:
        assert (store["a"] == 4).all()


def total(path: str) -> float:
    with memlith.open(path, read_only=True) as store:
        return float(store["a"].sum())


def received(array: np.ndarray) -> float:  # type: ignore[type-arg]
    array[0] += 1  # the child's own copy
    return float(array.sum())


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_processes_of_multiprocessing(folder: pathlib.Path, method: str) -> None:
    with memlith.open(folder / "s") as store:
        array = store.from_array("a", np.ones(5000))
        with multiprocessing.get_context(method).Pool(2) as pool:
            assert pool.map(received, [array, array]) == [5001, 5001]
        assert array[0] == 1
    with multiprocessing.get_context(method).Pool(2) as pool:  # any number of readers side by side
        assert pool.map(total, [str(folder / "s")] * 4) == [5000] * 4


def test_read_only_beside_the_writer_is_busy(folder: pathlib.Path) -> None:
    with memlith.open(folder / "s") as store, pytest.raises(memlith.Busy, match="follow=True"):
        store.array("a", 10)
        memlith.open(folder / "s", read_only=True)


def followed(path: str, told: "multiprocessing.connection.Connection") -> None:
    """A reader beside the writer: tells what it sees, and moves on when it is told to."""
    with memlith.open(path, follow=True) as store:
        array = store["a"]
        words = memlith.Dict(store, "words")
        lengths = memlith.Dict(store, "lengths")
        while True:
            same = bool((array == array[0]).all())
            told.send((same, int(array[0]), words["step"], len(lengths), array.flags.writeable))
            if not told.recv():
                break
            store.refresh()


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_readers_beside_the_writer(folder: pathlib.Path, method: str) -> None:
    context = multiprocessing.get_context(method)
    path = str(folder / "s")
    with memlith.open(path) as store:
        array = store.array("a", 5000, "i8")
        words, lengths = memlith.Dict(store, "words"), memlith.Dict(store, "lengths")
        with store.transaction():
            array[:] = 0
            words["step"] = 0
    readers = []
    for _ in range(2):
        ours, theirs = context.Pipe()
        # Before the store is open: a forked child would have its addresses.
        process = context.Process(target=followed_later, args=(path, theirs))
        process.start()
        readers.append((process, ours))
    with memlith.open(path) as store:
        array = store["a"]
        words, lengths = memlith.Dict(store, "words"), memlith.Dict(store, "lengths")
        for _, pipe in readers:
            pipe.send(True)
        for step in range(1, 12):
            for _, pipe in readers:
                assert pipe.recv() == (True, step - 1, step - 1, step - 1, False)
            with store.transaction():
                array[:] = step
                words["step"] = step
                lengths[step] = b"x" * step * 100
            array[:] = -1  # not persisted
            for _, pipe in readers:
                pipe.send(step < 11)
            array[:] = step
        assert store.info()["writer"] == 0 and store.info()["follows"] == 0
        with pytest.raises(memlith.Invalid, match="open for writing"):
            store.refresh()
    for process, _ in readers:
        process.join()
        assert process.exitcode == 0
    with memlith.open(path, read_only=True) as one, memlith.open(path, follow=True) as two:
        assert one.refresh() <= two.refresh()
        assert one.info()["follows"] == 0 and two.info()["follows"] == 1
        with pytest.raises(memlith.ReadOnly):
            two.persist()
            memlith.Dict(two, "words")["step"] = 3


def followed_later(path: str, told: "multiprocessing.connection.Connection") -> None:
    assert told.recv()
    followed(path, told)


def test_a_reader_that_follows_a_writer_that_is_killed(program: Program) -> None:
    """One number in all arrays, which never falls, whatever happens to the writer; and writers are never kept out."""
    with memlith.open(program.folder / "s") as store:
        store.array("a", (ROWS, COLUMNS), "i8")
        store.array("b", 50, "i8", tracker="fault")
        store.persist()
    with memlith.open(program.folder / "s", follow=True) as reader:
        a, b = reader["a"], reader["b"]
        newest = 0
        for way in ("persist", "persist_async", "transaction"):
            process = program.start(WRITER, way)
            assert process.stdout is not None
            for _ in range(25):
                told = int(process.stdout.readline())
                reader.refresh()
                assert (a == b[0]).all() and (b == b[0]).all()
                assert int(b[0]) >= max(told, newest), "what was acknowledged is not shown"
                newest = int(b[0])
            kill(process)
            reader.refresh()
            assert (a == b[0]).all() and int(b[0]) >= newest
            newest = int(b[0])


class AgainstAPlainArray(RuleBasedStateMachine):
    """An array of a store does what a plain array does, and a reopened store shows the last persist."""

    folder: pathlib.Path
    machines = 0

    @initialize(tracker=st.sampled_from(["scan", "fault"]))
    def open_new(self, tracker: memlith.Tracker) -> None:
        AgainstAPlainArray.machines += 1
        self.path = self.folder / f"s{self.machines}"
        self.tracker: memlith.Tracker = tracker
        self.store = memlith.open(self.path)
        self.array = self.store.array("a", (30, 257), "i2", tracker=tracker)
        self.old = [self.array]
        self.plain = np.zeros((30, 257), "i2")
        self.persisted = self.plain.copy()

    def same(self) -> None:
        assert self.array.shape == self.plain.shape and (self.array == self.plain).all()

    @rule(row=st.integers(0, 9), value=st.integers(-9, 9))
    def store_row(self, row: int, value: int) -> None:
        for array in (self.array, self.plain):
            array[row % len(array)] += value

    @rule(start=st.integers(0, 300), step=st.integers(1, 700), value=st.integers(-99, 99))
    def store_scattered(self, start: int, step: int, value: int) -> None:
        for array in (self.array, self.plain):
            array.reshape(-1)[start::step] = value

    @rule(value=st.integers(1, 9))
    def store_everything(self, value: int) -> None:
        for array in (self.array, self.plain):
            np.add(array, value, out=array)

    @rule(asynchronous=st.booleans())
    def persist(self, asynchronous: bool) -> None:
        if asynchronous:
            self.store.persist_async().result()
        else:
            self.store.persist()
        self.persisted = self.plain.copy()

    @rule()
    def roll_back(self) -> None:
        self.store.rollback()
        self.array = self.store["a"]
        self.plain = self.persisted.copy()
        self.same()

    @rule(rows=st.integers(10, 200))
    def resize(self, rows: int) -> None:
        self.old.append(self.array)
        self.array = self.store.resize("a", (rows, 257))
        grown = np.zeros((rows, 257), "i2")
        both = min(rows, len(self.plain))
        grown[:both] = self.plain[:both]
        self.plain = grown
        self.same()

    @rule(fails=st.booleans(), value=st.integers(-9, 9))
    def transact(self, fails: bool, value: int) -> None:
        try:
            with self.store.transaction():
                self.store_everything(value)
                if fails:
                    raise KeyError
            self.persisted = self.plain.copy()
        except KeyError:
            self.array, self.plain = self.store["a"], self.persisted.copy()
        self.same()

    @rule()
    def reopen(self) -> None:
        self.store.close()
        self.array.sum()
        self.store = memlith.open(self.path)
        self.array = self.store.array("a", tracker=self.tracker)
        self.plain = self.persisted.copy()
        self.same()

    @rule(commits=st.integers(0, 2), now=st.integers(0, 9))
    def killed_in_another_process(self, commits: int, now: int) -> None:
        if now != 7:  # each takes a process
            return
        self.store.close()
        ended = Program(self.folder).run("""
            import os, signal, sys
            import memlith
            store = memlith.open(sys.argv[1])
            array = store["a"]
            for step in range(int(sys.argv[2])):
                array += 1
                store.persist()
            array[:] = 77
            os.kill(os.getpid(), signal.SIGKILL)
            """, self.path, commits)
        assert ended.returncode == -signal.SIGKILL, ended.stderr
        self.persisted += commits
        self.store = memlith.open(self.path)
        self.array = self.store.array("a", tracker=self.tracker)
        self.plain = self.persisted.copy()
        self.same()

    @rule()
    def look(self) -> None:
        self.same()
        for array in self.old:
            array.sum()
        view = self.store.snapshot("a")["a"]
        assert view.shape == self.persisted.shape and (view == self.persisted).all()

    def teardown(self) -> None:
        if hasattr(self, "store"):
            self.store.close()


def test_against_a_plain_array(folder: pathlib.Path) -> None:
    AgainstAPlainArray.folder = folder
    run_state_machine_as_test(AgainstAPlainArray, settings=settings(max_examples=25, stateful_step_count=25))


def test_a_forked_child_reads_the_store_that_its_parent_has_open(folder: pathlib.Path) -> None:
    """As a worker of multiprocessing or of a DataLoader does: the child has inherited the parent's arrays."""
    with memlith.open(folder / "s") as store:
        array = store.from_array("a", np.arange(1000))
        child = os.fork()
        if child == 0:
            try:
                with memlith.open(folder / "s", follow=True) as reader:
                    seen = int(reader["a"].sum()) == 499500 and not reader["a"].flags.writeable
            finally:
                os._exit(0 if seen else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        array[0] = 1
        store.persist()
