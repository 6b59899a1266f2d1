# On every target of ours. C knows fewer of them. Where memlith is developed (CMakePresets.json), warnings are errors;
# another compiler, or a distribution's flags, may have new ones.
option(MEMLITH_WERROR "Warnings are errors" OFF)
if(MEMLITH_WERROR)
  set(werror -Werror)
endif()
add_library(memlith_warnings INTERFACE)
target_compile_options(memlith_warnings INTERFACE
  -Wall -Wextra -Wpedantic -Wshadow -Wcast-align -Wconversion -Wno-sign-conversion ${werror}
  $<$<CXX_COMPILER_ID:Clang>:-Wthread-safety>
  $<$<COMPILE_LANGUAGE:CXX>:-Wnon-virtual-dtor> $<$<COMPILE_LANGUAGE:CXX>:-Woverloaded-virtual>)
