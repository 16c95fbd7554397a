// SPDX-License-Identifier: Apache-2.0
// Random numbers that are the same on every machine; those of the standard distributions differ between libraries.
#pragma once

#include <cstdint>
#include <random>
#include <utility>
#include <vector>

namespace hkt::data {

// The finalizer of SplitMix64 (Steele, Lea & Flood): a bijection that decorrelates neighbouring numbers.
inline std::uint64_t mix(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

// Uniform from 0 to bound - 1, from a function that draws 64 random bits: values beyond the last multiple of the bound are
// rejected.
template <typename Draw>
std::uint64_t below(std::uint64_t bound, Draw draw) {
  const std::uint64_t beyond = UINT64_MAX - UINT64_MAX % bound;
  for (;;) {
    const std::uint64_t drawn = draw();
    if (drawn < beyond) return drawn % bound;
  }
}

// std::shuffle differs between standard libraries; this does not.
template <typename Item>
void shuffle(std::vector<Item>& items, std::mt19937_64& generator) {
  for (std::size_t i = items.size(); i > 1; --i) std::swap(items[i - 1], items[generator() % i]);
}

}  // namespace hkt::data
