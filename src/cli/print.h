// SPDX-License-Identifier: Apache-2.0
// What is printed to standard error. It is for people who may not be there: nothing of it ever throws.
#pragma once

#include <string>

namespace hkt::cli {

// Gives the descriptors 0, 1 and 2 to /dev/null where they are closed: the next file that is opened would get them, and
// with them whatever is printed.
void open_standard_streams();

// As it is, such as a progress bar.
void print_error(const std::string& text);

// A sentence, on one line, with "hkt: " before it; words from files in it cannot do harm to a terminal.
void warn(const std::string& sentence);

}  // namespace hkt::cli
