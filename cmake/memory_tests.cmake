# What CI builds and runs with AddressSanitizer: the target memory_tests, and the tests labelled memory. The command
# memlith, which the suite capi needs, would take as long again to build.
#
# memlith_memory_tests(NAME LABEL LIST...): the program NAME belongs to it, and its tests, which gtest_discover_tests()
# has left in these lists with LABEL, are labelled memory, too.
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
