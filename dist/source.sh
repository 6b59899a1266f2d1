#!/usr/bin/env bash
# source.sh OUT: OUT/memlith-VERSION.tar.xz, of the files of this tree that git knows or does not ignore. The same files
# give the same bytes: the time is that of the last commit, and the order is that of the names.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
version=$(sed -nE 's/^project\(memlith VERSION ([0-9.]+).*/\1/p' "$root/CMakeLists.txt")
mkdir -p "$1"
git -C "$root" ls-files -z --cached --others --exclude-standard |
  (cd "$root" && while IFS= read -rd '' name; do if [[ -e $name ]]; then printf '%s\0' "$name"; fi; done) |
  LC_ALL=C sort -z |
  tar -C "$root" --create --no-recursion --transform "s,^,memlith-$version/," \
    --mtime "@$(git -C "$root" log -1 --format=%ct)" --owner=0 --group=0 --numeric-owner --mode=go=rX,u+rw,a-s \
    --null --files-from=- |
  xz -T0 -3 >"$1/memlith-$version.tar.xz"
printf '%s\n' "$1/memlith-$version.tar.xz"
