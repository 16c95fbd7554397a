# SPDX-License-Identifier: Apache-2.0
# What `make package` writes: a .deb with the program and the libraries of torch that it loads, which lie in a folder of its
# own, so that a machine needs neither Python nor torch. For CPUs: with torch's CUDA libraries it would take some gigabytes.
#
# The same by hand: cmake --install build --component program --prefix P
set(HKT_PACKAGE_LIBRARIES lib/hkt)

install(CODE "
  set(hkt_cuda ${HKT_CUDA})
  set(hkt_program \"$<TARGET_FILE:hkt>\")
  set(hkt_torch \"${LIBTORCH_DIR}\")
  set(hkt_torch_folders \"${LIBTORCH_RPATH}\")
  set(hkt_libraries ${HKT_PACKAGE_LIBRARIES})" COMPONENT program EXCLUDE_FROM_ALL)
install(CODE [[
  if(hkt_cuda)
    message(FATAL_ERROR "the package is for CPUs, and this build has CUDA kernels; use make HKT_CUDA=0 package.")
  endif()
  # What torch loads at run time beside these is for CUDA alone. The system's libraries are the package's dependencies.
  file(GET_RUNTIME_DEPENDENCIES EXECUTABLES ${hkt_program} DIRECTORIES ${hkt_torch_folders} POST_EXCLUDE_REGEXES "^/lib" "^/usr/lib"
    RESOLVED_DEPENDENCIES_VAR found)
  file(INSTALL ${hkt_program} DESTINATION ${CMAKE_INSTALL_PREFIX}/bin TYPE EXECUTABLE)
  foreach(library IN LISTS found)
    file(INSTALL ${library} DESTINATION ${CMAKE_INSTALL_PREFIX}/${hkt_libraries} TYPE SHARED_LIBRARY FOLLOW_SYMLINK_CHAIN)
  endforeach()
  # Paths relative to the files, and no folder of this machine. Torch's own libraries look beside themselves already.
  set(root $ENV{DESTDIR}${CMAKE_INSTALL_PREFIX})
  file(RPATH_SET FILE ${root}/bin/hkt NEW_RPATH "$ORIGIN/../${hkt_libraries}")
  file(GLOB own ${root}/${hkt_libraries}/libhkt_operators.so.*.*.*)
  file(RPATH_SET FILE ${own} NEW_RPATH "$ORIGIN")
  file(GLOB licences ${hkt_torch}-*.dist-info/licenses/*)
  file(INSTALL ${licences} DESTINATION ${CMAKE_INSTALL_PREFIX}/share/doc/hkt/torch)
]] COMPONENT program EXCLUDE_FROM_ALL)
install(FILES LICENSE THIRD_PARTY_NOTICES.md DESTINATION share/doc/hkt COMPONENT program EXCLUDE_FROM_ALL)

set(CPACK_GENERATOR DEB)
set(CPACK_INSTALL_CMAKE_PROJECTS "${PROJECT_BINARY_DIR};hkt;program;/")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_PACKAGE_CONTACT "The hkt authors")
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS ${LIBTORCH_RPATH} ${PROJECT_BINARY_DIR})
set(CPACK_DEBIAN_PACKAGE_RECOMMENDS ca-certificates)  # hkt data fetch
set(CPACK_DEBIAN_COMPRESSION_TYPE zstd)  # xz would take minutes
set(CPACK_STRIP_FILES OFF)
include(CPack)
