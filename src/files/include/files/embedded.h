// SPDX-License-Identifier: Apache-2.0
// Files embedded in the program: the assembler includes them (.incbin), and CMake passes their paths.
#pragma once

#include <string_view>

// Defines std::string_view name(), the bytes of the file. For namespace scope; the name must be unique in the program.
#define HKT_EMBED(name, file)                                                                        \
  __asm__(".pushsection .rodata\n.global hkt_" #name "_begin\n.global hkt_" #name "_end\nhkt_" #name \
          "_begin:\n"                                                                                \
          ".incbin \"" file "\"\nhkt_" #name "_end:\n.byte 0\n.popsection\n");                       \
  extern "C" const char hkt_##name##_begin[];                                                        \
  extern "C" const char hkt_##name##_end[];                                                          \
  std::string_view name() {                                                                          \
    return {hkt_##name##_begin, static_cast<std::size_t>(hkt_##name##_end - hkt_##name##_begin)};    \
  }
