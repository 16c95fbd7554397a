// What an error says, and whether it says what it should.
#pragma once

#include <gtest/gtest.h>

#include <string>

template <typename Error, typename Work>
std::string message_of(const Work& work) {
  try {
    work();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

inline void expect_within(const std::string& part, const std::string& whole) {
  EXPECT_NE(whole.find(part), std::string::npos) << "got: " << whole << "\nexpected: " << part;
}
