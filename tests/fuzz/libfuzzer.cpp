// SPDX-License-Identifier: Apache-2.0
// One target under libFuzzer: HKT_FUZZ_TARGET is its name.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <string>
#include <string_view>

#include "scratch.h"
#include "targets.h"

namespace {

const fuzz::Target& target() {
  static const auto& found = []() -> const fuzz::Target& {
    for (const auto& target : fuzz::targets()) {
      if (target.name == std::string_view(HKT_FUZZ_TARGET)) return target;
    }
    fuzz::fail("there is no target " HKT_FUZZ_TARGET);
  }();
  return found;
}

// The exception that nobody caught, where libFuzzer would only say that the process aborted.
[[noreturn]] void name_exception() {
  try {
    if (const auto exception = std::current_exception()) std::rethrow_exception(exception);
  } catch (const std::exception& error) {
    fuzz::fail("an error that was not to be expected: " + std::string(error.what()));
  } catch (...) {
  }
  fuzz::fail("the process was ended");
}

}  // namespace

extern "C" std::size_t LLVMFuzzerMutate(std::uint8_t* data, std::size_t size, std::size_t most);

extern "C" int LLVMFuzzerInitialize(int*, char***) {
  std::set_terminate(name_exception);
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string input(reinterpret_cast<const char*>(data), size);
  // Targets look for these words, and libFuzzer learns them; a message may quote its input.
  if (input.find("json.exception") != std::string::npos) return -1;
  target().run(input);
  return 0;
}

// Most mutations of a file with a checksum are mended, so that they are read and not only refused.
extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size, std::size_t most, unsigned seed) {
  size = LLVMFuzzerMutate(data, size, most);
  if (target().repaired == nullptr || seed % 8 == 0) return size;
  const auto bytes = target().repaired({reinterpret_cast<const char*>(data), size});
  std::memcpy(data, bytes.data(), std::min(bytes.size(), most));
  return std::min(bytes.size(), most);
}
