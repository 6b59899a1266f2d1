"""Checkpoints: any state, only what changed is written, and a killed training goes on as if nothing had happened."""

import collections
import pathlib
import random
import subprocess
import sys

import numpy as np
import pytest

import memlith
from memlith.checkpoint import Checkpoint

TRAINING = pathlib.Path(__file__).resolve().parents[3] / "examples" / "python" / "training.py"


def test_any_state_comes_back(folder: pathlib.Path) -> None:
    shared = np.arange(2000.0)
    state = {"a": shared, "again": shared, "small": np.float32(3), "tiny": np.arange(3),
             "nested": [{"f": np.asfortranarray(np.arange(6000).reshape(60, 100))}, ("x", None, {1, 2})],
             "records": np.zeros(1000, [("k", "i4"), ("v", "f8", (2,))]),
             "ordered": collections.OrderedDict(b=np.ones(5000, "i2"), a=2), "objects": np.array([None, "x"], object)}
    with Checkpoint(folder / "c") as checkpoint:
        assert checkpoint.load() is None
        checkpoint.save(state)
    with Checkpoint(folder / "c") as checkpoint:
        found = checkpoint.load()
    assert list(found) == list(state)
    assert found["a"] is found["again"] and (found["a"] == shared).all()
    assert (found["nested"][0]["f"] == state["nested"][0]["f"]).all()  # type: ignore[index]
    assert found["nested"][1] == state["nested"][1]  # type: ignore[index]
    assert found["records"].dtype == state["records"].dtype  # type: ignore[attr-defined]
    assert type(found["ordered"]) is collections.OrderedDict and (found["ordered"]["b"] == 1).all()
    assert found["objects"][1] == "x" and found["small"] == 3
    found["a"][0] = 5  # ordinary arrays


def test_only_changed_bytes_are_written(folder: pathlib.Path) -> None:
    weights = np.random.default_rng(1).normal(size=(500, 1000))
    with Checkpoint(folder / "c") as checkpoint:
        assert checkpoint.save({"w": weights, "step": 0}) >= weights.nbytes - 4096
        assert checkpoint.save({"w": weights, "step": 1}) == 0
        weights[7, :10] = 0
        before = checkpoint._store.info()["logged_bytes"]
        assert 0 < checkpoint.save({"w": weights, "step": 2}) <= 1024
        assert checkpoint._store.info()["logged_bytes"] - before < 50_000
        assert checkpoint.load()["step"] == 2


def test_states_that_change_their_shape(folder: pathlib.Path) -> None:
    rng = np.random.default_rng(2)
    with Checkpoint(folder / "c") as checkpoint:
        for step in range(30):
            state = {number: rng.normal(size=rng.integers(0, 4000)) for number in range(rng.integers(0, 6))}
            if step % 2:
                checkpoint.save(state)
            else:
                checkpoint.save_async(state).result()
            found = checkpoint.load()
            assert found.keys() == state.keys()
            assert all((found[number] == state[number]).all() for number in state)


def test_arrays_of_the_checkpoint_itself_are_not_copied(folder: pathlib.Path) -> None:
    with Checkpoint(folder / "c") as checkpoint:
        checkpoint.save({"a": np.zeros(10_000), "b": np.ones(10_000)})
        state = checkpoint.load(copy=False)
        state["a"][5] = 7
        assert checkpoint.save(state) == 0
        state["a"], state["b"] = state["b"], state["a"]  # both now lie where the other belongs
        checkpoint.save(state)
    with Checkpoint(folder / "c") as checkpoint:
        found = checkpoint.load()
        assert found["b"][5] == 7 and found["b"].sum() == 7 and found["a"].sum() == 10_000


def test_a_damaged_index_is_an_error(folder: pathlib.Path) -> None:
    with Checkpoint(folder / "c") as checkpoint:
        checkpoint.save({"a": 1})
        checkpoint._store["index"][:12] = 255
        with pytest.raises(memlith.Corrupt, match="index"):
            checkpoint.load()


def test_tensors_of_pytorch(folder: pathlib.Path) -> None:
    torch = pytest.importorskip("torch")
    model = torch.nn.Sequential(torch.nn.Linear(100, 50), torch.nn.Linear(50, 20))
    with Checkpoint(folder / "c") as checkpoint:
        checkpoint.save({"model": model.state_dict()})
        found = checkpoint.load()["model"]
        for name, tensor in model.state_dict().items():
            assert torch.equal(found[name], tensor)
        assert checkpoint.save({"model": model.state_dict()}) == 0


def test_a_killed_training_goes_on_bit_by_bit(folder: pathlib.Path) -> None:
    def train(name: str) -> "subprocess.Popen[str]":
        return subprocess.Popen([sys.executable, str(TRAINING), str(folder / name), "--steps", "60"], text=True,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def finish(name: str) -> str:
        out, err = (process := train(name)).communicate()
        assert process.returncode == 0, err
        return out.splitlines()[-1]

    expected = finish("whole")
    assert expected.startswith("step 60: loss")
    rng = random.Random(3)
    for _ in range(4):
        process = train("killed")
        assert process.stdout is not None
        for _ in range(rng.randrange(2, 14)):
            process.stdout.readline()
        process.kill()
        process.communicate()
    assert finish("killed") == expected
