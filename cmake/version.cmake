# SPDX-License-Identifier: Apache-2.0
# Run at every build: writes version.h with the project's version and the commit it is built from, and touches the file only
# when they change.
#   cmake -DVERSION=… -DSOURCE=… -DHEADER=… -P version.cmake
execute_process(COMMAND git describe --always --dirty --abbrev=12 WORKING_DIRECTORY ${SOURCE}
  OUTPUT_VARIABLE commit OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
if(NOT commit)
  set(commit unknown)
endif()
file(CONFIGURE OUTPUT ${HEADER} CONTENT [[
#pragma once
#define HKT_VERSION "@VERSION@"
#define HKT_COMMIT "@commit@"
]] @ONLY)
