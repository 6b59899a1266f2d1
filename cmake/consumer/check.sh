#!/usr/bin/env bash
# check.sh find_package|pkg-config PREFIX WORK: builds the programs of this folder against what was installed in PREFIX,
# as a user would, and runs each; WORK is a folder for what they leave.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
prefix=$2
work=$3

# Each consumer gets an empty folder to keep its store in.
run_consumer() {
  rm -rf "$work/store"
  mkdir -p "$work/store"
  "$1" "$work/store"
}

"$prefix/bin/memlith" --version
case $1 in
  find_package)
    rm -rf "$work/consumer"
    cmake -S "$here" -B "$work/consumer" -G Ninja -DCMAKE_PREFIX_PATH="$prefix" --log-level=WARNING
    cmake --build "$work/consumer" -- --quiet
    for program in consumer_c consumer_cpp consumer_static; do run_consumer "$work/consumer/$program"; done
    ;;
  pkg-config)
    library=$(dirname "$(find "$prefix" -name memlith.pc)")
    # pkg-config quotes for the shell, so the shell has to read it: the prefix may hold spaces.
    words=$(PKG_CONFIG_PATH=$library pkg-config --cflags --libs memlith)
    eval "flags=($words)"
    gcc -std=c11 "$here/main.c" "${flags[@]}" -o "$work/pkg_config_c"
    g++ -std=c++20 "$here/main.cpp" "${flags[@]}" -o "$work/pkg_config_cpp"
    run_consumer "$work/pkg_config_c"
    run_consumer "$work/pkg_config_cpp"
    ;;
esac
