#!/usr/bin/env bash
# check_chroot.sh PACKAGES WORK: installs the Debian packages and the wheel in the folder PACKAGES into a fresh Debian
# 12, where nothing of the build exists, and does there what a user does first. Needs root, debootstrap, and Debian's
# and PyPI's registries. WORK/bookworm.tar is the fresh system, kept for the next time.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
mkdir -p "$2"
packages=$(cd "$1" && pwd)
work=$(cd "$2" && pwd)
system=$work/system

if [[ ! -f $work/bookworm.tar ]]; then
  rm -rf "$system"
  debootstrap --variant=minbase bookworm "$system" "${MEMLITH_DEBIAN_MIRROR:-http://deb.debian.org/debian}" >"$work/log"
  tar -C "$system" -cf "$work/bookworm.tmp" .
  mv "$work/bookworm.tmp" "$work/bookworm.tar"
fi
rm -rf "$system"
mkdir -p "$system"
tar -C "$system" -xf "$work/bookworm.tar"

# How this machine reaches the registries.
for file in /etc/resolv.conf /etc/hosts /etc/pip.conf; do
  if [[ -e $file ]]; then cp -L "$file" "$system$file"; fi
done
mkdir -p "$system/packages"
cp -L /etc/ssl/certs/ca-certificates.crt "$system/packages/registries.crt" # the system gets certificates of its own
cp "$packages"/*.deb "$packages"/*.whl "$here/../README.md" "$here/try_packages.sh" "$system/packages/"
cp -r "$here/../cmake/consumer" "$system/packages/"

# The mounts end with the namespace.
unshare --mount --propagation private bash -c '
  mount -t proc proc "$1/proc" && mount --rbind /dev "$1/dev" && mount -t tmpfs tmpfs "$1/tmp" &&
    exec chroot "$1" /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C.UTF-8 \
      PIP_CERT=/packages/registries.crt \
      ${PIP_INDEX_URL:+PIP_INDEX_URL="$PIP_INDEX_URL"} bash /packages/try_packages.sh' bash "$system"
rm -rf "$system"
