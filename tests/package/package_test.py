#!/usr/bin/env python3
"""The parts of `./dev package`: the source archive, what Debian's packages take of an installation, wheels' tags.

Usage: package_test.py ROOT CMAKE [BUILD]
"""
import fnmatch
import importlib.util
import os
import pathlib
import re
import subprocess
import sys
import tarfile
import tempfile
import unittest
import zipfile

ROOT, CMAKE = pathlib.Path(sys.argv[1]), sys.argv[2]
BUILD = sys.argv[3] if len(sys.argv) > 3 else None
NOT_IN_PACKAGES = {"usr/share/doc/memlith/LICENSE"}  # removed by the packages' rules

wheel_py = importlib.util.spec_from_file_location("wheel", ROOT / "dist" / "wheel.py")
wheel = importlib.util.module_from_spec(wheel_py)
wheel_py.loader.exec_module(wheel)


class Parts(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory(dir=os.environ.get("MEMLITH_TEST_DIR") or None, prefix="package-test-")
        self.addCleanup(temporary.cleanup)
        self.folder = pathlib.Path(temporary.name)

    @unittest.skipUnless((ROOT / ".git").exists(), "this is no clone")
    def test_the_source_archive(self):
        archives = []
        for name in "a", "b":
            said = subprocess.run(["bash", ROOT / "dist" / "source.sh", self.folder / name], capture_output=True,
                                  text=True, check=True)
            archives.append(pathlib.Path(said.stdout.strip()))
        self.assertEqual(archives[0].read_bytes(), archives[1].read_bytes())
        with tarfile.open(archives[0]) as archive:
            top, names = os.path.commonpath(archive.getnames()), set(archive.getnames())
            self.assertEqual({member.uid for member in archive}, {0})
        self.assertEqual(archives[0].name, f"{top}.tar.xz")
        self.assertLessEqual({f"{top}/{name}" for name in ("CMakeLists.txt", "LICENSE", "include/memlith/memlith.h",
                                                           "dist/debian/rules", "bindings/python/pyproject.toml")},
                             names)
        self.assertFalse([name for name in names if name.startswith((f"{top}/build/", f"{top}/.git/"))])

    @unittest.skipUnless(BUILD, "not everything that is packed is built")
    def test_debian_packages_take_what_is_installed(self):
        place = self.folder / "installed"
        subprocess.run([CMAKE, "--install", BUILD, "--prefix", place / "usr"], check=True, stdout=subprocess.DEVNULL)
        installed = {str(path.relative_to(place)) for path in place.rglob("*") if not path.is_dir()}
        taken = set()
        for listing in sorted((ROOT / "dist" / "debian").glob("*.install")):
            for pattern in listing.read_text(encoding="utf-8").split():
                if "python3" in pattern or "gdb/auto-load" in pattern:
                    continue  # made by debian/rules
                # Debian's folders of libraries and of zsh are others.
                here = pattern.replace("usr/lib/*/", "usr/lib/").replace("vendor-completions", "site-functions")
                found = {name for name in installed if fnmatch.fnmatch(name, here) or name.startswith(f"{here}/")}
                self.assertTrue(found, f"{listing.name}: {pattern} is not installed")
                self.assertFalse(found & taken, f"{listing.name}: {pattern} is in another package, too")
                taken |= found
        self.assertEqual(installed - taken - NOT_IN_PACKAGES, set(), "installed, and in no package")

    def test_what_debian_packages_are_built_with_is_installed(self):
        """`./dev package deb` installs what dist/debian/control names."""
        control = (ROOT / "dist" / "debian" / "control").read_text(encoding="utf-8")
        wanted = re.search(r"^Build-Depends:(.*(?:\n .*)*)", control, re.MULTILINE)[1]
        names = {re.match(r"[a-z0-9+.-]+", each.strip())[0].replace("debhelper-compat", "debhelper")
                 for each in wanted.split(",")}
        said = subprocess.run(["bash", "-c", 'source "$0"; echo "${packages_base[@]}" "${packages_deb[@]}"',
                               ROOT / "cmake" / "packages.sh"], capture_output=True, text=True, check=True)
        self.assertEqual(names - set(said.stdout.split()), set())

    def test_the_pages_name_no_debug_symbols(self):
        built = ["libmemlith0_0.1.0_amd64.deb", "libmemlith0-dbgsym_0.1.0_amd64.deb", "libmemlith-dev_0.1.0_amd64.deb",
                 "memlith_0.1.0_amd64.deb", "memlith-dbgsym_0.1.0_amd64.deb", "memlith-sqlite-dbgsym_0.1.0_amd64.deb"]
        for page in (ROOT / "README.md", *(ROOT / "docs").rglob("*.md")):
            for pattern in re.findall(r"\./([\w*.-]+\.deb)", page.read_text(encoding="utf-8")):
                self.assertEqual([name for name in fnmatch.filter(built, pattern) if "dbgsym" in name], [],
                                 f"{page}: {pattern}")

    def test_another_project_contains_the_sources(self):
        """cmake/consumer/embedded: what FetchContent and add_subdirectory bring, and nothing that is not linked."""
        for way in "FetchContent", "add_subdirectory":
            build = self.folder / way
            subprocess.run([CMAKE, "-S", ROOT / "cmake" / "consumer" / "embedded", "-B", build, "-G", "Ninja",
                            f"-DMEMLITH_SOURCE={ROOT}", f"-DMEMLITH_WAY={way}"], check=True, capture_output=True)
            said = subprocess.run(["ninja", "-C", build, "-t", "targets", "all"], capture_output=True, text=True,
                                  check=True)
            names = {line.partition(":")[0] for line in said.stdout.splitlines()}
            self.assertIn("consumer_static", names)
            self.assertFalse(names & {"memlith_cli", "memlith_sqlite", "memlith_pages", "products"})

    def wheel_with(self, name, *files):
        path = self.folder / name
        with zipfile.ZipFile(path, "w") as archive:
            for each in (*files, "memlith/_core.pyi", "memlith/py.typed", "memlith/memlith_sqlite.so",
                         "memlith/memlith-keeper"):
                archive.writestr(each, "")
        return path

    def test_the_tag_of_a_wheel(self):
        ends = "manylinux_2_35_x86_64.whl"
        one_version, stable = "memlith/_core.cpython-312-x86_64-linux-gnu.so", "memlith/_core.abi3.so"
        wheel.check_tag(self.wheel_with(f"memlith-0.1.0-cp312-abi3-{ends}", stable))
        wheel.check_tag(self.wheel_with(f"memlith-0.1.0-cp312-cp312-{ends}", one_version))
        for name, module in ((f"memlith-0.1.0-cp312-abi3-{ends}", one_version),
                             (f"memlith-0.1.0-cp312-cp312-{ends}", stable),
                             (f"memlith-0.1.0-cp311-cp311-{ends}", one_version),
                             ("memlith-0.1.0-cp312-cp312-linux_x86_64.whl", one_version)):
            with self.assertRaises(SystemExit, msg=f"{name} with {module}"):
                wheel.check_tag(self.wheel_with(name, module))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
