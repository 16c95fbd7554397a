// SPDX-License-Identifier: Apache-2.0
// Backward on Hopper: TMA loads. One thread issues all loads of a kind: a TMA instruction has its operands in uniform
// registers, which a warp shares, so lanes that issue one each would only do so one after the other.
//
// Tiles are in panels of 64 columns (or of 32, if there are no more), rows of Storage::row_bytes.
#pragma once

#include "sm90/backward.h"

namespace hkt::kernels::cuda::sm90 {

inline constexpr int panel_columns = 64;

// The level-2 arrays of a problem of two levels do not exist: their maps are read outside, where everything is zero.
__device__ __forceinline__ int level_2_batch(const BackwardParameters& p, const BackwardWork& work) {
  return p.levels > 2 ? work.batch : p.batch;
}

template <class Storage>
__device__ __forceinline__ void load_keys(std::uint32_t to, const CUtensorMap (&maps)[4], Barrier& full,
                                          const BackwardWork& work) {
  const int row = work.key_tile * (backward_keys / 4);
#pragma unroll 1
  for (int i = 0; i < 4 * Storage::panels; ++i) {
#pragma unroll
    for (int k = 0; k < 4; ++k)  // tile rows 8 · (4i + k) on of a panel
      tma_load_tile(to + (4 * i + k) * 8 * Storage::row_bytes, maps[k], full.address(), i / 4 * panel_columns,
                    row + i % 4 * 8, work.key_head, work.batch);
  }
}

template <class Storage>
__device__ __forceinline__ void load_coarse_keys(std::uint32_t k1, std::uint32_t k2, const BackwardParameters& p,
                                                 Barrier& full, const BackwardWork& work) {
  const int row = work.key_tile * (backward_keys / 4);
#pragma unroll 1
  for (int i = 0; i < 4 * Storage::panels; ++i) {
#pragma unroll
    for (int k = 0; k < 2; ++k)
      tma_load_tile(k1 + (2 * i + k) * 8 * Storage::row_bytes, p.k1[k], full.address(), i / 4 * panel_columns,
                    row + i % 4 * 8, work.key_head, work.batch);
  }
#pragma unroll
  for (int i = 0; i < Storage::panels; ++i)
    tma_load_tile(k2 + i * 32 * Storage::row_bytes, p.k2, full.address(), i * panel_columns, row, work.key_head,
                  level_2_batch(p, work));
}

template <class Storage>
__device__ __forceinline__ void load_queries(std::uint32_t to, const CUtensorMap (&maps)[4],
                                             const BackwardParameters& p, Barrier& full, const BackwardWork& work,
                                             int tile) {
#pragma unroll
  for (int i = 0; i < 4 * Storage::panels; ++i)
    tma_load_tile(to + i * 16 * Storage::row_bytes, maps[i % 4], full.address(), i / 4 * panel_columns,
                  tile * (backward_queries / 4) - p.shift0[i % 4], work.head, work.batch);
}

template <class Storage>
__device__ __forceinline__ void load_coarse_queries(std::uint32_t q1, std::uint32_t q2, const BackwardParameters& p,
                                                    Barrier& full, const BackwardWork& work, int tile) {
  const int row = tile * (backward_queries / 4);
#pragma unroll
  for (int i = 0; i < 2 * Storage::panels; ++i)
    tma_load_tile(q1 + i * 16 * Storage::row_bytes, p.q1[i % 2], full.address(), i / 2 * panel_columns,
                  row - p.shift1[i % 2], work.head, work.batch);
#pragma unroll
  for (int i = 0; i < Storage::panels; ++i)
    tma_load_tile(q2 + i * 16 * Storage::row_bytes, p.q2, full.address(), i * panel_columns, row - p.shift2, work.head,
                  level_2_batch(p, work));
}

// ---- the loops of the loading threads ----

enum class FineLoad {
  keys,    // of level 0, then step by step the queries with their lse
  values,  // then step by step the output's gradient with delta
};

// One thread: level 0. `full`, `empty`: barriers of the stages.
template <FineLoad what, class Storage>
__device__ __forceinline__ void load_fine(const BackwardParameters& p, const BackwardWork& work, Storage& storage,
                                          Barrier (&full)[Storage::stages], Barrier (&empty)[Storage::stages]) {
  constexpr bool is_keys = what == FineLoad::keys;
  storage.full_keys.arrive_expect(sizeof(Storage::k0));
  if constexpr (is_keys)
    load_keys<Storage>(shared_address(&storage.k0), p.k0, storage.full_keys, work);
  else
    load_keys<Storage>(shared_address(&storage.v), p.v, storage.full_keys, work);
  const float* const row_data =
      (is_keys ? p.lse : p.delta) + static_cast<std::int64_t>(work.sequence) * p.query_tiles * backward_queries;
  PipelineState<Storage::stages> pipe;
#pragma unroll 1
  for (int i = 0; i < work.steps; ++i) {
    auto& stage = storage.queries[pipe.stage];
    auto& rows = storage.rows[pipe.stage];
    const auto& to_rows = is_keys ? rows.lse : rows.delta;
    const int tile = work.query_tile(i);
    empty[pipe.stage].wait(pipe.parity ^ 1);
    full[pipe.stage].arrive_expect(sizeof(stage.q0) + to_rows.bytes);
    if constexpr (is_keys)
      load_queries<Storage>(shared_address(&stage.q0), p.q0, p, full[pipe.stage], work, tile);
    else
      load_queries<Storage>(shared_address(&stage.grad_out), p.grad_out, p, full[pipe.stage], work, tile);
    tma_load(to_rows.address(), row_data + tile * backward_queries, to_rows.bytes, full[pipe.stage].address());
    pipe.advance();
  }
}

// One thread: keys of levels 1 and 2, then step by step their queries.
template <class Storage>
__device__ __forceinline__ void load_coarse(const BackwardParameters& p, const BackwardWork& work, Storage& storage) {
  storage.full_keys.arrive_expect(sizeof(Storage::k1) + sizeof(Storage::k2));
  load_coarse_keys<Storage>(shared_address(&storage.k1), shared_address(&storage.k2), p, storage.full_keys, work);
  PipelineState<Storage::coarse_stages> pipe;
#pragma unroll 1
  for (int i = 0; i < work.steps; ++i) {
    auto& stage = storage.coarse_queries[pipe.stage];
    Barrier& full = storage.full_coarse_queries[pipe.stage];
    storage.empty_coarse_queries[pipe.stage].wait(pipe.parity ^ 1);
    full.arrive_expect(sizeof(stage));
    load_coarse_queries<Storage>(shared_address(&stage.q1), shared_address(&stage.q2), p, full, work,
                                 work.query_tile(i));
    pipe.advance();
  }
}

}  // namespace hkt::kernels::cuda::sm90
