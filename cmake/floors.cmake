# The floors of src/, as cmake/floors.txt lists them.
#
# memlith_read_floors() reads the list: MEMLITH_FLOORS is the floors of src/, lowest first, and MEMLITH_BELOW_<floor>
# what each stands on. memlith_floor(NAME LIBRARIES ...) makes one of them from all its files: an object library that
# the products are made of, and a static library memlith_NAME that links only what the list has below it, so that an
# upward call fails to link.
function(memlith_read_floors)
  set(list ${PROJECT_SOURCE_DIR}/cmake/floors.txt)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${list})
  file(STRINGS ${list} lines REGEX "^[a-z]")
  foreach(line ${lines})
    string(REGEX REPLACE "[ \t]+" ";" words "${line}")
    list(POP_FRONT words part folder)
    if(folder MATCHES "^src/")
      list(REMOVE_ITEM words public private)
      list(APPEND floors ${part})
      set(MEMLITH_BELOW_${part} ${words} PARENT_SCOPE)
    endif()
  endforeach()
  set(MEMLITH_FLOORS ${floors} PARENT_SCOPE)
endfunction()

function(memlith_floor name)
  cmake_parse_arguments(FLOOR "" "" "LIBRARIES" ${ARGN})
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/${name}/*.cpp)
  add_library(memlith_${name}_objects OBJECT ${sources})
  memlith_unity(memlith_${name}_objects)
  target_include_directories(memlith_${name}_objects PUBLIC ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/include)
  target_link_libraries(memlith_${name}_objects PUBLIC ${FLOOR_LIBRARIES} PRIVATE memlith_warnings)
  target_compile_options(memlith_${name}_objects PRIVATE -fvisibility=hidden -fvisibility-inlines-hidden)
  add_library(memlith_${name} STATIC $<TARGET_OBJECTS:memlith_${name}_objects>)
  target_include_directories(memlith_${name} PUBLIC ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/include)
  target_link_libraries(memlith_${name} PUBLIC ${FLOOR_LIBRARIES})
  foreach(floor ${MEMLITH_BELOW_${name}})
    target_link_libraries(memlith_${name} PUBLIC memlith_${floor})
    target_link_libraries(memlith_${name}_objects PUBLIC $<TARGET_PROPERTY:memlith_${floor},INTERFACE_LINK_LIBRARIES>)
  endforeach()
endfunction()
