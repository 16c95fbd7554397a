// SPDX-License-Identifier: Apache-2.0
// Forward on Hopper, wide (64 < D <= 128): tiles are 128 query rows by 128 keys. One consumer warpgroup has the even rows, one
// the odd ones; a coarse warpgroup computes the scores of levels 1 and 2, which both need, one tile ahead; a producer
// warpgroup loads. Items, places and parameters are defined in forward.h, references in forward_tile.h, deep levels in deep.h,
// slots in forward_deep.h.
#pragma once

#include "common/launch.h"
#include "sm90/forward.h"
#include "sm90/forward_deep.h"

namespace hkt::kernels::cuda::sm90 {

// ---- shared memory ----

// Arrays are cut into panels of 64 columns; narrower rows are filled up with zeros. One level leaves some of it unused. Of
// pairs of barriers `full` says that something has been written and `empty` that it has been read.
template <int levels>
struct ForwardWideStorage {
  static constexpr bool coarse = levels > 1;
  static constexpr bool deep = levels > 3;
  static constexpr int stages = 2;
  static constexpr int panels = 2;
  static constexpr int width = panels * 64;
  static constexpr int row_bytes = 128;  // of a panel, which is swizzled by as much

  static constexpr int threads = (1 + consumers + (coarse ? 1 : 0)) * warpgroup_threads;
  static constexpr int producer_registers = 24;
  static constexpr int consumer_registers = coarse ? 200 : 240;
  static constexpr int coarse_registers = 88;
  static_assert(warpgroup_threads *
                    (producer_registers + consumers * consumer_registers + (coarse ? coarse_registers : 0)) <=
                sm_registers);

  using QueryBlock = Tile<64 * row_bytes>;  // the rows of one wgmma, of one panel
  using KeyPanel = Tile<key_rows * row_bytes>;
  struct CoarseQueries {
    QueryBlock level1[panels];
    Tile<32 * row_bytes> level2[panels];  // natural order, each row once
  };
  struct CoarseKeys {
    Tile<key_rows / 2 * row_bytes> level1[panels];
    Tile<key_rows / 4 * row_bytes> level2[panels];
  };
  struct CoarseScores {
    Tile<warpgroup_threads * 16> blocks[8];  // four scores of each thread: see join_levels
  };

  alignas(1024) QueryBlock q0[consumers][panels];  // even rows, odd rows
  CoarseQueries coarse_queries;
  KeyPanel keys[stages][panels];
  KeyPanel values[stages][panels];
  CoarseKeys coarse_keys;
  CoarseScores coarse_scores;

  Barrier full_queries[consumers], empty_queries[consumers];
  Barrier full_keys[stages], empty_keys[stages];
  Barrier full_values[stages], empty_values[stages];
  Barrier full_coarse_queries, empty_coarse_queries;
  Barrier full_coarse_keys, empty_coarse_keys;
  Barrier full_coarse_scores, empty_coarse_scores;
};

// With levels from 3 on: consumers arrive when an item's sums are made, and the coarse warpgroup waits for them. The slot is
// free again when consumers have the coarse scores of its last tile: the coarse warpgroup has then read all sums.
enum class WideBarrier : std::uint8_t { deep_sums = 1 };
inline constexpr int deep_sums_threads = (consumers + 1) * warpgroup_threads;

template <class Parameters>
__device__ __forceinline__ int wide_key_tiles(const Parameters& p, const Item& item) {
  return key_tiles(p, item, item.tile * query_tile_rows(128));
}

// ---- producers ----

// All panels of a tile, from the row on.
template <class Panel, int panels>
__device__ __forceinline__ void load_panels(const Panel (&to)[panels], int offset, const CUtensorMap& map,
                                            Barrier& full, int row, int head, int batch) {
#pragma unroll
  for (int i = 0; i < panels; ++i)
    tma_load_tile(to[i].address() + offset, map, full.address(), i * 64, row, head, batch);
}

// The key warp: keys of level 0, and values.
template <int levels, class Parameters>
__device__ __forceinline__ void load_keys(const Parameters& p, ForwardWideStorage<levels>& storage) {
  using Storage = ForwardWideStorage<levels>;
  const bool leader = threadIdx.x % 32 == 0;
  PipelineState<Storage::stages> pipeline;
  TileScheduler scheduler;
  while (scheduler.next(p)) {
    const Item item = scheduler.item(p);
    const int tiles = wide_key_tiles(p, item), head = key_head(p, item);
    for (int j = 0; j < tiles; ++j) {
      const auto load = [&](const auto& panels, const CUtensorMap& map, Barrier& full, Barrier& empty) {
        empty.wait(pipeline.parity ^ 1);
        if (leader) {
          full.arrive_expect(sizeof(panels));
          load_panels(panels, 0, map, full, j * key_rows, head, item.batch);
        }
      };
      const int stage = pipeline.stage;
      load(storage.keys[stage], p.k0, storage.full_keys[stage], storage.empty_keys[stage]);
      if (are_at_ends(p) && (j + 1) * key_rows > item.length) {
        storage.empty_values[stage].wait(pipeline.parity ^ 1);
        copy_last_values<64, Storage::width>(storage.values[stage][0].address(), p, item, head, j * key_rows,
                                             storage.full_values[stage]);
      } else {
        load(storage.values[stage], p.v, storage.full_values[stage], storage.empty_values[stage]);
      }
      pipeline.advance();
    }
  }
}

// The query warp: queries, each as soon as those before are done with.
template <int levels, class Parameters>
__device__ __forceinline__ void load_queries(const Parameters& p, ForwardWideStorage<levels>& storage) {
  using Storage = ForwardWideStorage<levels>;
  constexpr int half_block = Storage::QueryBlock::bytes / 2;  // see ForwardParameters
  const bool leader = threadIdx.x % 32 == 0;
  int parity = 1;
  TileScheduler scheduler;
  while (scheduler.next(p)) {
    const Item item = scheduler.item(p);
    if (wide_key_tiles(p, item) == 0) continue;
    const int row = item.tile * (query_tile_rows(128) / 4), start = first_query(p, item);
    if constexpr (Storage::coarse) {  // first, because the coarse warpgroup is ahead
      storage.empty_coarse_queries.wait(parity);
      if (leader) {
        Barrier& full = storage.full_coarse_queries;
        full.arrive_expect(sizeof(storage.coarse_queries));
        load_panels(storage.coarse_queries.level2, 0, p.q2, full, row - shift_of_level_2(p, start), item.head,
                    item.batch);
#pragma unroll
        for (int s = 0; s < 2; ++s) {
          const QueryRows rows1 = query_rows_of<2>(start >> 1, s);
          load_panels(storage.coarse_queries.level1, s * half_block, p.q1[rows1.map], full, row - rows1.shift,
                      item.head, item.batch);
        }
      }
    }
#pragma unroll
    for (int e = 0; e < consumers; ++e) {
      storage.empty_queries[e].wait(parity);
      if (leader) {
        storage.full_queries[e].arrive_expect(sizeof(storage.q0[e]));
#pragma unroll
        for (int s = 0; s < 2; ++s) {
          const QueryRows rows0 = query_rows_of<4>(start, 2 * s + e);
          load_panels(storage.q0[e], s * half_block, p.q0[rows0.map], storage.full_queries[e], row - rows0.shift,
                      item.head, item.batch);
        }
      }
    }
    parity ^= 1;
  }
}

// copy_threads threads: keys of levels 1 and 2.
template <int levels, class Parameters>
__device__ __forceinline__ void copy_keys(const Parameters& p, ForwardWideStorage<levels>& storage) {
  const int thread = threadIdx.x % copy_threads;
  int parity = 1;
  TileScheduler scheduler;
  while (scheduler.next(p)) {
    const Item item = scheduler.item(p);
    const int tiles = wide_key_tiles(p, item), head = key_head(p, item);
    for (int j = 0; j < tiles; ++j) {
      storage.empty_coarse_keys.wait(parity);
      parity ^= 1;
      copy_coarse_keys<2, 64, 128, key_rows / 4>(storage.coarse_keys.level2[0].address(), p.k2, item, head,
                                                 j * key_rows / 4, p.rows2, p.width, thread);
      copy_coarse_keys<1, 64, 128, key_rows / 2>(storage.coarse_keys.level1[0].address(), p.k1, item, head,
                                                 j * key_rows / 2, p.rows1, p.width, thread);
      cp_async_commit();
      cp_async_wait<0>();
      fence_async_shared();
      storage.full_coarse_keys.arrive();
    }
  }
}

// In the loops of this kernel arrivals are written out: arrive_warp, which computes addresses before the branch, made it 1 to
// 2 % slower.

// ---- the coarse warpgroup ----

// Scores of levels 1 and 2, and what coarser levels add, one tile ahead of the consumers.
template <class T, int levels, class Parameters>
struct WideCoarse {
  using Storage = ForwardWideStorage<levels>;

  const Parameters& p;
  Storage& storage;
  const std::uint64_t queries1, keys1, keys2;  // matrix descriptors
  const std::uint32_t scores;                  // the thread's, in shared memory
  const float* first_deep_sums;                // the thread's, of the first tile
  DeepScores deep_sums[2];                     // of the next tile to be joined
  float c1, c2;                                // what scores of levels 1 and 2 are multiplied by
  int parity = 0;

  __device__ __forceinline__ WideCoarse(const Parameters& p, Storage& storage)
      : p(p),
        storage(storage),
        queries1(matrix_descriptor<Storage::row_bytes>(storage.coarse_queries.level1[0].address())),
        keys1(matrix_descriptor<Storage::row_bytes>(storage.coarse_keys.level1[0].address())),
        keys2(matrix_descriptor<Storage::row_bytes>(storage.coarse_keys.level2[0].address())),
        scores(storage.coarse_scores.blocks[0].address() + threadIdx.x % warpgroup_threads * 16) {
    if constexpr (Storage::deep) {
      const int warp = warp_uniform(static_cast<int>(threadIdx.x % warpgroup_threads / 32));
      first_deep_sums =
          deep_slot(p, blockIdx.x) + deep_offset(DeepOrder::even_keys_first, warp % 2 * 32 + threadIdx.x % 32) / 4;
    }
  }

  __device__ __forceinline__ void run() {
    int queries_parity = 0;
    TileScheduler scheduler;
    while (scheduler.next(p)) {
      const Item item = scheduler.item(p);
      const int tiles = warp_uniform(wide_key_tiles(p, item));
      if (tiles == 0) continue;
      c1 = coefficient(p, item, 1);
      c2 = coefficient(p, item, 2);
      storage.full_coarse_queries.wait(queries_parity);
      queries_parity ^= 1;
#pragma unroll 1
      for (int j = 0; j < tiles; ++j) step(j, tiles);
    }
  }

  // The warp's 16 query rows of level 2 as wgmma's left operand. Places 32s + i hold row i.
  __device__ __forceinline__ void load_queries2(std::uint32_t (&to)[32]) const {
    const int row = (threadIdx.x / 32 * 16 + threadIdx.x % 16) % 32;
    const int chunk = threadIdx.x % 32 / 16;
#pragma unroll
    for (int i = 0; i < 8; ++i)
      ldmatrix_x4(to + 4 * i, storage.coarse_queries.level2[i / 4].address() + row * Storage::row_bytes +
                                  ((i % 4 * 2 + chunk) ^ row % 8) * 16);
  }

  // One level after the other: together they would need more registers than the consumers can spare.
  __device__ __forceinline__ void step(int tile, int tiles) {
    using Keys1 = decltype(Storage::CoarseKeys::level1);
    using Keys2 = decltype(Storage::CoarseKeys::level2);
    std::uint32_t queries2[32];
    float level1[32], level2[16];
    storage.full_coarse_keys.wait(parity);
    load_queries2(queries2);
    mark_undefined(level2);
    fence_operand(queries2);
    wgmma_fence();
#pragma unroll
    for (int i = 0; i < 8; ++i)
      Wgmma<T, 32>::run(level2, queries2 + 4 * i,
                        keys2 + i / 4 * descriptor_offset(sizeof(Keys2) / Storage::panels) + i % 4 * 2, i > 0);
    wgmma_commit();
    wgmma_wait<0>();
    fence_operand(level2);
    mark_undefined(level1);
    wgmma_fence();
    issue_qk<T, Storage::width, Storage::QueryBlock::bytes, sizeof(Keys1) / Storage::panels>(level1, queries1, keys1);
    wgmma_commit();
    if constexpr (Storage::deep) {
      if (tile == 0) {
        named_barrier_sync(WideBarrier::deep_sums, deep_sums_threads);
        read_deep(deep_sums, first_deep_sums);
      }
    }
    wgmma_wait<0>();
    fence_operand(level1);
    fence_operand(level2);
    if (Barrier::arrives_for_warp()) {
      storage.empty_coarse_keys.arrive();
      if (tile + 1 == tiles) storage.empty_coarse_queries.arrive();
    }
    storage.empty_coarse_scores.wait(parity ^ 1);
    join_and_store(level1, level2);
    __syncwarp();
    if (Barrier::arrives_for_warp()) storage.full_coarse_scores.arrive();
    if constexpr (Storage::deep) {
      if (tile + 1 < tiles) read_deep(deep_sums, first_deep_sums + (tile + 1) * (deep_tile_bytes / 4));
    }
    parity ^= 1;
  }

  __device__ __forceinline__ void join_and_store(const float (&level1)[32], const float (&level2)[16]) {
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const std::uint32_t to = scores + i * sizeof(storage.coarse_scores.blocks[0]);
      if constexpr (Storage::deep) {
        const float add[2] = {deep_of(deep_sums[i / 4], 0, i), deep_of(deep_sums[i / 4], 1, i)};
        st_shared_f32x4(to, join_levels(level1, level2, c1, c2, i, add));
      } else {
        st_shared_f32x4(to, join_levels(level1, level2, c1, c2, i));
      }
    }
  }
};

// ---- consumers ----

// The even or the odd rows of each item.
template <class T, int levels, class Parameters>
struct WideConsumer {
  using Storage = ForwardWideStorage<levels>;
  using Pipeline = PipelineState<Storage::stages>;

  const Parameters& p;
  Storage& storage;
  const int index;                                        // 0: even rows, 1: odd rows
  const std::uint64_t queries, first_keys, first_values;  // matrix descriptors
  const std::uint32_t coarse_scores;                      // the thread's, in shared memory
  TileScheduler scheduler;
  Pipeline key_pipeline, value_pipeline;
  int queries_parity = 0, coarse_parity = 0;

  // Of the item.
  float c0;          // what scores of level 0 are multiplied by
  float scores[64];  // of a tile of keys, then their exponentials
  std::uint32_t probabilities[32];
  float out[64];
  SoftmaxState softmax;

  __device__ __forceinline__ WideConsumer(const Parameters& p, Storage& storage, int index)
      : p(p),
        storage(storage),
        index(index),
        queries(matrix_descriptor<Storage::row_bytes>(storage.q0[index][0].address())),
        first_keys(matrix_descriptor<Storage::row_bytes>(storage.keys[0][0].address())),
        first_values(matrix_descriptor<Storage::row_bytes>(storage.values[0][0].address(), Storage::KeyPanel::bytes)),
        coarse_scores(storage.coarse_scores.blocks[0].address() + threadIdx.x % warpgroup_threads * 16) {}

  __device__ __forceinline__ void run() {
    while (scheduler.next(p)) {
      const Item item = scheduler.item(p);
      const int tiles = warp_uniform(wide_key_tiles(p, item));
      if constexpr (Storage::deep) {
        if (tiles > 0) {
          make_deep_sums<T, Storage::width, consumers * 4, DeepOrder::even_keys_first>(deep_slot(p, blockIdx.x), p,
                                                                                       item, item.tile, tiles);
          named_barrier_arrive(WideBarrier::deep_sums, deep_sums_threads);
        }
      }
#pragma unroll
      for (int i = 0; i < 64; ++i) out[i] = 0;
      clear(softmax);
      if (tiles > 0) {
        c0 = coefficient(p, item, 0);
        run_tiles(tiles);
      }
      const Item same_item = scheduler.item_again(p);
      store_output<T>(p, same_item, first_row(same_item), out, softmax);
    }
  }

  // The thread's; its other one is 32 further.
  __device__ __forceinline__ int first_row(const Item& item) const {
    const int place = threadIdx.x % warpgroup_threads / 32 * 16 + threadIdx.x % 32 / 4;
    return item.tile * query_tile_rows(128) + 4 * (place % 32) + 2 * (place / 32) + index;
  }

  __device__ __forceinline__ void issue_scores() {
    constexpr int stage_bytes = sizeof(storage.keys[0]);
    issue_qk<T, Storage::width, Storage::QueryBlock::bytes, Storage::KeyPanel::bytes>(
        scores, queries, first_keys + key_pipeline.stage * descriptor_offset(stage_bytes));
    wgmma_commit();
  }
  __device__ __forceinline__ void issue_output() {
    constexpr int stage_bytes = sizeof(storage.values[0]);
    issue_pv<T, Storage::row_bytes>(out, probabilities,
                                    first_values + value_pipeline.stage * descriptor_offset(stage_bytes));
    wgmma_commit();
  }
  __device__ __forceinline__ void wait_keys() { storage.full_keys[key_pipeline.stage].wait(key_pipeline.parity); }
  __device__ __forceinline__ void wait_values() {
    storage.full_values[value_pipeline.stage].wait(value_pipeline.parity);
  }
  // Gives back the keys, and the queries after the last ones.
  __device__ __forceinline__ void release_keys(bool last) {
    if (Barrier::arrives_for_warp()) {
      storage.empty_keys[key_pipeline.stage].arrive();
      if (last) storage.empty_queries[index].arrive();
    }
    key_pipeline.advance();
  }

  // scores = c0 · s0 + the coarse scores - the rows' reference.
  __device__ __forceinline__ void apply_weights() {
    if constexpr (Storage::coarse) {
      storage.full_coarse_scores.wait(coarse_parity);
      coarse_parity ^= 1;
#pragma unroll
      for (int j = 0; j < 8; ++j) {
        constexpr int block_bytes = sizeof(storage.coarse_scores.blocks[0]);
        add_coarse(scores, c0, j, ld_shared_f32x4(coarse_scores + j * block_bytes), softmax);
      }
      __syncwarp();
      if (Barrier::arrives_for_warp()) storage.empty_coarse_scores.arrive();
    } else {
      apply_weight(scores, c0, softmax);
    }
  }
  // Of the last tile, the only one that can need it.
  __device__ __forceinline__ void mask_last(int tiles) {
    const Item item = scheduler.item_again(p);
    if (!needs_mask(p, item, item.tile * query_tile_rows(128), tiles)) return;
    const int row = first_row(item);
    const int first_key = (tiles - 1) * key_rows + threadIdx.x % 4 * 2;
    mask(scores, last_key(p, item, row) - first_key, last_key(p, item, row + 32) - first_key);
  }

  __device__ __forceinline__ void run_tiles(int tiles) {
    begin(tiles);
#pragma unroll 1
    for (int j = 1; j + 1 < tiles; ++j) step<false>(tiles);
    if (tiles > 1) step<true>(tiles);
    finish();
  }

  // Probabilities of the first tile.
  __device__ __forceinline__ void begin(int tiles) {
    storage.full_queries[index].wait(queries_parity);
    queries_parity ^= 1;
    wait_keys();
    mark_undefined(scores);
    wgmma_fence();
    issue_scores();
    wgmma_wait<0>();
    fence_operand(scores);
    release_keys(tiles == 1);
    apply_weights();
    if (tiles == 1) mask_last(tiles);
    float factor[2];
    raise_reference(scores, softmax, rescale_always, factor);
    exponentiate(scores, softmax);
    pack_probabilities<T>(scores, probabilities);
    wait_values();
  }

  // Probabilities of a tile, in the shadow of the wgmma of the one before with its values.
  template <bool last>
  __device__ __forceinline__ void step(int tiles) {
    wait_keys();
    mark_undefined(scores);
    fence_operand(out);
    fence_operand(probabilities);
    wgmma_fence();
    issue_scores();
    issue_output();
    wgmma_wait<1>();
    fence_operand(scores);
    release_keys(last);
    apply_weights();
    if constexpr (last) mask_last(tiles);
    float factor[2];
    const bool raised = raise_reference(scores, softmax, rescale_threshold, factor);
    exponentiate(scores, softmax);
    fence_operand(scores);
    Barrier& empty_values = storage.empty_values[value_pipeline.stage];
    value_pipeline.advance();
    // Here rather than where the values are used: the compiler would wait for the wgmma before the exponentials.
    wait_values();
    wgmma_wait<0>();
    fence_operand(out);
    fence_operand(scores);
    if (Barrier::arrives_for_warp()) empty_values.arrive();
    if (raised) rescale(out, factor);
    pack_probabilities<T>(scores, probabilities);
  }

  // The last tile's values.
  __device__ __forceinline__ void finish() {
    fence_operand(out);
    fence_operand(probabilities);
    wgmma_fence();
    issue_output();
    wgmma_wait<0>();
    fence_operand(out);
    if (Barrier::arrives_for_warp()) storage.empty_values[value_pipeline.stage].arrive();
    value_pipeline.advance();
  }
};

// ---- the kernel ----

template <int levels>
__device__ __forceinline__ void init_barriers(ForwardWideStorage<levels>& storage) {
  for (int i = 0; i < consumers; ++i) {
    storage.full_queries[i].init(1);
    storage.empty_queries[i].init_warps(4);
  }
  for (int i = 0; i < ForwardWideStorage<levels>::stages; ++i) {
    storage.full_keys[i].init(1);
    storage.empty_keys[i].init_warps(consumers * 4);
    storage.full_values[i].init(1);
    storage.empty_values[i].init_warps(consumers * 4);
  }
  storage.full_coarse_queries.init(1);
  storage.empty_coarse_queries.init_warps(4);
  storage.full_coarse_keys.init(copy_threads);
  storage.empty_coarse_keys.init_warps(4);
  storage.full_coarse_scores.init_warps(4);
  storage.empty_coarse_scores.init_warps(consumers * 4);
  fence_async_shared();
}

template <class T, int levels, class Parameters>
__global__ void __launch_bounds__(ForwardWideStorage<levels>::threads, 1)
    forward_wide(const __grid_constant__ Parameters p) {
  using Storage = ForwardWideStorage<levels>;
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
  } else if (warpgroup < first_consumer_warpgroup + consumers) {
    setmaxnreg_inc<Storage::consumer_registers>();
    WideConsumer<T, levels, Parameters>(p, storage, warpgroup - first_consumer_warpgroup).run();
  } else if constexpr (Storage::coarse) {
    setmaxnreg_dec<Storage::coarse_registers>();
    WideCoarse<T, levels, Parameters>(p, storage).run();
  }
}

template <class T, int levels>
void launch_forward_wide(const ForwardParameters& parameters, int ctas, void* stream) {
  using Storage = ForwardWideStorage<levels>;
  static_assert(shared_storage_bytes<Storage> <= max_shared_bytes);
  constexpr std::size_t bytes = shared_storage_bytes<Storage>;
  if (parameters.at_ends || parameters.start != 0 || parameters.queries != parameters.length)
    launch(forward_wide<T, levels, ForwardParameters>, ctas, Storage::threads, bytes, stream, parameters);
  else
    launch(forward_wide<T, levels, AllQueriesParameters>, ctas, Storage::threads, bytes, stream,
           AllQueriesParameters{parameters});
}

}  // namespace hkt::kernels::cuda::sm90
