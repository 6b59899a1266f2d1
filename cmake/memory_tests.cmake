# What CI builds and runs with AddressSanitizer: the target memory_tests, and the tests labelled memory. The suite capi
# is not among these suites: the command memlith, which capi needs, takes as long to build as all of them.
#
# memlith_memory_tests(NAME LABEL LIST...): makes the program NAME a part of that target, and labels the tests memory
# that gtest_discover_tests() has left in these lists with LABEL. A test has both labels then.
add_custom_target(memory_tests)
function(memlith_memory_tests name label)
  add_dependencies(memory_tests ${name})
  set(file ${CMAKE_CURRENT_BINARY_DIR}/${name}_labels.cmake)
  file(CONFIGURE OUTPUT ${file} @ONLY CONTENT "foreach(test IN LISTS @ARGN@)
  set_tests_properties(\"\${test}\" PROPERTIES LABELS \"@label@;memory\")
endforeach()
")
  set_property(DIRECTORY APPEND PROPERTY TEST_INCLUDE_FILES ${file})
endfunction()
