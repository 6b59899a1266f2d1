#!/usr/bin/env bash
# in_debian13.sh ROOT WORK ARGS...: runs kill_test.py with ARGS in a Debian 13, with its PostgreSQL 17 and what was
# built in ROOT/build/release. Needs root, debootstrap, and Debian's registry. WORK/system is kept for the next time.
set -euo pipefail

mkdir -p "$2"
root=$(cd "$1" && pwd) system=$(cd "$2" && pwd)/system
packages=postgresql-17,python3-minimal,libpython3-stdlib

if [[ ! -x $system/usr/lib/postgresql/17/bin/postgres ]]; then
  rm -rf "$system"
  debootstrap --variant=minbase --include="$packages" trixie "$system" \
    "${MEMLITH_DEBIAN_MIRROR:-http://deb.debian.org/debian}" >"$system.log"
fi
rm -rf "$system/memlith" "$system/work"
tests=memlith/integrations/postgres/tests rig=memlith/tests/power/rig
mkdir -p "$system/$tests" "$system/$rig"
cp "$root/build/release/bin/memlith" "$root/build/release/lib/memlith_postgres.so" "$system/memlith"
cp "$root"/integrations/postgres/tests/*.py "$system/$tests"
cp "$root"/tests/power/rig/*.py "$system/$rig"
# Libraries that Debian 13 has in newer versions, under other names.
ldd "$root/build/release/bin/memlith" "$root/build/release/lib/memlith_postgres.so" |
  awk '$2 == "=>" { print $3 }' | sort -u | while read -r library; do
  if [[ ! -e $system/usr/lib/x86_64-linux-gnu/${library##*/} ]]; then cp -L "$library" "$system/usr/local/lib"; fi
done
chroot "$system" ldconfig

# The mounts end with the namespace.
exec unshare --mount --propagation private bash -c '
  mount -t proc proc "$1/proc" && mount --rbind /dev "$1/dev" &&
    exec chroot "$1" /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C.UTF-8 \
      ${MEMLITH_SEED:+MEMLITH_SEED="$MEMLITH_SEED"} \
      python3 -B "/$2/kill_test.py" --plugin /memlith/memlith_postgres.so --memlith /memlith/memlith --work /work \
      "${@:3}"' bash "$system" "$tests" "${@:3}"
