// SPDX-License-Identifier: Apache-2.0
// Backward on Hopper, narrow (D <= 64): shared memory.
#pragma once

#include "sm90/backward_scores.h"
#include "sm90/backward_semaphores.h"

namespace hkt::kernels::cuda::sm90 {

// `width` is 32 or 64; narrower rows are filled up with zeros. Of pairs of barriers `full` says that something has been
// written and `empty` that it has been read.
template <int width>
struct BackwardNarrowStorage {
  static constexpr int stages = 3;
  static constexpr int coarse_stages = 3;
  static constexpr int buffers = 2;  // for what warpgroups pass to each other
  static constexpr int panels = 1;
  static constexpr int row_bytes = 2 * width;  // of tiles, which are swizzled by as much

  alignas(1024) Tile<128 * row_bytes> k0;
  Tile<128 * row_bytes> v;
  Tile<64 * row_bytes> k1;
  Tile<32 * row_bytes> k2;

  struct QueryStage {
    Tile<64 * row_bytes> q0;
    Tile<64 * row_bytes> grad_out;
  };
  struct CoarseQueryStage {
    Tile<32 * row_bytes> q1;
    Tile<16 * row_bytes> q2;
  };
  QueryStage queries[stages];
  CoarseQueryStage coarse_queries[coarse_stages];

  // Gradients of scores.
  alignas(1024) Tile<fine_gradients_bytes> fine_gradients[buffers];
  Tile<level1_gradients_bytes> level1_gradients[buffers];
  Tile<level2_gradients_bytes> level2_gradients[buffers];

  Tile<coarse_scores_bytes> coarse_scores[buffers];
  Tile<64 * width * 4> sums[buffers];  // query sums
  struct CoarseSums {
    Tile<32 * width * 4> level1;
    Tile<16 * width * 4> level2;
  } coarse_sums;

  struct RowStage {
    Tile<backward_queries * 4> lse;
    Tile<backward_queries * 4> delta;
  } rows[stages];

  Barrier full_keys;  // and values, of all levels
  Barrier full_queries[stages], empty_queries[stages];
  Barrier full_coarse_queries[coarse_stages], empty_coarse_queries[coarse_stages];
  Barrier full_scores[buffers], empty_scores[buffers];  // coarse ones
  Barrier full_gradients[buffers], empty_gradients[buffers];
  Barrier full_sums[buffers], empty_sums[buffers];
  Barrier full_coarse_sums, empty_coarse_sums;
  Word slot;  // its number

  static_assert(sizeof(QueryStage) % 1024 == 0 && sizeof(CoarseQueryStage) % (8 * row_bytes) == 0);  // swizzles
};
static_assert(one_cta_per_sm<BackwardNarrowStorage<32>> && one_cta_per_sm<BackwardNarrowStorage<64>>);

}  // namespace hkt::kernels::cuda::sm90
