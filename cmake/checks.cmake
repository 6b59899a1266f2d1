# The rules that no compiler checks, as tests (those about includes are lint.floors, in tests/).
find_package(Python3 REQUIRED COMPONENTS Interpreter)
foreach(rule style orders promises documents calls)
  set(script ${PROJECT_SOURCE_DIR}/cmake/check_${rule}.py)
  add_test(NAME lint.${rule} COMMAND Python3::Interpreter ${script} ${PROJECT_SOURCE_DIR})
  add_test(NAME lint.${rule}_self_test COMMAND Python3::Interpreter ${script} --self-test)
  set_tests_properties(lint.${rule} lint.${rule}_self_test PROPERTIES LABELS "lint;quick"
    TIMEOUT ${MEMLITH_HANG_SECONDS})
endforeach()
set(script ${PROJECT_SOURCE_DIR}/tests/lib/mutants/patches.py)
add_test(NAME lint.mutants COMMAND Python3::Interpreter -B ${script} check)
add_test(NAME lint.mutants_self_test COMMAND Python3::Interpreter -B ${script} --self-test)
set_tests_properties(lint.mutants lint.mutants_self_test PROPERTIES LABELS "lint;quick" TIMEOUT ${MEMLITH_HANG_SECONDS})
