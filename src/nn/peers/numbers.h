// SPDX-License-Identifier: Apache-2.0
// Random numbers that are the same in all runs and on all machines, so that checkpoints need not keep what is drawn from them.
#pragma once

#include <cstdint>

namespace hkt::peers {

// The i-th number, in [0, 1), a multiple of 2^-32: so a product with an integer below 2^21 is exact. SplitMix64 (Steele, Lea & Flood).
inline double uniform(std::uint64_t i) {
  std::uint64_t x = (i + 1) * 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  x ^= x >> 31;
  constexpr double unit = 1.0 / 4294967296.0;
  return static_cast<double>(x >> 32) * unit;
}

}  // namespace hkt::peers
