// SPDX-License-Identifier: Apache-2.0
// Backward on Hopper: scores, probabilities and the gradients of scores.
#pragma once

#include "backward_products.h"

namespace hkt::kernels::cuda::sm90 {

// ---- coarse scores, from the warpgroup that makes them to those that need them ----
// Of each warp of keys (8 level-1 rows): for each lane its four values of even level-1 queries, then those of the odd
// ones.
inline constexpr int coarse_scores_bytes = 8 * 1024;

// `deep`, if there is one, has what coarser levels add to the thread's scores of level 2.
__device__ __forceinline__ void store_coarse_scores(std::uint32_t to, const float (&level1)[16],
                                                    const float (&level2)[8], float c1, float c2,
                                                    const float* deep = nullptr) {
#pragma unroll
  for (int h = 0; h < 2; ++h) {
#pragma unroll
    for (int b = 0; b < 2; ++b) {
      float x[4];
#pragma unroll
      for (int v = 0; v < 2; ++v) {
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          const float score = level2[4 * v + 2 * h + e];
          x[2 * v + e] =
              fmaf(c1, level1[4 * (2 * b + v) + 2 * h + e], deep != nullptr ? fmaf(c2, score, deep[v]) : c2 * score);
        }
      }
      store_4(to + h * 1024 + b * 512, x[0], x[1], x[2], x[3]);
    }
  }
}

// ---- a tile of 64 keys and 64 queries in a warpgroup ----
// Block j = 2a + v of columns: the thread's query is 32v + 8c + 4e + a, and its data of queries are at 8v + 4e + a.

__device__ __forceinline__ void load_rows(float (&values)[16], std::uint32_t from) {  // from its query 8c on
#pragma unroll
  for (int v = 0; v < 2; ++v) {
#pragma unroll
    for (int e = 0; e < 2; ++e) load_4(values + 8 * v + 4 * e, from + (32 * v + 4 * e) * 4);
  }
}

// Which queries see a thread's two keys: those from `first` on, counted from the thread's first query.
struct Sight {
  int first[2];
};

__device__ __forceinline__ Sight sight(const BackwardWork& work, bool causal, int key, int first_query) {
  Sight result;
#pragma unroll
  for (int h = 0; h < 2; ++h) result.first[h] = (key + h >= work.length ? 1 << 30 : causal ? key + h : 0) - first_query;
  return result;
}

// Where a lane stores gradients of scores: rows of 64 queries (128 bytes), of pairs of keys and 32 pairs of queries
// (64 bytes), of pairs of keys and 16 quads of queries (32 bytes).
struct GradientPlaces {
  std::uint32_t fine;
  std::uint32_t level1;
  std::uint32_t level2;
};

__device__ __forceinline__ GradientPlaces gradient_places(std::uint32_t fine, std::uint32_t level1,
                                                          std::uint32_t level2, int warp, int lane) {
  const int row = lane % 8, block = lane / 8;
  GradientPlaces places;
  places.fine = fine + (16 * warp + 8 * (block % 2) + row) * 128 + ((block / 2) ^ row) * 16;
  places.level1 = level1 + (8 * warp + row) * 64 + (block ^ (row / 2)) * 16;
  places.level2 = level2 + (8 * warp + row) * 32 + ((block % 2) ^ (row / 4)) * 16;
  return places;
}

// Gradients of a thread's scores, packed: of each, and sums of key pairs and query pairs, and query quads.
struct Gradients {
  std::uint32_t fine[16];
  std::uint32_t pairs[4], quads[2];
};

// Each made by gradient(index of the accumulator's element).
template <class T, bool coarse, class Gradient>
__device__ __forceinline__ void make_gradients(Gradients& result, const Gradient& gradient) {
#pragma unroll
  for (int v = 0; v < 2; ++v) {
    float quad[2];
#pragma unroll
    for (int b = 0; b < 2; ++b) {
      float pair[2];
#pragma unroll
      for (int a = 2 * b; a < 2 * b + 2; ++a) {
        const int j = 2 * a + v;
        float x[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) x[i] = gradient(4 * j + i);
        result.fine[2 * j] = pack<T>(x[0], x[1]);
        result.fine[2 * j + 1] = pack<T>(x[2], x[3]);
#pragma unroll
        for (int e = 0; e < 2; ++e) pair[e] = a % 2 == 0 ? x[e] + x[2 + e] : pair[e] + (x[e] + x[2 + e]);
      }
      if constexpr (coarse) result.pairs[2 * b + v] = pack<T>(pair[0], pair[1]);
#pragma unroll
      for (int e = 0; e < 2; ++e) quad[e] = b == 0 ? pair[e] : quad[e] + pair[e];
    }
    if constexpr (coarse) result.quads[v] = pack<T>(quad[0], quad[1]);
  }
}

__device__ __forceinline__ void store_fine_gradients(const Gradients& gradients, const GradientPlaces& places) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {  // 16 queries; the same four registers are an operand of the product for keys
    const std::uint32_t* four = gradients.fine + 4 * i;
    store_blocks(flip(places.fine, i * 32), four[0], four[1], four[2], four[3]);
  }
}
__device__ __forceinline__ void store_coarse_gradients(const Gradients& gradients, const GradientPlaces& places) {
  const std::uint32_t (&pairs)[4] = gradients.pairs;
  store_blocks(places.level1, pairs[0], pairs[1], pairs[2], pairs[3]);
  store_blocks(places.level2, gradients.quads[0], gradients.quads[1]);
}

}  // namespace hkt::kernels::cuda::sm90
