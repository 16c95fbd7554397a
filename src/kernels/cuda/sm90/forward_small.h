// Forward on Hopper for widths up to 64: tiles of 256 query rows by 128 keys. Two warpgroups of consumers have 128 rows
// each, the even ones and the odd ones, and compute the coarse scores that both need once; a warpgroup of producers
// loads.
#pragma once

#include "forward_common.h"
#include "forward_deep.h"

namespace hkt::kernels::cuda::sm90 {

// Where things lie in shared memory.
template <int width, int levels>
struct SmallLayout {
  static constexpr bool deep = levels > 3;
  static constexpr int stages = deep && width == 64 ? 2 : 3;  // the third one's room is needed for the deep rows
  static constexpr int row = width * 2;
  static constexpr int block = 64 * row;  // one product's rows of queries

  static constexpr int q0 = 0;  // each consumer's even and odd rows
  static constexpr int q1 = q0 + 4 * block;
  static constexpr int q2 = q1 + (levels > 1 ? 2 * block : 0);

  static constexpr int keys = q2 + (levels > 1 ? 2 * block : 0);
  static constexpr int key1 = key_rows * row;  // in a stage of keys
  static constexpr int key2 = key1 + key_rows / 2 * row;
  static constexpr int deep_sums = levels > 1 ? key2 + key_rows / 2 * row : key1;  // one tile for each consumer
  static constexpr int key_stage = deep_sums + (deep ? 2 * deep_tile : 0);

  static constexpr int values = keys + stages * key_stage;
  static constexpr int value_stage = key_rows * row;

  static constexpr int deep_q = values + stages * value_stage;  // of each consumer
  static constexpr int deep_k = deep_q + (deep ? 2 * deep_rows * row : 0);

  static constexpr int full_q = deep_k + (deep ? deep_rows * row : 0);  // barriers, of 8 bytes
  static constexpr int empty_q = full_q + 2 * 8;
  static constexpr int full_k = empty_q + 2 * 8;
  static constexpr int empty_k = full_k + stages * 8;
  static constexpr int full_v = empty_k + stages * 8;
  static constexpr int empty_v = full_v + stages * 8;
  static constexpr int end = empty_v + stages * 8;
  static constexpr int bytes = end + 1024;  // the start is rounded up
  static_assert(bytes <= 227 * 1024);
};

inline constexpr int small_threads = 384;

// Tiles of keys that an item needs: those of the consumer that needs more.
__device__ __forceinline__ int small_key_tiles(const ForwardParameters& p, const Item& item) {
  return max(key_tiles(p, item, item.tile * 256), key_tiles(p, item, item.tile * 256 + 128));
}

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

// One warp: queries of all levels, for each consumer as soon as it has done with the ones before.
template <int width, int levels>
__device__ __forceinline__ void small_load_queries(const ForwardParameters& p, std::uint32_t shared, bool leader) {
  using Layout = SmallLayout<width, levels>;
  int parity[2] = {1, 1};
  Work work;
  while (next_item(p, work)) {
    const Item item = read_item(p, work);
#pragma unroll
    for (int consumer = 0; consumer < 2; ++consumer) {
      if (key_tiles(p, item, item.tile * 256 + consumer * 128) == 0) continue;
      barrier_wait(shared + Layout::empty_q + consumer * 8, parity[consumer]);
      parity[consumer] ^= 1;
      if (!leader) continue;
      const std::uint32_t full = shared + Layout::full_q + consumer * 8;
      const int quarter_row = item.tile * 64 + consumer * 32;
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
}

// copy_threads threads: the sums of a tile's scores of levels from 3 on, of one consumer for each warp.
template <class T, int width, int levels>
__device__ __forceinline__ void small_sum_deep(float (&sums)[2][4], const ForwardParameters& p, const Item& item,
                                               std::uint32_t shared, int key_tile, int thread) {
  using Layout = SmallLayout<width, levels>;
  const auto copy = [&](std::uint32_t to, const Array(&arrays)[max_levels - 3], int first) {
    copy_deep_rows<width, 16, copy_threads>(to, arrays, item.batch, item.head, p.levels, p.length, p.width, first,
                                            thread);
  };
  named_sync(1, copy_threads);  // both warps have done with the rows of the tile before
  copy(shared + Layout::deep_k, p.deep_k, key_tile * key_rows);
  if (key_tile == 0) {
    copy(shared + Layout::deep_q, p.deep_q, item.tile * 256);
    copy(shared + Layout::deep_q + deep_rows * Layout::row, p.deep_q, item.tile * 256 + 128);
  }
  commit_copies();
  wait_copies<0>();
  named_sync(1, copy_threads);
  make_deep_sums<T, width>(sums, shared + Layout::deep_q + thread / 32 * deep_rows * Layout::row,
                           shared + Layout::deep_k, p, item);
}

// copy_threads threads: keys of levels 1 and 2, and the scores of coarser levels.
template <class T, int width, int levels>
__device__ __forceinline__ void small_copy_keys(const ForwardParameters& p, std::uint32_t shared, int thread) {
  using Layout = SmallLayout<width, levels>;
  Ring<Layout::stages> ring;
  Work work;
  while (next_item(p, work)) {
    const Item item = read_item(p, work);
    const int tiles = small_key_tiles(p, item);
    for (int j = 0; j < tiles; ++j) {
      const std::uint32_t stage = shared + Layout::keys + ring.stage * Layout::key_stage;
      float sums[2][4];
      if constexpr (Layout::deep) small_sum_deep<T, width, levels>(sums, p, item, shared, j, thread);
      barrier_wait(shared + Layout::empty_k + ring.stage * 8, ring.parity ^ 1);
      if constexpr (Layout::deep) store_deep_sums(stage + Layout::deep_sums + thread / 32 * deep_tile, sums);
      copy_keys<2, width, width, key_rows / 2, true>(stage + Layout::key2, p.k2, item, j * key_rows / 4, p.rows2,
                                                     p.width, thread);
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

// A warpgroup: 128 query rows of each item.
template <class T, int width, int levels>
__device__ __forceinline__ void small_consume(const ForwardParameters& p, std::uint32_t shared, int consumer) {
  using Layout = SmallLayout<width, levels>;
  constexpr int swizzle = Layout::row;
  const int lane = threadIdx.x % 32;
  const int place = threadIdx.x % 128 / 32 * 16 + lane / 4;
  const int row_in_block = 4 * (place % 32) + 2 * (place / 32);
  const std::uint64_t q0 = descriptor<swizzle>(shared + Layout::q0 + 2 * consumer * Layout::block);
  const std::uint64_t q1 = descriptor<swizzle>(shared + Layout::q1 + consumer * Layout::block);
  const std::uint64_t q2 = descriptor<swizzle>(shared + Layout::q2 + consumer * Layout::block);
  const std::uint64_t keys = descriptor<swizzle>(shared + Layout::keys);
  const std::uint64_t values = descriptor<swizzle>(shared + Layout::values);
  const std::uint32_t full_q = shared + Layout::full_q + consumer * 8;
  const std::uint32_t empty_q = shared + Layout::empty_q + consumer * 8;

  const std::uint32_t deep_sums = shared + Layout::keys + Layout::deep_sums + consumer * deep_tile +
                                  (threadIdx.x / 32 % 2 * 8 + lane / 8) * deep_row;
  Ring<Layout::stages> ring;
  int q_parity = 0;
  Work work;
  while (next_item(p, work)) {
    const Item item = read_item(p, work);
    const int tiles = uniform(key_tiles(p, item, item.tile * 256 + consumer * 128));
    float out_even[width / 2], out_odd[width / 2];
    RowState rows_even, rows_odd;
#pragma unroll
    for (int i = 0; i < width / 2; ++i) out_even[i] = out_odd[i] = 0;
    clear(rows_even);
    clear(rows_odd);

    if (tiles > 0) {
      // The coarse scores of a tile are summed in products that start from other scores, in the scale of a finer level:
      // coarse = s1 + (c2 · s2 + deeper ones) / c1, and those of the odd rows are s0 + coarse · c1 / c0.
      const float c0 = levels > 1 ? away_from_zero(coefficient(p, item, 0)) : coefficient(p, item, 0);
      const float c1 = levels > 1 ? away_from_zero(coefficient(p, item, 1)) : 0;
      const float c2_to_1 = levels > 1 ? coefficient(p, item, 2) / c1 : 0;
      const float c1_to_0 = levels > 1 ? c1 / c0 : 0;
      const float deep_to_1 = Layout::deep ? 1 / c1 : 0;
      float even[64], odd[64];  // scores
      float coarse[32];
      std::uint32_t low[16], high[16];  // probabilities
      int limit = no_limit;

      const auto start_level2 = [&](std::uint64_t key) {
        forget(coarse);
        products_begin();
        start_scores<T, width, 0, 0>(coarse, q2, key + Layout::key2 / 16);
        products_commit();
      };
      const auto start_level1 = [&](std::uint64_t key) {  // of the tile in the ring's stage
        pin(coarse);
        if constexpr (Layout::deep)
          add_deep(coarse, c2_to_1, deep_sums + ring.stage * Layout::key_stage, deep_to_1);
        else
          scale(coarse, c2_to_1);
        pin(coarse);
        products_begin();
        start_scores<T, width, 0, 0>(coarse, q1, key + Layout::key1 / 16, true);
        products_commit();
      };
      const auto start_even = [&](std::uint64_t key) {
        forget(even);
        products_begin();
        start_scores<T, width, 0, 0>(even, q0, key);
        products_commit();
      };
      const auto start_odd = [&](std::uint64_t key) {
        if constexpr (levels > 1) {
          start_from_coarse(odd, coarse, c1_to_0);
          pin(odd);
        } else {
          forget(odd);
        }
        products_begin();
        start_scores<T, width, 0, 0>(odd, q0 + Layout::block / 16, key, levels > 1);
        products_commit();
      };
      const auto weigh_even = [&] {
        if constexpr (levels > 1)
          add_coarse(even, c0, coarse, c1, rows_even);
        else
          multiply(even, c0, rows_even);
      };
      // Exponentials of a block of rows, and the start of their product with the values: two groups of products, of which
      // the first starts when half of the exponentials are done.
      const auto finish_rows = [&](float (&x)[64], RowState& rows, float (&out)[width / 2], std::uint64_t value) {
        exponentials<0, 8>(x, rows);
        pack_probabilities<T, 0>(x, low);
        pin(out);
        pin(low);
        products_begin();
        start_values<T, Layout::row>(out, low, value);
        products_commit();
        exponentials<8, 16>(x, rows);
        pack_probabilities<T, 8>(x, high);
        pin(high);
        products_begin();
        start_values<T, Layout::row>(out, high, value + 4 * Layout::row);
        products_commit();
      };

      barrier_wait(full_q, q_parity);
      q_parity ^= 1;
      barrier_wait(shared + Layout::full_k + ring.stage * 8, ring.parity);
      {
        const std::uint64_t key = keys + ring.stage * (Layout::key_stage / 16);
        if constexpr (levels > 1) start_level2(key);
        start_even(key);
        if constexpr (levels > 1) {
          products_wait<1>();
          start_level1(key);
        }
        products_wait<0>();
        pin(even);
        if constexpr (levels > 1) pin(coarse);
        weigh_even();
      }

      // Here the even rows' scores and the coarse ones of a tile are ready; the step makes those of the next tile.
      const auto step = [&] {
        const std::uint64_t key = keys + ring.stage * (Layout::key_stage / 16);
        const std::uint64_t value = values + ring.stage * (Layout::value_stage / 16);
        const std::uint32_t empty_k = shared + Layout::empty_k + ring.stage * 8;
        const std::uint32_t full_v = shared + Layout::full_v + ring.stage * 8;
        const std::uint32_t empty_v = shared + Layout::empty_v + ring.stage * 8;
        const int parity = ring.parity;
        ring.advance();
        const std::uint64_t next_key = keys + ring.stage * (Layout::key_stage / 16);
        float factor[2];

        start_odd(key);
        // Here rather than where the values are used: the compiler would start the products late.
        barrier_wait(full_v, parity);
        pin(even);
        if (raise_reference(even, rows_even, limit, factor)) rescale(out_even, factor);
        if constexpr (levels > 1) {
          // Each product is started where exponentials follow that hide it and registers are free for it. With deeper
          // levels there are fewer of them, so some products start later and are waited for.
          constexpr bool late = Layout::deep;
          exponentials<0, 8, true>(even, rows_even);
          pack_probabilities<T, 0>(even, low);
          pin(out_even);
          pin(low);
          products_begin();
          start_values<T, Layout::row>(out_even, low, value);
          products_commit();
          exponentials<8, 16, true>(even, rows_even);
          pack_probabilities<T, 8>(even, high);
          barrier_wait(shared + Layout::full_k + ring.stage * 8, ring.parity);
          pin(high);
          if constexpr (!late) start_level2(next_key);
          products_begin();
          start_values<T, Layout::row>(out_even, high, value + 4 * Layout::row);
          products_commit();

          products_wait<late ? 0 : 2>();
          pin(odd);
          if (lane == 0) barrier_arrive(empty_k);
          multiply(odd, c0, rows_odd);
          if (raise_reference(odd, rows_odd, limit, factor)) rescale(out_odd, factor);
          pin(odd);
          if constexpr (late) {
            pin(out_even);
            start_level2(next_key);
          }
          products_wait<late ? 0 : 1>();
          start_level1(next_key);
          exponentials<0, 8, true>(odd, rows_odd);
          pack_probabilities<T, 0>(odd, low);
          pin(out_odd);
          pin(low);
          if constexpr (!late) start_even(next_key);
          products_begin();
          start_values<T, Layout::row>(out_odd, low, value);
          products_commit();
          if constexpr (!late) {
            products_wait<2>();
            pin(out_even);
            pin(coarse);
          }
          end_section(rows_odd.sum[0]);
          exponentials<8, 16, true>(odd, rows_odd);
          pack_probabilities<T, 8>(odd, high);
          pin(high);
          if constexpr (late) start_even(next_key);
          products_begin();
          start_values<T, Layout::row>(out_odd, high, value + 4 * Layout::row);
          products_commit();
          limit = room;
          products_wait<late ? 1 : 2>();
          pin(even);
          pin(coarse);
          weigh_even();
          products_wait<0>();
          pin(out_odd);
          pin(even);
          if (lane == 0) barrier_arrive(empty_v);
        } else {
          barrier_wait(shared + Layout::full_k + ring.stage * 8, ring.parity);
          finish_rows(even, rows_even, out_even, value);
          products_wait<2>();
          pin(odd);
          if (lane == 0) barrier_arrive(empty_k);
          multiply(odd, c0, rows_odd);
          if (raise_reference(odd, rows_odd, limit, factor)) rescale(out_odd, factor);
          pin(odd);
          products_wait<0>();
          pin(out_even);
          pin(odd);
          start_even(next_key);
          finish_rows(odd, rows_odd, out_odd, value);
          limit = room;
          products_wait<0>();
          pin(out_odd);
          pin(even);
          if (lane == 0) barrier_arrive(empty_v);
          weigh_even();
        }
      };
      // The last tile, the only one with a mask.
      const auto finish = [&] {
        const std::uint64_t key = keys + ring.stage * (Layout::key_stage / 16);
        const std::uint64_t value = values + ring.stage * (Layout::value_stage / 16);
        const Item item = read_item_again(p, work);
        const int first_row = item.tile * 256 + consumer * 128;
        const bool masked = needs_mask(p, item, first_row, tiles);
        const int first_key = (tiles - 1) * key_rows + 2 * (lane % 4);
        const int row = first_row + row_in_block;
        float factor[2];

        start_odd(key);
        barrier_wait(shared + Layout::full_v + ring.stage * 8, ring.parity);
        pin(even);
        if (masked) mask(even, last_key(p, item, row) - first_key, last_key(p, item, row + 32) - first_key);
        if (raise_reference(even, rows_even, limit, factor)) rescale(out_even, factor);
        finish_rows(even, rows_even, out_even, value);
        products_wait<2>();
        pin(odd);
        if (lane == 0) {
          barrier_arrive(shared + Layout::empty_k + ring.stage * 8);
          barrier_arrive(empty_q);
        }
        multiply(odd, c0, rows_odd);
        if (masked) mask(odd, last_key(p, item, row + 1) - first_key, last_key(p, item, row + 33) - first_key);
        if (raise_reference(odd, rows_odd, limit, factor)) rescale(out_odd, factor);
        pin(odd);
        products_wait<0>();
        pin(out_even);
        pin(odd);
        finish_rows(odd, rows_odd, out_odd, value);
        products_wait<0>();
        pin(out_odd);
        if (lane == 0) barrier_arrive(shared + Layout::empty_v + ring.stage * 8);
        ring.advance();
      };
#pragma unroll 1
      for (int j = 0; j + 1 < tiles; ++j) step();
      finish();
    }

    // Tiles that only the other consumer needs. They must have come before they are given back: an earlier arrival
    // would count for the use before.
    const Item same_item = read_item_again(p, work);
    const int item_tiles = uniform(small_key_tiles(p, same_item));
    for (int j = tiles; j < item_tiles; ++j) {
      barrier_wait(shared + Layout::full_k + ring.stage * 8, ring.parity);
      if (lane == 0) barrier_arrive(shared + Layout::empty_k + ring.stage * 8);
      barrier_wait(shared + Layout::full_v + ring.stage * 8, ring.parity);
      if (lane == 0) barrier_arrive(shared + Layout::empty_v + ring.stage * 8);
      ring.advance();
    }
    const int first_row = same_item.tile * 256 + consumer * 128;
    write_rows<T>(p, same_item, first_row + row_in_block, out_even, rows_even);
    write_rows<T>(p, same_item, first_row + row_in_block + 1, out_odd, rows_odd);
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
      barrier_init(shared + Layout::empty_q + i * 8, 4);
    }
    for (int i = 0; i < Layout::stages; ++i) {
      barrier_init(shared + Layout::full_k + i * 8, levels > 1 ? 1 + copy_threads : 1);
      barrier_init(shared + Layout::empty_k + i * 8, 8);
      barrier_init(shared + Layout::full_v + i * 8, 1);
      barrier_init(shared + Layout::empty_v + i * 8, 8);
    }
    fence_async();
  }
  __syncthreads();
  const int warpgroup = uniform(static_cast<int>(threadIdx.x / 128));
  if (warpgroup == 0) {
    fewer_registers<Layout::deep ? 40 : 24>();  // with the others' no more than the block started with
    const int warp = uniform(static_cast<int>(threadIdx.x / 32));
    const bool leader = threadIdx.x % 32 == 0;
    if (warp == 0)
      small_load_keys<width, levels>(p, shared, leader);
    else if (warp == 1)
      small_load_queries<width, levels>(p, shared, leader);
    else if constexpr (levels > 1)
      small_copy_keys<T, width, levels>(p, shared, threadIdx.x % copy_threads);
  } else {
    more_registers<Layout::deep ? 232 : 240>();
    small_consume<T, width, levels>(p, shared, warpgroup - 1);
  }
}

}  // namespace hkt::kernels::cuda::sm90
