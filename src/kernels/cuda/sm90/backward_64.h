// SPDX-License-Identifier: Apache-2.0
// Backward on Hopper for widths up to 64. Of a block's four warpgroups, two have 64 keys each and make probabilities,
// gradients of scores, and the gradients of keys and values; one makes coarse scores a step ahead, the gradients of
// coarse keys, and the sums for the gradients of queries; one loads, and has the copy engine add the sums to those in
// global memory.
#pragma once

#include "backward_64_coarse.h"
#include "backward_64_fine.h"
#include "backward_loads.h"
#include "backward_turns.h"

namespace hkt::kernels::cuda::sm90 {

// One thread: adds each step's sums for queries; of the coarse ones those that their warpgroup does not add itself.
// With one level two threads take the steps by turns, because a step is short beside what a fixed order of additions
// needs between two of them.
template <int width, bool coarse, bool deep>
__device__ __forceinline__ void backward_narrow_add(const BackwardParameters& p, const BackwardWork& work,
                                                    std::uint32_t shared, int first) {
  using Layout = BackwardNarrowLayout<width>;
  constexpr int size = query_sums_size(width, coarse, deep);
  float* const query_sums = p.query_sums + static_cast<std::int64_t>(work.sequence) * p.query_tiles * size;
  constexpr int stride = coarse ? 1 : 2;
  const bool ordered = p.turns != nullptr;
  int now = -1;  // of the next step's turn: see begin_turn
#pragma unroll 1
  for (int i = first; i < work.steps; i += stride) {
    const int buffer = i % 2, parity = i / 2 % 2;
    const int tile = work.query_tile(i);
    float* const to = query_sums + static_cast<std::int64_t>(tile) * size;
    if (ordered) begin_turn(p, work, tile, 0, now);
    if (coarse && ordered) {
      barrier_wait(shared + Layout::full_coarse_sums, i % 2);
      add_floats(to + 64 * width, shared + Layout::coarse_sums, Layout::coarse_sums_bytes);
      commit_stores();
    }
    barrier_wait(shared + Layout::full_sums + buffer * 8, parity);
    add_floats(to, shared + Layout::sums + buffer * Layout::sums_buffer, Layout::sums_buffer);
    commit_stores();
    if constexpr (coarse) {
      wait_stores_read<1>();  // the coarse sums, and those of level 0 of the step before
      barrier_arrive(shared + Layout::empty_coarse_sums);
      if (i > 0) barrier_arrive(shared + Layout::empty_sums + (buffer ^ 1) * 8);
    } else {
      wait_stores_read();
      barrier_arrive(shared + Layout::empty_sums + buffer * 8);
    }
    if (ordered) {
      now = peek_step(p, work, i + stride, 0);
      wait_stores();
      end_turn(p, work, tile, 0);
    }
  }
  wait_stores();
}

template <class T, int width, bool coarse, bool deep>
__global__ void __launch_bounds__(512, 1) backward_narrow(const __grid_constant__ BackwardParameters p) {
  using Layout = BackwardNarrowLayout<width>;
  extern __shared__ std::uint8_t memory[];
  const std::uint32_t shared = (shared_address(memory) + 1023) & ~1023u;
  const BackwardWork work = backward_work<1>(p, blockIdx.x);
  if (work.steps == 0) {
    clear_rows<T>(p.grad_v, p, work, 0);
    for (int level = 0; level < p.levels; ++level) clear_rows<T>(p.grad_k[level], p, work, level);
    return;
  }
  if (threadIdx.x == 0) {
    barrier_init(shared + Layout::full_keys, coarse ? 3 : 2);
    for (int i = 0; i < Layout::stages; ++i) {
      barrier_init(shared + Layout::full_queries + i * 8, 2);
      barrier_init_warps(shared + Layout::empty_queries + i * 8, 8);
    }
    for (int i = 0; i < Layout::coarse_stages; ++i) {
      barrier_init(shared + Layout::full_coarse + i * 8, 1);
      barrier_init_warps(shared + Layout::empty_coarse + i * 8, 4);
    }
    for (int i = 0; i < 2; ++i) {
      barrier_init_warps(shared + Layout::full_scores + i * 8, 4);
      barrier_init_warps(shared + Layout::empty_scores + i * 8, 8);
      barrier_init_warps(shared + Layout::full_gradients + i * 8, 8);
      barrier_init_warps(shared + Layout::empty_gradients + i * 8, 4);
      barrier_init_warps(shared + Layout::full_sums + i * 8, 4);
      barrier_init(shared + Layout::empty_sums + i * 8, 1);
    }
    barrier_init_warps(shared + Layout::full_coarse_sums, 4);
    barrier_init(shared + Layout::empty_coarse_sums, 1);
    if constexpr (deep) sm80::store_4(shared + Layout::slot, claim_slot(p));
    fence_async();
  }
  __syncthreads();
  const int warpgroup = __shfl_sync(~0u, threadIdx.x / 128, 0);
  if (warpgroup == 0) {
    fewer_registers<24>();
    const std::uint32_t queries = shared + Layout::queries, rows = shared + Layout::rows;
    if (threadIdx.x == 0)
      load_level_0<Layout, 1>(p, work, shared, p.k0, shared + Layout::k0, p.q0, queries, p.lse, rows,
                              shared + Layout::full_queries, shared + Layout::empty_queries);
    if (threadIdx.x == 32)
      load_level_0<Layout, 1>(p, work, shared, p.v, shared + Layout::v, p.grad_out, queries + Layout::grad_out, p.delta,
                              rows + Layout::delta, shared + Layout::full_queries, shared + Layout::empty_queries);
    if constexpr (coarse) {
      if (threadIdx.x == 64) load_coarse_levels<Layout, 1>(p, work, shared);
    }
    if (threadIdx.x == 96) backward_narrow_add<width, coarse, deep>(p, work, shared, 0);
    if constexpr (!coarse) {
      if (threadIdx.x == 64) backward_narrow_add<width, coarse, deep>(p, work, shared, 1);
    }
  } else if (warpgroup < 3) {
    more_registers<184>();
    backward_narrow_fine<T, width, coarse, deep>(p, work, shared, warpgroup - 1);
  } else {
    fewer_registers<120>();
    backward_narrow_coarse<T, width, coarse, deep>(p, work, shared);
  }
}

template <class T, int width, bool coarse, bool deep>
void start_backward_narrow(const BackwardParameters& parameters, const Device& device) {
  const unsigned blocks = static_cast<unsigned>(parameters.batch) * parameters.heads * parameters.key_tiles;
  launch(backward_narrow<T, width, coarse, deep>, blocks, 512, BackwardNarrowLayout<width>::bytes, device.stream,
         parameters);
}

}  // namespace hkt::kernels::cuda::sm90
