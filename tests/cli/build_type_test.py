#!/usr/bin/env python3
"""A plain `cmake -S . -B build` is optimised; a type that was asked for is kept.

Usage: build_type_test.py CMAKE SOURCE_FOLDER
"""
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

CMAKE, SOURCE = sys.argv[1:3]


class BuildType(unittest.TestCase):
    def type_of(self, *options):
        with tempfile.TemporaryDirectory(dir=os.environ.get("MEMLITH_TEST_DIR") or None,
                                         prefix="build-type-") as folder:
            parts = [f"-DMEMLITH_{part}=OFF" for part in ("TESTS", "TOOLS", "PLUGINS")]
            environment = {name: value for name, value in os.environ.items() if name != "CMAKE_BUILD_TYPE"}
            subprocess.run([CMAKE, "-S", SOURCE, "-B", folder, *parts, *options], check=True,
                           stdout=subprocess.DEVNULL, env=environment)
            lines = (pathlib.Path(folder) / "CMakeCache.txt").read_text(encoding="utf-8").splitlines()
        return next(line.split("=", 1)[1] for line in lines if line.startswith("CMAKE_BUILD_TYPE:"))

    def test_no_type_means_release(self):
        self.assertEqual(self.type_of(), "Release")

    def test_a_type_is_kept(self):
        self.assertEqual(self.type_of("-DCMAKE_BUILD_TYPE=Debug"), "Debug")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
