// SPDX-License-Identifier: Apache-2.0
// Forward on Hopper, narrow (D <= 64): the kernel and its producers. Tiles are 256 query rows by 128 keys. Two consumer
// warpgroups have 128 rows each, as a block of the even rows and one of the odd rows, and compute the coarse scores that both
// blocks need once. A producer warpgroup loads: one warp keys of level 0 and values, one queries, two coarse keys (roles in
// forward.h). Consumers run SummedMainloop at width 64 with several levels, else JoinedMainloop.
#pragma once

#include "common/launch.h"
#include "sm90/forward_narrow_joined.h"
#include "sm90/forward_narrow_summed.h"

namespace hkt::kernels::cuda::sm90 {

// The key warp: keys of level 0, and values.
template <int width, int levels>
__device__ __forceinline__ void load_keys(const ForwardParameters& p, ForwardNarrowStorage<width, levels>& storage) {
  const bool leader = threadIdx.x % 32 == 0;
  PipelineState<ForwardNarrowStorage<width, levels>::stages> pipeline;
  TileScheduler scheduler;
  while (scheduler.next(p)) {
    const Item item = scheduler.item(p);
    const int tiles = item_key_tiles(p, item), head = key_head(p, item);
    for (int j = 0; j < tiles; ++j) {
      const auto load = [&](auto& tile, const CUtensorMap& map, Barrier& full, Barrier& empty) {
        empty.wait(pipeline.parity ^ 1);
        if (leader) {
          full.arrive_expect(tile.bytes);
          tma_load_tile(tile.address(), map, full.address(), 0, j * key_rows, head, item.batch);
        }
      };
      const int stage = pipeline.stage;
      load(storage.keys[stage].level0, p.k0, storage.full_keys[stage], storage.empty_keys[stage]);
      if (p.at_ends && (j + 1) * key_rows > item.length) {
        storage.empty_values[stage].wait(pipeline.parity ^ 1);
        copy_last_values<width, width>(storage.values[stage].address(), p, item, head, j * key_rows,
                                       storage.full_values[stage]);
      } else {
        load(storage.values[stage], p.v, storage.full_values[stage], storage.empty_values[stage]);
      }
      pipeline.advance();
    }
  }
}

// The rows of a consumer's half, one tensor map for each remainder of rows: see ForwardParameters.
template <int width, int levels>
__device__ __forceinline__ void load_half(const ForwardParameters& p, ForwardNarrowStorage<width, levels>& storage,
                                          int consumer, const ItemHalf& half) {
  using Storage = ForwardNarrowStorage<width, levels>;
  using QueryBlock = typename Storage::QueryBlock;
  Barrier& full = storage.full_queries[consumer];
  full.arrive_expect((Storage::coarse ? 4 : 2) * QueryBlock::bytes);
  const int start = first_query(p, half.item);
#pragma unroll
  for (int s = 0; s < 2; ++s) {
    const auto load = [&](const QueryBlock& block, const CUtensorMap& map, int shift) {
      tma_load_tile(block.address() + s * (QueryBlock::bytes / 2), map, full.address(), 0, half.first_row / 4 - shift,
                    half.item.head, half.item.batch);
    };
    if constexpr (Storage::coarse) {
      load(storage.coarse_queries.level2[consumer], p.q2, shift_of_level_2(p, start));
      const QueryRows rows1 = query_rows_of<2>(start >> 1, s);
      load(storage.coarse_queries.level1[consumer], p.q1[rows1.map], rows1.shift);
    }
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      const QueryRows rows0 = query_rows_of<4>(start, 2 * s + e);
      load(storage.q0[consumer][e], p.q0[rows0.map], rows0.shift);
    }
  }
}

// The query warp: queries of all levels, for each consumer as soon as it has done with the ones before, and its ItemHalfSlot.
template <int width, int levels>
__device__ __forceinline__ void load_queries(const ForwardParameters& p, ForwardNarrowStorage<width, levels>& storage) {
  using Storage = ForwardNarrowStorage<width, levels>;
  const bool leader = threadIdx.x % 32 == 0;
  int parities = 0;  // a bit for each consumer
  // Waits until the consumer has done with its queries; returns the slot for its next half.
  const auto wait = [&](int consumer) -> ItemHalfSlot& {
    const int parity = parities >> consumer & 1;
    parities ^= 1 << consumer;
    storage.empty_queries[consumer].wait(parity ^ 1);
    return storage.halves[consumer][parity];
  };
  TileScheduler scheduler;
  while (scheduler.next(p)) {
    const Item item = scheduler.item(p);
    const int item_tiles = item_key_tiles(p, item);
    ItemHalfWork work{};
#pragma unroll
    for (int level = 0; level < (Storage::coarse ? 3 : 1); ++level)
      work.coefficients[level] = coefficient(p, item, level);
#pragma unroll 1
    for (int i = 0; i < consumers; ++i) {
      // With a causal mask first the one that had the first half of the item before: it has waited longer. (consumer_half is
      // its own inverse.)
      const int consumer = p.causal ? consumer_half(p, item, 1 - i) : i;
      const ItemHalf half = {item, item.tile * 256 + consumer_half(p, item, consumer) * 128};
      work.tiles = key_tiles(p, item, half.first_row);
      work.skipped = item_tiles - work.tiles;
      ItemHalfSlot& slot = wait(consumer);
      if (!leader) continue;
      slot.write(half, work);
      if (work.tiles == 0)
        storage.full_queries[consumer].arrive();
      else
        load_half(p, storage, consumer, half);
    }
  }
  ItemHalfWork no_work{};
  no_work.tiles = -1;
  for (int consumer = 0; consumer < consumers; ++consumer) {
    ItemHalfSlot& slot = wait(consumer);
    if (!leader) continue;
    slot.write({}, no_work);
    storage.full_queries[consumer].arrive();
  }
}

// copy_threads threads: keys of levels 1 and 2.
template <int width, int levels>
__device__ __forceinline__ void copy_keys(const ForwardParameters& p, ForwardNarrowStorage<width, levels>& storage) {
  using Storage = ForwardNarrowStorage<width, levels>;
  const int thread = threadIdx.x % copy_threads;
  PipelineState<Storage::stages> pipeline;
  TileScheduler scheduler;
  while (scheduler.next(p)) {
    const Item item = scheduler.item(p);
    const int tiles = item_key_tiles(p, item), head = key_head(p, item);
    for (int j = 0; j < tiles; ++j) {
      auto& keys = storage.keys[pipeline.stage];
      storage.empty_keys[pipeline.stage].wait(pipeline.parity ^ 1);
      copy_coarse_keys<2, width, width, Storage::level2_places, Storage::summed>(
          keys.level2.address(), p.k2, item, head, j * key_rows / 4, p.rows2, p.width, thread);
      copy_coarse_keys<1, width, width, key_rows / 2>(keys.level1.address(), p.k1, item, head, j * key_rows / 2,
                                                      p.rows1, p.width, thread);
      // The other stages hide the latency: the next copies need not start before these have come.
      cp_async_commit();
      cp_async_wait<0>();
      fence_async_shared();
      storage.full_keys[pipeline.stage].arrive();
      pipeline.advance();
    }
  }
}

template <int width, int levels>
__device__ __forceinline__ void init_barriers(ForwardNarrowStorage<width, levels>& storage) {
  using Storage = ForwardNarrowStorage<width, levels>;
  for (int i = 0; i < consumers; ++i) {
    storage.full_queries[i].init(1);
    storage.empty_queries[i].init_warps(4);
  }
  for (int i = 0; i < Storage::stages; ++i) {
    storage.full_keys[i].init(Storage::coarse ? 1 + copy_threads : 1);
    storage.empty_keys[i].init_warps(consumers * 4);
    storage.full_values[i].init(1);
    storage.empty_values[i].init_warps(consumers * 4);
  }
  fence_async_shared();
}

template <class T, int width, int levels>
__global__ void __launch_bounds__(ForwardNarrowStorage<width, levels>::threads, 1)
    forward_narrow(const __grid_constant__ ForwardParameters p) {
  using Storage = ForwardNarrowStorage<width, levels>;
  Storage& storage = shared_storage<Storage>();
  if (threadIdx.x == 0) init_barriers(storage);
  __syncthreads();
  const int warpgroup = warp_uniform(static_cast<int>(threadIdx.x / warpgroup_threads));
  if (warpgroup == producer_warpgroup) {
    setmaxnreg_dec<Storage::producer_registers>();
    const int warp = warp_uniform(static_cast<int>(threadIdx.x / 32));
    if (warp == key_warp)
      load_keys(p, storage);
    else if (warp == query_warp)
      load_queries(p, storage);
    else if constexpr (Storage::coarse)
      copy_keys(p, storage);
  } else {
    setmaxnreg_inc<Storage::consumer_registers>();
    const int consumer = warpgroup - first_consumer_warpgroup;
    if constexpr (Storage::summed)
      consume<T, width, levels, SummedMainloop>(p, storage, consumer);
    else
      consume<T, width, levels, JoinedMainloop>(p, storage, consumer);
  }
}

template <class T, int width, int levels>
void launch_forward_narrow(const ForwardParameters& parameters, int ctas, void* stream) {
  using Storage = ForwardNarrowStorage<width, levels>;
  static_assert(shared_storage_bytes<Storage> <= max_shared_bytes);
  launch(forward_narrow<T, width, levels>, ctas, Storage::threads, shared_storage_bytes<Storage>, stream, parameters);
}

}  // namespace hkt::kernels::cuda::sm90
