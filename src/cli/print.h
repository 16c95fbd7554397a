// SPDX-License-Identifier: Apache-2.0
// Printing to standard error. Never throws: nobody may be reading.
#pragma once

#include <string>

namespace hkt::cli {

// Opens /dev/null for those of descriptors 0, 1 and 2 that are closed: otherwise the next file opened would get such a
// number, and everything printed would go into it.
void open_standard_streams();

// Unescaped, for progress bars.
void print_error(const std::string& text);

// One line with the prefix "hkt: ", escaped: text from files cannot send control characters to a terminal.
void warn(const std::string& sentence);

}  // namespace hkt::cli
