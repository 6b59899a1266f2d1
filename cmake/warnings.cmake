# Warnings are errors, on every target of ours.
add_library(memlith_warnings INTERFACE)
target_compile_options(memlith_warnings INTERFACE
  -Wall -Wextra -Wpedantic -Wshadow -Wnon-virtual-dtor -Wcast-align -Woverloaded-virtual -Wconversion
  -Wno-sign-conversion -Werror)
# The C language knows fewer of them.
add_library(memlith_c_warnings INTERFACE)
target_compile_options(memlith_c_warnings INTERFACE -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Werror)
