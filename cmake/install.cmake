# SPDX-License-Identifier: Apache-2.0
# What `cmake --install` puts where, so that another project finds it with find_package(hkt) and links hkt::hkt.
include(CMakePackageConfigHelpers)
set(hkt_package ${CMAKE_INSTALL_LIBDIR}/cmake/hkt)

target_compile_features(hkt_library INTERFACE cxx_std_20)
install(TARGETS hkt_operators hkt_library EXPORT hktTargets)
install(TARGETS hkt_loader DESTINATION ${CMAKE_INSTALL_LIBDIR})
# Found from where it lies, so that the folder may be moved; torch from where it was.
file(RELATIVE_PATH hkt_libraries ${CMAKE_INSTALL_FULL_BINDIR} ${CMAKE_INSTALL_FULL_LIBDIR})
set_target_properties(hkt PROPERTIES INSTALL_RPATH "$ORIGIN/${hkt_libraries};${LIBTORCH_RPATH}")
install(TARGETS hkt)
install(DIRECTORY include/hkt DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(FILES LICENSE THIRD_PARTY_NOTICES.md DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(EXPORT hktTargets NAMESPACE hkt:: DESTINATION ${hkt_package})

configure_package_config_file(cmake/hktConfig.cmake.in hktConfig.cmake INSTALL_DESTINATION ${hkt_package})
write_basic_package_version_file(hktConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/hktConfig.cmake ${PROJECT_BINARY_DIR}/hktConfigVersion.cmake cmake/LibTorch.cmake
  DESTINATION ${hkt_package})
