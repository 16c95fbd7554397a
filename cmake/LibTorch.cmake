# SPDX-License-Identifier: Apache-2.0
# LibTorch as the imported target LibTorch::LibTorch, taken from the torch package of a Python installation.
# Torch's own CMake files are not used: with Debian's CMake they fail beside nvcc 13, and they demand a CUDA toolkit
# even when nothing of ours needs one.
#
# Used by hkt's own build and, installed, by hktConfig.cmake, which sets what hkt was built with:
# HKT_TORCH_VERSION  the only version that will do; if it is not set, any from HKT_TORCH_OLDEST on, and it is set to what is found
# HKT_PYTHON         the Python whose torch is used (default: .venv's if there is one, else python3)
# HKT_TORCH          the folder of a torch package, to be used instead of that Python's own
# HKT_CUDA           also link the CUDA half of torch

if(TARGET LibTorch::LibTorch)
  return()
endif()

set(HKT_TORCH_OLDEST 2.11)
if(NOT HKT_PYTHON)
  if(EXISTS ${CMAKE_CURRENT_LIST_DIR}/../.venv/bin/python)
    cmake_path(SET HKT_PYTHON NORMALIZE ${CMAKE_CURRENT_LIST_DIR}/../.venv/bin/python)
  else()
    set(HKT_PYTHON python3)
  endif()
endif()
set(HKT_PYTHON ${HKT_PYTHON} CACHE STRING "the Python whose torch is used")

block(PROPAGATE LIBTORCH_DIR LIBTORCH_RPATH HKT_TORCH_VERSION)
execute_process(
  COMMAND ${HKT_PYTHON} -c "
import glob, importlib.util, os, re, runpy, sys
torch = sys.argv[1] or importlib.util.find_spec('torch').submodule_search_locations[0]
version = runpy.run_path(os.path.join(torch, 'version.py'))['__version__']
version = re.match(r'[0-9]+([.][0-9]+)*', version)[0]  # without +cu130, and without a0 or .dev, which its libraries do not know
nvidia = sorted(glob.glob(os.path.join(os.path.dirname(torch), 'nvidia', '*', 'lib')))
print(';'.join([version, torch, *nvidia]), end='')" "${HKT_TORCH}"
  OUTPUT_VARIABLE found ERROR_QUIET RESULT_VARIABLE failed)
set(wanted "torch ${HKT_TORCH_OLDEST} or later")
if(HKT_TORCH_VERSION)
  set(wanted "torch ${HKT_TORCH_VERSION}")
endif()
if(failed)
  message(FATAL_ERROR "${HKT_PYTHON} has no torch, and hkt needs ${wanted}; pass -DHKT_PYTHON=<a Python that has it> (in hkt's own folder 'make build' does).")
endif()
list(POP_FRONT found version LIBTORCH_DIR)
set(LIBTORCH_RPATH ${LIBTORCH_DIR}/lib ${found})
if((HKT_TORCH_VERSION AND NOT version STREQUAL HKT_TORCH_VERSION) OR version VERSION_LESS HKT_TORCH_OLDEST)
  message(FATAL_ERROR "${HKT_PYTHON} has torch ${version}, and hkt needs ${wanted}; pass -DHKT_PYTHON=<a Python that has it>.")
endif()
set(HKT_TORCH_VERSION ${version})
message(STATUS "LibTorch ${version}: ${LIBTORCH_DIR}")

set(libraries torch_cpu c10)
if(HKT_CUDA)
  list(APPEND libraries torch_cuda c10_cuda)
endif()
list(TRANSFORM libraries REPLACE "(.+)" "${LIBTORCH_DIR}/lib/lib\\1.so")
if(HKT_CUDA)  # the CUDA runtime that torch itself uses: beside it, or, in NVIDIA's containers, the toolkit's
  find_file(LIBTORCH_CUDART NAMES libcudart.so.13 libcudart.so.12 PATHS ${LIBTORCH_RPATH} /usr/local/cuda/lib64 NO_DEFAULT_PATH REQUIRED)
  list(APPEND libraries ${LIBTORCH_CUDART})
endif()

add_library(LibTorch::LibTorch INTERFACE IMPORTED)
target_include_directories(LibTorch::LibTorch SYSTEM INTERFACE
  ${LIBTORCH_DIR}/include ${LIBTORCH_DIR}/include/torch/csrc/api/include)
# torch's thread pool is OpenMP inlined from its headers, so our files need the flag, and the runtime library that torch uses:
# its own, or, where it was not built for PyPI, the system's.
# (Fuzzing goes without: clang would need a second runtime library beside torch's.)
if(NOT HKT_FUZZ)
  target_compile_options(LibTorch::LibTorch INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-fopenmp>)
endif()
# The fmt inside torch, header only: Debian's would clash with it.
target_compile_definitions(LibTorch::LibTorch INTERFACE FMT_HEADER_ONLY)
set(openmp ${LIBTORCH_DIR}/lib/libgomp.so.1)
if(NOT EXISTS ${openmp})
  set(openmp gomp)
endif()
target_link_libraries(LibTorch::LibTorch INTERFACE ${libraries} ${openmp})
# DT_RPATH rather than DT_RUNPATH, so that what torch itself loads is found there too.
target_link_options(LibTorch::LibTorch INTERFACE LINKER:--disable-new-dtags)
endblock()
