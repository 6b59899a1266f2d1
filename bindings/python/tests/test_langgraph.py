"""memlith.langgraph: LangGraph's own conformance tests, a graph that is killed, and one commit with the data.

In the extended tests: where langgraph and langgraph-checkpoint-conformance are installed."""

import asyncio
import pathlib
import shutil
from typing import Any, AsyncIterator

import pytest
from conftest import Program, kill

import memlith

pytest.importorskip("langgraph.checkpoint.conformance")

from langgraph.checkpoint.conformance import checkpointer_test, validate  # noqa: E402

from memlith.langgraph import Saver  # noqa: E402
from memlith.steps._format import pack_parts  # noqa: E402

GRAPH = """
    import operator, sys
    from typing import Annotated, TypedDict
    import memlith
    from langgraph.graph import END, START, StateGraph
    from memlith.langgraph import Saver
    class State(TypedDict):
        numbers: Annotated[list[int], operator.add]
    def add(state):
        print(len(state["numbers"]), flush=True)
        return {"numbers": [len(state["numbers"])]}
    with memlith.open("s") as store:
        graph = StateGraph(State)
        graph.add_node("add", add)
        graph.add_edge(START, "add")
        graph.add_conditional_edges("add", lambda state: END if len(state["numbers"]) >= 200 else "add")
        compiled = graph.compile(checkpointer=Saver(store))
        config = {"configurable": {"thread_id": "t"}, "recursion_limit": 1000}
        begun = bool(compiled.get_state(config).values)
        print(compiled.invoke(None if begun else {"numbers": []}, config)["numbers"] == list(range(200)))
"""


def test_the_conformance_tests(folder: pathlib.Path) -> None:
    places = iter(range(100))

    @checkpointer_test(name="memlith.langgraph.Saver")
    async def saver() -> AsyncIterator[Saver]:
        with memlith.open(folder / f"s{next(places)}") as store:
            yield Saver(store)

    report = asyncio.run(validate(saver))
    for name, each in report.results.items():
        assert each.detected and each.passed and not each.failures, (name, each)
    assert len(report.results) == 8


def test_a_graph_that_is_killed_goes_on(program: Program) -> None:
    for _ in range(4):
        process = program.start(GRAPH)
        assert process.stdout is not None
        for _ in range(15):
            process.stdout.readline()
        kill(process)
    ended = program.run(GRAPH)
    assert ended.returncode == 0 and ended.stdout.splitlines()[-1] == "True", ended.stderr


def put(saver: Saver, thread: str, id: str, values: dict[str, Any], version: Any, parent: "str | None" = None) -> None:
    config: Any = {"configurable": {"thread_id": thread, "checkpoint_ns": "", "checkpoint_id": parent}}
    versions = dict.fromkeys(values, version)
    checkpoint: Any = {"v": 1, "id": id, "ts": "", "channel_values": values, "channel_versions": versions,
                       "versions_seen": {}, "updated_channels": None}
    saver.put(config, checkpoint, {"step": 1}, versions)


def test_a_checkpoint_and_the_data_are_one_commit(folder: pathlib.Path) -> None:
    with memlith.open(folder / "s") as store:
        saver, data = Saver(store), memlith.Dict[int](store, "data")
        with pytest.raises(ZeroDivisionError), store.transaction():
            data["n"] = 1
            put(saver, "t", "1", {"c": 5}, 1)
            raise ZeroDivisionError
        assert "n" not in data and list(saver.list(None)) == []
        with store.transaction():
            data["n"] = 1
            put(saver, "t", "1", {"c": 5}, 1)
        shutil.copytree(folder / "s", folder / "copy")  # as a kill leaves it
    with memlith.open(folder / "s") as store:
        assert [each.checkpoint["channel_values"] for each in Saver(store).list(None)] == [{"c": 5}]


def test_pruning_keeps_what_a_channel_is_computed_from(folder: pathlib.Path) -> None:
    with memlith.open(folder / "s") as store:
        saver = Saver(store)
        put(saver, "t", "1", {"a": 1, "b": 1}, "1")
        put(saver, "t", "2", {"a": 2, "b": 2}, "2", "1")
        put(saver, "t", "3", {"a": 3, "b": 3}, "3", "2")
        saver._records[("t", "", 1, "b", "3")] = pack_parts(b"empty", b"")
        saver.prune(["t"])
        assert [each.checkpoint["id"] for each in saver.list(None)] == ["3", "2"]
        assert saver.get_delta_channel_history(
            config={"configurable": {"thread_id": "t"}}, channels=["b"])["b"]["seed"] == 2
        with pytest.raises(memlith.Invalid):
            saver.prune(["t"], strategy="some")
        saver.prune(["t"], strategy="delete")
        assert len(saver._records) == 0
