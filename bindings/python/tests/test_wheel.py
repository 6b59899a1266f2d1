"""The wheel's content: the library, its types, the SQLite plugin; from Python 3.12 on for every later version."""

import importlib.metadata
import pathlib
import sys
import sysconfig

from memlith import _core


def test_the_wheel_contains_the_library() -> None:
    files = {file.name: file for file in importlib.metadata.files("memlith") or ()}
    module = pathlib.Path(_core.__file__).name
    assert {"py.typed", "_core.pyi", "memlith_sqlite.so", "memlith-keeper", module} <= files.keys()
    assert "def encode_key" in files["_core.pyi"].read_text()
    maps = pathlib.Path("/proc/self/maps").read_text()
    assert _core.__file__ in maps and "libmemlith" not in maps


def test_the_wheel_is_of_the_stable_abi_where_nanobind_has_it() -> None:
    stable = sys.version_info >= (3, 12) and not sysconfig.get_config_var("Py_GIL_DISABLED")
    tag = importlib.metadata.distribution("memlith").read_text("WHEEL")
    assert tag is not None and (("cp312-abi3" in tag) == stable), tag
    assert (".abi3." in _core.__file__) == stable
