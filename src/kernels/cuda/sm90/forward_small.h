// SPDX-License-Identifier: Apache-2.0
// Forward on Hopper for widths up to 64: tiles of 256 query rows by 128 keys. Two warpgroups of consumers have 128 rows
// each, the even ones and the odd ones, and compute the coarse scores that both need once; a warpgroup of producers
// loads.
#pragma once

#include "forward_small_joined.h"
#include "forward_small_summed.h"

namespace hkt::kernels::cuda::sm90 {

inline constexpr int small_threads = 384;

// One warp: keys of level 0, and values.
template <int width, int levels>
__device__ __forceinline__ void small_load_keys(const ForwardParameters& p, std::uint32_t shared, bool leader) {
  using Layout = SmallLayout<width, levels>;
  Ring<Layout::stages> ring;
  Work work;
  while (next_item(p, work)) {
    const Item item = read_item(p, work);
    const int tiles = small_key_tiles(p, item);
    for (int j = 0; j < tiles; ++j) {
      const std::uint32_t full_k = shared + Layout::full_k + ring.stage * 8;
      const std::uint32_t full_v = shared + Layout::full_v + ring.stage * 8;
      barrier_wait(shared + Layout::empty_k + ring.stage * 8, ring.parity ^ 1);
      if (leader) {
        barrier_expect(full_k, Layout::key1);
        load_tile(shared + Layout::keys + ring.stage * Layout::key_stage, p.k0, full_k, 0, j * key_rows, item.head,
                  item.batch);
      }
      barrier_wait(shared + Layout::empty_v + ring.stage * 8, ring.parity ^ 1);
      if (leader) {
        barrier_expect(full_v, Layout::value_stage);
        load_tile(shared + Layout::values + ring.stage * Layout::value_stage, p.v, full_v, 0, j * key_rows, item.head,
                  item.batch);
      }
      ring.advance();
    }
  }
}

// One warp: queries of all levels, for each consumer as soon as it has done with the ones before, and what it must know
// of them.
template <int width, int levels>
__device__ __forceinline__ void small_load_queries(const ForwardParameters& p, std::uint32_t shared, bool leader) {
  using Layout = SmallLayout<width, levels>;
  int parities = 0;  // a bit for each consumer
  // Waits until the consumer has done with its queries; gives the place for its next part.
  const auto wait = [&](int consumer) {
    const int parity = parities >> consumer & 1;
    parities ^= 1 << consumer;
    barrier_wait(shared + Layout::empty_q + consumer * 8, parity ^ 1);
    return shared + Layout::parts + (2 * consumer + parity) * Layout::part;
  };
  Work work;
  while (next_item(p, work)) {
    const Item item = read_item(p, work);
    const int item_tiles = small_key_tiles(p, item);
    PartWork part_work{};
#pragma unroll
    for (int level = 0; level < (levels > 1 ? 3 : 1); ++level)
      part_work.coefficients[level] = coefficient(p, item, level);
#pragma unroll 1
    for (int i = 0; i < 2; ++i) {
      // With a causal mask first the one that had the first half of the item before: it has waited longer.
      const int consumer = p.causal ? consumer_half(p, item, 1 - i) : i;
      const int first_row = item.tile * 256 + consumer_half(p, item, consumer) * 128;
      part_work.tiles = key_tiles(p, item, first_row);
      part_work.skipped = item_tiles - part_work.tiles;
      const std::uint32_t told = wait(consumer);
      if (!leader) continue;
      write_part(told, {item, first_row}, part_work);
      const std::uint32_t full = shared + Layout::full_q + consumer * 8;
      if (part_work.tiles == 0) {
        barrier_arrive(full);
        continue;
      }
      const int quarter_row = first_row / 4;
      barrier_expect(full, (levels > 1 ? 4 : 2) * Layout::block);
#pragma unroll
      for (int s = 0; s < 2; ++s) {
        const std::uint32_t half = shared + s * (Layout::block / 2);
        if constexpr (levels > 1) {
          load_tile(half + Layout::q2 + consumer * Layout::block, p.q2, full, 0, quarter_row, item.head, item.batch);
          load_tile(half + Layout::q1 + consumer * Layout::block, p.q1[s], full, 0, quarter_row, item.head, item.batch);
        }
#pragma unroll
        for (int e = 0; e < 2; ++e)
          load_tile(half + Layout::q0 + (2 * consumer + e) * Layout::block, p.q0[2 * s + e], full, 0, quarter_row,
                    item.head, item.batch);
      }
    }
  }
  PartWork no_work{};
  no_work.tiles = -1;
  for (int consumer = 0; consumer < 2; ++consumer) {
    const std::uint32_t told = wait(consumer);
    if (!leader) continue;
    write_part(told, {}, no_work);
    barrier_arrive(shared + Layout::full_q + consumer * 8);
  }
}

// copy_threads threads: keys of levels 1 and 2.
template <int width, int levels>
__device__ __forceinline__ void small_copy_keys(const ForwardParameters& p, std::uint32_t shared, int thread) {
  using Layout = SmallLayout<width, levels>;
  Ring<Layout::stages> ring;
  Work work;
  while (next_item(p, work)) {
    const Item item = read_item(p, work);
    const int tiles = small_key_tiles(p, item);
    for (int j = 0; j < tiles; ++j) {
      const std::uint32_t stage = shared + Layout::keys + ring.stage * Layout::key_stage;
      barrier_wait(shared + Layout::empty_k + ring.stage * 8, ring.parity ^ 1);
      copy_keys<2, width, width, Layout::key2_places, Layout::summed>(stage + Layout::key2, p.k2, item,
                                                                      j * key_rows / 4, p.rows2, p.width, thread);
      copy_keys<1, width, width, key_rows / 2>(stage + Layout::key1, p.k1, item, j * key_rows / 2, p.rows1, p.width,
                                               thread);
      // The ring's other stages hide the latency: the next copies may start as late as these have come.
      commit_copies();
      wait_copies<0>();
      fence_async();
      barrier_arrive(shared + Layout::full_k + ring.stage * 8);
      ring.advance();
    }
  }
}

template <class T, int width, int levels>
__global__ void __launch_bounds__(small_threads, 1) forward_small(const __grid_constant__ ForwardParameters p) {
  using Layout = SmallLayout<width, levels>;
  extern __shared__ std::uint8_t memory[];
  const std::uint32_t shared = (shared_address(memory) + 1023) & ~1023u;
  if (threadIdx.x == 0) {
    for (int i = 0; i < 2; ++i) {
      barrier_init(shared + Layout::full_q + i * 8, 1);
      barrier_init_warps(shared + Layout::empty_q + i * 8, 4);
    }
    for (int i = 0; i < Layout::stages; ++i) {
      barrier_init(shared + Layout::full_k + i * 8, levels > 1 ? 1 + copy_threads : 1);
      barrier_init_warps(shared + Layout::empty_k + i * 8, 8);
      barrier_init(shared + Layout::full_v + i * 8, 1);
      barrier_init_warps(shared + Layout::empty_v + i * 8, 8);
    }
    fence_async();
  }
  __syncthreads();
  const int warpgroup = uniform(static_cast<int>(threadIdx.x / 128));
  if (warpgroup == 0) {
    fewer_registers<24>();
    const int warp = uniform(static_cast<int>(threadIdx.x / 32));
    const bool leader = threadIdx.x % 32 == 0;
    if (warp == 0)
      small_load_keys<width, levels>(p, shared, leader);
    else if (warp == 1)
      small_load_queries<width, levels>(p, shared, leader);
    else if constexpr (levels > 1)
      small_copy_keys<width, levels>(p, shared, threadIdx.x % copy_threads);
  } else {
    more_registers<240>();
    if constexpr (Layout::summed)
      consume_summed<T, width, levels>(p, shared, warpgroup - 1);
    else
      consume_joined<T, width, levels>(p, shared, warpgroup - 1);
  }
}

}  // namespace hkt::kernels::cuda::sm90
