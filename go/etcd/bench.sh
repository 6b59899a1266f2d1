#!/usr/bin/env bash
# bench.sh FOLDER ROUNDS: etcd with memlith below it beside etcd with bbolt, in turns (./dev bench etcd). FOLDER is
# where the programs and the databases go.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
mkdir -p "$1"
folder=$(cd "$1" && pwd)
export GOTOOLCHAIN=local TMPDIR=$folder
go test -C "$here" -c -o "$folder/memlith"
go test -C "$here" -modfile=stock.mod -c -o "$folder/bbolt"
for ((round = 0; round < $2; ++round)); do
  for side in memlith bbolt; do
    MEMLITH_ETCD_SIDE=$side "$folder/$side" -test.run '^TestRate$' | grep '^{'
  done
done
