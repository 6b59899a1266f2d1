#!/usr/bin/env bash
# run_all.sh BUILD WORK KILLS CUTS ROUNDS FAULTS: the tests of PostgreSQL on memlith that run a server, so many times.
# BUILD is a folder of a build, WORK where the clusters go. Ends with the first test that fails.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
plugin=$1/lib/memlith_postgres.so memlith=$1/bin/memlith

run() { python3 -B "$here/$1_test.py" --plugin "$plugin" --work "$work" "${@:2}"; }

work=$2
run kill --memlith "$memlith" --kills "$3"
run power --bin "$1/bin" --cuts "$4"
run uses --memlith "$memlith" --rounds "$5"
run fault --faults "$6"
