#!/usr/bin/env python3
"""Makes the golden stores of a version with the programs of a build, VERSION/KIND.tar.xz, VERSION/abi.json and
VERSION/abi.xml.xz. What is there already stays as it is. See README.md.

Usage: make.py BUILD VERSION

The build needs its tests, the environment of the Python tests and Redis (ctest -R 'python.wheel|redis.build'), and
abidw has to be installed (Debian: abigail-tools).
"""
import os
import pathlib
import signal
import subprocess
import sys
import tarfile
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "lib" / "support"))
from loop_device import loop_device  # noqa: E402 pylint: disable=wrong-import-position

HERE = pathlib.Path(__file__).resolve().parent
KINDS = "folder", "blocks", "file", "heap", "kv", "applog"
RAW_BYTES = 32 << 20
SQL_BEGIN = """
create table notes(id integer primary key, text text not null);
create index by_text on notes(text);
with recursive n(i) as (select 1 union all select i + 1 from n where i < 200)
  insert into notes select i, 'note ' || i from n;
"""
SQL_END = """
delete from notes where id % 2 = 0;
update notes set text = text || ' again' where id < 50;
"""


def packed(folder, version, kind):
    """The folder's files, in the order of the names, and with no time or user of this machine."""
    def plain(member):
        member.uid = member.gid = member.mtime = 0
        member.uname = member.gname = ""
        return member

    target = HERE / version / f"{kind}.tar.xz"
    target.parent.mkdir(exist_ok=True)
    with tarfile.open(target, "w:xz", preset=9) as archive:
        for path in sorted(folder.iterdir()):
            archive.add(path, path.name, filter=plain)
    print(f"{target.relative_to(HERE)}: {target.stat().st_size} bytes")


def run(*command, killed=False, **options):
    done = subprocess.run([str(word) for word in command], check=False, **options)
    expected = -signal.SIGKILL if killed else 0
    if done.returncode != expected:
        sys.exit(f"{command[0]} ended with {done.returncode}, not {expected}")


def sqlite(build, folder, crashed):
    sql = SQL_BEGIN + SQL_END
    if crashed:
        # The half that is at home is there from the close before; then the shell kills itself.
        sqlite_shell(build, folder, SQL_BEGIN)
        sql = SQL_END + ".shell kill -9 $PPID\n"
    sqlite_shell(build, folder, sql, killed=crashed)


def sqlite_shell(build, folder, sql, killed=False):
    environment = dict(os.environ, LD_PRELOAD=str(build / "lib" / "memlith_sqlite.so"), MEMLITH_SQLITE_SHARE="0")
    run("sqlite3", folder / "app.db", input=sql, text=True, env=environment, killed=killed)


def raw(build, folder, crashed):
    image = folder / "image"
    with open(image, "wb") as file:
        file.truncate(RAW_BYTES)
    with loop_device(image) as device:
        run(build / "bin" / "memlith", "format", device)
        run(build / "bin" / "golden_store", "make", "raw", device, *(["--crash"] if crashed else []), killed=crashed)


def archive(build, folder):
    # A store that was not closed, so that a part of it is in segments of the log.
    run(build / "bin" / "golden_store", "make", "kv", folder / "store", "--crash", killed=True)
    (folder / "kept").mkdir()
    run(build / "bin" / "memlith", "archive", folder / "store", folder / "kept" / "archive", "--once")


def make(build, folder, kind, crashed):
    """Returns what is to be packed."""
    crash = ["--crash"] if crashed else []
    if kind == "sqlite":
        sqlite(build, folder, crashed)
    elif kind == "python":
        run(build / "python" / "venv" / "bin" / "python3", HERE / "golden_python.py", "make", folder, *crash,
            killed=crashed)
    elif kind == "redis":
        run(sys.executable, "-B", HERE / "golden_redis.py", "make", build / "redis" / "bin" / "redis-server", folder,
            *crash)
    elif kind == "raw":
        raw(build, folder, crashed)
    elif kind == "archive":
        archive(build, folder)
        return folder / "kept"
    else:
        run(build / "bin" / "golden_store", "make", kind, folder / "store", *crash, killed=crashed)
    return folder


def main():
    build, version = pathlib.Path(sys.argv[1]).resolve(), sys.argv[2]
    (HERE / version).mkdir(exist_ok=True)
    if not (HERE / version / "abi.json").exists():
        run(sys.executable, "-B", HERE / "abi.py", "make", HERE.parents[1] / "include", build / "lib" / "libmemlith.so",
            "cc", HERE / version / "abi.json")
    if not (HERE / version / "abi.xml.xz").exists():
        run(sys.executable, "-B", HERE / "abidiff.py", "make", HERE.parents[1] / "include", "cc",
            HERE / version / "abi.xml")
    kinds = [(kind, crashed) for kind in (*KINDS, "raw", "sqlite", "python", "redis") for crashed in (False, True)]
    for kind, crashed in (*kinds, ("archive", False)):
        name = kind + ("-crashed" if crashed else "")
        if (HERE / version / f"{name}.tar.xz").exists():
            continue
        with tempfile.TemporaryDirectory() as folder:
            packed(make(build, pathlib.Path(folder), kind, crashed), version, name)


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main()
