// SPDX-License-Identifier: Apache-2.0
// ListOps expressions: their tokens, their text and their value.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace hkt::data::listops {

// 0 pads; a digit d is d + 1; then the operators and the bracket that ends each of them.
enum Token : std::uint8_t { digit_zero = 1, minimum = 11, maximum, median, sum_modulo, close };
constexpr std::int64_t vocab = close + 1;
constexpr int digits = 10;

// The tokens of a text such as "[MAX 2 9 [MIN 4 7 ] 0 ]". Parentheses, which mark a binary tree in Nangia & Bowman's
// files, are redundant and dropped. Throws std::invalid_argument, in one sentence, if it is not exactly one expression.
std::vector<std::uint8_t> parse(std::string_view text);

std::string text(std::span<const std::uint8_t> tokens);

// MIN, MAX, MED (for an even count the mean of the middle two, truncated), SM (the sum modulo 10). Throws as parse does.
// Not recursive: deep nesting cannot overflow the stack.
int evaluate(std::span<const std::uint8_t> tokens);

// How deep operators nest: 0 for a digit, 1 for an operator on digits. The tokens are an expression.
std::int64_t depth(std::span<const std::uint8_t> tokens);

}  // namespace hkt::data::listops
