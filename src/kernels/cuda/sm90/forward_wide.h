// SPDX-License-Identifier: Apache-2.0
// Forward on Hopper for widths above 64: tiles of 128 query rows by 128 keys. One warpgroup of consumers has the even
// rows, one the odd ones; a coarse warpgroup computes the scores of levels 1 and 2, which both need, one tile ahead; a
// warpgroup of producers loads.
#pragma once

#include <type_traits>

#include "forward_common.h"
#include "forward_deep_sums.h"

namespace hkt::kernels::cuda::sm90 {

// Where things lie in shared memory. Arrays are cut into tiles of 64 columns, that is, rows of 128 bytes.
template <int levels>
struct WideLayout {
  static constexpr int stages = 2;
  static constexpr int row = 128;
  static constexpr int block = 64 * row;           // one product's rows of queries, 64 columns
  static constexpr int key_tile = key_rows * row;  // 64 columns of a tile of keys or values

  static constexpr int q0 = 0;  // even rows, odd rows
  static constexpr int q1 = q0 + 4 * block;
  static constexpr int q2 = q1 + (levels > 1 ? 2 * block : 0);  // 32 rows only
  static constexpr int keys = q2 + (levels > 1 ? block : 0);
  static constexpr int values = keys + stages * 2 * key_tile;

  static constexpr int key1 = values + stages * 2 * key_tile;
  static constexpr int key2 = key1 + (levels > 1 ? key_tile : 0);
  static constexpr int coarse = key2 + (levels > 1 ? key_tile / 2 : 0);  // scores, in eight blocks of four a thread
  static constexpr int coarse_block = 128 * 16;

  static constexpr int full_q = coarse + (levels > 1 ? 8 * coarse_block : 0);  // barriers, of 8 bytes
  static constexpr int empty_q = full_q + 2 * 8;
  static constexpr int full_k = empty_q + 2 * 8;
  static constexpr int empty_k = full_k + stages * 8;
  static constexpr int full_v = empty_k + stages * 8;
  static constexpr int empty_v = full_v + stages * 8;
  static constexpr int full_coarse_q = empty_v + stages * 8;
  static constexpr int empty_coarse_q = full_coarse_q + 8;
  static constexpr int full_coarse_keys = empty_coarse_q + 8;
  static constexpr int empty_coarse_keys = full_coarse_keys + 8;
  static constexpr int full_coarse = empty_coarse_keys + 8;
  static constexpr int empty_coarse = full_coarse + 8;
  static constexpr int bytes = empty_coarse + 8 + 1024;  // the start is rounded up
  static_assert(bytes <= 227 * 1024);
};

// With levels from 3 on, consumers arrive here when an item's sums are made. The slot is free again when they have the coarse
// scores of its last tile: the coarse warpgroup has then read all sums.
inline constexpr int deep_barrier = 1;
inline constexpr int deep_threads = 2 * 128 + 128;

// One warp: keys of level 0, and values.
template <int levels>
__device__ __forceinline__ void wide_load_keys(const ForwardParameters& p, std::uint32_t shared, bool leader) {
  using Layout = WideLayout<levels>;
  Ring<Layout::stages> ring;
  Work work;
  while (next_item(p, work)) {
    const Item item = read_item(p, work);
    const int tiles = key_tiles(p, item, item.tile * 128);
    for (int j = 0; j < tiles; ++j) {
      const std::uint32_t full_k = shared + Layout::full_k + ring.stage * 8;
      const std::uint32_t full_v = shared + Layout::full_v + ring.stage * 8;
      const std::uint32_t offset = ring.stage * 2 * Layout::key_tile;
      barrier_wait(shared + Layout::empty_k + ring.stage * 8, ring.parity ^ 1);
      if (leader) {
        barrier_expect(full_k, 2 * Layout::key_tile);
        for (int part = 0; part < 2; ++part)
          load_tile(shared + Layout::keys + offset + part * Layout::key_tile, p.k0, full_k, part * 64, j * key_rows,
                    item.head, item.batch);
      }
      barrier_wait(shared + Layout::empty_v + ring.stage * 8, ring.parity ^ 1);
      if (leader) {
        barrier_expect(full_v, 2 * Layout::key_tile);
        for (int part = 0; part < 2; ++part)
          load_tile(shared + Layout::values + offset + part * Layout::key_tile, p.v, full_v, part * 64, j * key_rows,
                    item.head, item.batch);
      }
      ring.advance();
    }
  }
}

// One warp: queries, each as soon as those before are done with.
template <int levels>
__device__ __forceinline__ void wide_load_queries(const ForwardParameters& p, std::uint32_t shared, bool leader) {
  using Layout = WideLayout<levels>;
  int parity = 1;
  Work work;
  while (next_item(p, work)) {
    const Item item = read_item(p, work);
    if (key_tiles(p, item, item.tile * 128) == 0) continue;
    const int quarter_row = item.tile * 32;
    if constexpr (levels > 1) {  // first, because the coarse warpgroup is ahead
      barrier_wait(shared + Layout::empty_coarse_q, parity);
      if (leader) {
        const std::uint32_t full = shared + Layout::full_coarse_q;
        barrier_expect(full, 3 * Layout::block);
        for (int part = 0; part < 2; ++part) {
          load_tile(shared + Layout::q2 + part * (Layout::block / 2), p.q2, full, part * 64, quarter_row, item.head,
                    item.batch);
          for (int s = 0; s < 2; ++s)
            load_tile(shared + Layout::q1 + part * Layout::block + s * (Layout::block / 2), p.q1[s], full, part * 64,
                      quarter_row, item.head, item.batch);
        }
      }
    }
    for (int e = 0; e < 2; ++e) {
      barrier_wait(shared + Layout::empty_q + e * 8, parity);
      if (leader) {
        const std::uint32_t full = shared + Layout::full_q + e * 8;
        barrier_expect(full, 2 * Layout::block);
        for (int part = 0; part < 2; ++part) {
          for (int s = 0; s < 2; ++s)
            load_tile(shared + Layout::q0 + (2 * e + part) * Layout::block + s * (Layout::block / 2), p.q0[2 * s + e],
                      full, part * 64, quarter_row, item.head, item.batch);
        }
      }
    }
    parity ^= 1;
  }
}

// copy_threads threads: keys of levels 1 and 2.
__device__ __forceinline__ void wide_copy_keys(const ForwardParameters& p, std::uint32_t shared, int thread) {
  using Layout = WideLayout<3>;
  int parity = 1;
  Work work;
  while (next_item(p, work)) {
    const Item item = read_item(p, work);
    const int tiles = key_tiles(p, item, item.tile * 128);
    for (int j = 0; j < tiles; ++j) {
      barrier_wait(shared + Layout::empty_coarse_keys, parity);
      parity ^= 1;
      copy_keys<2, 64, 128, key_rows / 4>(shared + Layout::key2, p.k2, item, j * key_rows / 4, p.rows2, p.width,
                                          thread);
      copy_keys<1, 64, 128, key_rows / 2>(shared + Layout::key1, p.k1, item, j * key_rows / 2, p.rows1, p.width,
                                          thread);
      commit_copies();
      wait_copies<0>();
      fence_async();
      barrier_arrive(shared + Layout::full_coarse_keys);
    }
  }
}

// The warp's 16 rows of queries of level 2 as the left operand of products. Places 32s + i hold row i.
__device__ __forceinline__ void load_queries_2(std::uint32_t q2, std::uint32_t (&a)[32]) {
  using Layout = WideLayout<3>;
  const int row = (threadIdx.x / 32 * 16 + threadIdx.x % 16) % 32;
  const int chunk = threadIdx.x % 32 / 16;
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    const std::uint32_t from =
        q2 + i / 4 * (Layout::block / 2) + row * Layout::row + ((i % 4 * 2 + chunk) ^ row % 8) * 16;
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(a[4 * i]), "=r"(a[4 * i + 1]), "=r"(a[4 * i + 2]), "=r"(a[4 * i + 3])
                 : "r"(from)
                 : "memory");
  }
}

// A warpgroup: coarse scores, one tile ahead of the consumers.
template <class T, int levels>
__device__ __forceinline__ void wide_coarse(const ForwardParameters& p, std::uint32_t shared) {
  using Layout = WideLayout<levels>;
  constexpr bool deep = levels > 3;
  const bool leader = threadIdx.x % 32 == 0;
  const int warp = uniform(static_cast<int>(threadIdx.x % 128 / 32));
  const std::uint64_t q1 = descriptor<128>(shared + Layout::q1);
  const std::uint64_t key1 = descriptor<128>(shared + Layout::key1);
  const std::uint64_t key2 = descriptor<128>(shared + Layout::key2);
  const std::uint32_t coarse = shared + Layout::coarse + threadIdx.x % 128 * 16;
  const float* first_deep_sums;  // the thread's, of the first tile
  if constexpr (deep)
    first_deep_sums =
        deep_slot(p, blockIdx.x) + deep_place(DeepOrder::even_keys_first, warp % 2 * 32 + threadIdx.x % 32) / 4;
  int q_parity = 0;
  int parity = 0;
  Work work;
  while (next_item(p, work)) {
    const Item item = read_item(p, work);
    const int tiles = uniform(key_tiles(p, item, item.tile * 128));
    if (tiles == 0) continue;
    const float c1 = coefficient(p, item, 1);
    const float c2 = coefficient(p, item, 2);
    DeepScores deep_sums[2];  // of the next tile to be joined
    barrier_wait(shared + Layout::full_coarse_q, q_parity);
    q_parity ^= 1;
#pragma unroll 1
    for (int j = 0; j < tiles; ++j) {
      // One after the other: together they would need more registers than the consumers can spare.
      std::uint32_t q2[32];
      float level1[32], level2[16];
      barrier_wait(shared + Layout::full_coarse_keys, parity);
      load_queries_2(shared + Layout::q2, q2);
      forget(level2);
      pin(q2);
      products_begin();
#pragma unroll
      for (int i = 0; i < 8; ++i)
        Product<T, 32>::run(level2, q2 + 4 * i, key2 + i / 4 * (Layout::key_tile / 4 / 16) + i % 4 * 2, i > 0);
      products_commit();
      products_wait<0>();
      pin(level2);
      forget(level1);
      products_begin();
      start_scores<T, 128, Layout::block, Layout::key_tile / 2>(level1, q1, key1);
      products_commit();
      if constexpr (deep) {
        if (j == 0) {
          named_sync(deep_barrier, deep_threads);
          read_deep(deep_sums, first_deep_sums);
        }
      }
      products_wait<0>();
      pin(level1);
      pin(level2);
      if (every_lane_arrives || leader) {
        barrier_arrive(shared + Layout::empty_coarse_keys);
        if (j + 1 == tiles) barrier_arrive(shared + Layout::empty_coarse_q);
      }
      barrier_wait(shared + Layout::empty_coarse, parity ^ 1);
      if constexpr (deep) {
#pragma unroll
        for (int i = 0; i < 8; ++i) {
          const float add[2] = {deep_of(deep_sums[i / 4], 0, i), deep_of(deep_sums[i / 4], 1, i)};
          store_coarse(coarse + i * Layout::coarse_block, join_levels(level1, level2, c1, c2, i, add));
        }
      } else {
#pragma unroll
        for (int i = 0; i < 8; ++i)
          store_coarse(coarse + i * Layout::coarse_block, join_levels(level1, level2, c1, c2, i));
      }
      __syncwarp();
      if (every_lane_arrives || leader) barrier_arrive(shared + Layout::full_coarse);
      if constexpr (deep) {
        if (j + 1 < tiles) read_deep(deep_sums, first_deep_sums + (j + 1) * (deep_tile_bytes / 4));
      }
      parity ^= 1;
    }
  }
}

// A warpgroup: the even or the odd rows of each item.
template <class T, int levels>
__device__ __forceinline__ void wide_consume(const ForwardParameters& p, std::uint32_t shared, int consumer) {
  using Layout = WideLayout<levels>;
  const bool leader = threadIdx.x % 32 == 0;
  const std::uint64_t q0 = descriptor<128>(shared + Layout::q0 + 2 * consumer * Layout::block);
  const std::uint64_t keys = descriptor<128>(shared + Layout::keys);
  const std::uint64_t values = descriptor<128>(shared + Layout::values, Layout::key_tile);
  const std::uint32_t full_q = shared + Layout::full_q + consumer * 8;
  const std::uint32_t empty_q = shared + Layout::empty_q + consumer * 8;
  const std::uint32_t coarse = shared + Layout::coarse + threadIdx.x % 128 * 16;

  Ring<Layout::stages> key_ring;
  Ring<Layout::stages> value_ring;
  int q_parity = 0;
  int coarse_parity = 0;
  Work work;
  while (next_item(p, work)) {
    const Item item = read_item(p, work);
    const int tiles = uniform(key_tiles(p, item, item.tile * 128));
    if constexpr (levels > 3) {
      if (tiles > 0) {
        make_deep_sums<T, 128, 8, DeepOrder::even_keys_first>(deep_slot(p, blockIdx.x), p, item, item.tile, tiles);
        named_arrive(deep_barrier, deep_threads);
      }
    }
    float out[64];
    RowState rows;
#pragma unroll
    for (int i = 0; i < 64; ++i) out[i] = 0;
    clear(rows);

    if (tiles > 0) {
      const float c0 = coefficient(p, item, 0);
      float scores[64];
      float factor[2];
      std::uint32_t probabilities[32];

      const auto weigh = [&] {
        if constexpr (levels > 1) {
          barrier_wait(shared + Layout::full_coarse, coarse_parity);
          coarse_parity ^= 1;
#pragma unroll
          for (int j = 0; j < 8; ++j) add_coarse(scores, c0, j, load_coarse(coarse + j * Layout::coarse_block), rows);
          __syncwarp();
          if (every_lane_arrives || leader) barrier_arrive(shared + Layout::empty_coarse);
        } else {
          multiply(scores, c0, rows);
        }
      };
      // Of the last tile, the only one that can need it.
      const auto mask_last = [&] {
        const Item item = read_item_again(p, work);
        if (!needs_mask(p, item, item.tile * 128, tiles)) return;
        const int place = threadIdx.x % 128 / 32 * 16 + threadIdx.x % 32 / 4;
        const int row = item.tile * 128 + 4 * (place % 32) + 2 * (place / 32) + consumer;
        const int first_key = (tiles - 1) * key_rows + threadIdx.x % 4 * 2;
        mask(scores, last_key(p, item, row) - first_key, last_key(p, item, row + 32) - first_key);
      };

      barrier_wait(full_q, q_parity);
      q_parity ^= 1;
      barrier_wait(shared + Layout::full_k + key_ring.stage * 8, key_ring.parity);
      forget(scores);
      products_begin();
      start_scores<T, 128, Layout::block, Layout::key_tile>(scores, q0,
                                                            keys + key_ring.stage * (2 * Layout::key_tile / 16));
      products_commit();
      products_wait<0>();
      pin(scores);
      if (every_lane_arrives || leader) {
        barrier_arrive(shared + Layout::empty_k + key_ring.stage * 8);
        if (tiles == 1) barrier_arrive(empty_q);
      }
      key_ring.advance();
      weigh();
      if (tiles == 1) mask_last();
      raise_reference(scores, rows, no_limit, factor);
      exponentials(scores, rows);
      pack_probabilities<T>(scores, probabilities);
      barrier_wait(shared + Layout::full_v + value_ring.stage * 8, value_ring.parity);

      // Scores and probabilities of a tile, while the product of the one before with its values runs.
      const auto step = [&](auto is_last) {
        constexpr bool last = decltype(is_last)::value;
        barrier_wait(shared + Layout::full_k + key_ring.stage * 8, key_ring.parity);
        forget(scores);
        pin(out);
        pin(probabilities);
        products_begin();
        start_scores<T, 128, Layout::block, Layout::key_tile>(scores, q0,
                                                              keys + key_ring.stage * (2 * Layout::key_tile / 16));
        products_commit();
        start_values<T, Layout::row>(out, probabilities, values + value_ring.stage * (2 * Layout::key_tile / 16));
        products_commit();
        products_wait<1>();
        pin(scores);
        if (every_lane_arrives || leader) {
          barrier_arrive(shared + Layout::empty_k + key_ring.stage * 8);
          if (last) barrier_arrive(empty_q);
        }
        key_ring.advance();
        weigh();
        if constexpr (last) mask_last();
        const bool raised = raise_reference(scores, rows, room, factor);
        exponentials(scores, rows);
        pin(scores);
        const std::uint32_t empty_v = shared + Layout::empty_v + value_ring.stage * 8;
        value_ring.advance();
        // Here rather than where the values are used: the compiler would wait for the products before the exponentials.
        barrier_wait(shared + Layout::full_v + value_ring.stage * 8, value_ring.parity);
        products_wait<0>();
        pin(out);
        pin(scores);
        if (every_lane_arrives || leader) barrier_arrive(empty_v);
        if (raised) rescale(out, factor);
        pack_probabilities<T>(scores, probabilities);
      };
#pragma unroll 1
      for (int j = 1; j + 1 < tiles; ++j) step(std::false_type{});
      if (tiles > 1) step(std::true_type{});

      pin(out);
      pin(probabilities);
      products_begin();
      start_values<T, Layout::row>(out, probabilities, values + value_ring.stage * (2 * Layout::key_tile / 16));
      products_commit();
      products_wait<0>();
      pin(out);
      if (every_lane_arrives || leader) barrier_arrive(shared + Layout::empty_v + value_ring.stage * 8);
      value_ring.advance();
    }

    const Item same_item = read_item_again(p, work);
    const int place = threadIdx.x % 128 / 32 * 16 + threadIdx.x % 32 / 4;
    write_rows<T>(p, same_item, same_item.tile * 128 + 4 * (place % 32) + 2 * (place / 32) + consumer, out, rows);
  }
}

template <int levels>
inline constexpr int wide_threads = levels > 1 ? 512 : 384;

template <class T, int levels>
__global__ void __launch_bounds__(wide_threads<levels>, 1) forward_wide(const __grid_constant__ ForwardParameters p) {
  using Layout = WideLayout<levels>;
  extern __shared__ std::uint8_t memory[];
  const std::uint32_t shared = (shared_address(memory) + 1023) & ~1023u;
  if (threadIdx.x == 0) {
    for (int i = 0; i < 2; ++i) {
      barrier_init(shared + Layout::full_q + i * 8, 1);
      barrier_init_warps(shared + Layout::empty_q + i * 8, 4);
    }
    for (int i = 0; i < Layout::stages; ++i) {
      barrier_init(shared + Layout::full_k + i * 8, 1);
      barrier_init_warps(shared + Layout::empty_k + i * 8, 8);
      barrier_init(shared + Layout::full_v + i * 8, 1);
      barrier_init_warps(shared + Layout::empty_v + i * 8, 8);
    }
    barrier_init(shared + Layout::full_coarse_q, 1);
    barrier_init_warps(shared + Layout::empty_coarse_q, 4);
    barrier_init(shared + Layout::full_coarse_keys, copy_threads);
    barrier_init_warps(shared + Layout::empty_coarse_keys, 4);
    barrier_init_warps(shared + Layout::full_coarse, 4);
    barrier_init_warps(shared + Layout::empty_coarse, 8);
    fence_async();
  }
  __syncthreads();
  const int warpgroup = uniform(static_cast<int>(threadIdx.x / 128));
  if (warpgroup == 0) {
    fewer_registers<24>();
    const int warp = uniform(static_cast<int>(threadIdx.x / 32));
    const bool leader = threadIdx.x % 32 == 0;
    if (warp == 0)
      wide_load_keys<levels>(p, shared, leader);
    else if (warp == 1)
      wide_load_queries<levels>(p, shared, leader);
    else if constexpr (levels > 1)
      wide_copy_keys(p, shared, threadIdx.x % copy_threads);
  } else if (warpgroup <= 2) {
    more_registers<levels == 1 ? 240 : 200>();
    wide_consume<T, levels>(p, shared, warpgroup - 1);
  } else if constexpr (levels > 1) {
    fewer_registers<88>();
    wide_coarse<T, levels>(p, shared);
  }
}

}  // namespace hkt::kernels::cuda::sm90
