# SPDX-License-Identifier: Apache-2.0
# The rooms of src/: each folder is a static library hkt_ROOM with an include root of its own, src/ROOM/include, in which
# lie the headers that its neighbours may use; what lies beside its sources is its own. docs/design.md draws the arrows.
#
#   hkt_add_room(ROOM [SHOWS room...] [KNOWS room...] [LIBRARIES target...] SOURCES file... [WITH_TORCH file...])
#     SHOWS       neighbours whose headers its own headers include, so that whoever knows it sees them too
#     KNOWS       neighbours that only its sources use
#     LIBRARIES   other people's libraries
#     WITH_TORCH  sources for which the precompiled headers of torch pay; loading them takes seconds
#
# With the tests every room is linked by itself against its neighbours and nothing else (hkt_ROOM_links), so that a wrong
# arrow fails; build/arrows.txt lists the arrows.
set_property(GLOBAL PROPERTY HKT_ARROWS "")

function(hkt_add_room room)
  cmake_parse_arguments(ARG "" "" "SHOWS;KNOWS;LIBRARIES;SOURCES;WITH_TORCH" ${ARGN})
  add_library(hkt_${room} STATIC ${ARG_SOURCES} ${ARG_WITH_TORCH})
  target_include_directories(hkt_${room} PUBLIC ${CMAKE_CURRENT_SOURCE_DIR}/include ${PROJECT_SOURCE_DIR}/include)
  hkt_room_targets(shows ${ARG_SHOWS})
  hkt_room_targets(knows ${ARG_KNOWS})
  target_link_libraries(hkt_${room} PUBLIC ${shows} ${ARG_LIBRARIES} PRIVATE ${knows})
  if(ARG_WITH_TORCH AND NOT room STREQUAL ops)
    target_precompile_headers(hkt_${room} REUSE_FROM hkt_ops)
    set_source_files_properties(${ARG_SOURCES} PROPERTIES SKIP_PRECOMPILE_HEADERS ON)
  endif()
  if(HKT_TESTS AND NOT HKT_SANITIZE)
    add_library(hkt_${room}_links SHARED $<TARGET_OBJECTS:hkt_${room}>)
    target_link_libraries(hkt_${room}_links PRIVATE ${shows} ${knows} ${ARG_LIBRARIES})
    target_link_options(hkt_${room}_links PRIVATE LINKER:--no-undefined)
    set_target_properties(hkt_${room}_links PROPERTIES LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/links)
  endif()
  list(SORT ARG_SHOWS)
  list(SORT ARG_KNOWS)
  foreach(neighbour IN LISTS ARG_SHOWS ARG_KNOWS)
    set_property(GLOBAL APPEND PROPERTY HKT_ARROWS "${neighbour} <- ${room}")
  endforeach()
endfunction()

# The operators register themselves with torch, once for each process: other rooms link the library that they are in.
function(hkt_room_targets result)
  list(TRANSFORM ARGN PREPEND hkt_)
  list(TRANSFORM ARGN REPLACE "^hkt_ops$" hkt_operators)
  set(${result} ${ARGN} PARENT_SCOPE)
endfunction()

function(hkt_write_arrows)
  get_property(arrows GLOBAL PROPERTY HKT_ARROWS)
  list(SORT arrows)
  list(JOIN arrows "\n" text)
  file(WRITE ${CMAKE_BINARY_DIR}/arrows.txt "${text}\n")
endfunction()
