// SPDX-License-Identifier: Apache-2.0
// What kernels of every family read out of a problem: widths, levels of a tile, the rows of a head.
#pragma once

#include <cstdint>
#include <type_traits>

#include "kernels/attention.h"

namespace hkt::kernels::cuda {

// Tensor-core kernels exist for rows of 32, 64, 128 and (sm80) 256 numbers; narrower rows are padded with zeros.
constexpr int padded_width(int width) { return width <= 32 ? 32 : width <= 64 ? 64 : width <= 128 ? 128 : 256; }

// The first row of a level in a tile of `tokens` tokens that has all its levels one after the other; level l has
// tokens / 2^l rows, at least one. For the level after the last: the number of rows.
constexpr int level_base(int tokens, int level) { return 2 * tokens - ((2 * tokens) >> level); }

// Row 0 of a head.
template <class T>
__device__ __forceinline__ T* head_rows(const Array& array, std::int64_t batch, std::int64_t head) {
  return static_cast<T*>(array.data) + batch * array.batch_stride + head * array.head_stride;
}

// Whether every row begins at a multiple of 16 bytes, which are so many elements.
inline bool is_aligned(const Array& array, int elements) {
  return reinterpret_cast<std::uintptr_t>(array.data) % 16 == 0 && array.batch_stride % elements == 0 &&
         array.head_stride % elements == 0 && array.row_stride % elements == 0;
}
inline bool inputs_are_aligned(const AttentionForward& problem, int elements) {
  bool aligned = is_aligned(problem.v, elements);
  for (int level = 0; level < problem.levels; ++level)
    aligned = aligned && is_aligned(problem.q[level], elements) && is_aligned(problem.k[level], elements);
  return aligned;
}

// start(padded) with the width rounded up to one that there is a kernel for, as a type.
template <class Start>
void for_width(int width, const Start& start) {
  switch (padded_width(width)) {
    case 32:
      return start(std::integral_constant<int, 32>{});
    case 64:
      return start(std::integral_constant<int, 64>{});
    case 128:
      return start(std::integral_constant<int, 128>{});
    default:
      return start(std::integral_constant<int, 256>{});
  }
}

// The head of k and v that a head of queries reads.
__host__ __device__ __forceinline__ std::int64_t key_head(const AttentionForward& problem, std::int64_t head) {
  return head / (problem.heads / problem.key_heads);
}

}  // namespace hkt::kernels::cuda
