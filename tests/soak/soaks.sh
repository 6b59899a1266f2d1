# shellcheck shell=bash
# `./dev soak NAME`: what runs for as long as it is told, or runs the tests of other projects. ./dev reads this file.

soaks=(persist crash power dax sqlite-suite sqlite-python sqlite-sqlalchemy sqlite-django sqlite-clients
  sqlite-diskcache sqlite-shared sqlite-servers sqlite-exploration tracking python steps redis redis-cluster
  redis-suite valkey rocksdb rocksdb-suite postgres postgres-17 postgres-suite replica openraft addresses run-suites
  copy archive shared bbolt-suite etcd etcd-suite guests invariant)

# The packages that a soak needs beside those of the build.
need_for_soak() {
  local name=$1
  case $name in
    power | dax)
      need "${packages_power[@]}" || return
      if has --count-records "${@:2}"; then need "${packages_kv[@]}"; fi
      ;;
    invariant) need "${packages_kv[@]}" e2fsprogs ;;
    crash) if has --plot "${@:2}"; then need "${packages_plot[@]}"; fi ;;
    sqlite-suite) need "${packages_sqlite_suite[@]}" ;;
    sqlite-sqlalchemy | sqlite-django | sqlite-diskcache) need "${packages_pypi[@]}" ;;
    sqlite-clients)
      need "${packages_pypi[@]}" "${packages_test[@]}" || return
      command -v npm >/dev/null || need "${packages_npm[@]}"
      ;;
    sqlite-servers) need "${packages_servers[@]}" ;;
    tracking) need "${packages_pass[@]}" ;;
    python) need "${packages_test[@]}" "${packages_pytorch[@]}" ;;
    redis-suite) need tcl ;;
    rocksdb) need "${packages_rocksdb[@]}" ;;
    openraft | replica) need_go_modules && need e2fsprogs ;;
    bbolt-suite) need_go_modules ;;
    etcd | etcd-suite) need_go_modules && need_etcd_modules ;;
    rocksdb-suite) need "${packages_rocksdb[@]}" "${packages_rocksdb_suite[@]}" ;;
    postgres) need "${packages_postgres[@]}" "${packages_power[@]}" ;;
    postgres-17) need debootstrap ;;
    postgres-suite) need "${packages_postgres[@]}" dpkg-dev ;;
    guests) need "${packages_base[@]}" "${packages_guests[@]}" ;;
    run-suites) need nodejs libpython3.11-testsuite strace ;;
  esac
}

soak_sqlite() {
  local beside=()
  if [[ $1 == shared ]]; then beside=(memlith_sqlite_mutant_plugin power_disk); fi
  build_preset release memlith_sqlite memlith_cli "${beside[@]}" || return
  python3 -B "$root/integrations/sqlite/tests/suite/run_$1.py" --plugin "$root/build/release/lib/memlith_sqlite.so" \
    --work "$root/build/sqlite-$1" "${@:2}"
}

# More of the orders that deviate at two or three steps from the default one.
soak_sqlite_exploration() {
  if [[ ${1:-} == --minutes ]]; then shift 2; fi # accepted like by every soak; the number of orders is the size
  build_preset release sqlite_exploration || return
  MEMLITH_EXPLORE_SAMPLES=${MEMLITH_EXPLORE_SAMPLES:-20000} \
    ctest --test-dir "$root/build/release" -R 'Shared/Explored' --timeout 0 --output-on-failure "$@"
}

# The power rig with persistent memory.
soak_dax() {
  build_preset release || return
  say
  "$bin/power_soak" --rig dax "$@"
}

# Starts in languages whose runtimes place heaps of their own; those that are not installed are left out.
soak_addresses() {
  build_preset release memlith || return
  mkdir -p "$root/build/addresses-prefix" &&
    ln -sfn "$root/include" "$root/build/addresses-prefix/include" &&
    ln -sfn "$root/build/release/lib" "$root/build/addresses-prefix/lib" &&
    python3 -B "$root/tests/soak/addresses/addresses.py" --memlith "$root/build/addresses-prefix" \
      --work "$root/build/addresses" "$@"
}

# Copies of a store in use, and its writer, killed 1,000 times.
soak_copy() {
  build_preset release capi_tests || return
  MEMLITH_KILLS=${MEMLITH_KILLS:-500} "$bin/capi_tests" \
    --gtest_filter='*CopyOf.AStoreInUseWhileCopiesAndWritersAreKilled*' "$@"
}

# The writer, the archiver and the restorer of archives killed, 1,000 times.
soak_archive() {
  build_preset release capi_tests || return
  MEMLITH_KILLS=${MEMLITH_KILLS:-500} "$bin/capi_tests" \
    --gtest_filter='*ArchiveOf.AStoreInUseWhileWritersArchiversAndRestorersAreKilled*' "$@"
}

# Histories of processes that have a kv store or an application log open, --transactions 100000 (or as many entries) of
# them with kills of clients and keepers, and as many with power cuts; then processes that share a region, a kv store or
# a log, their keepers, and everything at once, killed --kills 5000 times.
soak_shared() {
  local kills=5000 transactions=100000
  while [[ ${1:-} == --kills || ${1:-} == --transactions ]]; do
    if [[ $1 == --kills ]]; then kills=$2; else transactions=$2; fi
    shift 2
  done
  build_preset release capi_tests isolation_tests || return
  MEMLITH_TRANSACTIONS=$transactions MEMLITH_ENTRIES=$transactions "$bin/isolation_tests" \
    --gtest_filter='ProcessesIsolation.*:ProcessesLogs.*' "$@" &&
    MEMLITH_KILLS=$kills "$bin/capi_tests" \
      --gtest_filter='SharedKill.*:ProcessesKill.*:ProcessesLogKill.*:ProcessesInContainers.*' "$@"
}

soak_redis() {
  build_redis || return
  python3 -B "$root/integrations/redis/tests/kill_test.py" --program "$root/build/release/redis/bin/redis-server" \
    --work "$root/build/redis" --kills 500 "$@"
}

# Kills of a cluster of three masters and three replicas, and of a master with its replicas, also under Sentinel.
soak_redis_cluster() {
  build_redis || return
  local tests=$root/integrations/redis/tests
  local arguments=(--program "$root/build/release/redis/bin/redis-server" --work "$root/build/redis" --rounds 200)
  python3 -B "$tests/cluster_test.py" "${arguments[@]}" "$@" &&
    python3 -B "$tests/replication_test.py" "${arguments[@]}" "$@"
}

soak_redis_suite() {
  build_redis || return
  python3 -B "$root/integrations/redis/tests/suite/run_suite.py" --redis "$root/build/release/redis" \
    --work "$root/build/redis-suite" "$@"
}

# Debian 13's Valkey: its source is downloaded and built, which is too much for each run of the tests.
soak_valkey() {
  build_valkey || return
  local tests=$root/integrations/redis/tests built=$root/build/release/valkey
  python3 -B "$tests/kill_test.py" --program "$built/bin/valkey-server" --work "$root/build/valkey" --kills 100 "$@" &&
    python3 -B "$tests/commands_test.py" --program "$built/bin/valkey-server" --plain "$built/plain/valkey-server" \
      --work "$root/build/valkey" &&
    python3 -B "$tests/readers_test.py" --program "$built/bin/valkey-server" --work "$root/build/valkey"
}

# Kills, and power cuts on the disk of the power rigs.
soak_rocksdb() {
  local program=$bin/memlith-rocksdb-load tests=$root/integrations/rocksdb/tests
  build_preset release memlith_rocksdb_load power_disk || return
  python3 -B "$tests/kill_test.py" --program "$program" --work "$root/build/rocksdb" --kills 200 "$@" &&
    python3 -B "$tests/power_test.py" --program "$program" --bin "$bin" --work "$root/build/rocksdb" \
      --cuts 300
}

# Three nodes of a service on hashicorp/raft: runs with kills, pauses, partitions and clocks that jump, rounds in which
# all three are killed, and power cuts under all three; the clients' histories are linearizable.
soak_replica() {
  local work=$root/build/replica
  build_preset release memlith power_disk power_no_flush && mkdir -p "$work" &&
    go -C "$root/integrations/raft" build -tags clockjumps -o "$work/kvnode" ./cmd/kvnode &&
    go -C "$root/integrations/raft" build -o "$work/kvsoak" ./cmd/kvsoak || return
  "$work/kvsoak" -node "$work/kvnode" -work "$work/nodes" -disk "$bin/power-disk" -no-flush "$bin/power-no-flush.so" \
    -runs 200 -rounds 500 -cuts 100 "$@"
}

# Three nodes of openraft on integrations/openraft under the faults of soak_replica, but those of clocks; and a node
# that is killed while it appends, and while it installs snapshots.
soak_openraft() {
  local work=$root/build/openraft crate=$root/integrations/openraft
  command -v cargo >/dev/null || need "${packages_rust[@]}" || return
  need_rust_crates && build_preset release memlith memlith_static power_disk &&
    mkdir -p "$work" && go -C "$root/integrations/raft" build -o "$work/kvsoak" ./cmd/kvsoak || return
  local -x CARGO_TARGET_DIR=$work/target MEMLITH_INCLUDE_DIR=$root/include MEMLITH_LIB_DIR=$root/build/release/lib
  MEMLITH_KILLS=40 cargo test --release --locked --manifest-path "$crate/Cargo.toml" -- kill &&
    cargo build --release --locked --manifest-path "$crate/Cargo.toml" --example kvnode || return
  "$work/kvsoak" -openraft -node "$work/target/release/examples/kvnode" -work "$work/nodes" -disk "$bin/power-disk" \
    -runs 100 -rounds 100 -cuts 40 "$@"
}

# bbolt's own tests with bbolt, and with integrations/bbolt in its place.
soak_bbolt_suite() {
  local lib=$root/build/release/lib
  build_preset release memlith || return
  CGO_CFLAGS=-I$root/include CGO_LDFLAGS="-L$lib -Wl,-rpath,$lib" \
    python3 -B "$root/tests/soak/bbolt/run_suite.py" --work "$root/build/bbolt-suite" "$@"
}

# etcd with memlith below it, and with memlith below its database alone: one member killed --kills times, and three;
# members that come and go, snapshots, and data directories of stock etcd. Then histories of clients of three members
# that are killed and stopped, each with a planted fault that has to be found.
soak_etcd() {
  local work=$root/build/etcd kills=100 members side
  if [[ ${1:-} == --kills ]]; then kills=$2; fi
  build_etcd || return
  local lib=$root/build/release/lib bin=$root/build/release/etcd/bin
  local -x GOTOOLCHAIN=local CGO_LDFLAGS="-L$lib -Wl,-rpath,$lib" MEMLITH_ETCD_STOCK=$work/stock \
    MEMLITH_ETCD_UTL=$bin/etcdutl MEMLITH_ETCD_CONVERT_DATABASE=$work/convert MEMLITH_ETCD_KILLS=$kills
  mkdir -p "$work" && python3 -B "$root/integrations/etcd/build.py" --work "$work/memlith" --tests &&
    python3 -B "$root/integrations/etcd/build.py" --work "$work/planted" --planted unsynced --tests &&
    go test -C "$root/integrations/etcd" -c -o "$work/database" &&
    go test -C "$root/integrations/etcd" -modfile=stock.mod -c -o "$work/stock" &&
    go build -C "$root/integrations/bbolt/bboltconvert" -o "$work/convert" . &&
    go build -C "$root/integrations/raft" -o "$work/kvsoak" ./cmd/kvsoak || return
  for side in memlith/bin/tests database; do
    for members in 1 3; do
      MEMLITH_ETCD_MEMBERS=$members "$work/$side" -test.v -test.timeout 0 -test.run '^TestKills$' || return
    done
  done
  MEMLITH_ETCD_CONVERT=$bin/etcdconvert "$work/memlith/bin/tests" -test.v \
    -test.run 'Members|Snapshot|Directory|Quota' &&
    MEMLITH_ETCD_UTL="" "$work/database" -test.v -test.run 'Members|OfStock|Directory|Quota' || return
  if "$work/planted/bin/tests" -test.run '^TestKills$' >"$work/planted.log"; then
    fail "a log that does not wait for the disk was not noticed"
    return 1
  fi
  "$work/kvsoak" -etcd "$bin/etcd" -work "$work/members" -runs 40 -planted stale-reads &&
    "$work/kvsoak" -etcd "$bin/etcd" -work "$work/members" -runs "$kills" -rounds "$kills"
}

# etcd's own tests as they come, and with memlith in the place of its database and its write-ahead log.
soak_etcd_suite() {
  local lib=$root/build/release/lib
  build_preset release memlith || return
  CGO_CFLAGS=-I$root/include CGO_LDFLAGS="-L$lib -Wl,-rpath,$lib" \
    python3 -B "$root/tests/soak/etcd/run_suite.py" --work "$root/build/etcd-suite" "$@"
}

soak_power() {
  build_preset release || return
  if has --count-records "$@"; then build_preset release bin/memlith-kv-bench || return; fi
  say
  "$bin/power_soak" "$@"
}

# Stores that flush nothing on a disk that loses: memlith's weak commits keep x < y, others may not.
soak_invariant() {
  build_preset release memlith_kv_bench power_disk || return
  python3 -B "$root/tests/power/rig/invariant_soak.py" --program "$bin/memlith-kv-bench" --bin "$bin" \
    --work "$root/build/invariant" "$@"
}

soak_rocksdb_suite() {
  build_preset release memlith_rocksdb || return
  python3 -B "$root/integrations/rocksdb/tests/suite/run_suite.py" \
    --plugin "$root/build/release/lib/memlith_rocksdb.so" --work "$root/build/rocksdb-suite" "$@"
}

# Kills of everything, of the keeper and of backends, power cuts on the disk of the power rigs, replicas and recoveries
# that are killed, and disks that are full or fail.
soak_postgres() {
  build_preset release memlith_postgres memlith_cli power_disk || return
  bash "$root/integrations/postgres/tests/run_all.sh" "$root/build/release" "$root/build/postgres" 1000 300 20 60
}

# Kills of the PostgreSQL 17 of Debian 13, in a system of its own.
soak_postgres_17() {
  build_preset release memlith_postgres memlith_cli || return
  bash "$root/integrations/postgres/tests/in_debian13.sh" "$root" "$root/build/postgres-17" --kills 200 "$@"
}

soak_postgres_suite() {
  build_preset release memlith_postgres || return
  python3 -B "$root/integrations/postgres/tests/suite/run_suite.py" \
    --plugin "$root/build/release/lib/memlith_postgres.so" --work "$root/build/postgres-suite" "$@"
}

# Programs and tests of other projects under `memlith run`, and random calls for longer than in ctest.
soak_run_suites() {
  build_preset release || return
  mkdir -p "$root/build/release/test-data"
  MEMLITH_TEST_DIR=$root/build/release/test-data python3 -B "$root/tests/soak/run_suites.py" "$bin/memlith" \
    "$bin/run-fsx" "$bin/run-calls" "$@"
}

# memlith's tests under another kernel, on arm64, on other file systems and with fewer rights.
soak_guests() {
  python3 -B "$root/tests/guests/guests.py" "$@"
}

soak_tracking() {
  local compiler tests=$root/integrations/compiler/tests
  build_preset release memlith memlith_track_runtime || return
  for compiler in gcc clang; do
    export MEMLITH_TEST_COMPILER=$compiler
    python3 -B "$tests/random_test.py" "$root/build/release" "$root" --programs 2000 "$@" &&
      python3 -B "$tests/csmith_test.py" "$root/build/release" "$root" --programs 2000 "$@" &&
      python3 -B "$tests/demo_test.py" "$root/build/release" "$root" || return
  done
}

# 10,000 kills, and one at each call and return of short runs.
soak_steps() {
  local folder=$root/build/release/python
  local tests=$root/bindings/python/tests
  local proof=("$folder/venv/bin/python3" -B "$tests/steps_kill.py" "$root/build/release/test-data")
  build_preset release memlith_static memlith_sqlite &&
    python3 -B "$tests/environment.py" make --folder "$folder" --prebuilt "$root/build/release/lib" || return
  "${proof[@]}" --every && "${proof[@]}" --kills 10000 "$@"
}

# Debian's own Python, whose PyTorch computes without a GPU and is small.
soak_python() {
  local folder=$root/build/python-extended
  local environment=(/usr/bin/python3 -B "$root/bindings/python/tests/environment.py")
  build_preset release memlith_static memlith_sqlite &&
    "${environment[@]}" make --folder "$folder" --prebuilt "$root/build/release/lib" --system-packages \
      --requirements "$root/bindings/python/tests/requirements-extended.txt" || return
  MEMLITH_TEST_DIR=$root/build/release/test-data "${environment[@]}" test --folder "$folder"
}

cmd_soak() {
  local name=${1:-}
  if ! has "$name" "${soaks[@]}"; then
    fail "there is no soak${name:+ \"$name\"}; there are: ${soaks[*]}"
    return 2
  fi
  need_for_presets release && need_for_soak "$@" || return
  case $name in
    sqlite-exploration) soak_sqlite_exploration "${@:2}" ;;
    sqlite-*) soak_sqlite "${name#sqlite-}" "${@:2}" ;;
    power | dax | redis | redis-cluster | redis-suite | valkey | rocksdb | rocksdb-suite | postgres | postgres-17 | \
      postgres-suite | replica | openraft | tracking | python | steps | addresses | run-suites | copy | archive | \
      shared | bbolt-suite | etcd | etcd-suite | guests | invariant)
      "soak_${name/-/_}" "${@:2}" ;;
    *)
      build_preset release || return
      say
      "$bin/${name}_soak" "${@:2}"
      ;;
  esac
}
