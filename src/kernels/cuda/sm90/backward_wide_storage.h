// SPDX-License-Identifier: Apache-2.0
// Backward on Hopper, wide (64 < D <= 128): shared memory.
#pragma once

#include "sm90/backward_scores.h"
#include "sm90/backward_semaphores.h"

namespace hkt::kernels::cuda::sm90 {

// Rows are in panels of 64 columns; narrower ones are filled up with zeros. Of pairs of barriers `full` says that something
// has been written and `empty` that it has been read.

// What the steps need of tiles. After the last step the second pass has its stages here (backward_wide_second_pass.h).
struct BackwardWideTiles {
  static constexpr int stages = 2;
  static constexpr int coarse_stages = 2;
  static constexpr int panels = 2;
  static constexpr int row_bytes = 128;  // of panels, which are swizzled by as much

  alignas(1024) Tile<128 * row_bytes> k0[panels];
  Tile<128 * row_bytes> v[panels];
  Tile<64 * row_bytes> k1[panels];
  Tile<32 * row_bytes> k2[panels];

  struct QueryStage {
    Tile<64 * row_bytes> q0[panels];
    Tile<64 * row_bytes> grad_out[panels];  // when a step has done with it, the first fine warpgroup's query sums
  };
  struct CoarseQueryStage {
    Tile<32 * row_bytes> q1[panels];
    Tile<16 * row_bytes> q2[panels];
  };
  QueryStage queries[stages];
  CoarseQueryStage coarse_queries[coarse_stages];
  Tile<fine_gradients_bytes> fine_gradients;  // of scores
};

struct BackwardWideStorage : BackwardWideTiles {
  using QuerySumsPanel = Tile<64 * 64 * 4>;
  static_assert(sizeof(QuerySumsPanel) == sizeof(QueryStage::grad_out));

  Tile<level1_gradients_bytes> level1_gradients;
  Tile<level2_gradients_bytes> level2_gradients;
  QuerySumsPanel second_sums;  // the second fine warpgroup's query sums
  Tile<coarse_scores_bytes> coarse_scores;

  struct RowStage {
    Tile<backward_queries * 4> lse;
    Tile<backward_queries * 4> delta;
  } rows[stages];

  struct SecondPassStage {
    CoarseQueryStage queries;
    Tile<coarse_gradients_bytes> level1_gradients;
  };
  static constexpr int second_pass_stages = sizeof(BackwardWideTiles) / sizeof(SecondPassStage);
  // Those in the place of keys and values of level 0, which can be used first.
  static constexpr int early_stages = (sizeof(k0) + sizeof(v)) / sizeof(SecondPassStage);
  static constexpr int second_pass_loaders = 3;
  static_assert(second_pass_stages % second_pass_loaders == 0);  // a stage always has the same one
  static_assert(sizeof(SecondPassStage) % 1024 == 0);            // swizzles
  __device__ __forceinline__ SecondPassStage& second_pass_stage(int i) {
    return reinterpret_cast<SecondPassStage*>(static_cast<std::uintptr_t>(shared_address(this)))[i];
  }

  Barrier full_keys;  // and values, of all levels
  Barrier full_queries[stages], empty_queries[stages];
  Barrier full_grad_out[stages], empty_grad_out[stages];  // empty: the sums in its place have been added, too
  Barrier full_first_sums[stages];
  Barrier full_second_sums[stages], empty_second_sums;
  Barrier full_coarse_queries[coarse_stages], empty_coarse_queries[coarse_stages];
  Barrier full_scores, empty_scores;  // coarse ones
  Barrier full_gradients[2];          // of even and odd steps
  Barrier empty_coarse_gradients;     // they are in the slot
  Barrier empty_fine_gradients;
  Barrier empty_keys;  // and values, of level 0; there are no more steps
  Barrier full_second_pass[second_pass_stages], empty_second_pass[second_pass_stages];
  Barrier has_slot;
  Word slot;  // its number
};
static_assert(one_cta_per_sm<BackwardWideStorage>);

// The query sums of a tile, of both panels.
template <bool coarse, bool deep>
__device__ __forceinline__ float* wide_query_sums(const BackwardParameters& p, const BackwardWork& work, int tile) {
  const std::int64_t index = static_cast<std::int64_t>(work.sequence) * p.query_tiles + tile;
  return p.query_sums + index * BackwardWideStorage::panels * query_sums_size(64, coarse, deep);
}

}  // namespace hkt::kernels::cuda::sm90
