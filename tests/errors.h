// SPDX-License-Identifier: Apache-2.0
// What an error says, and whether it says what it should.
#pragma once

#include <gtest/gtest.h>

#include <string>

// Torch's own errors without the backtrace, which names whatever was called.
template <typename Error, typename Work>
std::string message_of(const Work& work) {
  try {
    work();
  } catch (const Error& error) {
    if constexpr (requires { error.what_without_backtrace(); }) {
      return error.what_without_backtrace();
    } else {
      return error.what();
    }
  }
  return "no error";
}

inline void expect_within(const std::string& part, const std::string& whole) {
  EXPECT_NE(whole.find(part), std::string::npos) << "got: " << whole << "\nexpected: " << part;
}
