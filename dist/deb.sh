#!/usr/bin/env bash
# deb.sh WORK OUT: builds the Debian packages of this tree in WORK, with Debian's tools, into OUT, and has lintian look
# at them. What Debian 12 lacks of the Python package's needs comes from PyPI, into WORK. Without PyPI the package
# python3-memlith is left out.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
mkdir -p "$1" "$2"
work=$(cd "$1" && pwd)
out=$(cd "$2" && pwd)

venv=$work/python
if [[ ! -x $venv/bin/python ]]; then /usr/bin/python3 -m venv "$venv"; fi
profiles=()
if ! "$venv/bin/python" -m pip --disable-pip-version-check install --quiet 'cmake>=3.26' ninja \
  'scikit-build-core>=1.0' 'nanobind>=2.9'; then
  echo "python3-memlith is not built: pip could not install scikit-build-core and nanobind" >&2
  profiles=(--build-profiles=nopython)
fi

rm -rf "$work/source" "$work"/memlith-*.tar.xz
archive=$("$root/dist/source.sh" "$work")
version=$(basename "$archive" .tar.xz)
version=${version#memlith-}
mkdir -p "$work/source"
tar -C "$work/source" -xf "$archive"
tree=$work/source/memlith-$version
cp -r "$tree/dist/debian" "$tree/debian"
epoch=$(git -C "$root" log -1 --format=%ct)
sed -e "s/@VERSION@/$version/" -e "s/@DATE@/$(LC_ALL=C date -u -R -d "@$epoch")/" "$tree/debian/changelog.in" \
  >"$tree/debian/changelog"
rm "$tree/debian/changelog.in"

cd "$tree"
if command -v ccache >/dev/null; then # debhelper gives the build an empty home
  export CMAKE_C_COMPILER_LAUNCHER=ccache CMAKE_CXX_COMPILER_LAUNCHER=ccache
  export CCACHE_DIR=${CCACHE_DIR:-$(ccache -k cache_dir)}
fi
# Programs in /usr/local or of pyenv are none of Debian's build.
PATH=/usr/sbin:/usr/bin:/sbin:/bin MEMLITH_BUILD_PYTHON=$venv/bin/python \
  dpkg-buildpackage --build=binary --no-sign "${profiles[@]}" >"$work/build.log" 2>&1 || {
  tail -n 60 "$work/build.log" >&2
  exit 1
}
rm -f "$out"/*memlith*.deb
cp "$work"/source/*.deb "$out/"
lintian --fail-on error,warning --display-level '>=warning' --suppress-tags initial-upload-closes-no-bugs \
  "$work"/source/memlith_"$version"_*.changes
ls -1 "$out"/*.deb
