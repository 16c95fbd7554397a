// SPDX-License-Identifier: Apache-2.0
// The words of a text in UTF-8, as people read them.
#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

namespace hkt::data {

// The bytes [begin, end) of a text.
struct Word {
  std::size_t begin = 0, end = 0;

  bool operator==(const Word&) const = default;
};

// In order; white space between them belongs to none. A word is a run of letters and digits, with apostrophes and hyphens inside
// it, or a run of one punctuation mark. Characters of scripts without spaces are words by themselves, as are emoji. Bytes that
// are not UTF-8 count as letters.
std::vector<Word> words_of(std::string_view text);

}  // namespace hkt::data
