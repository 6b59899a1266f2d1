"""Checkpoints: any state, only what changed is written, and a killed training goes on as if nothing had happened."""

import collections
import pathlib
import random
import subprocess
import sys

import numpy as np
import pytest
from conftest import Program

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


def test_tensors_of_every_kind(folder: pathlib.Path) -> None:
    torch = pytest.importorskip("torch")
    base = torch.arange(10_000, dtype=torch.float32)
    state = {
        "base": base, "view": base[5:500:3], "transposed": base.reshape(100, 100).T, "small": torch.tensor(3.5),
        "bfloat16": torch.ones(5000, dtype=torch.bfloat16), "half": torch.ones(3, dtype=torch.float16),
        "bool": torch.zeros(7, dtype=torch.bool), "empty": torch.empty(0, 3), "complex": torch.ones(900) * 2j,
        "conjugate": (torch.ones(900) * 2j).conj(), "negative": (torch.ones(900) * 2j).conj().imag,
        "sparse": torch.eye(200).to_sparse(), "csr": torch.eye(200).to_sparse_csr(),
        "quantised": torch.quantize_per_tensor(torch.ones(5000), 0.1, 3, torch.quint8),
        "parameter": torch.nn.Parameter(torch.ones(40, 50)), "frozen": torch.nn.Parameter(torch.ones(3), False),
        "wanted": torch.ones(5000, requires_grad=True)}
    module = torch.nn.Linear(100, 100)
    module.tied = module.weight
    with Checkpoint(folder / "c") as checkpoint:
        for _ in range(2):
            checkpoint.save({"tensors": state, "module": module})
        found = checkpoint.load()
    again = found["tensors"]
    for name, tensor in state.items():
        other = again[name]
        assert type(other) is type(tensor) and other.dtype is tensor.dtype and other.layout is tensor.layout, name
        assert other.requires_grad == tensor.requires_grad and other.shape == tensor.shape, name
        plain = [each.dequantize() if each.is_quantized else each.to_dense() if each.layout is not torch.strided else
                 each.resolve_conj().resolve_neg() for each in (other, tensor)]
        assert torch.equal(*plain), name
    again["base"][:] = 7
    assert (again["view"] == 7).all() and (again["transposed"] == 7).all() and base[5] == 5
    assert found["module"].tied is found["module"].weight and torch.equal(found["module"].weight, module.weight)


def test_types_of_other_packages_come_back(folder: pathlib.Path) -> None:
    other = pytest.importorskip("ml_dtypes")
    array = np.arange(10_000).astype(other.bfloat16)
    with Checkpoint(folder / "c") as checkpoint:
        checkpoint.save(array)
        assert checkpoint.load().dtype == array.dtype and (checkpoint.load() == array).all()


@pytest.mark.parametrize("moment", range(9))
def test_a_first_save_that_is_killed_is_none(program: Program, moment: int) -> None:
    """Killed at each step of the first save."""
    ended = program.run("""
        import os, signal, sys
        import numpy as np
        from memlith import _core, _store, checkpoint
        left = int(sys.argv[1])
        def counted(function):
            def call(*arguments, **named):
                global left
                result = function(*arguments, **named)
                left -= 1
                if left < 0:
                    os.kill(os.getpid(), signal.SIGKILL)
                return result
            return call
        for name in ("_open", "_create"):
            setattr(_store.Store, name, counted(getattr(_store.Store, name)))
        _core.copy_changed = counted(_core.copy_changed)
        made = checkpoint.Checkpoint("c")
        made.save({"a": np.ones(10_000)})
        """, moment)
    with Checkpoint(program.folder / "c") as checkpoint:
        assert ended.returncode == -9, ended.stderr
        assert checkpoint.load() is None
        checkpoint.save({"a": np.ones(5000)})
        assert checkpoint.load()["a"].sum() == 5000
    with Checkpoint(program.folder / "c") as checkpoint:
        assert checkpoint.load()["a"].sum() == 5000


@pytest.mark.parametrize("copy", [True, False])
def test_a_save_that_is_interrupted_leaves_the_one_before(folder: pathlib.Path, copy: bool,
                                                          monkeypatch: pytest.MonkeyPatch) -> None:
    def state(step: int) -> "dict[str, np.ndarray]":
        return {str(number): np.full(3000 + 100 * step, step) for number in range(8)}

    with Checkpoint(folder / "c") as checkpoint:
        checkpoint.save(state(1))
        step = 1
        for after in range(9):
            def interrupted(target: object, source: object) -> int:
                nonlocal left
                left -= 1
                if left < 0:
                    raise KeyboardInterrupt
                return plain(target, source)

            left, plain = after, memlith._core.copy_changed
            now = state(step + 1) if copy else {**checkpoint.load(copy=False), "new": np.full(5000, step)}
            for array in now.values():
                array[:] = step + 1
            with monkeypatch.context() as patched:
                patched.setattr(memlith._core, "copy_changed", interrupted)
                try:
                    checkpoint.save(now)
                    step += 1
                except KeyboardInterrupt:
                    pass
            found = checkpoint.load()
            assert all((array == step).all() for array in found.values()), after
        checkpoint.save(checkpoint.load())
    with Checkpoint(folder / "c") as checkpoint:
        assert all((array == step).all() for array in checkpoint.load().values())


def test_a_save_that_is_too_large_leaves_the_one_before(folder: pathlib.Path) -> None:
    with Checkpoint(folder / "c", log_bytes=1 << 20, log_max_bytes=1 << 20) as checkpoint:
        checkpoint.save({"a": np.ones(1000), "b": np.ones(1000)})
        for save in (checkpoint.save, checkpoint.save_async):
            with pytest.raises(memlith.Full):
                save({"a": np.full(1000, 2.0), "b": np.random.default_rng(1).normal(size=1_000_000)})
            found = checkpoint.load()
            assert (found["a"] == 1).all() and (found["b"] == 1).all()


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
