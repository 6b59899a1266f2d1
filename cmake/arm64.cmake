# A toolchain for arm64 with Debian's cross compiler. MEMLITH_SYSROOT is a folder with Debian's packages of that
# architecture, which tests/guests/guests.py makes.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
set(CMAKE_LIBRARY_ARCHITECTURE aarch64-linux-gnu)
list(APPEND CMAKE_TRY_COMPILE_PLATFORM_VARIABLES MEMLITH_SYSROOT)
set(CMAKE_SYSROOT ${MEMLITH_SYSROOT})
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)
set(ENV{PKG_CONFIG_SYSROOT_DIR} ${MEMLITH_SYSROOT})
set(ENV{PKG_CONFIG_LIBDIR}
  ${MEMLITH_SYSROOT}/usr/lib/aarch64-linux-gnu/pkgconfig:${MEMLITH_SYSROOT}/usr/share/pkgconfig)
# The tests that are built cannot be run where they are built, not even to be listed.
set(CMAKE_GTEST_DISCOVER_TESTS_DISCOVERY_MODE PRE_TEST)
