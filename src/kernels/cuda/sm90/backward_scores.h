// SPDX-License-Identifier: Apache-2.0
// Backward on Hopper: from scores to probabilities, and where the gradients of scores lie in shared memory.
#pragma once

#include "common/shared_memory.h"
#include "sm90/backward_products.h"

namespace hkt::kernels::cuda::sm90 {

// ---- coarse scores, from the warpgroup that makes them to those that need them ----
// For each warp of fine keys (8 level-1 rows), and each half of the queries (even level-1 ones, then odd ones): four values
// of each lane.
inline constexpr int coarse_scores_half_bytes = 32 * 16;
inline constexpr int coarse_scores_warp_bytes = 2 * coarse_scores_half_bytes;
inline constexpr int coarse_scores_bytes = 8 * coarse_scores_warp_bytes;

// A warp of the coarse warpgroup has the scores of two warps of fine keys. `deep`, if there is one, has what deep levels
// add to the thread's scores of level 2.
__device__ __forceinline__ void store_coarse_scores(std::uint32_t scores, const float (&level1)[16],
                                                    const float (&level2)[8], float c1, float c2, const float* deep,
                                                    int warp, int lane) {
  const std::uint32_t to = scores + 2 * warp * coarse_scores_warp_bytes + lane * 16;
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
      st_shared_f32x4(to + h * coarse_scores_warp_bytes + b * coarse_scores_half_bytes, x[0], x[1], x[2], x[3]);
    }
  }
}

// ---- half a step of a warpgroup: 64 keys and 32 queries ----
// Half b of the queries has blocks 4b .. 4b + 3 of a step's columns. In block j = 2a + v of it the thread's query is
// 32v + 8c + 4e + 2b + a, and its data of queries are at 4v + 2e + a.

// lse or delta; `from` is that of the thread's query 8c.
__device__ __forceinline__ void load_half_rows(float (&values)[8], std::uint32_t from, int b) {
#pragma unroll
  for (int v = 0; v < 2; ++v) {
#pragma unroll
    for (int e = 0; e < 2; ++e) ld_shared_f32x2(values + 4 * v + 2 * e, from + (32 * v + 4 * e + 2 * b) * 4);
  }
}

// What is added to fine scores before exp2: coarse scores - lse, or only -lse. The two halves of a step come one after the
// other; the second one gives the coarse scores back.
template <bool coarse>
__device__ __forceinline__ void make_shift(float (&shift)[8], std::uint32_t lse, std::uint32_t scores, Barrier& full,
                                           Barrier& empty, int parity, int b, int warp, int lane) {
  load_half_rows(shift, lse, b);
  if constexpr (coarse) {
    float coarse_scores[4];
    if (b == 0) full.wait(parity);
    ld_shared_f32x4(coarse_scores, scores + warp * coarse_scores_warp_bytes + lane * 16 + b * coarse_scores_half_bytes);
    if (b == 1) {
      __syncwarp();
      empty.arrive_warp();
    }
#pragma unroll
    for (int k = 0; k < 8; ++k) shift[k] = coarse_scores[k / 2] - shift[k];
  } else {
#pragma unroll
    for (int k = 0; k < 8; ++k) shift[k] = -shift[k];
  }
  fence_operand(shift);
}

// Which queries see a thread's two keys: those from `first_query` on, counted from the thread's first query.
struct Mask {
  int first_query[2];
};
// `thread_query` is counted from the first tile of queries.
__device__ __forceinline__ Mask make_mask(const BackwardParameters& p, const BackwardWork& work, int key,
                                          int thread_query) {
  Mask mask;
#pragma unroll
  for (int h = 0; h < 2; ++h)
    mask.first_query[h] = (key + h >= work.length ? 1 << 30 : p.causal ? key + h - p.first_row : 0) - thread_query;
  return mask;
}
// Whether a step needs one: `padding` if keys after the sequence's end are among the CTA's.
__device__ __forceinline__ bool needs_mask(const BackwardParameters& p, bool padding, int step) {
  return padding || (p.causal && step < query_tiles_per_key_tile);
}

// Probabilities from the scores of level 0, in place and packed.
template <class T, bool masked>
__device__ __forceinline__ void half_probabilities(float (&scores)[32], std::uint32_t (&packed)[8],
                                                   const float (&shift)[8], float c0, const Mask& mask, int b) {
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
        if (masked && 32 * v + 4 * e + 2 * b + a < mask.first_query[h]) x = -INFINITY;
        x = exp2_fast(x);
      }
      packed[2 * j + h] = pack<T>(block[2 * h], block[2 * h + 1]);
    }
  }
}

// ---- gradients of scores in shared memory ----

// Of a CTA's step, in rows of keys: 64 queries (128 bytes); of pairs of keys, 32 pairs of queries (64 bytes); of pairs of
// keys, 16 quads of queries (32 bytes). Each swizzled by as much as a row has.
inline constexpr int fine_gradients_bytes = 128 * 128;
inline constexpr int level1_gradients_bytes = 64 * 64;
inline constexpr int level2_gradients_bytes = 64 * 32;
static_assert(level1_gradients_bytes == coarse_gradients_bytes);

// Where a lane stores them.
struct GradientAddresses {
  std::uint32_t fine;
  std::uint32_t level1;
  std::uint32_t level2;

  __device__ __forceinline__ GradientAddresses(std::uint32_t fine_tile, std::uint32_t level1_tile,
                                               std::uint32_t level2_tile, int warp, int lane) {
    const int row = lane % 8, block = lane / 8;
    fine = fine_tile + (16 * warp + 8 * (block % 2) + row) * 128 + ((block / 2) ^ row) * 16;
    level1 = level1_tile + (8 * warp + row) * 64 + (block ^ (row / 2)) * 16;
    level2 = level2_tile + (8 * warp + row) * 32 + ((block % 2) ^ (row / 4)) * 16;
  }
  // 16 queries, of four in a step. The same four registers are an operand of the product for grad_k.
  __device__ __forceinline__ void store_fine(int sixteen, const std::uint32_t* registers) const {
    stmatrix_x4(rematerialize_xor(fine, sixteen * 32), registers[0], registers[1], registers[2], registers[3]);
  }
  __device__ __forceinline__ void store_coarse(const std::uint32_t (&pairs)[4], const std::uint32_t (&quads)[2]) const {
    stmatrix_x4(level1, pairs[0], pairs[1], pairs[2], pairs[3]);
    stmatrix_x2(level2, quads[0], quads[1]);
  }
};

}  // namespace hkt::kernels::cuda::sm90
