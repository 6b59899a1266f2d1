# memlith::tracked: a program or library that links it is compiled so that its stores to regions are recorded
# (docs/compiler-pass.md), by GCC 12 or newer, or clang 19. Included by memlithConfig.cmake, and by
# integrations/compiler, which needs the flags.

# GCC calls a function before each store, and none before loads.
set(MEMLITH_TRACK_GCC_FLAGS -fsanitize=kernel-address --param=asan-instrument-reads=0
  --param=asan-instrumentation-with-call-threshold=0 --param=asan-stack=0 --param=asan-globals=0
  -U__SANITIZE_ADDRESS__ -include memlith/track_gcc.hpp)

# Sets memlith_tracked_FOUND. The runtime lies in the folder `lib`.
function(memlith_add_tracked lib)
  get_property(languages GLOBAL PROPERTY ENABLED_LANGUAGES)
  set(language C)
  if(CXX IN_LIST languages)
    set(language CXX)
  endif()
  set(compiler ${CMAKE_${language}_COMPILER_ID})
  set(version ${CMAKE_${language}_COMPILER_VERSION})
  set(link)
  if(compiler STREQUAL "GNU" AND version VERSION_GREATER_EQUAL 12 AND EXISTS ${lib}/libmemlith_track_gcc.a)
    set(archive ${lib}/libmemlith_track_gcc.a)
    set(flags ${MEMLITH_TRACK_GCC_FLAGS} -B${lib}/memlith-gcc)
    list(TRANSFORM flags REPLACE "^-include$" "SHELL:-include memlith/track_gcc.hpp")
    list(REMOVE_ITEM flags memlith/track_gcc.hpp)
    set(link -fsanitize=kernel-address -B${lib}/memlith-gcc)  # for -flto
  elseif(compiler STREQUAL "Clang" AND version MATCHES "^19\\." AND EXISTS ${lib}/libmemlith_track.a)
    set(archive ${lib}/libmemlith_track.a)
    set(flags -fpass-plugin=${lib}/memlith_track.so
      "$<$<COMPILE_LANGUAGE:CXX>:SHELL:-include memlith/track_libstdcxx.hpp>")
  else()
    set(memlith_tracked_FOUND FALSE PARENT_SCOPE)
    return()
  endif()
  if(NOT TARGET memlith::tracked)
    add_library(memlith::tracked INTERFACE IMPORTED)
  endif()
  set_property(TARGET memlith::tracked PROPERTY INTERFACE_COMPILE_OPTIONS ${flags})
  set_property(TARGET memlith::tracked PROPERTY INTERFACE_LINK_OPTIONS ${link})
  set_property(TARGET memlith::tracked PROPERTY INTERFACE_LINK_LIBRARIES ${archive} memlith::memlith)
  set(memlith_tracked_FOUND TRUE PARENT_SCOPE)
endfunction()
