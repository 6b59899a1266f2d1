# The sides memlith-instrumented and memlith-gcc of `bench heap` and `bench entries`: peers/heap_map.cpp, compiled by
# memlith-c++ and by memlith-g++. Each is a library of its own, all of whose templates are hidden, because the program
# has the same containers compiled without records. Included where these compilers are built.
#
# memlith_recorded_side(NAME COMPILER MACRO): the side memlith-NAME.
function(memlith_recorded_side name compiler macro)
  set(heap_map ${PROJECT_SOURCE_DIR}/bench/kv/peers/heap_map.cpp)
  set(library ${CMAKE_LIBRARY_OUTPUT_DIRECTORY}/libmemlith-heap-map-${name}.so)
  add_custom_command(OUTPUT ${library}
    COMMAND ${CMAKE_RUNTIME_OUTPUT_DIRECTORY}/${compiler} -std=c++20 -O2 -g1 -DNDEBUG -fPIC -shared
      -fvisibility=hidden -DMEMLITH_RECORDED_SIDE=heap_map_${name}_side "-DMEMLITH_RECORDED_NAME=\"${name}\""
      -ffile-prefix-map=${PROJECT_SOURCE_DIR}=. -I${PROJECT_SOURCE_DIR}/bench -I${PROJECT_SOURCE_DIR}/tools
      -I${PROJECT_SOURCE_DIR}/include ${heap_map} -o ${library} -Wl,-Bsymbolic
    DEPENDS ${heap_map} ${archives} ${programs} ${PROJECT_SOURCE_DIR}/bench/kv/peers/peer.hpp
      ${PROJECT_SOURCE_DIR}/bench/kit/try.hpp ${PROJECT_SOURCE_DIR}/include/memlith/heap.hpp
      ${PROJECT_SOURCE_DIR}/include/memlith/btree.hpp ${PROJECT_SOURCE_DIR}/include/memlith/flat_hash.hpp VERBATIM)
  add_custom_target(memlith_heap_map_${name} DEPENDS ${library})
  add_dependencies(memlith_kv_bench memlith_heap_map_${name})
  target_compile_definitions(memlith_kv_bench PRIVATE ${macro})
  target_link_libraries(memlith_kv_bench PRIVATE ${library})
endfunction()

if(clang IN_LIST compilers)
  memlith_recorded_side(instrumented memlith-c++ MEMLITH_WITH_INSTRUMENTED)
endif()
if(gcc IN_LIST compilers)
  memlith_recorded_side(gcc memlith-g++ MEMLITH_WITH_GCC)
endif()
