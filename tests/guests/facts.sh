#!/bin/bash
# Prints what memlith says and does in this place: lines of a name, a tab and a value. $1: the build's programs.
# Each must succeed, whatever the place lacks.
set -e
bin=$1

say() { printf '%s\t%s\n' "$1" "$2"; }

"$bin/memlith" kv put store notes hello world
said=$("$bin/memlith" info store)
for name in "log I/O" medium; do say "$name" "$(sed -n "s|^$name  *||p" <<<"$said")"; done
say scan "$(sed -n 's/^  scan: //p' <<<"$said")"
"$bin/memlith" verify --data store >/dev/null
say verify ok

# A region with pointers, changed in two runs.
"$bin/hello_c" hello.store >/dev/null
[[ $("$bin/hello_c" hello.store) == *"run 2"* ]]
say region ok

# A program as it is, with a file that it writes to and flushes.
rm -f run.data
"$bin/memlith" run --match 'run.data' --report -- \
  dd if=/dev/zero of=run.data bs=4096 count=4 conv=fsync status=none 2>run.says
grep -q commit run.says
say run ok
