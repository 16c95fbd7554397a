// SPDX-License-Identifier: Apache-2.0
// Backward on Hopper for widths above 64. Of a block's four warpgroups, two have 64 keys each and make probabilities,
// gradients of scores, the gradients of keys and values, and for 64 columns each the sums for the gradients of queries;
// one makes coarse scores up to two steps ahead, and sums for the gradients of coarse queries; one loads, and adds sums to
// those in global memory. Registers are short: the score's gradient takes the score's, and sums for coarse keys cannot
// stay in registers. The first two warpgroups make them after the last step: see backward_128_late.h.
#pragma once

#include "backward_128_coarse.h"
#include "backward_128_fine.h"
#include "backward_128_late.h"
#include "backward_loads.h"
#include "backward_turns.h"

namespace hkt::kernels::cuda::sm90 {

// One thread: adds each step's sums for queries and gives the stage back.
template <bool coarse, bool deep>
__device__ __forceinline__ void backward_wide_add(const BackwardParameters& p, const BackwardWork& work,
                                                  std::uint32_t shared) {
  using Layout = BackwardWideLayout;
  const bool ordered = p.turns != nullptr;
  int now = -1;  // of the next step's turn: see begin_turn
  Ring<Layout::stages> ring;
#pragma unroll 1
  for (int i = 0; i < work.steps; ++i) {
    const int tile = work.query_tile(i);
    if (ordered) begin_turn(p, work, tile, 0, now);
    const std::uint32_t from = shared + Layout::queries + ring.stage * Layout::query_stage + Layout::grad_out;
    float* const to = backward_wide_query_sums<coarse, deep>(p, work, tile);
    barrier_wait(shared + Layout::full_second_sums + ring.stage * 8, ring.parity);
    add_floats(to + query_sums_size(64, coarse, deep), shared + Layout::second_sums, Layout::sum_panel);
    commit_stores();
    barrier_wait(shared + Layout::full_sums + ring.stage * 8, ring.parity);
    add_floats(to, from, Layout::sum_panel);
    commit_stores();
    wait_stores_read<1>();
    barrier_arrive(shared + Layout::empty_second_sums);
    wait_stores_read();
    barrier_arrive(shared + Layout::empty_grad_out + ring.stage * 8);
    if (ordered) {
      now = peek_step(p, work, i + 1, 0);
      wait_stores();
      end_turn(p, work, tile, 0);
    }
    ring.advance();
  }
  wait_stores();
}

// One level needs no coarse warpgroup, and leaves its registers to the others.
template <bool coarse>
inline constexpr int backward_wide_threads = coarse ? 512 : 384;

template <class T, bool coarse, bool deep>
__global__ void __launch_bounds__(backward_wide_threads<coarse>, 1)
    backward_wide(const __grid_constant__ BackwardParameters p) {
  using Layout = BackwardWideLayout;
  extern __shared__ std::uint8_t memory[];
  const std::uint32_t shared = (shared_address(memory) + 1023) & ~1023u;
  const BackwardWork work = backward_work<2>(p, blockIdx.x);
  if (work.steps == 0) {
    clear_rows<T>(p.grad_v, p, work, 0);
    clear_rows<T>(p.grad_k[0], p, work, 0);
    if constexpr (coarse) {
      for (int level = 1; level < p.levels; ++level) clear_rows<T>(p.grad_k[level], p, work, level);
    }
    return;
  }
  if (threadIdx.x == 0) {
    barrier_init(shared + Layout::full_keys, coarse ? 3 : 2);
    for (int i = 0; i < Layout::stages; ++i) {
      barrier_init(shared + Layout::full_queries + i * 8, 1);
      barrier_init(shared + Layout::full_grad_out + i * 8, 1);
      barrier_init_warps(shared + Layout::full_sums + i * 8, 4);
      barrier_init_warps(shared + Layout::full_second_sums + i * 8, 4);
      barrier_init_warps(shared + Layout::empty_queries + i * 8, 8);
      barrier_init(shared + Layout::empty_grad_out + i * 8, 1);
    }
    for (int i = 0; i < Layout::coarse_stages; ++i) {
      barrier_init(shared + Layout::full_coarse + i * 8, 1);
      barrier_init_warps(shared + Layout::empty_coarse + i * 8, 4);
    }
    barrier_init_warps(shared + Layout::full_scores, 4);
    barrier_init_warps(shared + Layout::empty_scores, 8);
    for (int i = 0; i < 2; ++i) barrier_init_warps(shared + Layout::full_gradients + i * 8, 8);
    barrier_init_warps(shared + Layout::empty_gradients, 4);
    barrier_init(shared + Layout::empty_second_sums, 1);
    barrier_init_warps(shared + Layout::read_fine, 8);
    if constexpr (coarse) {
      for (int i = 0; i < Layout::late_stages; ++i) {
        barrier_init(shared + Layout::full_late + i * 8, 1);
        barrier_init_warps(shared + Layout::empty_late + i * 8, 8);
      }
      barrier_init_warps(shared + Layout::read_keys, 8);
      barrier_init(shared + Layout::claimed, 1);
      if constexpr (deep) backward_wide_claim(p, shared);
    }
    fence_async();
  }
  __syncthreads();
  const int warpgroup = __shfl_sync(~0u, threadIdx.x / 128, 0);
  if (warpgroup == 0) {
    fewer_registers<24>();
    const std::uint32_t queries = shared + Layout::queries, rows = shared + Layout::rows;
    if (threadIdx.x == 0)
      load_level_0<Layout, 2>(p, work, shared, p.k0, shared + Layout::k0, p.q0, queries, p.lse, rows,
                              shared + Layout::full_queries, shared + Layout::empty_queries);
    if (threadIdx.x == 32)
      load_level_0<Layout, 2>(p, work, shared, p.v, shared + Layout::v, p.grad_out, queries + Layout::grad_out, p.delta,
                              rows + Layout::delta, shared + Layout::full_grad_out, shared + Layout::empty_grad_out);
    if (threadIdx.x == 64) {
      // To find a slot takes a while. There is nothing to add yet.
      if constexpr (coarse && !deep) backward_wide_claim(p, shared);
      backward_wide_add<coarse, deep>(p, work, shared);
    }
    if constexpr (coarse) {
      if (threadIdx.x == 96) load_coarse_levels<Layout, 2>(p, work, shared);
      if (threadIdx.x % 32 == 0 && threadIdx.x != 64)
        backward_wide_load_late(p, work, shared, (threadIdx.x / 32 + 1) % 4);
    }
  } else if (warpgroup < 3) {
    more_registers<coarse ? 208 : 240>();
    backward_wide_fine<T, coarse, deep>(p, work, shared, warpgroup - 1);
  } else if constexpr (coarse) {
    fewer_registers<72>();
    backward_wide_coarse<T, deep>(p, work, shared);
  }
}

template <class T, bool coarse, bool deep>
void start_backward_wide(const BackwardParameters& parameters, const Device& device) {
  const unsigned blocks = static_cast<unsigned>(parameters.batch) * parameters.heads * parameters.key_tiles;
  launch(backward_wide<T, coarse, deep>, blocks, backward_wide_threads<coarse>, BackwardWideLayout::bytes,
         device.stream, parameters);
}

}  // namespace hkt::kernels::cuda::sm90
