// SPDX-License-Identifier: Apache-2.0
// The rows that one new token gives to the caches of a decoding layer, at all levels. Which levels have a row is decided on the
// device, by the token's position, so that a launch serves every position.
#pragma once

#include "kernels/attention.h"

namespace hkt::kernels::cuda {

// Recent rows of a level: row m of sequence b is at [b, m modulo `rows`, :] of a [batch, places, channels] array.
struct Ring {
  void* data = nullptr;
  std::int64_t rows = 0, places = 0;
};

// Depthwise filters, level by level. The token's row x is row t of level 0, t = ends[b] − 1. Where level l has a new row m and m is
// even, level l + 1 gets row m / 2, Σ_r weight[r] · row(m − r). New rows are written to `rows`, others are zero there.
struct NewRows {
  Element element = Element::float32;
  std::int64_t batch = 0;
  int levels = 1, channels = 0, taps = 0;
  const std::int64_t* ends = nullptr;  // [batch]
  const void* x = nullptr;             // [batch, channels]
  Ring inputs[max_levels];             // of the rows of level l, for all levels but the last
  const void* filters[max_levels];     // [taps, channels]; filters[l] gives level l + 1
  void* rows = nullptr;                // [batch, levels, channels]
};
void new_rows(const NewRows& problem, const Device& device);

// Rotates new rows of queries and keys by the token's position and writes keys and values to their caches. `q` gets the
// current query of each level: the new one, or that of an earlier token, kept in a ring.
struct PlacedRows {
  Element element = Element::float32;
  std::int64_t batch = 0;
  int levels = 1, heads = 0, key_heads = 0, width = 0;  // width: of a head, even
  const std::int64_t* ends = nullptr;
  const void* rows = nullptr;    // [batch, levels, (heads + key_heads) · width], queries before keys
  const void* values = nullptr;  // [batch, key_heads · width]
  const void* rotations =
      nullptr;          // [position, width / 2, (cos, sin)], float64 for float64 elements, else float32; or null
  void* k[max_levels];  // [batch, key_heads, k_rows[l], width]
  void* v = nullptr;    // like k[0]
  std::int64_t k_rows[max_levels];
  Ring queries[max_levels];  // of heads · width channels, for levels ≥ 1
  void* q = nullptr;         // [levels, batch, heads, width]
};
void place_rows(const PlacedRows& problem, const Device& device);

}  // namespace hkt::kernels::cuda
