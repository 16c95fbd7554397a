// SPDX-License-Identifier: Apache-2.0
// Backward on Hopper for widths up to 64: the warpgroup that has the coarse levels.
#pragma once

#include "backward_64_layout.h"
#include "backward_deep_gradients.h"
#include "backward_deep_scores.h"
#include "backward_results.h"
#include "backward_turns.h"

namespace hkt::kernels::cuda::sm90 {

// A warpgroup: coarse scores, gradients of coarse keys, sums for queries. Products that have columns of the model as
// rows have 64 of them: a tile of 32 columns is met twice, and the second half of what they make is left.
template <class T, int width, bool coarse, bool deep>
__device__ __forceinline__ void backward_narrow_coarse(const BackwardParameters& p, const BackwardWork& work,
                                                       std::uint32_t shared) {
  using Layout = BackwardNarrowLayout<width>;
  constexpr int swizzle = Layout::row;
  constexpr int sum_threads = 2 * width;  // that have a row of such a product
  const int thread = threadIdx.x % 128, lane = thread % 32, warp = thread / 32, r = lane / 4, c = lane % 4;
  const std::uint64_t k0 = descriptor<swizzle>(shared + Layout::k0);
  const std::uint64_t k1 = descriptor<swizzle>(shared + Layout::k1, 0);
  const std::uint64_t k2 = with_stride(descriptor<swizzle>(shared + Layout::k2, 0), 0);  // each eight rows twice
  const std::uint64_t coarse_queries = descriptor<swizzle>(shared + Layout::coarse, 0);

  const float w1 = weight(p, work, 1), w2 = weight(p, work, 2);
  const float c1 = log2_e * w1, c2 = log2_e * w2;
  float grad_k1[width / 2];  // a row is a key
  float grad_k2[16];         // a row is a column of the model
#pragma unroll
  for (int i = 0; i < width / 2; ++i) grad_k1[i] = 0;
#pragma unroll
  for (int i = 0; i < 16; ++i) grad_k2[i] = 0;
  if constexpr (deep) named_sync(7, 384);  // their scores are there
  const auto deep_tile = [&](int i) {
    return deep_slot(p, again(shared) + Layout::slot) + work.query_tile(i) * deep_tile_size;
  };
  barrier_wait(shared + Layout::full_keys, 0);

  Ring<Layout::coarse_stages> ahead;
  const auto make_scores = [&](int i) {
    const int buffer = i % 2, parity = i / 2 % 2;
    const std::uint64_t q1 = coarse_queries + ahead.stage * (Layout::coarse_stage / 16);
    float level1[16], level2[8];
    std::uint32_t level_2_keys[width / 8];
    float deep_scores[2];
    if constexpr (deep) read_deep_scores(deep_scores, deep_tile(i), warp, lane);
    load_level_2_keys<Layout::row, width>(level_2_keys, shared + Layout::k2 + warp * 8 * Layout::row, lane);
    barrier_wait(shared + Layout::full_coarse + ahead.stage * 8, ahead.parity);
    release(level1);
    release(level2);
    pin(level_2_keys);
    products_begin();
    start_product<T, width, 0, 0>(level1, k1, q1);
    start_level_2<T>(level2, level_2_keys, q1 + Layout::q2 / 16, false);
    products_commit();
    barrier_wait(shared + Layout::empty_scores + buffer * 8, parity ^ 1);
    products_wait<0>();
    pin(level1);
    pin(level2);
    store_coarse_scores(shared + Layout::scores + buffer * coarse_scores_bytes + 2 * warp * 1024 + lane * 16, level1,
                        level2, c1, c2, deep ? deep_scores : nullptr);
    __syncwarp();
    if (every_lane_arrives || lane == 0) barrier_arrive(shared + Layout::full_scores + buffer * 8);
    ahead.advance();
  };

  Ring<Layout::coarse_stages> ring;
#pragma unroll 1
  for (int i = coarse ? -1 : 0; i < work.steps; ++i) {
    if constexpr (coarse) {
      if (i + 1 < work.steps) make_scores(i + 1);
      if (i < 0) continue;
    }
    const int buffer = i % 2, parity = i / 2 % 2;
    const std::uint64_t fine = descriptor<128>(shared + Layout::fine + buffer * Layout::fine_buffer);
    const std::uint64_t level1 = descriptor<64>(shared + Layout::level1 + buffer * Layout::level1_buffer);
    const std::uint64_t level2 = descriptor<32>(shared + Layout::level2 + buffer * Layout::level2_buffer);
    // Of each pair of warps, whose rows belong to the same eight keys of level 2, the even one's; the odd one's are
    // next.
    const std::uint64_t every_second = with_stride(level2, 512);
    const std::uint64_t q1 = coarse_queries + ring.stage * (Layout::coarse_stage / 16);
    const std::uint64_t q2 = q1 + Layout::q2 / 16;
    const bool ordered = p.turns != nullptr;
    float sums0[width / 2], sums1[16], sums2[8];

    barrier_wait(shared + Layout::full_gradients + buffer * 8, parity);
    if constexpr (coarse) {
      release(sums1);
      release(sums2);
      pin(grad_k1);
      pin(grad_k2);
      products_begin();
#pragma unroll
      for (int k = 0; k < 4; ++k) Product<T, 32, true, true>::run(sums1, k1 + k * Layout::row, level1 + k * 64, k > 0);
#pragma unroll
      for (int k = 0; k < 4; ++k)
        Product<T, 16, true, true>::run(sums2, k2 + k * (Layout::row / 2), level2 + k * 32, k > 0);
#pragma unroll
      for (int k = 0; k < 2; ++k) Product<T, width, false, true>::run(grad_k1, level1 + 2 * k, q1 + k * Layout::row, 1);
#pragma unroll
      for (int k = 0; k < 2; ++k) Product<T, 32, true, false>::run(grad_k2, q2, every_second + k * 16, 1);
      products_commit();
      if constexpr (deep)
        store_deep_gradients<T>(deep_tile(i), shared + Layout::level2 + buffer * Layout::level2_buffer, warp, lane);
      products_wait<0>();
      pin(sums1);
      pin(sums2);
      pin(grad_k1);
      pin(grad_k2);
      if (every_lane_arrives || lane == 0) barrier_arrive(shared + Layout::empty_coarse + ring.stage * 8);
      if (!ordered) {  // in any order: straight from registers
        float* const to =
            p.query_sums + query_sums_size(width, true, deep) *
                               (static_cast<std::int64_t>(work.sequence) * p.query_tiles + work.query_tile(i));
        if (thread < sum_threads) {
          add_registers(to + 64 * width + thread * 4, sum_threads, sums1);
          add_registers(to + 96 * width + thread * 4, sum_threads, sums2);
        }
      }
      if (ordered) {  // through shared memory
        barrier_wait(shared + Layout::empty_coarse_sums, i % 2 ^ 1);
        if (thread < sum_threads) {
          store_sums(shared + Layout::coarse_sums + thread * 16, sum_threads, sums1);
          store_sums(shared + Layout::coarse_sums + Layout::sums2 + thread * 16, sum_threads, sums2);
        }
      }
    }
    // Not beside the coarse sums: together they would need registers that the other warpgroups make better use of.
    release(sums0);
    products_begin();
#pragma unroll
    for (int k = 0; k < 8; ++k) Product<T, width, true, true>::run(sums0, fine + k * 128, k0 + k * Layout::row, k > 0);
    products_commit();
    if constexpr (coarse) {
      if (ordered) {
        fence_async();
        __syncwarp();
        if (every_lane_arrives || lane == 0) barrier_arrive(shared + Layout::full_coarse_sums);
      }
    }
    barrier_wait(shared + Layout::empty_sums + buffer * 8, parity ^ 1);
    products_wait<0>();
    pin(sums0);
    if (every_lane_arrives || lane == 0) barrier_arrive(shared + Layout::empty_gradients + buffer * 8);
    store_sums(shared + Layout::sums + buffer * Layout::sums_buffer + thread * 16, 128, sums0);
    fence_async();
    __syncwarp();
    if (every_lane_arrives || lane == 0) barrier_arrive(shared + Layout::full_sums + buffer * 8);
    ring.advance();
  }
  if constexpr (deep) named_arrive(8, 384);

  if constexpr (coarse) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int row = work.key_tile * (backward_keys / 2) + 16 * warp + 2 * r + h;
      if (row < level_rows(p, 1)) write_row(row_of<T>(p.grad_k[1], work, row), grad_k1, h, c, p.width, w1);
    }
#pragma unroll
    for (int i = 0; i < 16; ++i) {
      const int column = 16 * warp + i / 2 % 2 * 8 + r;
      const int row = work.key_tile * (backward_keys / 4) + i / 4 * 8 + 2 * c + i % 2;
      if (p.levels > 2 && column < p.width && row < level_rows(p, 2))
        row_of<T>(p.grad_k[2], work, row)[column] = T(w2 * grad_k2[i]);
    }
  }
}

}  // namespace hkt::kernels::cuda::sm90
