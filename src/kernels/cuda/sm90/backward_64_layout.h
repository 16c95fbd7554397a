// SPDX-License-Identifier: Apache-2.0
// Backward on Hopper for widths up to 64: where things lie in shared memory.
#pragma once

#include "backward_scores.h"

namespace hkt::kernels::cuda::sm90 {

// Where things lie in shared memory. Rows of tiles are `row` bytes, swizzled by as much.
template <int width>
struct BackwardNarrowLayout {
  static constexpr int stages = 3;
  static constexpr int coarse_stages = 3;
  static constexpr int row = 2 * width;
  static constexpr int k0 = 0;
  static constexpr int v = k0 + 128 * row;
  static constexpr int k1 = v + 128 * row;
  static constexpr int k2 = k1 + 64 * row;

  static constexpr int queries = k2 + 32 * row;  // stages of q0 and the output's gradient
  static constexpr int grad_out = 64 * row;      // in a stage
  static constexpr int query_stage = 128 * row;
  static constexpr int coarse = queries + stages * query_stage;  // stages of q1 and q2
  static constexpr int q2 = 32 * row;
  static constexpr int coarse_stage = 48 * row;

  // Gradients of scores, two buffers each.
  static constexpr int fine_buffer = 128 * 128, level1_buffer = 64 * 64, level2_buffer = 64 * 32;
  static constexpr int fine = coarse + coarse_stages * coarse_stage;
  static constexpr int level1 = fine + 2 * fine_buffer;
  static constexpr int level2 = level1 + 2 * level1_buffer;

  static constexpr int scores = level2 + 2 * level2_buffer;  // coarse ones, two buffers
  static constexpr int sums_buffer = 64 * width * 4;         // sums for queries, of level 0 in two buffers
  static constexpr int sums = scores + 2 * coarse_scores_bytes;
  static constexpr int coarse_sums = sums + 2 * sums_buffer;
  static constexpr int coarse_sums_bytes = (32 + 16) * width * 4;
  static constexpr int sums2 = 32 * width * 4;  // in the coarse ones

  static constexpr int rows = coarse_sums + coarse_sums_bytes;  // stages of lse and delta
  static constexpr int delta = 256;
  static constexpr int row_stage = 512;

  static constexpr int full_keys = rows + stages * row_stage;  // barriers, of 8 bytes
  static constexpr int full_queries = full_keys + 8;
  static constexpr int empty_queries = full_queries + stages * 8;
  static constexpr int full_coarse = empty_queries + stages * 8;
  static constexpr int empty_coarse = full_coarse + coarse_stages * 8;
  static constexpr int full_scores = empty_coarse + coarse_stages * 8;
  static constexpr int empty_scores = full_scores + 2 * 8;
  static constexpr int full_gradients = empty_scores + 2 * 8;
  static constexpr int empty_gradients = full_gradients + 2 * 8;
  static constexpr int full_sums = empty_gradients + 2 * 8;
  static constexpr int empty_sums = full_sums + 2 * 8;
  static constexpr int full_coarse_sums = empty_sums + 2 * 8;
  static constexpr int empty_coarse_sums = full_coarse_sums + 8;
  static constexpr int slot = empty_coarse_sums + 8;             // its number
  static constexpr int bytes = slot + 8 + 1024;                  // the start is rounded up
  static_assert(bytes <= 227 * 1024 && 2 * bytes > 227 * 1024);  // one block for a multiprocessor: see backward_slots.h
  static_assert(queries % 1024 == 0 && coarse % 1024 == 0 && fine % 1024 == 0 && coarse_stage % (8 * row) == 0);
};

}  // namespace hkt::kernels::cuda::sm90
