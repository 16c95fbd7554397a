// SPDX-License-Identifier: Apache-2.0
// Parsing and evaluating ListOps expressions, from left to right.
#include "data/listops_expression.h"

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "files/quote.h"

namespace hkt::data::listops {
namespace {

constexpr std::array<std::string_view, vocab> words = {"",  "0", "1", "2",    "3",    "4",    "5",   "6",
                                                       "7", "8", "9", "[MIN", "[MAX", "[MED", "[SM", "]"};

[[noreturn]] void refuse(const std::string& why) { throw std::invalid_argument("not a ListOps expression: " + why); }

// An operator that is not closed yet, with a count of each digit among its arguments so far.
struct Open {
  std::uint8_t operation;
  std::array<std::int64_t, digits> counts = {};
};

// The digit at this position of the sorted arguments.
int at_place(const std::array<std::int64_t, digits>& counts, std::int64_t place) {
  int digit = 0;
  while (place >= counts[digit]) place -= counts[digit++];
  return digit;
}

int value_of(const Open& open) {
  std::int64_t count = 0, sum = 0;
  for (int digit = 0; digit < digits; ++digit) {
    count += open.counts[digit];
    sum += open.counts[digit] * digit;
  }
  if (count == 0) refuse(std::string(words[open.operation]) + " has no arguments.");
  switch (open.operation) {
    case minimum:
      return at_place(open.counts, 0);
    case maximum:
      return at_place(open.counts, count - 1);
    case median:
      return (at_place(open.counts, (count - 1) / 2) + at_place(open.counts, count / 2)) / 2;
    default:
      return static_cast<int>(sum % digits);
  }
}

class Evaluator {
 public:
  void take(std::uint8_t token) {
    if (done_) refuse("tokens follow after its end.");
    if (token >= minimum && token < close) {
      open_.push_back({token});
    } else if (token == close) {
      if (open_.empty()) refuse("a \"]\" has no operator.");
      const int value = value_of(open_.back());
      open_.pop_back();
      give(value);
    } else if (token >= digit_zero && token < minimum) {
      give(token - digit_zero);
    } else {
      refuse("it has the token " + std::to_string(token) + "; tokens are 1 to " + std::to_string(vocab - 1) + ".");
    }
  }

  int value() const {
    if (!done_ && open_.empty()) refuse("it is empty.");
    if (!done_) refuse(std::to_string(open_.size()) + " \"]\" are missing at its end.");
    return value_;
  }

 private:
  void give(int value) {
    if (!open_.empty()) {
      ++open_.back().counts[value];
    } else {
      value_ = value;
      done_ = true;
    }
  }

  std::vector<Open> open_;
  int value_ = 0;
  bool done_ = false;
};

// Removes the next word from the text and returns it; empty at the end.
std::string_view next_word(std::string_view& text) {
  constexpr std::string_view blanks = " \t\r\n";
  text.remove_prefix(std::min(text.find_first_not_of(blanks), text.size()));
  const auto word = text.substr(0, text.find_first_of(blanks));
  text.remove_prefix(word.size());
  return word;
}

}  // namespace

std::vector<std::uint8_t> parse(std::string_view text) {
  std::vector<std::uint8_t> tokens;
  std::int64_t parentheses = 0;
  for (auto word = next_word(text); !word.empty(); word = next_word(text)) {
    if (word == "(" || word == ")") {
      parentheses += word == "(" ? 1 : -1;
      if (parentheses < 0) refuse("a \")\" has no \"(\".");
      continue;
    }
    const auto found = std::find(words.begin() + digit_zero, words.end(), word);
    if (found == words.end()) {
      refuse("it has " + quote(word) + "; allowed are the digits 0 to 9, [MIN, [MAX, [MED, [SM, ] and parentheses.");
    }
    tokens.push_back(static_cast<std::uint8_t>(found - words.begin()));
  }
  evaluate(tokens);
  if (parentheses > 0) refuse(std::to_string(parentheses) + " \")\" are missing.");
  return tokens;
}

std::string text(std::span<const std::uint8_t> tokens) {
  std::string result;
  for (const auto token : tokens) {
    if (!result.empty()) result += ' ';
    result += words.at(token);
  }
  return result;
}

std::int64_t depth(std::span<const std::uint8_t> tokens) {
  std::int64_t open = 0, deepest = 0;
  for (const auto token : tokens) {
    if (token >= minimum && token < close) deepest = std::max(deepest, ++open);
    if (token == close) --open;
  }
  return deepest;
}

int evaluate(std::span<const std::uint8_t> tokens) {
  Evaluator evaluator;
  for (const auto token : tokens) evaluator.take(token);
  return evaluator.value();
}

}  // namespace hkt::data::listops
