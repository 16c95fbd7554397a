// SPDX-License-Identifier: Apache-2.0
// Standard streams.
#include "print.h"

#include <fcntl.h>
#include <unistd.h>

#include <cstdio>
#include <initializer_list>

#include "files/quote.h"

namespace hkt::cli {

void open_standard_streams() {
  for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (::fcntl(stream, F_GETFD) >= 0) continue;
    // open() returns the lowest free number, which is this stream's. Closed output is not an error.
    [[maybe_unused]] const int opened = ::open("/dev/null", stream == STDIN_FILENO ? O_RDONLY : O_WRONLY);
  }
}

void print_error(const std::string& text) {
  std::fwrite(text.data(), 1, text.size(), stderr);
  std::fflush(stderr);
}

void warn(const std::string& sentence) { print_error("hkt: " + printable(sentence) + "\n"); }

}  // namespace hkt::cli
