// SPDX-License-Identifier: Apache-2.0
// A step of the backward pass, first half: probabilities, and the gradient of the scores at every level, to shared memory.
#pragma once

#include "sm80/backward_block.h"

namespace hkt::kernels::cuda::sm80 {

// Scores of the levels beyond 1 for one step, by their weights, to shared memory as [key quad][query quad]: tiles of 16 × 16
// a warp. In a row the quads that a thread needs follow each other: quad 2b + h of a warp's part is at place h · blocks + b.
template <class T, int fixed, int width, int n>
__device__ __forceinline__ void write_quad_scores(const Block<width, n>& block, int stage) {
  using namespace backward_tile;
  using S = Share<width, n>;
  if (block.levels <= 2 || S::warp() >= n / 64) return;
  const int lane = threadIdx.x % 32, row = 16 * S::warp();
  float total[2][4] = {};
  for_levels<fixed>(2, block.levels, [&](int level) {
    const int key = (row + left_row()) >> (level - 2), query = (8 * right_block() + right_row()) >> (level - 2);
    float sums[2][4];
    small_scores<T, width, 2>(sums, Lane<width>(block.k, level_base(n, level) + key, left_vector()),
                              {Lane<width>(block.q(stage), level_base(queries, level) + query, right_vector())});
    const float weight = block.weights[level] * block.unit;
#pragma unroll
    for (int i = 0; i < 8; ++i) total[i / 4][i % 4] += weight * sums[i / 4][i % 4];
  });
#pragma unroll
  for (int b = 0; b < 2; ++b)
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int quad = 8 * b + 2 * (lane % 4), part = quad / (2 * S::blocks), of_part = quad % (2 * S::blocks);
      const int place = 2 * S::blocks * part + i % 2 * S::blocks + of_part / 2;
      st_shared_f32(block.base + block.layout.quad_scores + ((row + lane / 4 + 8 * (i / 2)) * quad_pitch + place) * 4,
                    total[b][i]);
    }
}

// Scores of level 1 for a warp's part of the tile, in the order in which its fragments of level 0 need them (coarse_of).
template <class T, int width, int n>
struct PairScores {
  using S = Share<width, n>;
  static constexpr int blocks = S::blocks / 2;  // of 8 query pairs
  static_assert(blocks <= 2);
  Lane<width> left, right;
  float sums[blocks][4];
  std::uint32_t b[4];

  __device__ __forceinline__ PairScores(const Block<width, n>& block, int stage)
      : left(block.k, level_base(n, 1) + 16 * S::key_warp() + left_row(), left_vector()),
        right(block.q(stage),
              level_base(backward_tile::queries, 1) + S::query_warp() * (S::warp_queries / 2) +
                  (blocks > 1 ? 8 * right_block() : 0) + permuted(right_row()),
              blocks > 1 ? right_vector() : threadIdx.x % 32 / 8) {}
  // Step k of the products. One load of the right operand serves two blocks, or two steps of one.
  __device__ __forceinline__ void operator()(int k) {
    std::uint32_t a[4];
    ldmatrix_x4(a, left.at(0, 2 * k));
    if (blocks > 1 || k % 2 == 0) ldmatrix_x4(b, right.at(0, 2 * k));
    if constexpr (blocks > 1) {
      mma<T>(sums[0], a, b[0], b[1], k == 0);
      mma<T>(sums[1], a, b[2], b[3], k == 0);
    } else {
      mma<T>(sums[0], a, b[k % 2 * 2], b[k % 2 * 2 + 1], k == 0);
    }
  }
};

// products[parity] += (or = if `fresh`) left(keys) · right(queries)ᵀ of level 0 for a warp's part of the tile.
template <class T, bool fresh, int width, int n, class Left, class Also = Nothing>
__device__ __forceinline__ void tile_products(float (&products)[2][Share<width, n>::blocks][4], const Left& left,
                                              Swizzled<width> right, const Also& also = {}) {
  using S = Share<width, n>;
  fine_scores<T, fresh, width>(
      products, left,
      Lane<width>(right, S::query_warp() * S::warp_queries + 8 * right_block() + right_row(), right_vector()), also);
}

// Where a thread stores its pairs of neighbouring queries of [key][query].
template <int width, int n>
__device__ __forceinline__ Lane<64> store_lane(Swizzled<64> array, int parity) {
  using S = Share<width, n>;
  Lane<64> lane(array, S::key() + parity, S::query_warp() * S::blocks);
  lane.first += 4 * (threadIdx.x % 4);
  return lane;
}

// -infinity where the key is none or comes after the query.
template <int width, int n>
__device__ __forceinline__ void mask_scores(float (&scores)[2][Share<width, n>::blocks][4],
                                            const Block<width, n>& block, int query) {
  using S = Share<width, n>;
#pragma unroll
  for (int parity = 0; parity < 2; ++parity)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int key = block.place.first + S::key() + parity + 16 * half;
      int first = block.causal ? key - query : 0;  // query of the tile that sees the key
      if (key >= block.place.length) first = backward_tile::queries;
      first -= S::query();
#pragma unroll
      for (int b = 0; b < S::blocks; ++b)
#pragma unroll
        for (int i = 0; i < 2; ++i)
          if (8 * b + i < first) scores[parity][b][2 * half + i] = -INFINITY;
    }
}

// The probabilities of a step, also to shared memory. meanwhile(): done while the products are on their way.
template <class T, int width, int n, class Keys, class Meanwhile>
__device__ __forceinline__ void take_probabilities(float (&scores)[2][Share<width, n>::blocks][4],
                                                   const Block<width, n>& block, const Keys& keys, int stage, int query,
                                                   const Meanwhile& meanwhile) {
  using namespace backward_tile;
  using S = Share<width, n>;
  PairScores<T, width, n> pairs(block, stage);
  tile_products<T, true, width, n>(scores, keys, block.q(stage), [&](int k) {
    if (block.levels > 1) pairs(k);
  });
  meanwhile();
  const float weight = block.fine_weight;
  float quads[2][S::blocks] = {};
  if (block.levels > 2) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const std::uint32_t from =
          block.base + block.layout.quad_scores +
          ((S::key() / 4 + 4 * half) * quad_pitch + (2 * S::query_warp() + threadIdx.x % 4 / 2) * S::blocks) * 4;
      if constexpr (S::blocks == 2)
        ld_shared_f32x2(quads[half], from);
      else
        ld_shared_f32x4(quads[half], from);
    }
  }
#pragma unroll
  for (int b = 0; b < S::blocks; ++b) {
    const float2 lse = ld_shared_f32x2(block.row_data(stage, 0) + (S::query() + 8 * b) * 4);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float coarse = quads[half][b];
      if (block.levels > 1) coarse = fmaf(coarse_of(pairs.sums, b, half), block.pair_weight, coarse);
#pragma unroll
      for (int parity = 0; parity < 2; ++parity) {
        float* pair = &scores[parity][b][2 * half];
        pair[0] = fmaf(pair[0], weight, coarse - lse.x);
        pair[1] = fmaf(pair[1], weight, coarse - lse.y);
      }
    }
  }
  if (block.place.first + n > block.place.length || (block.causal && block.place.first + n > query))
    mask_scores(scores, block, query);
#pragma unroll
  for (int parity = 0; parity < 2; ++parity) {
    const Lane<queries> to = store_lane<width, n>(block.p, parity);
#pragma unroll
    for (int b = 0; b < S::blocks; ++b)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        float* pair = &scores[parity][b][2 * half];
        pair[0] = exp2_fast(pair[0]);
        pair[1] = exp2_fast(pair[1]);
        st_shared_b32(to.at(16 * half, b), pack<T>(pair[0], pair[1]));
      }
  }
}

// Sums of the scores' gradient over 2 × 2 (the thread's own) and 4 × 4 to shared memory.
template <class T, int width, int n>
__device__ __forceinline__ void write_pooled(const float (&cells)[Share<width, n>::blocks][2],
                                             const Block<width, n>& block) {
  using S = Share<width, n>;
  const int lane = threadIdx.x % 32;
  if (block.levels > 1) {
#pragma unroll
    for (int b = 0; b < S::blocks; ++b)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int column = S::query() / 2 + 4 * b;
        st_shared_b16(block.pairs.at(S::key() / 2 + 8 * half, column / 8) + 2 * (column % 8),
                      pack<T>(cells[b][half], 0));
      }
  }
  if (block.levels > 2) {
    // Neighbours in both directions have the rest of a quad's cells; each takes the sum for half of the quads.
    const bool lower = lane / 4 % 2, right = lane % 2;
    float columns[S::blocks];
#pragma unroll
    for (int b = 0; b < S::blocks; ++b)
      columns[b] = (lower ? cells[b][1] : cells[b][0]) + __shfl_xor_sync(~0u, lower ? cells[b][0] : cells[b][1], 4);
#pragma unroll
    for (int b = 0; b < S::blocks; b += 2) {
      const float sum =
          (right ? columns[b + 1] : columns[b]) + __shfl_xor_sync(~0u, right ? columns[b] : columns[b + 1], 1);
      const int column = S::query_warp() * (S::warp_queries / 4) + 2 * (b + right) + lane % 4 / 2;
      st_shared_b16(block.quads.at(8 * S::key_warp() + lane / 8 + 4 * lower, column / 8) + 2 * (column % 8),
                    pack<T>(sum, 0));
    }
  }
}

// The gradient of the scores of a step to shared memory.
template <class T, int width, int n, class Values>
__device__ __forceinline__ void take_gradients(const float (&probabilities)[2][Share<width, n>::blocks][4],
                                               const Block<width, n>& block, const Values& values, int stage) {
  using S = Share<width, n>;
  float grads[2][S::blocks][4];  // of the probabilities, less delta
#pragma unroll
  for (int b = 0; b < S::blocks; ++b) {
    const float2 delta = ld_shared_f32x2(block.row_data(stage, 1) + (S::query() + 8 * b) * 4);
#pragma unroll
    for (int parity = 0; parity < 2; ++parity)
#pragma unroll
      for (int i = 0; i < 4; ++i) grads[parity][b][i] = -(i % 2 ? delta.y : delta.x);
  }
  tile_products<T, false, width, n>(grads, values, block.grad_out(stage));
  float cells[S::blocks][2] = {};
#pragma unroll
  for (int parity = 0; parity < 2; ++parity) {
    const Lane<64> to = store_lane<width, n>(block.ds, parity);
#pragma unroll
    for (int b = 0; b < S::blocks; ++b)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const float x = probabilities[parity][b][2 * half] * grads[parity][b][2 * half];
        const float y = probabilities[parity][b][2 * half + 1] * grads[parity][b][2 * half + 1];
        cells[b][half] += x + y;
        st_shared_b32(to.at(16 * half, b), pack<T>(x, y));
      }
  }
  write_pooled<T>(cells, block);
}

}  // namespace hkt::kernels::cuda::sm80
