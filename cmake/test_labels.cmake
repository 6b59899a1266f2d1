# Labels of tests: the suite or the product (docs/testing.md); `quick` if `./dev test` runs the test; `memory` if
# `./dev test all` runs it with AddressSanitizer. The targets quick_tests and memory_tests build what these labels
# need. The suite capi has no label memory: the command memlith, which it needs, takes as long to build as all
# programs of memory_tests.
add_custom_target(quick_tests)
add_custom_target(memory_tests)

# memlith_label_discovered(PROGRAM SUITE [quick] [memory] LISTS list...): labels the tests that gtest_discover_tests()
# has left in these lists, and makes the program a part of the targets.
function(memlith_label_discovered program)
  cmake_parse_arguments(TESTS "" "" "LISTS" ${ARGN})
  set(labels ${TESTS_UNPARSED_ARGUMENTS})
  foreach(label quick memory)
    if(label IN_LIST labels)
      add_dependencies(${label}_tests ${program})
    endif()
  endforeach()
  set(file ${CMAKE_CURRENT_BINARY_DIR}/${program}_labels.cmake)
  file(CONFIGURE OUTPUT ${file} @ONLY CONTENT "foreach(test IN LISTS @TESTS_LISTS@)
  set_tests_properties(\"\${test}\" PROPERTIES LABELS \"@labels@\")
endforeach()
")
  set_property(DIRECTORY APPEND PROPERTY TEST_INCLUDE_FILES ${file})
endfunction()
