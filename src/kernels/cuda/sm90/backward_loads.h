// SPDX-License-Identifier: Apache-2.0
// Backward on Hopper: loads. One thread starts all copies of a kind: an instruction for the copy engine has its operands
// from registers of a whole warp, so that lanes that start one each would only put theirs there by turns. Tiles are in
// panels of 64 columns (or of 32, if there are no more), rows of row_bytes.
#pragma once

#include "backward.h"

namespace hkt::kernels::cuda::sm90 {

template <int row_bytes, int panels>
__device__ __forceinline__ void load_keys(std::uint32_t to, const CUtensorMap (&maps)[4], std::uint32_t barrier,
                                          const BackwardWork& work) {
  const int row = work.key_tile * (backward_keys / 4);
#pragma unroll 1
  for (int i = 0; i < 4 * panels; ++i) {
#pragma unroll
    for (int k = 0; k < 4; ++k)  // places 8 · (4i + k) on of a panel
      load_tile(to + (4 * i + k) * 8 * row_bytes, maps[k], barrier, i / 4 * 64, row + i % 4 * 8, work.head, work.batch);
  }
}

template <int row_bytes, int panels>
__device__ __forceinline__ void load_coarse_keys(std::uint32_t k1, std::uint32_t k2, const BackwardParameters& p,
                                                 std::uint32_t barrier, const BackwardWork& work) {
  const int row = work.key_tile * (backward_keys / 4);
#pragma unroll 1
  for (int i = 0; i < 4 * panels; ++i) {
#pragma unroll
    for (int k = 0; k < 2; ++k)
      load_tile(k1 + (2 * i + k) * 8 * row_bytes, p.k1[k], barrier, i / 4 * 64, row + i % 4 * 8, work.head, work.batch);
  }
#pragma unroll
  for (int i = 0; i < panels; ++i)
    load_tile(k2 + i * 32 * row_bytes, p.k2, barrier, i * 64, row, work.head, level_2_batch(p, work));
}

template <int row_bytes, int panels>
__device__ __forceinline__ void load_queries(std::uint32_t to, const CUtensorMap (&maps)[4], std::uint32_t barrier,
                                             const BackwardWork& work, int tile) {
#pragma unroll
  for (int i = 0; i < 4 * panels; ++i)
    load_tile(to + i * 16 * row_bytes, maps[i % 4], barrier, i / 4 * 64, tile * (backward_queries / 4), work.head,
              work.batch);
}

template <int row_bytes, int panels>
__device__ __forceinline__ void load_coarse_queries(std::uint32_t q1, std::uint32_t q2, const BackwardParameters& p,
                                                    std::uint32_t barrier, const BackwardWork& work, int tile) {
  const int row = tile * (backward_queries / 4);
#pragma unroll
  for (int i = 0; i < 2 * panels; ++i)
    load_tile(q1 + i * 16 * row_bytes, p.q1[i % 2], barrier, i / 2 * 64, row, work.head, work.batch);
#pragma unroll
  for (int i = 0; i < panels; ++i)
    load_tile(q2 + i * 16 * row_bytes, p.q2, barrier, i * 64, row, work.head, level_2_batch(p, work));
}

// One thread: keys or values of level 0, then queries or output gradients with their data of rows, step by step.
template <class Layout, int panels>
__device__ __forceinline__ void load_level_0(const BackwardParameters& p, const BackwardWork& work,
                                             std::uint32_t shared, const CUtensorMap (&key_maps)[4], std::uint32_t keys,
                                             const CUtensorMap (&query_maps)[4], std::uint32_t queries,
                                             const float* row_data, std::uint32_t rows, std::uint32_t full_queries,
                                             std::uint32_t empty_queries) {
  barrier_expect(shared + Layout::full_keys, panels * backward_keys * Layout::row);
  load_keys<Layout::row, panels>(keys, key_maps, shared + Layout::full_keys, work);
  row_data += static_cast<std::int64_t>(work.sequence) * p.query_tiles * backward_queries;
  Ring<Layout::stages> ring;
#pragma unroll 1
  for (int i = 0; i < work.steps; ++i) {
    const int tile = work.query_tile(i);
    const std::uint32_t full = full_queries + ring.stage * 8;
    barrier_wait(empty_queries + ring.stage * 8, ring.parity ^ 1);
    barrier_expect(full, panels * backward_queries * Layout::row + backward_queries * 4);
    load_queries<Layout::row, panels>(queries + ring.stage * Layout::query_stage, query_maps, full, work, tile);
    load_bytes(rows + ring.stage * Layout::row_stage, row_data + tile * backward_queries, backward_queries * 4, full);
    ring.advance();
  }
}

// One thread: the same for levels 1 and 2.
template <class Layout, int panels>
__device__ __forceinline__ void load_coarse_levels(const BackwardParameters& p, const BackwardWork& work,
                                                   std::uint32_t shared) {
  barrier_expect(shared + Layout::full_keys, panels * (backward_keys / 2 + backward_keys / 4) * Layout::row);
  load_coarse_keys<Layout::row, panels>(shared + Layout::k1, shared + Layout::k2, p, shared + Layout::full_keys, work);
  Ring<Layout::coarse_stages> ring;
#pragma unroll 1
  for (int i = 0; i < work.steps; ++i) {
    const std::uint32_t full = shared + Layout::full_coarse + ring.stage * 8;
    const std::uint32_t stage = shared + Layout::coarse + ring.stage * Layout::coarse_stage;
    barrier_wait(shared + Layout::empty_coarse + ring.stage * 8, ring.parity ^ 1);
    barrier_expect(full, Layout::coarse_stage);
    load_coarse_queries<Layout::row, panels>(stage, stage + Layout::q2, p, full, work, work.query_tile(i));
    ring.advance();
  }
}

}  // namespace hkt::kernels::cuda::sm90
