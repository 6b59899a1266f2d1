#!/usr/bin/env bash
# check_source.sh WORK OUT: makes the source archive in OUT, builds it in WORK as a packager does, with cmake and
# without ./dev, installs it, and builds programs against what was installed.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
mkdir -p "$1"
work=$(cd "$1" && pwd)
archive=$("$root/dist/source.sh" "$2")
rm -rf "$work/source" "$work/prefix"
mkdir -p "$work/source"
tar -C "$work/source" --strip-components=1 -xf "$archive"
if command -v ccache >/dev/null; then
  export CMAKE_C_COMPILER_LAUNCHER=ccache CMAKE_CXX_COMPILER_LAUNCHER=ccache CCACHE_BASEDIR=$work/source
fi
cmake -S "$work/source" -B "$work/build" -G Ninja --log-level=WARNING -DMEMLITH_TESTS=OFF -DMEMLITH_BENCHMARKS=OFF \
  -DMEMLITH_EXAMPLES=OFF -DMEMLITH_PASS=OFF
cmake --build "$work/build" -- --quiet
cmake --install "$work/build" --prefix "$work/prefix" >/dev/null
for way in find_package pkg-config pkg-config-static; do
  bash "$work/source/cmake/consumer/check.sh" "$way" "$work/prefix" "$work"
done
printf '%s: built with cmake, installed and used\n' "$archive"
