#!/usr/bin/env bash
# A user's first steps, in a Debian 12 that has the folder /packages and nothing of memlith; check_chroot.sh runs it.
set -euo pipefail

say() { printf '%s\n' "$*"; }
fail() {
  say "FAILED: $*" >&2
  exit 1
}
install() {
  DEBIAN_FRONTEND=noninteractive apt-get -qq -o Dpkg::Use-Pty=0 install --yes --no-install-recommends "$@" >/log 2>&1 ||
    { tail -n 30 /log >&2 && fail "apt-get install $*"; }
}

# The time of README's four commands together: the packages, the program, the wheel, the line of SQLite.
commands_ms=0
timed() {
  local began status=0
  began=$(date +%s%N)
  "$@" || status=$?
  commands_ms=$((commands_ms + ($(date +%s%N) - began) / 1000000))
  return "$status"
}

apt-get -qq update

# ---- the wheel, while there is no compiler
install python3-venv
if command -v cc c++ gcc >/dev/null; then fail "there is a compiler already"; fi
python3 -m venv /wheel
timed /wheel/bin/pip --disable-pip-version-check install --quiet --only-binary :all: /packages/memlith-*-cp311-*.whl
say "wheel: installed in $commands_ms ms"
cat >/packages/first.py <<'END'
import sys
import memlith, memlith.sqlite
with memlith.open(sys.argv[1]) as store:
    count = store.array("count", (1,), "i8")
    runs = memlith.Dict(store, "runs")
    with store.transaction():
        count[0] += 1
        runs["count"] = runs.get("count", 0) + 1
    assert (int(count[0]), runs["count"]) == (int(sys.argv[2]),) * 2
db = memlith.sqlite.connect(sys.argv[1] + ".db")
with db:
    db.execute("create table if not exists run (number integer)")
    db.execute("insert into run values (1)")
assert db.execute("select count(*) from run").fetchone() == (int(sys.argv[2]),)
db.close()
with memlith.SharedRegion(sys.argv[1] + ".shared", "counters", 4096) as region:
    counters = region.array(1, "i8")
    with region.transaction() as tx:
        tx.touch_before(counters)
        counters += 1
    assert int(counters[0]) == int(sys.argv[2])
    del counters
END
for run in 1 2; do timed /wheel/bin/python /packages/first.py /wheel/store $run; done
say "wheel: installed without a compiler; the example ran twice"

# ---- Debian's packages; that of clang's pass, which brings a compiler, comes later
mkdir /packages/later
mv /packages/memlith-c++*.deb /packages/later/ # its debug symbols, too
timed install /packages/*.deb
memlith --version
for run in 1 2; do /usr/bin/python3 /packages/first.py /root/state $run; done
say "python3-memlith: the example ran twice"
memlith verify /root/state
memlith info --json /root/state >/dev/null
for page in memlith memlith-run memlith-kv; do
  [[ -s /usr/share/man/man1/$page.1.gz ]] || fail "there is no manual page $page"
done
[[ -s /usr/share/bash-completion/completions/memlith && -s /usr/share/zsh/vendor-completions/_memlith ]] ||
  fail "the completions are missing"
memlith run --match '*.dat' --report -- /usr/bin/python3 -c '
import os
with open("/root/a.dat", "wb") as file:
    file.write(b"kept")
    file.flush()
    os.fsync(file.fileno())
    file.write(b", and not synced")
' 2>/root/report
grep -q a.dat /root/report || fail "memlith run reported no commit of a.dat: $(cat /root/report)"
say "memlith: commands, manual pages, completions, memlith run"

install sqlite3
plugin=$(dpkg -L memlith-sqlite | grep 'memlith_sqlite\.so$')
timed env LD_PRELOAD="$plugin" sqlite3 /root/app.db 'create table t(a); insert into t values (7);'
[[ $(LD_PRELOAD=$plugin sqlite3 /root/app.db 'select a from t') == 7 ]] || fail "SQLite lost its row"
[[ $(sqlite3 /root/app.db 'select a from t') == 7 ]] || fail "plain SQLite does not open the database"
say "memlith-sqlite: a database written and read again, with and without the plugin"

install rocksdb-tools
plugin=$(dpkg -L memlith-rocksdb | grep 'memlith_rocksdb\.so$')
LD_PRELOAD=$plugin ldb --fs_uri=memlith:// --db=/root/rocks --create_if_missing put stone granite >/dev/null
[[ $(ldb --db=/root/rocks get stone) == granite ]] || fail "plain RocksDB does not find what was put"
say "memlith-rocksdb: a database written with the plugin and read without it"

# ---- the program of README.md, as a user compiles it
install g++ pkg-config
mkdir -p /root/readme
cd /root/readme
sed -n '/^```cpp$/,/^```$/p' /packages/README.md | sed '/^```/d' >words.cpp
timed c++ -std=c++20 words.cpp -o words -lmemlith
say "the four commands took $commands_ms ms, downloads included"
((commands_ms < 120000)) || fail "the four commands took more than two minutes"
./words marble granite | grep -q '^granite: 1 of 1 runs$' || fail "README's program printed something else"
./words granite | grep -q '^granite: 2 of 2 runs$' || fail "README's program lost its words"
say "libmemlith-dev: README's program compiled and ran twice"
cp -r /packages/consumer /root/consumer
bash /root/consumer/check.sh pkg-config /usr /root/readme
install cmake ninja-build libfmt-dev liburing-dev libxxhash-dev libzstd-dev
bash /root/consumer/check.sh find_package /usr /root/readme
[[ -x /root/readme/consumer/consumer_tracked ]] || fail "memlith::tracked was not found"
bash /root/consumer/check.sh pkg-config-static /usr /root/readme
say "libmemlith-dev: pkg-config and find_package"

install /packages/later/*.deb
memlith-cc -std=c11 -O2 -DCONSUMER_TRACKER=MEMLITH_TRACKER_INSTRUMENTED /root/consumer/main.c -o recorded -lmemlith
memlith-c++ -std=c++20 -O2 words.cpp -o recorded_words -lmemlith
mkdir recorded_store
said=$(MEMLITH_VERIFY_TRACKING=1 ./recorded recorded_store 2>&1) || fail "memlith-cc's program: $said"
[[ $said != *"not recorded"* ]] || fail "$said"
./recorded_words granite | grep -q '^granite: 3 of 3 runs$' || fail "memlith-c++'s program did not find its words"
say "memlith-c++: programs in C and C++ that record their stores"

apt-get -qq purge --yes memlith libmemlith0 memlith-sqlite memlith-rocksdb python3-memlith memlith-g++ memlith-c++ \
  libmemlith-dev >/log 2>&1 || fail "purge"
if find /usr /etc -name '*memlith*' | grep .; then fail "files are left after the packages were purged"; fi
say "purged: nothing is left"
