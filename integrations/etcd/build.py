#!/usr/bin/env python3
"""Builds etcd with memlith below it: ./dev build etcd.

Gets the source of etcd's server by Go's module cache, copies it, and puts the files of wal/ in the place of those of
its write-ahead log. A copy of go.mod names this server and integrations/bbolt. Leaves FOLDER/bin/etcd, etcdutl and
etcdconvert, FOLDER/etcd.mod, with which tests are built, and FOLDER/server.
"""
import argparse
import json
import os
import pathlib
import shutil
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
REPLACES = [f"-replace=memlith.org/memlith={ROOT / 'bindings/go'}",
            f"-replace=go.etcd.io/bbolt={ROOT / 'integrations/bbolt'}"]
sys.path.insert(0, str(HERE))
from planted import PLANTED, plant  # noqa: E402

SERVER = "go.etcd.io/etcd/server/v3"
WAL = "storage/wal"
# Files of etcd's folder: these are replaced, and every other file must be one of those that stay.
REPLACED = {"decoder.go", "doc.go", "encoder.go", "file_pipeline.go", "repair.go", "util.go", "wal.go"}
STAY = {"metrics.go", "version.go", "testing", "walpb"}
OURS = ("content.go", "folder.go", "records.go", "wal.go")  # metrics.go is for the package by itself
ENVIRONMENT = {**os.environ, "GOTOOLCHAIN": "local"}


def go(folder, *words, flags=""):
    """The command's output. `flags`: of GOFLAGS."""
    environment = {**ENVIRONMENT, "GOFLAGS": f"{flags} -buildvcs=false".strip()}
    return subprocess.run(["go", *words], cwd=folder, env=environment, check=True, stdout=subprocess.PIPE,
                          text=True).stdout


def source_of(module):
    """The folder of a module that go.mod requires, in Go's cache."""
    version = next(each["Version"] for each in json.loads(go(HERE, "mod", "edit", "-json"))["Require"]
                   if each["Path"] == SERVER)
    return pathlib.Path(json.loads(go(HERE, "mod", "download", "-json", f"{module}@{version}"))["Dir"])


def copy(source, to):
    """The module's cache is read-only; the copy is not."""
    shutil.rmtree(to, ignore_errors=True)
    for path in sorted(source.rglob("*")):
        target = to / path.relative_to(source)
        if path.is_dir():
            target.mkdir(parents=True, exist_ok=True)
        else:
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(path.read_bytes())


def put_wal(server, planted=None):
    """Our write-ahead log takes the place of the server's."""
    folder = server / WAL
    found = {path.name for path in folder.iterdir() if not path.name.endswith("_test.go")}
    if found != REPLACED | STAY:
        sys.exit(f"{WAL} of this version of etcd has other files than are known: {sorted(found ^ (REPLACED | STAY))}")
    for name in REPLACED:
        (folder / name).unlink()
    for path in folder.glob("*_test.go"):  # tests of etcd's files; tests/soak/etcd takes those of the behaviour
        path.unlink()
    for name in OURS:
        text = (HERE / "wal" / name).read_text(encoding="utf-8")
        if planted:
            text = plant(planted, name, text)
        (folder / name).write_text(text, encoding="utf-8")


def drop_replaced(folder):
    """The go.mod of a copy names the modules of etcd by their versions, and not by the folders of etcd's repository."""
    dropped = [f"-dropreplace={each['Old']['Path']}"
               for each in json.loads(go(folder, "mod", "edit", "-json"))["Replace"] or []]
    go(folder, "mod", "edit", *dropped)


def name_memlith(folder, *server):
    """The go.mod of a copy names memlith, integrations/bbolt, and perhaps the server, by their folders."""
    drop_replaced(folder)
    go(folder, "mod", "edit", "-require=memlith.org/memlith@v0.0.0", *REPLACES,
       *(f"-replace={SERVER}={each}" for each in server))


def make_server(server, planted=None):
    copy(source_of(SERVER), server)
    put_wal(server, planted)
    name_memlith(server)


def make_modfile(modfile, server):
    """integrations/etcd's go.mod with that server."""
    for kind in ("mod", "sum"):
        modfile.with_suffix(f".{kind}").write_bytes((HERE / f"go.{kind}").read_bytes())
    retwis = f"-replace=memlith.org/memlith/retwis={ROOT / 'integrations/raft/retwis'}"
    subprocess.run(["go", "mod", "edit", f"-replace={SERVER}={server}", *REPLACES, retwis, modfile], env=ENVIRONMENT,
                   check=True)


def build(work, planted=None):
    """Names the modfile with which programs of integrations/etcd are built."""
    work.mkdir(parents=True, exist_ok=True)
    make_server(work / "server", planted)
    make_modfile(work / "etcd.mod", work / "server")
    return work / "etcd.mod"


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--work", required=True, type=pathlib.Path, help="where source and programs go")
    options.add_argument("--tests", action="store_true", help="build the program of the tests, FOLDER/bin/tests, alone")
    options.add_argument("--planted", choices=sorted(PLANTED), help="a fault, for tests")
    given = options.parse_args()
    work = given.work.resolve()
    modfile = build(work, given.planted)
    programs = work / "bin"
    if given.tests:
        go(HERE, "test", "-c", f"-modfile={modfile}", "-o", programs / "tests", ".")
        return
    go(HERE, "build", f"-modfile={modfile}", "-o", programs / "etcd", ".")
    go(HERE, "build", f"-modfile={modfile}", "-o", programs / "etcdutl", "go.etcd.io/etcd/etcdutl/v3")
    go(HERE / "etcdconvert", "build", "-o", programs / "etcdconvert", ".")
    print(*(programs / name for name in ("etcd", "etcdutl", "etcdconvert")))


if __name__ == "__main__":
    try:
        main()
    except subprocess.CalledProcessError as error:
        sys.exit(error.returncode)
