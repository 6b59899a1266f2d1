#!/usr/bin/env bash
# check.sh find_package|pkg-config|pkg-config-static PREFIX WORK: builds the programs of this folder against what was
# installed in PREFIX, as a user would, and runs each; WORK is a folder for what they leave.
# check.sh FetchContent|add_subdirectory SOURCE WORK: the same in a project that contains the sources of memlith.
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

if [[ -x $prefix/bin/memlith ]]; then "$prefix/bin/memlith" --version; fi
case $1 in
  FetchContent | add_subdirectory)
    rm -rf "$work/embedded"
    cmake -S "$here/embedded" -B "$work/embedded" -G Ninja -DMEMLITH_SOURCE="$prefix" -DMEMLITH_WAY="$1" \
      -DCMAKE_BUILD_TYPE=Release --log-level=WARNING
    cmake --build "$work/embedded" -- --quiet
    for program in consumer_c consumer_cpp consumer_static; do run_consumer "$work/embedded/$program"; done
    cmake --install "$work/embedded" --prefix "$work/embedded/prefix"
    [[ ! -e $work/embedded/prefix ]] || { echo "memlith is installed with the project that contains it" && exit 1; }
    ;;
  find_package)
    rm -rf "$work/consumer"
    cmake -S "$here" -B "$work/consumer" -G Ninja -DCMAKE_PREFIX_PATH="$prefix" --log-level=WARNING
    cmake --build "$work/consumer" -- --quiet
    for program in consumer_c consumer_cpp consumer_static; do run_consumer "$work/consumer/$program"; done
    if [[ -x $work/consumer/consumer_tracked ]]; then
      said=$(MEMLITH_VERIFY_TRACKING=1 run_consumer "$work/consumer/consumer_tracked" 2>&1)
      if [[ $said == *"not recorded"* ]]; then echo "$said" && exit 1; fi
    fi
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
  pkg-config-static)
    library=$(dirname "$(find "$prefix" -name memlith.pc)")
    # The library inside of the program, in C++ and in C, whose linker adds nothing for C++.
    words=$(PKG_CONFIG_PATH=$library pkg-config --cflags --static --libs memlith)
    eval "flags=(${words//-lmemlith/-l:libmemlith.a})"
    g++ -std=c++20 "$here/main.cpp" "${flags[@]}" -o "$work/pkg_config_static"
    gcc -std=c11 "$here/main.c" "${flags[@]}" -o "$work/pkg_config_static_c"
    run_consumer "$work/pkg_config_static"
    run_consumer "$work/pkg_config_static_c"
    # A wholly static program needs a libfmt.a, which Debian does not have: its headers are enough to make one.
    if [[ ! -e $(gcc -print-file-name=libfmt.a) ]]; then
      g++ -O1 -c "$here/fmt.cpp" -o "$work/fmt.o"
      rm -f "$work/libfmt.a"
      ar rc "$work/libfmt.a" "$work/fmt.o"
    fi
    g++ -std=c++20 -static "$here/main.cpp" "-L$work" "${flags[@]}" -o "$work/pkg_config_whole"
    run_consumer "$work/pkg_config_whole"
    ;;
esac
