# Warnings are errors, on every target of ours. C knows fewer of them.
add_library(memlith_warnings INTERFACE)
target_compile_options(memlith_warnings INTERFACE
  -Wall -Wextra -Wpedantic -Wshadow -Wcast-align -Wconversion -Wno-sign-conversion -Werror
  $<$<CXX_COMPILER_ID:Clang>:-Wthread-safety>
  $<$<COMPILE_LANGUAGE:CXX>:-Wnon-virtual-dtor> $<$<COMPILE_LANGUAGE:CXX>:-Woverloaded-virtual>)
