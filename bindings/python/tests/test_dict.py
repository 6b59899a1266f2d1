"""Dictionaries: the contract of a mapping, keys, transactions, threads, processes, kill -9."""

import asyncio
import gc
import math
import os
import pathlib
import pickle
import signal
import subprocess
import sys
import textwrap
import threading
import weakref
from typing import Any, Iterator

import numpy as np
import pytest
from conftest import Program, kill
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test

import memlith
from memlith import _core

try:
    from test import mapping_tests
except ImportError:  # Debian: libpython3.11-testsuite
    mapping_tests = None


@pytest.fixture
def store(folder: pathlib.Path) -> Iterator[memlith.Store]:
    with memlith.open(folder / "s") as opened:
        yield opened


@pytest.mark.skipif(mapping_tests is None, reason="this Python lacks its own tests (Debian: libpython3.11-testsuite)")
class TestTheContractOfAMapping(getattr(mapping_tests, "TestHashMappingProtocol", object)):  # type: ignore[misc]
    # A stored dictionary lacks these properties: it has a name, its copy is a dict, its values are copies, its keys
    # are bytes on the disk, which no class of Python compares or hashes.
    test_constructor = test_fromkeys = test_copy = test_setdefault = test_repr = test_repr_deep = None
    test_eq = None

    def test_getitem(self) -> None:
        mapping_tests.TestMappingProtocol.test_getitem(self)

    def test_pop(self) -> None:
        mapping_tests.TestMappingProtocol.test_pop(self)

    made = 0

    @pytest.fixture(autouse=True)
    def open_store(self, store: memlith.Store) -> None:
        self.store = store

    def _empty_mapping(self) -> "memlith.Dict[Any]":
        type(self).made += 1
        return memlith.Dict(self.store, f"d{self.made}", weak=True)

    def _full_mapping(self, data: "dict[Any, Any]") -> "memlith.Dict[Any]":
        made = self._empty_mapping()
        made.update(data)
        return made


numbers = st.one_of(st.integers(), st.floats(allow_nan=False), st.integers(-(10**40), 10**40), st.booleans(),
                    st.sampled_from([0.0, -0.0, 1, 1.0, 2**53 + 1, float(2**53), 2**63, -(2**63), 5e-324, 1e308,
                                     math.inf, -math.inf]))
texts = st.text(st.characters(), max_size=30)
plain_keys = st.one_of(numbers, texts, st.binary(max_size=30), st.none())
keys = st.recursive(plain_keys, lambda inner: st.lists(inner, max_size=3).map(tuple), max_leaves=6)


def decoded(store: memlith.Store, key: Any) -> Any:
    d: memlith.Dict[Any] = memlith.Dict(store, "keys", weak=True, codec="raw")
    d.clear()
    d[key] = b""
    return next(iter(d))


@settings(max_examples=200)
@given(left=numbers, right=numbers)
def test_the_order_of_numbers(left: Any, right: Any) -> None:
    first, second = _core.encode_key(left), _core.encode_key(right)
    assert (first < second, first == second) == (left < right, left == right)
    assert (_core.encode_key((left, "x")) < _core.encode_key((right, "x"))) == (left < right)


@settings(max_examples=200)
@given(pair=st.one_of(st.tuples(texts, texts), st.tuples(st.binary(), st.binary()),
                      st.tuples(*[st.tuples(numbers, texts, st.binary(max_size=3))] * 2),
                      st.tuples(*[st.lists(st.binary(max_size=3), max_size=4).map(tuple)] * 2)))
def test_the_order_of_other_keys(pair: Any) -> None:
    left, right = map(_core.encode_key, pair)
    assert (left < right, left == right) == (pair[0] < pair[1], pair[0] == pair[1])


def test_keys_come_back(folder: pathlib.Path) -> None:
    with memlith.open(folder / "s") as store:

        @settings(max_examples=150)
        @given(key=keys)
        def check(key: Any) -> None:
            assert decoded(store, key) == key

        check()


def test_keys_that_are_none(store: memlith.Store) -> None:
    d: memlith.Dict[int] = memlith.Dict(store, "d")
    for key in ([1], {}, object(), (1, [2])):
        for call in (lambda: d[key], lambda: d.__setitem__(key, 1), lambda: key in d, lambda: d.pop(key)):
            with pytest.raises(TypeError):
                call()
    for key in (math.nan, "x" * 1024, 1 << 9000):
        with pytest.raises(ValueError):
            d[key] = 1
    with pytest.raises(KeyError) as caught:
        d[(1, 2)]
    assert caught.value.args == ((1, 2),)


def test_what_stays(folder: pathlib.Path) -> None:
    with memlith.open(folder / "s") as store:
        d: memlith.Dict[Any] = memlith.Dict(store, "d")
        d["a"], d[1.5], d[b"x", None] = [1, {"b": 2}], None, "ü"
        raw: memlith.Dict[bytes] = memlith.Dict(store, "raw", weak=True, codec="raw")
        raw["k"] = bytearray(b"12")
        raw.update((number, b"%d" % number) for number in range(1000))
        with pytest.raises(TypeError):
            raw["k"] = 3  # type: ignore[assignment]
        assert store.names() == [] and len(store) == 0
    with memlith.open(folder / "s", read_only=True) as store:
        assert dict(memlith.Dict(store, "d").items()) == {1.5: None, "a": [1, {"b": 2}], (b"x", None): "ü"}
        raw = memlith.Dict(store, "raw", codec="raw")
        assert len(raw) == 1001 and raw["k"] == b"12" and list(raw.irange(3, 6)) == [3, 4, 5]
        assert list(raw.irange(997, reverse=True)) == ["k", 999, 998, 997]
        assert list(raw.items_in(stop=2, reverse=True)) == [(1, b"1"), (0, b"0")]
        assert list(raw)[:1000] == list(range(1000)) and list(reversed(raw))[1:] == list(range(999, -1, -1))
        with pytest.raises(memlith.ReadOnly):
            raw["k"] = b""
        with pytest.raises(memlith.NotFound):
            memlith.Dict(store, "none")
        with pytest.raises(memlith.Incompatible, match="raw"):
            memlith.Dict(store, "raw")
    with pytest.raises(memlith.Invalid, match="closed"):
        raw["k"]
    assert "closed" in repr(raw)


def test_codecs(store: memlith.Store) -> None:
    class Reversed:
        name = "reversed"

        def dumps(self, value: str) -> bytes:
            return value[::-1].encode()

        def loads(self, data: bytes) -> str:
            return data.decode()[::-1]

    d: memlith.Dict[str] = memlith.Dict(store, "own", codec=Reversed())
    d["a"] = "xyz"
    assert d["a"] == "xyz"
    pytest.importorskip("msgpack")
    packed: memlith.Dict[Any] = memlith.Dict(store, "packed", codec="msgpack")
    packed[1] = {"a": [1, 2.5, b"c"]}
    assert packed.pop(1) == {"a": [1, 2.5, b"c"]} and not packed


def test_transactions(store: memlith.Store) -> None:
    d: memlith.Dict[int] = memlith.Dict(store, "d")
    e: memlith.Dict[int] = memlith.Dict(store, "e")
    with d.transact():
        d["a"], e["b"] = 1, 2
        with pytest.raises(KeyError), d.transact():
            d["a"], d["c"] = 9, 9
            raise KeyError
        assert d.copy() == {"a": 1} and len(d) == 1
        with pytest.raises(memlith.Invalid, match="transaction of a dictionary"):
            store.persist()
        with pytest.raises(memlith.Invalid, match="transaction of a dictionary"), store.transaction():
            pass
    with pytest.raises(KeyboardInterrupt), d.transact():
        d["a"] = 5
        e.clear()
        raise KeyboardInterrupt
    assert d.copy() == {"a": 1} and e.copy() == {"b": 2} and len(e) == 1
    with pytest.raises(TypeError):
        d.update([("x", 1), ([], 2)])
    assert d.copy() == {"a": 1}
    assert d.incr("n") == 1 and d.incr("n", 4) == 5 and d.setdefault("n", 7) == 5 and d.popitem() == ("n", 5)


def test_transactions_of_arrays_and_dictionaries(folder: pathlib.Path) -> None:
    with memlith.open(folder / "s") as store:
        array = store.array("a", 10)
        d: memlith.Dict[int] = memlith.Dict(store, "d")
        d["x"] = 1
        with store.transaction():
            array[:] = 1
            d["x"] += 1
            assert len(d) == 1
            with pytest.raises(KeyError), d.transact():
                d["y"] = 3
                raise KeyError
            with pytest.raises(memlith.Invalid, match="before"):
                memlith.Dict(store, "new")
            assert memlith.Dict(store, "d")["x"] == 2
        assert d.copy() == {"x": 2}
        with pytest.raises(ZeroDivisionError), store.transaction():
            array[:] = 2
            del d["x"]
            raise ZeroDivisionError
        assert d.copy() == {"x": 2} and (array == 1).all()
        small = memlith.open(folder / "small", log_bytes=1 << 20, log_max_bytes=1 << 20)
    with small:
        array = small.array("a", 1_000_000)
        d = memlith.Dict(small, "d")
        for _ in range(2):
            with pytest.raises(memlith.Full), small.transaction():
                array[:] = 3
                d["x"] = 1
            assert not d and not array.any()
        with small.transaction():
            array[:10], d["x"] = 4, 4
        with small.transaction():
            d["z"] = 5
    with memlith.open(folder / "small") as small:
        assert memlith.Dict(small, "d").copy() == {"x": 4, "z": 5} and small["a"][:11].tolist() == [4] * 10 + [0]


KILLED = """
    import sys
    import memlith
    store = memlith.open("s")
    a = store.array("a", 3000, "i8")
    strong, weak = memlith.Dict(store, "strong"), memlith.Dict(store, "weak", weak=True)
    log = memlith.Deque(store, "log", weak=True)
    step = int(a[0])
    print(step, flush=True)
    while True:
        step += 1
        if step % 3 == 0:
            weak["before"] = step           # a transaction that reads it is never there without it
        with store.transaction():
            a[:] = step
            strong["step"] = step
            weak["seen"] = weak.get("before")
            weak["large"] = bytes(step % 7 * 30_000)
            log.append(step)
        print(step, flush=True)
"""


def test_a_killed_transaction_is_whole(program: Program) -> None:
    last = 0
    for lines in (1, 2, 9, 40, 1):
        process = program.start(KILLED)
        assert process.stdout is not None
        for _ in range(lines):
            last = int(process.stdout.readline())
        last = max([last, *map(int, kill(process))])
        with memlith.open(program.folder / "s") as store:
            found = int(store["a"][0])
            strong: memlith.Dict[Any] = memlith.Dict(store, "strong")
            weak: memlith.Dict[Any] = memlith.Dict(store, "weak", weak=True)
            log: memlith.Deque[int] = memlith.Deque(store, "log", weak=True)
            assert last <= found <= last + 1
            assert (store["a"] == found).all()
            assert list(log) == list(range(1, found + 1)) and len(log) == found
            if found > 0:
                assert strong["step"] == found and len(strong) == 1
                assert weak["seen"] == (found // 3 * 3 or None)
                assert weak.get("before") in (weak["seen"], found + 1)
                assert len(weak["large"]) == found % 7 * 30_000
            last = found


SAME_NUMBER = """
import memlith
store = memlith.open("s")
a, d = store.array("a", 4), memlith.Dict(store, "d", weak=True)
number = int(a[0])
assert d.get("number", 0) == number
print(number, flush=True)
while True:
    number += 1
    with store.transaction():
        a[:] = number
        d["number"] = number
    print(number, flush=True)
"""


def memlith_program() -> str:
    found = os.environ.get("MEMLITH_COMMAND")
    if found is None:
        pytest.skip("MEMLITH_COMMAND does not name the command `memlith`")
    return found


# A guarantee must not depend on which program opens the store next: here it is the command line.
def test_arrays_and_dictionaries_agree_whoever_opens_the_store_after_a_kill(program: Program) -> None:
    command = memlith_program()
    store = program.folder / "s"
    last = 0
    for lines in (1, 2, 5, 20, 60):
        process = program.start(SAME_NUMBER)
        assert process.stdout is not None
        for _ in range(lines):
            last = int(process.stdout.readline())
        last = max([last, *map(int, kill(process))])
        subprocess.run([command, "recover", str(store)], check=True, capture_output=True)
        dump = subprocess.run([command, "dump", str(store), ".records"], check=True,
                              capture_output=True).stdout.decode().splitlines()
        with memlith.open(store, read_only=True) as reader:
            array = reader["a"].tolist()
            in_dictionary = memlith.Dict(reader, "d").get("number", 0)
        assert array[0] in (last, last + 1) and array == [array[0]] * 4
        assert in_dictionary == array[0]
        # The same in the records themselves: a line with the key, and one with the value, pickled.
        values = [dump[line + 1][1:] for line, text in enumerate(dump) if text.endswith("number")]
        found = [pickle.loads(value.encode().decode("unicode_escape").encode("latin-1")) for value in values]
        assert found == ([] if array[0] == 0 else [array[0]])


def test_a_reader_after_a_kill_sees_the_whole_transaction(program: Program) -> None:
    ended = program.run("""
        import os, signal
        import memlith
        store = memlith.open("s")
        a, d = store.array("a", 3), memlith.Dict(store, "d")
        with store.transaction():
            a[:], d["x"] = 1, 1
        os.kill(os.getpid(), signal.SIGKILL)
        """)
    assert ended.returncode == -signal.SIGKILL, ended.stderr
    with memlith.open(program.folder / "s", read_only=True) as store:
        assert store["a"].tolist() == [1, 1, 1]
        assert memlith.Dict(store, "d")["x"] == 1


def test_weak_changes_are_durable_with_persist(program: Program) -> None:
    ended = program.run("""
        import os, signal
        import memlith
        store = memlith.open("s")
        a, d = store.array("a", 3), memlith.Dict(store, "d", weak=True)
        a[:], d["x"] = 1, 1
        store.persist()
        os.kill(os.getpid(), signal.SIGKILL)
        """)
    assert ended.returncode == -signal.SIGKILL, ended.stderr
    with memlith.open(program.folder / "s") as store:
        assert memlith.Dict(store, "d")["x"] == 1 and store["a"].tolist() == [1, 1, 1]


def test_threads(store: memlith.Store) -> None:
    d: memlith.Dict[int] = memlith.Dict(store, "d")
    weak: memlith.Dict[int] = memlith.Dict(store, "weak", weak=True)
    array = store.array("a", 4, "i8")
    failures: list[BaseException] = []

    def work(number: int) -> None:
        try:
            for step in range(30):
                d.incr("n")
                weak[number, step] = step
                with store.transaction():
                    array[number] += 1
                    weak.incr("n")
                with d.transact():
                    d["x"], d["y"] = d.get("x", 0) + 1, d.get("y", 0) - 1
                assert sum(value for _, value in d.items_in("x", "z")) == 0
                assert weak[number, step] == step and len(weak) >= step
                if step % 10 == 0:
                    store.persist()
        except BaseException as error:  # noqa: BLE001
            failures.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert d.copy() == {"n": 120, "x": 120, "y": -120}
    assert weak["n"] == 120 and len(weak) == 121 and array.tolist() == [30] * 4


def test_a_thread_closes_the_store_meanwhile(folder: pathlib.Path) -> None:
    store = memlith.open(folder / "s")
    d: memlith.Dict[int] = memlith.Dict(store, "d", weak=True)
    ready = threading.Barrier(3)
    ends: list[str] = []

    def work(block: bool) -> None:
        ready.wait()
        try:
            for step in range(1_000_000):
                if block:
                    with d.transact():
                        d["a"] = step
                        d["b"] = step
                elif d.get("a") is not None:
                    d["c"] = step
        except memlith.Invalid as error:
            ends.append(str(error))

    threads = [threading.Thread(target=work, args=(block,)) for block in (True, False)]
    for thread in threads:
        thread.start()
    ready.wait()
    store.close()
    for thread in threads:
        thread.join()
    assert len(ends) == 2 and all("closed" in end for end in ends)
    with memlith.open(folder / "s") as store:
        d = memlith.Dict(store, "d")
        assert d.get("a") == d.get("b")


def test_asyncio(store: memlith.Store) -> None:
    d: memlith.Dict[int] = memlith.Dict(store, "d")

    async def all_of_them() -> None:
        await asyncio.gather(*(asyncio.to_thread(d.__setitem__, number, number) for number in range(50)))

    asyncio.run(all_of_them())
    assert list(d) == list(range(50))


def test_a_forked_child_is_refused(store: memlith.Store) -> None:
    d: memlith.Dict[int] = memlith.Dict(store, "d")
    d["a"] = 1
    child = os.fork()
    if child == 0:
        status = 1
        try:
            for call in (lambda: d["a"], lambda: d.__setitem__("a", 2), lambda: len(d), lambda: list(d),
                         lambda: d.transact().__enter__(), lambda: memlith.Dict(store, "e")):
                try:
                    call()
                    os._exit(2)
                except memlith.Invalid as error:
                    if "parent" not in str(error):
                        os._exit(3)
            status = 0
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    d["b"] = 2
    assert d.copy() == {"a": 1, "b": 2}
    with pytest.raises(TypeError, match="pickled"):
        pickle.dumps(d)


def test_the_interpreter_ends_with_an_open_store(program: Program) -> None:
    ended = program.run("""
        import threading
        import memlith
        store = memlith.open("s")
        d = memlith.Dict(store, "d", weak=True)
        d["a"] = d["b"] = 1
        iterator = iter(d.items())
        next(iterator)
        def busy():
            while True:
                d["busy"] = 1
        threading.Thread(target=busy, daemon=True).start()
        block = d.transact()
        block.__enter__()
        d["c"] = 1
        """)
    assert ended.returncode == 0 and not ended.stderr, ended.stderr
    with memlith.open(program.folder / "s") as store:
        assert memlith.Dict(store, "d").keys() - {"busy"} == {"a", "b"}


def test_reference_cycles(folder: pathlib.Path) -> None:
    class Own:
        name = "own"
        d: "memlith.Dict[Any]"

        def dumps(self, value: Any) -> bytes:
            return pickle.dumps(value)

        def loads(self, data: bytes) -> Any:
            return pickle.loads(data)

    own = Own()
    own.d = memlith.Dict(memlith.open(folder / "s"), "d", codec=own)
    own.d["a"] = 1
    gone = weakref.ref(own)
    del own
    gc.collect()
    assert gone() is None
    with memlith.open(folder / "s"):  # it was closed
        pass


class AgainstADict(RuleBasedStateMachine):
    """A Dict does what a dict does; a transaction covers an array, too; what was durable is there after kill -9."""

    folder: pathlib.Path
    machines = 0
    small = st.one_of(st.integers(-3, 9), st.sampled_from(["a", "b", b"c", 2.5, (1, "x"), None]))
    values = st.one_of(st.integers(), st.sampled_from([b"", b"x" * 3000, "ü", None, [1]]))

    @initialize(weak=st.booleans())
    def open_new(self, weak: bool) -> None:
        AgainstADict.machines += 1
        self.path, self.weak = self.folder / f"s{self.machines}", weak
        self.plain: dict[Any, Any] = {}
        self.number = 0
        self.open()

    def open(self) -> None:
        self.store = memlith.open(self.path)
        self.array = self.store.array("a", 600, "i8")
        self.d: memlith.Dict[Any] = memlith.Dict(self.store, "d", weak=self.weak)
        self.same()

    def same(self) -> None:
        assert dict(self.d.items()) == self.plain and len(self.d) == len(self.plain)
        assert (self.array == self.number).all()

    @rule(key=small, value=values)
    def store_one(self, key: Any, value: Any) -> None:
        self.d[key] = self.plain[key] = value

    @rule(key=small)
    def remove(self, key: Any) -> None:
        assert self.d.pop(key, "none") == self.plain.pop(key, "none")
        with pytest.raises(KeyError):
            del self.d[key]

    @rule(key=small, value=values)
    def set_default(self, key: Any, value: Any) -> None:
        assert self.d.setdefault(key, value) == self.plain.setdefault(key, value)

    @rule(items=st.dictionaries(small, values, max_size=5))
    def update(self, items: Any) -> None:
        self.d.update(items)
        self.plain.update(items)

    @rule(many=st.integers(300, 700))
    def store_many(self, many: int) -> None:
        items = {("many", number): number for number in range(many)}
        self.d.update(items)
        self.plain.update(items)

    @rule(first=st.integers(-4, 10), count=st.integers(0, 9))
    def remove_range(self, first: int, count: int) -> None:
        gone = [key for key in self.plain if isinstance(key, (int, float)) and first <= key < first + count]
        assert self.d.remove_range(first, first + count) == len(gone)
        for key in gone:
            del self.plain[key]

    @rule(key=small, expected=values, value=values)
    def put_if(self, key: Any, expected: Any, value: Any) -> None:
        equal = key in self.plain and self.plain[key] == expected
        assert self.d.put_if(key, expected, value) == equal
        assert self.d.put_if(key, memlith.ABSENT, value) == (key not in self.plain)
        if equal or key not in self.plain:
            self.plain[key] = value

    @rule(many=st.integers(1, 400))
    def append(self, many: int) -> None:
        taken = [key[1] for key in self.plain if isinstance(key, tuple) and key[0] == "xmany"]
        items = [(("xmany", number), number) for number in range(max(taken, default=-1) + 1, 1000)][:many]
        assert self.d.append(items) == len(items)
        self.plain.update(items)

    @rule()
    def clear(self) -> None:
        self.d.clear()
        self.plain.clear()

    @rule(items=st.dictionaries(small, values, max_size=4), removed=st.sets(small, max_size=3), fails=st.booleans(),
          with_array=st.booleans())
    def transact(self, items: Any, removed: Any, fails: bool, with_array: bool) -> None:
        try:
            with self.store.transaction() if with_array else self.d.transact():
                self.d.update(items)
                for key in removed:
                    self.d.pop(key, None)
                if with_array:
                    self.array += 1
                if fails:
                    raise ZeroDivisionError
        except ZeroDivisionError:
            self.same()
            return
        self.plain.update(items)
        for key in removed:
            self.plain.pop(key, None)
        self.number += with_array

    @rule(reverse=st.booleans(), first=st.integers(-4, 10), count=st.integers(0, 9))
    def look_at_a_range(self, reverse: bool, first: int, count: int) -> None:
        wanted = sorted((key for key in self.plain if isinstance(key, (int, float)) and first <= key < first + count),
                        reverse=reverse)
        assert list(self.d.irange(first, first + count, reverse)) == wanted

    @rule()
    def reopen(self) -> None:
        self.store.close()
        self.open()

    @rule(steps=st.integers(0, 3), now=st.integers(0, 9))
    def killed_in_another_process(self, steps: int, now: int) -> None:
        if now != 7:  # each takes a process
            return
        self.store.close()
        ended = Program(self.folder).run("""
            import os, signal, sys
            import memlith
            store = memlith.open(sys.argv[1])
            array, d = store["a"], memlith.Dict(store, "d")
            for step in range(int(sys.argv[2])):
                d["step", step] = step
                with store.transaction():
                    array += 1
                    d["step"] = step
            with d.transact():
                d["lost"] = 1
                array[:] = 77
                os.kill(os.getpid(), signal.SIGKILL)
            """, self.path, steps)
        assert ended.returncode == -signal.SIGKILL, ended.stderr
        self.number += steps
        for step in range(steps):
            self.plain["step", step] = self.plain["step"] = step
        self.open()

    def teardown(self) -> None:
        if hasattr(self, "store"):
            self.same()
            self.store.close()


def test_against_a_dict(folder: pathlib.Path) -> None:
    AgainstADict.folder = folder
    run_state_machine_as_test(AgainstADict, settings=settings(max_examples=8, stateful_step_count=25))


def test_arrays_are_not_disturbed(store: memlith.Store) -> None:
    array = store.from_array("a", np.arange(5))
    memlith.Dict(store, "d")["x"] = 1
    array[:] = 7
    store.rollback()
    assert array.tolist() == [0, 1, 2, 3, 4] and memlith.Dict(store, "d")["x"] == 1
    assert set(store.snapshot()) == {"a"}


# ---- a full disk


def test_a_weak_dictionary_on_a_full_disk(folder: pathlib.Path) -> None:
    """Small records go on; behind one that finds no room all are refused, and with space again nothing is lost."""
    (folder / "disk").mkdir()
    script = textwrap.dedent("""
        import os, sys
        import memlith

        large = bytes(3 << 20)
        options = {"log_bytes": 1 << 20, "log_max_bytes": 64 << 20}
        with memlith.open("disk/s", **options) as store:
            before = memlith.Dict(store, "d", weak=True)
            before["large"] = large  # the region has room for it then; the log has not, when it is opened anew
            del before["large"]
            before["small"] = -1
        store = memlith.open("disk/s", **options)
        weak = memlith.Dict(store, "d", weak=True)
        with open("disk/filler", "wb", buffering=0) as filler:
            try:
                while True:
                    filler.write(bytes(4096))
            except OSError:
                pass
        for i in range(5000):
            weak["small"] = i
        store.persist()
        weak["large"] = large
        refused = []
        for act in [store.persist, lambda: weak.__setitem__("small", "refused"), store.close, store.close]:
            try:
                act()
            except memlith.NoSpace as error:
                refused.append(str(error))
        assert len(refused) == 4, refused
        assert all("commits behind number" in each for each in refused), refused
        assert not store.closed and weak["small"] == 4999 and weak["large"] == large
        os.remove("disk/filler")
        weak["small"] = "after"
        store.close()
        with memlith.open("disk/s") as store:
            kept = memlith.Dict(store, "d")
            assert kept["small"] == "after" and kept["large"] == large
        print("kept")
    """)
    mount = ["unshare", "--mount", "sh", "-c", 'mount -t tmpfs -o size=24m none disk || exit 77; exec "$@"', "sh"]
    done = subprocess.run([*mount, sys.executable, "-c", script], cwd=folder, capture_output=True, text=True,
                          check=False)
    if done.returncode == 77 or "unshare" in done.stderr:
        pytest.skip("cannot mount a tmpfs: " + done.stderr)
    assert done.stdout == "kept\n", done.stderr
