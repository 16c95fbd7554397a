// SPDX-License-Identifier: Apache-2.0
// Text that arrives byte by byte and is printed as early as it can be: never half a character, never the beginning of a stop text.
#pragma once

#include <cstdio>
#include <string>
#include <vector>

namespace hkt::cli {

class TextStream {
 public:
  // Prints to `file`, if there is one. On a terminal, bytes that are not UTF-8 and control characters other than newline and
  // tab are shown as U+FFFD; elsewhere every byte goes out as it is.
  TextStream(std::vector<std::string> stop, std::FILE* file, bool terminal);

  // Text that is printed and not looked at for stop texts.
  void write(const std::string& text);
  // False when a stop text is complete; it is not printed.
  bool add(char byte);
  // Prints what was held back, and a newline if the text does not end with one.
  void finish();

  const std::string& text() const { return text_; }  // all that was added, without a stop text

 private:
  void print(bool all);

  std::vector<std::string> stop_;
  std::FILE* file_;
  bool terminal_;
  std::string text_, held_;  // held: not printed yet
  char last_ = '\n';         // the last byte that was printed
};

}  // namespace hkt::cli
