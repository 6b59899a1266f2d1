# memlith_precompiled_headers(NAME HEADER...): compiles these headers once; memlith_use_precompiled(NAME TARGET...)
# includes them at the head of each file of the targets, which have C++ files only. The flags are those of the folder
# that calls the first, and all targets must have them. Name headers of the system only: a change of one of ours must
# compile what includes it, not everything; and a header in which a definition of some targets is of consequence does
# not do. Only with gcc: the presets of clang belong to `./dev check`, and clang wants all definitions to be the same.
#
# ccache serves a file with a precompiled header only if CCACHE_SLOPPINESS has pch_defines and time_macros, which the
# presets set (CMakePresets.json). The bytes of the compiled header are part of what ccache compares.
function(memlith_precompiled_headers name)
  if(NOT CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    return()
  endif()
  set(source ${CMAKE_CURRENT_BINARY_DIR}/${name}.cpp)
  file(CONFIGURE OUTPUT ${source} CONTENT "")
  add_library(${name} OBJECT EXCLUDE_FROM_ALL ${source})
  list(TRANSFORM ARGN REPLACE "^(.+)$" "<\\1>")
  target_precompile_headers(${name} PRIVATE ${ARGN})
  target_link_libraries(${name} PRIVATE memlith_warnings)
  # As in a program: gcc refuses headers that were compiled for a library.
  set_target_properties(${name} PROPERTIES POSITION_INDEPENDENT_CODE OFF)
  target_compile_options(${name} PRIVATE -fPIE -fpch-preprocess)
endfunction()

function(memlith_use_precompiled name)
  if(TARGET ${name})
    foreach(target ${ARGN})
      target_precompile_headers(${target} REUSE_FROM ${name})
      # gcc 12 warns of sums of std::string when the headers of the system come precompiled.
      target_compile_options(${target} PRIVATE -fpch-preprocess -Wno-array-bounds
        -Wno-stringop-overflow -Wno-stringop-overread -Wno-restrict)
    endforeach()
  endif()
endfunction()
