// SPDX-License-Identifier: Apache-2.0
// What is fuzzed: every reader of files from outside, and whole commands on such files.
#pragma once

#include <string>
#include <vector>

namespace fuzz {

// A target takes any bytes. It returns where they are read or refused as the reader promises; anything else, such as an
// exception of another type, an exit code that means nothing or a result that breaks a promise, ends the process.
struct Target {
  const char* name;
  void (*run)(const std::string& input);
  std::string (*repaired)(const std::string& input) = nullptr;  // where mutations break lengths and checksums first
};

const std::vector<Target>& targets();

// A safetensors file with its length and checksum made right again, so that mutations reach what is behind them.
std::string repaired_safetensors(const std::string& input);

// Defined by readers.cpp and commands.cpp.
std::vector<Target> reader_targets();
std::vector<Target> command_targets();

}  // namespace fuzz
