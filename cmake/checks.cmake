# The rules about files that no compiler checks, as tests (those about includes are lint.floors, in tests/).
find_package(Python3 REQUIRED COMPONENTS Interpreter)
add_test(NAME lint.style COMMAND Python3::Interpreter ${PROJECT_SOURCE_DIR}/cmake/check_style.py ${PROJECT_SOURCE_DIR})
add_test(NAME lint.style_self_test COMMAND Python3::Interpreter ${PROJECT_SOURCE_DIR}/cmake/check_style.py --self-test)
set_tests_properties(lint.style lint.style_self_test PROPERTIES LABELS lint TIMEOUT ${MEMLITH_HANG_SECONDS})
