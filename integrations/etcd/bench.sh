#!/usr/bin/env bash
# bench.sh FOLDER ROUNDS: etcd with memlith below it, with memlith below its database alone, and as it comes, in turns
# (./dev bench etcd). FOLDER is where the programs and the data directories go.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
mkdir -p "$1"
folder=$(cd "$1" && pwd)
export GOTOOLCHAIN=local TMPDIR=$folder
python3 -B "$here/build.py" --work "$folder/build" --tests
go test -C "$here" -c -o "$folder/database"
go test -C "$here" -modfile=stock.mod -c -o "$folder/stock"
for ((round = 0; round < $2; ++round)); do
  for side in memlith database stock; do
    program=$folder/$side
    if [[ $side == memlith ]]; then program=$folder/build/bin/tests; fi
    MEMLITH_ETCD_SIDE=$side "$program" -test.timeout 0 -test.run '^TestRate$' | grep '^{'
  done
done
