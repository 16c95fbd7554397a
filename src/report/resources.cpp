// The assembler reads the files; CMake says where they lie.
#include "resources.h"

#define HKT_RESOURCE(name, file)                                                                     \
  __asm__(".pushsection .rodata\n.global hkt_" #name "_begin\n.global hkt_" #name "_end\nhkt_" #name \
          "_begin:\n"                                                                                \
          ".incbin \"" file "\"\nhkt_" #name "_end:\n.byte 0\n.popsection\n");                       \
  extern "C" const char hkt_##name##_begin[];                                                        \
  extern "C" const char hkt_##name##_end[];                                                          \
  namespace hkt::report::resources {                                                                 \
  std::string_view name() {                                                                          \
    return {hkt_##name##_begin, static_cast<std::size_t>(hkt_##name##_end - hkt_##name##_begin)};    \
  }                                                                                                  \
  }

HKT_RESOURCE(page_html, HKT_PAGE_HTML)
HKT_RESOURCE(page_js, HKT_PAGE_JS)
HKT_RESOURCE(explain_js, HKT_EXPLAIN_JS)
HKT_RESOURCE(plotly_js, HKT_PLOTLY_JS)
