"""The notebook, run from top to bottom, and twice within one kernel, as readers run cells again; README's program."""

import pathlib
import re

import pytest
from conftest import Program

ROOT = pathlib.Path(__file__).resolve().parents[2]


def test_the_notebook_runs() -> None:
    nbclient = pytest.importorskip("nbclient")
    import nbformat

    notebook = nbformat.read(ROOT / "examples" / "python" / "tour.ipynb", as_version=4)
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert all(not cell.outputs and cell.execution_count is None for cell in cells)  # nothing of anybody's machine
    notebook.cells = [*cells, *nbformat.from_dict(cells[1:])]
    nbclient.NotebookClient(notebook, timeout=600).execute()


@pytest.mark.parametrize("page", ["README.md", "python/README.md", "docs/python.md"])
def test_the_program_of_the_page_runs(program: Program, page: str) -> None:
    match = re.search(r"```python\n(import memlith\n.*?)```", (ROOT / page).read_text(encoding="utf-8"), re.DOTALL)
    assert match
    for run in (1, 2):
        ended = program.run(match[1] + f"\nassert (weights[3] == {run}).all()")
        assert ended.returncode == 0, ended.stderr


def test_the_module_says_what_the_kernel_supports(program: Program) -> None:
    ended = program.run("import runpy; runpy.run_module('memlith', run_name='__main__')")
    assert ended.returncode == 0 and "tracker scan: " in ended.stdout, ended.stderr
