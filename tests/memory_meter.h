// SPDX-License-Identifier: Apache-2.0
// How much memory torch asks for while something runs, and how much there is.
#pragma once

#include <c10/core/CPUAllocator.h>
#include <c10/util/ThreadLocalDebugInfo.h>

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <memory>
#include <string>

namespace hkt::testing {

// Hears of every allocation that torch makes on this thread.
class MemoryMeter : public c10::MemoryReportingInfoBase {
 public:
  void reportMemoryUsage(void*, int64_t size, size_t, size_t, c10::Device) override {
    now_ += size;
    peak_ = std::max(peak_, now_);
    largest_ = std::max(largest_, size);
  }
  bool memoryProfilingEnabled() const override { return true; }
  int64_t peak() const { return peak_; }
  int64_t largest() const { return largest_; }

 private:
  int64_t now_ = 0;
  int64_t peak_ = 0;
  int64_t largest_ = 0;
};

template <class Work>
MemoryMeter metered(const Work& work) {
  const auto meter = std::make_shared<MemoryMeter>();
  const c10::DebugInfoGuard guard(c10::DebugInfoKind::PROFILER_STATE, meter);
  work();
  return *meter;
}

// The most that was held at a time.
template <class Work>
int64_t peak_bytes(const Work& work) {
  return metered(work).peak();
}

// The largest single piece.
template <class Work>
int64_t largest_bytes(const Work& work) {
  return metered(work).largest();
}

// The address sanitizer marks every freed byte, touched or not: what needs gigabytes is left out with it.
#ifdef __SANITIZE_ADDRESS__
inline constexpr bool sanitized = true;
#else
inline constexpr bool sanitized = false;
#endif

// What the machine could still give; 0 where it does not say.
inline int64_t available_bytes() {
  std::ifstream file("/proc/meminfo");
  for (std::string line; std::getline(file, line);)
    if (line.starts_with("MemAvailable:")) return std::stoll(line.substr(13)) * 1024;
  return 0;
}

}  // namespace hkt::testing
