#!/usr/bin/env bash
# redis.sh BUILT WORK OUT: the Debian package redis-server-memlith, of the server that `./dev build redis` has left in
# BUILT. For the machine of the user who builds it: it holds Redis, built of Debian's source, and lies beside Debian's
# own redis-server, whose clients and configuration go with it.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
built=$(cd "$1" && pwd)
mkdir -p "$2" "$3"
work=$(cd "$2" && pwd)
out=$(cd "$3" && pwd)
name=redis-server-memlith
maintainer='memlith developers <memlith@example.invalid>'

source=$(echo "$built"/redis-7.*/debian)
memlith=$(sed -nE 's/^project\(memlith VERSION ([0-9.]+).*/\1/p' "$root/CMakeLists.txt")
version=$(dpkg-parsechangelog --file "$source/changelog" --show-field Version)+memlith$memlith

tree=$work/$name
rm -rf "$tree" "$work/debian"
docs=$tree/usr/share/doc/$name
install -D --strip --mode=755 "$built/bin/redis-server" "$tree/usr/bin/$name"
install -D --mode=644 "$root/docs/redis.md" "$docs/redis.md"
{
  cat "$source/copyright"
  printf '\nThe parts that keep the data on memlith:\n\n'
  cat "$root/LICENSE"
} >"$docs/copyright"
date=$(LC_ALL=C date -u -R -d "@$(git -C "$root" log -1 --format=%ct)")
printf '%s (%s) UNRELEASED; urgency=medium\n\n  * Of Debian source, with memlith.\n\n -- %s  %s\n' \
  "$name" "$version" "$maintainer" "$date" |
  gzip -9n >"$docs/changelog.Debian.gz"
chmod 644 "$docs/"*

# The program's libraries, as Debian names them.
mkdir -p "$work/debian" "$tree/DEBIAN"
printf 'Source: %s\n\nPackage: %s\nArchitecture: any\n' "$name" "$name" >"$work/debian/control"
libraries=$(cd "$work" && dpkg-shlibdeps -O "$tree/usr/bin/$name" 2>/dev/null)
cat >"$tree/DEBIAN/control" <<END
Package: $name
Version: $version
Section: database
Priority: optional
Architecture: $(dpkg --print-architecture)
Maintainer: $maintainer
Depends: ${libraries#shlibs:Depends=}
Suggests: redis-tools
Installed-Size: $(du -sk "$tree/usr" | cut -f1)
Description: Redis whose acknowledged writes survive crashes
 The server of Redis 7.0, with the storage memlith: an acknowledged write is on
 the disk, without an append-only file that has to be rewritten, and without
 fork. Start it with "--memlith yes"; without that it is plain Redis.
END
rm -f "$out/$name"_*.deb
dpkg-deb --root-owner-group --build "$tree" "$out" >/dev/null

# The package does what it says, where it would be installed: a write survives kill -9.
tried=$work/tried
rm -rf "$tried"
dpkg-deb --extract "$out/$name"_*.deb "$tried"
mkdir "$tried/data"
for round in 1 2; do
  (cd "$tried/data" && exec "$tried/usr/bin/$name" --memlith yes --port 0 --unixsocket "$tried/socket" --save '') \
    >"$tried/log-$round" 2>&1 &
  server=$!
  said=$(python3 "$root/dist/ask_redis.py" "$tried/socket" "$round") || said=failed
  kill -KILL "$server"
  wait "$server" 2>/dev/null || true
  if [[ $said != "$round" ]]; then
    printf 'round %s: the server said %s\n' "$round" "$said" >&2
    cat "$tried/log-$round" >&2
    exit 1
  fi
done
printf '%s: kept what it acknowledged, after kill -9\n' "$(basename "$out/$name"_*.deb)"
