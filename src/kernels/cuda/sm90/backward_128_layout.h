// SPDX-License-Identifier: Apache-2.0
// Backward on Hopper for widths above 64: where things lie in shared memory and in the workspace.
#pragma once

#include "backward_scores.h"

namespace hkt::kernels::cuda::sm90 {

// Where things lie in shared memory. Tiles are in panels of 64 columns: rows of 128 bytes, swizzled by as much.
struct BackwardWideLayout {
  static constexpr int stages = 2;
  static constexpr int coarse_stages = 2;
  static constexpr int row = 128;
  static constexpr int key_panel = 128 * row, key1_panel = 64 * row, key2_panel = 32 * row;
  static constexpr int k0 = 0;
  static constexpr int v = k0 + 2 * key_panel;
  static constexpr int k1 = v + 2 * key_panel;
  static constexpr int k2 = k1 + 2 * key1_panel;

  // Stages of q0 and the output's gradient, whose place the first warpgroup's sums for queries take when a step has done
  // with it.
  static constexpr int query_panel = 64 * row;
  static constexpr int queries = k2 + 2 * key2_panel;
  static constexpr int grad_out = 2 * query_panel;  // in a stage
  static constexpr int query_stage = 4 * query_panel;
  static constexpr int sum_panel = 64 * 64 * 4;

  static constexpr int coarse = queries + stages * query_stage;  // stages of q1 and q2
  static constexpr int q1_panel = 32 * row, q2_panel = 16 * row;
  static constexpr int q2 = 2 * q1_panel;
  static constexpr int coarse_stage = 2 * (q1_panel + q2_panel);

  // Gradients of scores, of level 0 and of coarse levels, and the second warpgroup's sums for queries.
  static constexpr int level2_buffer = 64 * 32;
  static constexpr int fine = coarse + coarse_stages * coarse_stage;
  static constexpr int level1 = fine + 128 * 128;
  static constexpr int level2 = level1 + coarse_gradients_bytes;
  static constexpr int second_sums = level2 + level2_buffer;

  // After the last step: stages of q1, q2 and the gradients of scores of level 1, in the place of all tiles. Those in the
  // place of keys and values of level 0 can be used first. See backward_128_late.h.
  static constexpr int late_stage = coarse_stage + coarse_gradients_bytes;
  static constexpr int late_stages = level1 / late_stage;
  static constexpr int first_late_stages = k1 / late_stage;
  static constexpr int late_loaders = 3;
  static_assert(late_stages % late_loaders == 0);  // a stage always has the same one
  static_assert(late_stage % 1024 == 0);           // swizzles

  static constexpr int scores = second_sums + sum_panel;     // coarse ones
  static constexpr int rows = scores + coarse_scores_bytes;  // stages of lse and delta
  static constexpr int delta = 256;
  static constexpr int row_stage = 512;

  static constexpr int full_keys = rows + stages * row_stage;  // barriers, of 8 bytes
  static constexpr int full_queries = full_keys + 8;
  static constexpr int full_grad_out = full_queries + stages * 8;
  static constexpr int full_sums = full_grad_out + stages * 8;
  static constexpr int empty_queries = full_sums + stages * 8;
  static constexpr int full_coarse = empty_queries + stages * 8;
  static constexpr int empty_coarse = full_coarse + coarse_stages * 8;
  static constexpr int full_scores = empty_coarse + coarse_stages * 8;
  static constexpr int empty_scores = full_scores + 8;
  static constexpr int full_gradients = empty_scores + 8;
  static constexpr int empty_gradients = full_gradients + 2 * 8;
  static constexpr int empty_grad_out = empty_gradients + 8;
  static constexpr int empty_second_sums = empty_grad_out + stages * 8;
  static constexpr int full_second_sums = empty_second_sums + 8;
  static constexpr int read_fine = full_second_sums + stages * 8;
  static constexpr int read_keys = read_fine + 8;
  static constexpr int full_late = read_keys + 8;
  static constexpr int empty_late = full_late + late_stages * 8;
  static constexpr int claimed = empty_late + late_stages * 8;
  static constexpr int slot = claimed + 8;                       // its number
  static constexpr int bytes = slot + 8 + 1024;                  // the start is rounded up
  static_assert(bytes <= 227 * 1024 && 2 * bytes > 227 * 1024);  // one block for a multiprocessor: see backward_slots.h
};

template <bool coarse, bool deep>
__device__ __forceinline__ float* backward_wide_query_sums(const BackwardParameters& p, const BackwardWork& work,
                                                           int tile) {
  const std::int64_t index = static_cast<std::int64_t>(work.sequence) * p.query_tiles + tile;
  return p.query_sums + index * 2 * query_sums_size(64, coarse, deep);
}

}  // namespace hkt::kernels::cuda::sm90
