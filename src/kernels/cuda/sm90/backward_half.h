// SPDX-License-Identifier: Apache-2.0
// Backward on Hopper: half a step of a warpgroup, 64 keys and 32 queries. For widths up to 64, halves take turns with the
// tensor cores, and need so few registers that the keys and values of the warpgroup can stay in some.
//
// Half b has blocks 4b .. 4b + 3 of a step's columns. In block j = 2a + v of it the thread's query is
// 32v + 8c + 4e + 2b + a, and its data of queries are at 4v + 2e + a.
#pragma once

#include "backward_scores.h"

namespace hkt::kernels::cuda::sm90 {

// A warp's 16 rows from `from` on, of `columns` columns, as left operand of products.
template <int row_bytes, int columns>
__device__ __forceinline__ void load_operand(std::uint32_t (&operand)[columns / 4], std::uint32_t from, int lane) {
  const int row = lane % 16;
  const int swizzle = row_bytes == 128 ? row % 8 : row / 2 % 4;
#pragma unroll
  for (int i = 0; i < columns / 16; ++i)
    load_blocks(operand + 4 * i, from + row * row_bytes + ((2 * i + lane / 16) ^ swizzle) * 16);
}

__device__ __forceinline__ void load_half_rows(float (&values)[8], std::uint32_t from, int b) {  // from its query 8c on
#pragma unroll
  for (int v = 0; v < 2; ++v) {
#pragma unroll
    for (int e = 0; e < 2; ++e) load_2(values + 4 * v + 2 * e, from + (32 * v + 4 * e + 2 * b) * 4);
  }
}

// Products for the gradients of probabilities begin at -delta.
__device__ __forceinline__ void begin_at_delta(float (&grad_p)[16], const float (&delta)[8]) {
#pragma unroll
  for (int i = 0; i < 16; ++i) grad_p[i] = -delta[4 * (i / 4 % 2) + 2 * (i % 2) + i / 8];
}

// Probabilities from the scores of level 0, in place and packed.
template <class T, bool masked>
__device__ __forceinline__ void half_probabilities(float (&scores)[32], std::uint32_t (&packed)[8],
                                                   const float (&shift)[8], float c0, const Sight& sight, int b) {
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    const int a = j / 2, v = j % 2;
    float* const block = scores + 16 * b + 4 * j;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        float& x = block[2 * h + e];
        x = fmaf(x, c0, shift[4 * v + 2 * e + a]);
        if (masked && 32 * v + 4 * e + 2 * b + a < sight.first[h]) x = -INFINITY;
        x = exp2_fast(x);
      }
      packed[2 * j + h] = pack<T>(block[2 * h], block[2 * h + 1]);
    }
  }
}

// Gradients of the scores: of each in `fine`; of key pairs and query pairs, packed; sums of pairs, to be quads.
struct CoarseGradients {
  std::uint32_t pairs[4];
  float quads[4];
};

template <class T, bool coarse>
__device__ __forceinline__ void half_gradients(std::uint32_t (&fine)[8], CoarseGradients& sums,
                                               const float (&probabilities)[32], const float (&grad_p)[16], int b) {
#pragma unroll
  for (int v = 0; v < 2; ++v) {
    float pair[2];
#pragma unroll
    for (int a = 0; a < 2; ++a) {
      const int j = 2 * a + v;
      float x[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) x[i] = probabilities[16 * b + 4 * j + i] * grad_p[4 * j + i];
      fine[2 * j] = pack<T>(x[0], x[1]);
      fine[2 * j + 1] = pack<T>(x[2], x[3]);
#pragma unroll
      for (int e = 0; e < 2; ++e) pair[e] = a == 0 ? x[e] + x[2 + e] : pair[e] + (x[e] + x[2 + e]);
    }
    if constexpr (coarse) {
      sums.pairs[2 * b + v] = pack<T>(pair[0], pair[1]);
#pragma unroll
      for (int e = 0; e < 2; ++e) sums.quads[2 * v + e] = b == 0 ? pair[e] : sums.quads[2 * v + e] + pair[e];
    }
  }
}

__device__ __forceinline__ void store_half_gradients(const std::uint32_t (&fine)[8], std::uint32_t place, int b) {
#pragma unroll
  for (int i = 0; i < 2; ++i) {  // 16 queries; the same four registers are an operand of the product for keys
    const std::uint32_t* four = fine + 4 * i;
    store_blocks(flip(place, (2 * b + i) * 32), four[0], four[1], four[2], four[3]);
  }
}

// sums += matrix · queries, the matrix in registers, 32 queries in rows of row_bytes.
template <class T, int row_bytes, int count>
__device__ __forceinline__ void start_half_sum(float (&sums)[count], const std::uint32_t (&matrix)[8],
                                               std::uint64_t queries) {
#pragma unroll
  for (int i = 0; i < 2; ++i) Product<T, count * 2, false, true>::run(sums, matrix + 4 * i, queries + i * row_bytes, 1);
}

}  // namespace hkt::kernels::cuda::sm90
