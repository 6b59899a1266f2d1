# memlith_with_mutants(TARGET ROOT FOLDER...): the target is compiled from a copy of the folders ROOT/FOLDER of the
# repository, with the patches of tests/lib/mutants (docs/testing.md, "Mutants"). Includes find the copy, also those of
# targets that link this one. Call it before other folders of includes are given to the target. The target's property
# MEMLITH_COPY says where the copy is. A patch that does not fit fails the build. A file of the copy is written only if
# it differs, so that nothing else is compiled again.
function(memlith_with_mutants target root)
  find_package(Python3 REQUIRED COMPONENTS Interpreter)
  set(copy ${PROJECT_BINARY_DIR}/mutants/${target})
  set(mutants ${PROJECT_SOURCE_DIR}/tests/lib/mutants)
  set(paths)
  set(changes)
  foreach(folder ${ARGN})
    file(GLOB_RECURSE found CONFIGURE_DEPENDS RELATIVE ${PROJECT_SOURCE_DIR} ${PROJECT_SOURCE_DIR}/${root}/${folder}/*)
    list(FILTER found INCLUDE REGEX "\\.(cpp|hpp|inc)$")
    list(APPEND paths ${found})
    file(GLOB_RECURSE found CONFIGURE_DEPENDS RELATIVE ${mutants} ${mutants}/${root}/${folder}/*)
    list(APPEND changes ${found})
  endforeach()
  foreach(change ${changes})
    string(REGEX REPLACE "\\.patch$" "" path ${change})
    if(NOT path IN_LIST paths)
      message(FATAL_ERROR "tests/lib/mutants/${change}: there is no ${path}; move the file to where that text is now, "
        "or remove it")
    endif()
  endforeach()
  list(TRANSFORM paths PREPEND ${copy}/ OUTPUT_VARIABLE copies)
  list(TRANSFORM paths PREPEND ${PROJECT_SOURCE_DIR}/ OUTPUT_VARIABLE originals)
  list(TRANSFORM changes PREPEND ${mutants}/)
  list(JOIN paths "\n" lines)
  file(CONFIGURE OUTPUT ${copy}.txt CONTENT "${lines}\n" @ONLY)
  # A step of its own, because ninja names all that a step makes when the step fails.
  add_custom_command(OUTPUT ${copy}.fit
    COMMAND ${Python3_EXECUTABLE} -B ${mutants}/patches.py fit ${copy}.txt ${copy}.fit
    DEPENDS ${copy}.txt ${originals} ${changes} ${mutants}/patches.py
    COMMENT "Looking whether the mutants of ${target} fit" VERBATIM)
  add_custom_command(OUTPUT ${copies}
    COMMAND ${Python3_EXECUTABLE} -B ${mutants}/patches.py apply ${copy} ${copy}.txt
    DEPENDS ${copy}.fit
    COMMENT "Putting mutants into the text of ${target}" VERBATIM)
  add_custom_target(${target}_text DEPENDS ${copies})
  add_dependencies(${target} ${target}_text)
  get_target_property(sources ${target} SOURCES)
  list(TRANSFORM sources REPLACE "^${PROJECT_SOURCE_DIR}/${root}/" "${copy}/${root}/")
  set_property(TARGET ${target} PROPERTY SOURCES ${sources})
  target_include_directories(${target} BEFORE PUBLIC ${copy}/${root} ${PROJECT_SOURCE_DIR}/tests/lib)
  set_target_properties(${target} PROPERTIES MEMLITH_COPY ${copy})
endfunction()
