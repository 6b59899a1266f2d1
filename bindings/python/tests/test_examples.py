"""The notebook, run from top to bottom, and twice in one process, as readers run cells again; examples; README."""

import json
import pathlib
import re
import subprocess
import sys

import pytest
from conftest import Program

ROOT = pathlib.Path(__file__).resolve().parents[3]


def test_the_notebook_runs(program: Program) -> None:
    """As a kernel runs it: in a process of its own, in a running event loop, cell by cell."""
    notebook = json.loads((ROOT / "examples/python/tour.ipynb").read_text(encoding="utf-8"))
    cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert all(not cell["outputs"] and cell["execution_count"] is None for cell in cells)  # of no machine
    sources = ["".join(cell["source"]) for cell in cells]
    ended = program.run("""
        import ast, asyncio, json, sys
        async def run():
            names = {"__name__": "__main__"}
            for source in json.loads(sys.argv[1]):
                result = eval(compile(source, "cell", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT), names)
                if result is not None:
                    await result
        asyncio.run(run())
        """, json.dumps([*sources, *sources[1:]]))
    assert ended.returncode == 0, ended.stderr


def test_frames_over_an_array(program: Program) -> None:
    pytest.importorskip("pyarrow")
    pytest.importorskip("pandas")
    for _ in range(2):
        ended = subprocess.run([sys.executable, ROOT / "examples/python/frames.py", program.folder / "s"],
                               capture_output=True, text=True, check=False)
        assert ended.returncode == 0, ended.stderr


def test_workers_that_are_killed_lose_no_visit() -> None:
    ended = subprocess.run([sys.executable, ROOT / "examples/python/visits.py", "60"], capture_output=True, text=True,
                           check=False)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.startswith("3 workers killed") and ended.stdout.endswith("counted: True\n")


def test_a_killed_training_with_pytorch(program: Program) -> None:
    """In the extended tests: where torch is installed, which is large."""
    pytest.importorskip("torch")

    def training(name: str) -> "subprocess.Popen[str]":
        return subprocess.Popen([sys.executable, ROOT / "examples/python/torch_training.py", program.folder / name],
                                stdout=subprocess.PIPE, text=True)

    wanted = training("whole").communicate()[0].splitlines()[-1]
    for _ in range(2):
        process = training("killed")
        assert process.stdout is not None
        for _ in range(15):
            process.stdout.readline()
        process.kill()
        process.communicate()
    lines = training("killed").communicate()[0].splitlines()
    assert lines[-1] == wanted and not lines[0].startswith("1 ")


@pytest.mark.parametrize("page", ["README.md", "bindings/python/README.md", "docs/python.md"])
def test_the_program_of_the_page_runs(program: Program, page: str) -> None:
    match = re.search(r"```python\n(import memlith\n.*?)```", (ROOT / page).read_text(encoding="utf-8"), re.DOTALL)
    assert match
    for run in (1, 2):
        ended = program.run(match[1] + f"\nassert (weights[3] == {run}).all()")
        assert ended.returncode == 0, ended.stderr


def test_the_module_says_what_the_kernel_supports(program: Program) -> None:
    ended = program.run("import runpy; runpy.run_module('memlith', run_name='__main__')")
    assert ended.returncode == 0 and "tracker scan: " in ended.stdout, ended.stderr
