# shellcheck shell=bash
# The Debian packages that the commands of ./dev need, and how they get them. ./dev reads this file.

packages_base=(build-essential ccache cmake git libblkid-dev libcli11-dev libfmt-dev libgtest-dev libncurses-dev
  libsqlite3-dev liburing-dev libxxhash-dev libzstd-dev ninja-build nlohmann-json3-dev pkg-config python3 sqlite3)
# abidiff (tests/golden); a debugger, manual pages and completion (tests/cli); a client of the servers of
# docs/tutorials; Boost's containers in a heap, examples/cache; the tests of examples/webapp, of SQLite as Perl and Ruby
# use it, of tools/memlith.supp, and of the Python package, whose other needs pip installs
# (bindings/python/tests/requirements.txt).
packages_test=(abigail-tools curl gdb groff-base libboost-dev libevent-dev python3-flask libdbd-sqlite3-perl php-cli
  php-sqlite3 ruby-sqlite3 valgrind python3-dev python3-venv zsh
  # a terminal for memlith browse
  python3-pyte
  # memlith copy, where files share blocks
  xfsprogs
  # programs under `memlith run`
  gdbmtool kyotocabinet-utils libkyotocabinet-dev python3-lmdb python3-numpy python3-tdb)
# Needed by the tests of ./dev test: abidiff (tests/golden), mounts, and the header in a sample of memlith/rocksdb.hpp.
packages_quick=(abigail-tools bindfs e2fsprogs librocksdb-dev openssh-sftp-server python3 sshfs)
# llvm-19 has the symbolizer of the sanitizers' reports; libc++ is for containers in a heap.
packages_clang=(clang-19 libc++-19-dev libc++abi-19-dev libclang-rt-19-dev llvm-19)
# memlith-cc, memlith-c++ and their tests
packages_pass=(clang-19 csmith libclang-rt-19-dev libcsmith-dev lld-19 llvm-19-dev)
packages_format=(clang-format-19)
packages_plot=(python3-matplotlib) # bench persist --plot, soak crash --plot
# Peers of the benchmarks: key-value stores, and allocators.
packages_kv=(libdb5.3-dev libkyotocabinet-dev libleveldb-dev liblmdb-dev librocksdb-dev libwiredtiger-dev)
packages_peers=(btrfs-progs xfsprogs) # bench persist --peers
packages_files_bench=(e2fsprogs libevent-dev libkyotocabinet-dev xfsprogs) # bench files
packages_heap_bench=(libboost-dev libpmemobj-dev python3-matplotlib)
packages_sqlite_suite=(dpkg-dev tcl-dev zlib1g-dev) # soak sqlite-suite, bench instrumented
packages_servers=(gunicorn php-cli php-sqlite3 puma python3-uvicorn ruby-sqlite3 sqlite3) # soak sqlite-servers
packages_pypi=(python3-venv) # soak sqlite-sqlalchemy, sqlite-django, sqlite-clients
packages_pytorch=(libpython3.11-testsuite python3-torch) # soak python, bench python
packages_npm=(nodejs npm) # soak sqlite-clients, where there is no npm of another origin
packages_rust=(cargo-web rustc-web) # the crates in bindings/rust, where there is no cargo of another origin
# The module in bindings/go, where there is no go of another origin; integrations/raft needs Go 1.20.
packages_go=(golang-go)
packages_redis=(dpkg-dev libjemalloc-dev) # Redis on memlith: build redis, its tests, bench redis
# package deb: what dist/debian/control names beside the base (tests/package compares them), and what looks at it
packages_deb=(clang-19 debhelper debootstrap dh-python dpkg-dev fakeroot librocksdb-dev lintian llvm-19-dev python3-dev
  python3-venv)
# soak guests
packages_guests=(bc bison btrfs-progs bubblewrap e2fsprogs flex g++-aarch64-linux-gnu mmdebstrap python3-seccomp
  qemu-system-arm qemu-system-x86 xfsprogs)
packages_docs=(python3-venv) # docs
packages_rocksdb=(librocksdb-dev rocksdb-tools) # RocksDB on memlith: its tests, bench rocksdb
packages_perf=(linux-perf) # bench rocksdb profile
packages_postgres=(postgresql-15 strace) # PostgreSQL on memlith: its tests, bench postgres, soak postgres
packages_rocksdb_suite=(dpkg-dev libbz2-dev libgflags-dev liblz4-dev libsnappy-dev zlib1g-dev) # soak rocksdb-suite
packages_power=(btrfs-progs busybox-static e2fsprogs qemu-system-x86 xfsprogs) # soak power, dax

# Installs what is missing of the named packages; does nothing at all when everything is there.
need() {
  local package installed missing=() as_root=() began=$SECONDS
  if ! command -v dpkg-query >/dev/null; then
    fail "this is not a Debian system; going on in the hope that it has its own form of: $*"
    return 0
  fi
  installed=$(dpkg-query -W -f '${Package} ${db:Status-Status}\n' "$@" 2>/dev/null)
  for package in "$@"; do
    grep -qxF "$package installed" <<<"$installed" || missing+=("$package")
  done
  ((${#missing[@]} == 0)) && return 0

  if ((EUID != 0)); then
    if ! command -v sudo >/dev/null; then
      fail "these Debian packages are missing, and installing them takes root or sudo: ${missing[*]}"
      return 1
    fi
    as_root=(sudo)
  fi
  say "Installing missing Debian packages: ${missing[*]}"
  # A failed update is no reason to stop: the lists that are there may do, and if not, the installation says why.
  quietly "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -qq -o DPkg::Lock::Timeout=300 update ||
    fail "apt-get update failed; going on"
  quietly "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -qq -o DPkg::Lock::Timeout=300 \
    -o Dpkg::Use-Pty=0 install --yes --no-install-recommends "${missing[@]}" || return
  say "Installed, $(took $((SECONDS - began)))"
}

# The modules of others that integrations/raft needs, in Go's own cache, which is outside of the tree.
need_go_modules() {
  command -v go >/dev/null || return
  quietly env GOTOOLCHAIN=local go -C "$root/integrations/etcd" mod download &&
    quietly env GOTOOLCHAIN=local go -C "$root/integrations/etcd/etcdconvert" mod download ||
    say "integrations/etcd is not tested: its modules cannot be downloaded, or Go is older than 1.24"
  quietly env GOTOOLCHAIN=local go -C "$root/integrations/bbolt/bboltconvert" mod download ||
    say "integrations/bbolt/bboltconvert is not tested: its modules cannot be downloaded, or Go is older than 1.23"
  quietly env GOTOOLCHAIN=local go -C "$root/integrations/raft" mod download && return
  say "integrations/raft is not tested: its modules cannot be downloaded, or Go is older than 1.20"
  return 1
}

# The crates of others that integrations/openraft needs, in cargo's own cache.
need_rust_crates() {
  command -v cargo >/dev/null || return
  quietly cargo fetch --locked --manifest-path "$root/integrations/openraft/Cargo.toml" && return
  say "integrations/openraft is not tested: its crates cannot be downloaded, or cargo is too old for them"
  return 1
}

# Needed by integrations/etcd and etcd itself.
need_etcd_modules() {
  local -x GOTOOLCHAIN=local
  command -v go >/dev/null || need "${packages_go[@]}" || return
  quietly go -C "$root/integrations/etcd" mod download &&
    quietly go -C "$root/integrations/etcd/etcdconvert" mod download &&
    quietly env GOFLAGS=-modfile=stock.mod go -C "$root/integrations/etcd" mod download && return
  say "etcd cannot be built: its modules cannot be downloaded, or Go is older than 1.24"
  return 1
}

# Installs the packages that building with these presets needs.
need_for_presets() {
  local preset wanted=("${packages_base[@]}")
  for preset in "$@"; do
    case $preset in clang | tsan | fuzz) wanted+=("${packages_clang[@]}") ;; esac
  done
  need "${wanted[@]}" || return
  # Clang's runtimes look for llvm-symbolizer in PATH, where Debian puts it only with a version in its name.
  PATH=$PATH:/usr/lib/llvm-19/bin
  # One cache for all clones of a machine: a path of the repository is the same to it wherever the repository lies. What
  # the compilers print has whole paths all the same.
  export CCACHE_BASEDIR=$root CCACHE_ABSSTDERR=1
  # ccache wants to write into the home folder, which service users and containers may not have.
  if [[ ! -w ${HOME:-/nonexistent} ]]; then export CCACHE_DIR=${CCACHE_DIR:-$root/build/ccache}; fi
}
