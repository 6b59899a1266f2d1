"""memlith for Conan 2, built from the tree that this file lies in: conan create dist/conan"""

import pathlib
import re

from conan import ConanFile
from conan.errors import ConanInvalidConfiguration
from conan.tools.build import check_min_cppstd
from conan.tools.cmake import CMake, CMakeDeps, CMakeToolchain, cmake_layout
from conan.tools.files import copy
from conan.tools.gnu import PkgConfigDeps


class Memlith(ConanFile):
    name = "memlith"
    description = "Ordinary memory that survives crashes"
    license = "BSD-3-Clause"
    topics = ("persistence", "durability", "storage")
    package_type = "shared-library"
    settings = "os", "arch", "compiler", "build_type"
    requires = "fmt/[>=9 <12]", "liburing/[>=2.3]", "xxhash/[>=0.8]", "zstd/[>=1.5]"

    def set_version(self):
        text = (self._tree() / "CMakeLists.txt").read_text(encoding="utf-8")
        self.version = re.search(r"project\(memlith VERSION ([0-9.]+)", text)[1]

    def _tree(self):
        return pathlib.Path(self.recipe_folder).parent.parent

    def export_sources(self):
        for folder in ("cmake", "include", "src", "integrations/malloc"):
            copy(self, f"{folder}/*", self._tree(), self.export_sources_folder)
        for name in ("CMakeLists.txt", "LICENSE", "README.md", "CHANGELOG.md", "tools/memlith.*", "tools/*_gdb.py"):
            copy(self, name, self._tree(), self.export_sources_folder)

    def layout(self):
        cmake_layout(self)

    def validate(self):
        if self.settings.os != "Linux" or self.settings.arch != "x86_64":
            raise ConanInvalidConfiguration("memlith runs on Linux on x86-64")
        check_min_cppstd(self, 20)

    def generate(self):
        CMakeDeps(self).generate()
        PkgConfigDeps(self).generate()
        toolchain = CMakeToolchain(self)
        for part in ("TESTS", "TOOLS", "PLUGINS", "PASS"):
            toolchain.cache_variables[f"MEMLITH_{part}"] = False
        toolchain.generate()

    def build(self):
        cmake = CMake(self)
        cmake.configure()
        cmake.build()

    def package(self):
        copy(self, "LICENSE", self.source_folder, f"{self.package_folder}/licenses")
        CMake(self).install()

    def package_info(self):
        self.cpp_info.libs = ["memlith"]
        self.cpp_info.set_property("cmake_file_name", "memlith")
        self.cpp_info.set_property("cmake_target_name", "memlith::memlith")
        self.cpp_info.set_property("pkg_config_name", "memlith")
        self.cpp_info.system_libs = ["pthread"]
