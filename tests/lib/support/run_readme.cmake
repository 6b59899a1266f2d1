# Follows README.md as a reader would: copies the program, compiles it with the command that the README prints, runs it
# twice and compares the output with the README's. Then two changes of the program: a root of another type must be
# refused with a message that has both and change nothing; a root that owns memory of the process must not compile, and
# the compiler must say why. Parameters: COMPILER, README, INCLUDE, LIBRARY, FOLDER.
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
file(WRITE ${FOLDER}/clone/words.cpp "${program}")
set(console "```console\n\\$ c\\+\\+ ([^\n]+)\n\\$ ([^\n]+)\n([^$]+)\\$ ([^\n]+)\n([^`]+)```")
if(NOT readme MATCHES "${console}")
  message(FATAL_ERROR "${README} does not show how to compile the program, and two runs of it")
endif()
set(arguments "${CMAKE_MATCH_1}")
set(run_1 "${CMAKE_MATCH_2}")
set(shown_1 "${CMAKE_MATCH_3}")
set(run_2 "${CMAKE_MATCH_4}")
set(shown_2 "${CMAKE_MATCH_5}")
execute_process(COMMAND sh -c "PWD=$(pwd); ${COMPILER} ${arguments}" WORKING_DIRECTORY ${FOLDER}/clone
  RESULT_VARIABLE result ERROR_VARIABLE error)
if(NOT result EQUAL 0)
  message(FATAL_ERROR "README's command does not compile its program: c++ ${arguments}: ${error}")
endif()
foreach(run 1 2)
  execute_process(COMMAND sh -c "${run_${run}}" WORKING_DIRECTORY ${FOLDER}/clone RESULT_VARIABLE result
    OUTPUT_VARIABLE output)
  if(NOT result EQUAL 0 OR NOT output STREQUAL shown_${run})
    message(FATAL_ERROR "${run_${run}} ended with ${result} and printed: ${output}The README shows: ${shown_${run}}")
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

compile(words "${program}")
expect(words 0 "\\*: 1 of 1 runs")
expect(words 0 "\\*: 2 of 2 runs")
change(wider "memlith::vector<int>" "memlith::vector<long>")
compile(wider "${wider}")
expect(wider 1 "its root is of another type: the heap has .*vector<int, .*the program expects .*vector<long, ")
expect(words 0 "\\*: 3 of 3 runs")

change(owning "memlith::vector<int>" "std::vector<int>")
file(WRITE ${FOLDER}/owning.cpp "${owning}")
execute_process(COMMAND ${command} -fsyntax-only owning.cpp WORKING_DIRECTORY ${FOLDER} RESULT_VARIABLE result
  ERROR_VARIABLE error)
if(result EQUAL 0 OR NOT error MATCHES "It is a container that owns memory of the process")
  message(FATAL_ERROR "a root that owns memory of the process: the compiler ended with ${result} and said: ${error}")
endif()
