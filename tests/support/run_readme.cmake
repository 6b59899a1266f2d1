# Follows README.md as a reader would: copies the program, compiles it with the command that the README prints, runs it
# twice and compares the output with the README's. Then two changes of the program: a root of another size must be refused
# with a message and change nothing; a root that owns memory of the process must not compile, and the compiler must say
# why. Parameters: COMPILER, README, INCLUDE, LIBRARY, FOLDER.
file(REMOVE_RECURSE ${FOLDER})
file(MAKE_DIRECTORY ${FOLDER})
file(READ ${README} readme)
string(FIND "${readme}" "```cpp\n" begin)
if(begin EQUAL -1)
  message(FATAL_ERROR "${README} has no program")
endif()
math(EXPR begin "${begin} + 7")
string(SUBSTRING "${readme}" ${begin} -1 program)
string(FIND "${program}" "```" end)
string(SUBSTRING "${program}" 0 ${end} program)

# The README's commands are for the folder of a clone; this is one with the compiler and the library of this build.
get_filename_component(library_folder ${LIBRARY} DIRECTORY)
file(MAKE_DIRECTORY ${FOLDER}/clone/build/release)
file(CREATE_LINK ${INCLUDE} ${FOLDER}/clone/include SYMBOLIC)
file(CREATE_LINK ${library_folder} ${FOLDER}/clone/build/release/lib SYMBOLIC)
file(WRITE ${FOLDER}/clone/notebook.cpp "${program}")
set(console "```console\n\\$ c\\+\\+ ([^\n]+)\n\\$ ./notebook\n([^$]+)\\$ ./notebook\n([^`]+)```")
if(NOT readme MATCHES "${console}")
  message(FATAL_ERROR "${README} does not show how to compile the program, and two runs of it")
endif()
set(arguments "${CMAKE_MATCH_1}")
set(first_run "${CMAKE_MATCH_2}")
set(second_run "${CMAKE_MATCH_3}")
execute_process(COMMAND sh -c "PWD=$(pwd); ${COMPILER} ${arguments}" WORKING_DIRECTORY ${FOLDER}/clone
  RESULT_VARIABLE result ERROR_VARIABLE error)
if(NOT result EQUAL 0)
  message(FATAL_ERROR "README's command does not compile its program: c++ ${arguments}: ${error}")
endif()
foreach(expected IN ITEMS "${first_run}" "${second_run}")
  execute_process(COMMAND ./notebook WORKING_DIRECTORY ${FOLDER}/clone RESULT_VARIABLE result OUTPUT_VARIABLE output)
  if(NOT result EQUAL 0 OR NOT output STREQUAL expected)
    message(FATAL_ERROR "the README's program ended with ${result} and printed: ${output}The README shows: ${expected}")
  endif()
endforeach()

set(command ${COMPILER} -std=c++20 -I${INCLUDE})
set(link ${LIBRARY} -Wl,-rpath,${library_folder})

# compile(NAME TEXT): fails the test if it does not compile.
function(compile name text)
  file(WRITE ${FOLDER}/${name}.cpp "${text}")
  execute_process(COMMAND ${command} -Wall -Wextra -Werror ${name}.cpp -o ${name} ${link} WORKING_DIRECTORY ${FOLDER}
    RESULT_VARIABLE result ERROR_VARIABLE error)
  if(NOT result EQUAL 0)
    message(FATAL_ERROR "${name}.cpp does not compile: ${error}")
  endif()
endfunction()

# expect(NAME CODE PATTERN): runs it.
function(expect name code pattern)
  execute_process(COMMAND ./${name} WORKING_DIRECTORY ${FOLDER} RESULT_VARIABLE result OUTPUT_VARIABLE output
    ERROR_VARIABLE output)
  if(NOT result EQUAL ${code} OR NOT output MATCHES "${pattern}")
    message(FATAL_ERROR "${name} ended with ${result} (expected ${code}) and printed: ${output}(expected ${pattern})")
  endif()
endfunction()

# change(OUT FROM TO): the program with FROM replaced, which must be there.
function(change out from to)
  string(REPLACE "${from}" "${to}" changed "${program}")
  if(changed STREQUAL program)
    message(FATAL_ERROR "${README}'s program has no \"${from}\"")
  endif()
  set(${out} "${changed}" PARENT_SCOPE)
endfunction()

compile(notebook "${program}")
expect(notebook 0 "run 1: \"written by run 1\"")
expect(notebook 0 "run 2: \"written by run 2\"")
change(larger "char last[64];" "char last[128];")
compile(larger "${larger}")
expect(larger 1 "root object is of another type: found version . with 68 bytes, .*expected version . with 132 bytes")
expect(notebook 0 "run 3: \"written by run 3\"")

change(owning "int runs;" "int runs; std::string s; std::vector<int> v;")
file(WRITE ${FOLDER}/owning.cpp "#include <string>\n#include <vector>\n${owning}")
execute_process(COMMAND ${command} -fsyntax-only owning.cpp WORKING_DIRECTORY ${FOLDER} RESULT_VARIABLE result
  ERROR_VARIABLE error)
if(result EQUAL 0 OR NOT error MATCHES "cannot be the root of a region. The type owns memory of the process")
  message(FATAL_ERROR "a root that owns memory of the process: the compiler ended with ${result} and said: ${error}")
endif()
