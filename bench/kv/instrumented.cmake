# The side memlith-instrumented of `bench heap`: peers/heap_map.cpp, compiled by memlith-c++. It is a library of its
# own, all of whose templates are hidden, because the program has the same containers compiled without records.
# Included where memlith-c++ is built.
set(heap_map ${PROJECT_SOURCE_DIR}/bench/kv/peers/heap_map.cpp)
set(heap_map_library ${CMAKE_LIBRARY_OUTPUT_DIRECTORY}/libmemlith-heap-map-instrumented.so)
add_custom_command(OUTPUT ${heap_map_library}
  COMMAND ${CMAKE_RUNTIME_OUTPUT_DIRECTORY}/memlith-c++ -std=c++20 -O2 -g1 -DNDEBUG -fPIC -shared -fvisibility=hidden
    -DMEMLITH_STORES_ARE_RECORDED -ffile-prefix-map=${PROJECT_SOURCE_DIR}=. -I${PROJECT_SOURCE_DIR}/bench
    -I${PROJECT_SOURCE_DIR}/tools -I${PROJECT_SOURCE_DIR}/include ${heap_map} -o ${heap_map_library} -Wl,-Bsymbolic
  DEPENDS ${heap_map} ${archives} memlith_track ${PROJECT_SOURCE_DIR}/bench/kv/peers/peer.hpp
    ${PROJECT_SOURCE_DIR}/bench/kit/try.hpp ${PROJECT_SOURCE_DIR}/include/memlith/heap.hpp
    ${PROJECT_SOURCE_DIR}/include/memlith/btree.hpp ${PROJECT_SOURCE_DIR}/include/memlith/flat_hash.hpp VERBATIM)
add_custom_target(memlith_heap_map_instrumented DEPENDS ${heap_map_library})
add_dependencies(memlith_kv_bench memlith_heap_map_instrumented)
target_compile_definitions(memlith_kv_bench PRIVATE MEMLITH_WITH_INSTRUMENTED)
target_link_libraries(memlith_kv_bench PRIVATE ${heap_map_library})
