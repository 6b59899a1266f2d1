#!/usr/bin/env python3
"""Debian's db_bench, ldb and sst_dump, unchanged, with memlith_rocksdb.so preloaded; and `memlith rocksdb release`.

Exit code 77: there are no rocksdb-tools.
"""
import argparse
import json
import os
import pathlib
import shutil
import subprocess
import sys
import time

URI = "--fs_uri=memlith://"


class Programs:
    def __init__(self, given):
        self.given, self.folder = given, given.work / "programs"
        self.database = self.folder / "db"
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True)

    def begin(self, *words, preload=True):
        environment = dict(os.environ, LD_PRELOAD=str(self.given.plugin)) if preload else None
        return subprocess.Popen([str(each) for each in words], env=environment, stdout=subprocess.PIPE,
                                stderr=subprocess.STDOUT, text=True)

    def run(self, *words, preload=True):
        """(exit code, what it says)."""
        process = self.begin(*words, preload=preload)
        said = process.communicate()[0]
        return process.returncode, said

    def ldb(self, *words, preload=True):
        return self.run("ldb", *([URI] if preload else []), f"--db={self.database}", *words, preload=preload)

    def bench(self, *words):
        return self.begin("db_bench", URI, f"--db={self.database}", "--sync=1", "--num=100000000", "--value_size=100",
                          *words)

    def memlith(self, *words):
        return self.run(self.given.memlith, *words, preload=False)

    def killed_bench(self):
        """A database that a killed db_bench leaves."""
        bench = self.bench("--benchmarks=fillseq")
        log = self.database / "memlith"
        deadline = time.monotonic() + 60
        while not any(each.stat().st_size > 30000 for each in log.glob("*.log")):
            assert bench.poll() is None and time.monotonic() < deadline, bench.communicate()[0]
            time.sleep(0.02)
        bench.kill()
        bench.wait()
        bench.stdout.close()

    def check(self):
        self.killed_bench()
        code, said = self.ldb("scan", "--max_keys=1", preload=False)
        assert code != 0 and "No such file" in said, f"plain ldb opened a crashed database: {said}"
        code, said = self.memlith("rocksdb", "release", "--json", self.database)
        assert code == 0, said
        told = json.loads(said)
        assert told["logs"] == 1 and told["replayed_bytes"] > 20000, told
        assert not (self.database / "memlith").exists()
        keys = len(self.ldb("scan", preload=False)[1].splitlines())
        assert keys > 100, keys
        assert "no log was left" in self.memlith("rocksdb", "release", self.database)[1]
        assert self.memlith("rocksdb", "release", self.database / "CURRENT")[0] == 1

        self.killed_bench()
        assert len(self.ldb("scan")[1].splitlines()) > 100
        code, said = self.ldb("put", "key", "value")
        assert code == 0, said
        assert self.ldb("get", "key")[1].strip() == "value"
        log = next(self.database.glob("*.log"))
        assert "PUT" in self.ldb("dump_wal", f"--walfile={log}")[1]
        code, said = self.run("db_bench", URI, f"--db={self.database}", "--use_existing_db=1", "--num=100",
                              "--benchmarks=flush,compact,readseq")
        assert code == 0, said
        table = next(self.database.glob("*.sst"))
        code, said = self.run("sst_dump", "--env_uri=memlith://", f"--file={table}", "--command=check")
        assert code == 0, said
        code, said = self.ldb("checkconsistency")
        assert code == 0 and "OK" in said, said
        assert self.ldb("get", "key", preload=False)[1].strip() == "value"


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--plugin", required=True)
    options.add_argument("--memlith", required=True)
    options.add_argument("--work", required=True, type=pathlib.Path)
    given = options.parse_args()
    if not all(shutil.which(each) for each in ("db_bench", "ldb", "sst_dump")):
        print("skipped: there are no rocksdb-tools")
        return 77
    Programs(given).check()
    return 0


if __name__ == "__main__":
    sys.exit(main())
