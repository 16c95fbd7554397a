// SPDX-License-Identifier: Apache-2.0
// Forward on Hopper for widths up to 64, what the two kinds of consumers share: exponentials and their products with
// the values, and tiles that a consumer does not need.
#pragma once

#include "forward_small_parts.h"

namespace hkt::kernels::cuda::sm90 {

// Exponentials of a block of rows, and the start of their product with the values: two groups of products, of which the
// first starts when half of the exponentials are done. low and high are for the probabilities.
template <class T, int count>
__device__ __forceinline__ void finish_rows(float (&x)[64], RowState& rows, std::uint32_t (&low)[16],
                                            std::uint32_t (&high)[16], float (&out)[count], std::uint64_t value) {
  constexpr int row = count * 4;  // bytes of a row of values: a thread has half of its columns
  exponentials<0, 8>(x, rows);
  pack_probabilities<T, 0>(x, low);
  pin(out);
  pin(low);
  products_begin();
  start_values<T, row>(out, low, value);
  products_commit();
  exponentials<8, 16>(x, rows);
  pack_probabilities<T, 8>(x, high);
  pin(high);
  products_begin();
  start_values<T, row>(out, high, value + 4 * row);
  products_commit();
}

// Gives back the `count` tiles of keys that only the other consumer needs. They must have come before: an earlier arrival would
// count for the use before.
template <int width, int levels>
__device__ __forceinline__ void skip_tiles(Ring<SmallLayout<width, levels>::stages>& ring, std::uint32_t shared,
                                           int count) {
  using Layout = SmallLayout<width, levels>;
  const bool leader = threadIdx.x % 32 == 0;
  for (int j = 0; j < count; ++j) {
    barrier_wait(shared + Layout::full_k + ring.stage * 8, ring.parity);
    if (every_lane_arrives || leader) barrier_arrive(shared + Layout::empty_k + ring.stage * 8);
    barrier_wait(shared + Layout::full_v + ring.stage * 8, ring.parity);
    if (every_lane_arrives || leader) barrier_arrive(shared + Layout::empty_v + ring.stage * 8);
    ring.advance();
  }
}

}  // namespace hkt::kernels::cuda::sm90
