// SPDX-License-Identifier: Apache-2.0
// One target under libFuzzer: HKT_FUZZ_TARGET is its name.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
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

}  // namespace

extern "C" std::size_t LLVMFuzzerMutate(std::uint8_t* data, std::size_t size, std::size_t most);

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  target().run({reinterpret_cast<const char*>(data), size});
  return 0;
}

// Most mutations of a file with a checksum are mended, so that they are read and not only refused.
extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size, std::size_t most, unsigned seed) {
  size = LLVMFuzzerMutate(data, size, most);
  if (!target().safetensors || seed % 8 == 0) return size;
  const auto bytes = fuzz::repaired({reinterpret_cast<const char*>(data), size});
  std::memcpy(data, bytes.data(), std::min(bytes.size(), most));
  return std::min(bytes.size(), most);
}
