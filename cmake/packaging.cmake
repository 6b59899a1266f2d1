# Where `cmake --install` puts the files, and how another project finds them: with find_package(memlith), which gives
# memlith::memlith (shared) and memlith::memlith_static, or with pkg-config. cmake/consumer is such a project.
include(CMakePackageConfigHelpers)

# Inside the build the libraries go by the same names as in the installed package.
foreach(library memlith memlith_static)
  if(TARGET ${library} AND NOT TARGET memlith::${library})
    add_library(memlith::${library} ALIAS ${library})
  endif()
endforeach()

if(NOT MEMLITH_INSTALL)
  return()
endif()

# The shared library needs nothing at its user's. The static one needs the development packages of what it is made
# with, so it has an export file of its own, which the package reads only where those are found.
set(MEMLITH_PACKAGE_DIR ${CMAKE_INSTALL_LIBDIR}/cmake/memlith)
install(TARGETS memlith EXPORT memlithTargets
  LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(EXPORT memlithTargets NAMESPACE memlith:: DESTINATION ${MEMLITH_PACKAGE_DIR})
if(TARGET memlith_cli)
  # The installed program finds the library beside it, whatever the prefix.
  file(RELATIVE_PATH MEMLITH_BIN_TO_LIB /prefix/${CMAKE_INSTALL_BINDIR} /prefix/${CMAKE_INSTALL_LIBDIR})
  set_target_properties(memlith_cli PROPERTIES INSTALL_RPATH "$ORIGIN/${MEMLITH_BIN_TO_LIB}")
endif()
if(TARGET memlith_static)
  install(TARGETS memlith_static EXPORT memlithStaticTargets
    ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
  install(EXPORT memlithStaticTargets NAMESPACE memlith:: DESTINATION ${MEMLITH_PACKAGE_DIR})
endif()

configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/memlithConfig.cmake.in
  ${PROJECT_BINARY_DIR}/package/memlithConfig.cmake
  INSTALL_DESTINATION ${MEMLITH_PACKAGE_DIR}
  NO_SET_AND_CHECK_MACRO)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/package/memlithConfigVersion.cmake
  COMPATIBILITY SameMinorVersion)
# Relative to where memlith.pc itself lies, so that the prefix may be chosen at `cmake --install --prefix` or later.
file(RELATIVE_PATH MEMLITH_PC_PREFIX /prefix/${CMAKE_INSTALL_LIBDIR}/pkgconfig /prefix)
# Programs find the library in any prefix; in the folders of a system they find it without help.
set(MEMLITH_PC_RPATH " -Wl,-rpath,\${libdir}")
if(CMAKE_SKIP_INSTALL_RPATH)
  set(MEMLITH_PC_RPATH "")
endif()
configure_file(${PROJECT_SOURCE_DIR}/cmake/memlith.pc.in ${PROJECT_BINARY_DIR}/package/memlith.pc @ONLY)
install(FILES
  ${PROJECT_BINARY_DIR}/package/memlithConfig.cmake
  ${PROJECT_BINARY_DIR}/package/memlithConfigVersion.cmake
  ${PROJECT_SOURCE_DIR}/cmake/memlithTracked.cmake
  DESTINATION ${MEMLITH_PACKAGE_DIR})
install(FILES ${PROJECT_BINARY_DIR}/package/memlith.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/memlith DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
  FILES_MATCHING PATTERN "*.h" PATTERN "*.hpp")
install(FILES ${PROJECT_SOURCE_DIR}/tools/memlith.supp ${PROJECT_SOURCE_DIR}/tools/memlith.gdb
  ${PROJECT_SOURCE_DIR}/tools/memlith_gdb.py DESTINATION ${CMAKE_INSTALL_DATADIR}/memlith)
install(FILES ${PROJECT_SOURCE_DIR}/LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(FILES ${PROJECT_SOURCE_DIR}/README.md ${PROJECT_SOURCE_DIR}/CHANGELOG.md
  DESTINATION ${CMAKE_INSTALL_DOCDIR} OPTIONAL)
install(DIRECTORY ${PROJECT_SOURCE_DIR}/docs/ DESTINATION ${CMAKE_INSTALL_DOCDIR}
  FILES_MATCHING PATTERN "*.md" PATTERN "*.png")
