#!/usr/bin/env bash
# run.sh PROGRAM: runs one fuzzer of build/fuzz for MEMLITH_FUZZ_SECONDS (60).
#
# The seeds of tests/fuzz/corpus are read, what is found goes to build/fuzz/found: a check changes no tracked file.
set -uo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd) || exit 1
name=$(basename "$1")
seeds=()
for corpus in "$root/tests/fuzz/corpus/${name#fuzz_}" "$root/tests/fuzz/corpus/$name"; do
  if [[ -d $corpus ]]; then seeds+=("$corpus"); fi
done
# Without seeds a fuzzer hardly gets past the first magic number, and libFuzzer stops at inputs of 4 KiB.
if ((${#seeds[@]} == 0)); then
  seeds=("$root/build/fuzz/seeds/${name#fuzz_}")
  mkdir -p "$root/build/fuzz/seeds" && "$root/build/fuzz/bin/make_corpus" "$root/build/fuzz/seeds" || exit
fi
mkdir -p "$root/build/fuzz/found/$name" || exit
exec "$1" -max_total_time="${MEMLITH_FUZZ_SECONDS:-60}" -timeout=30 -print_final_stats=1 -verbosity=0 \
  -artifact_prefix="$root/build/fuzz/$name-" "$root/build/fuzz/found/$name" "${seeds[@]}"
