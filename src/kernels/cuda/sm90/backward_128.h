// Backward on Hopper for widths above 64. Of a block's four warpgroups, two have 64 keys each and make probabilities,
// gradients of scores, the gradients of keys and values, and for 64 columns each the sums for the gradients of
// queries; one makes coarse scores a step ahead and everything that the coarse levels' gradients need; one loads, and
// adds sums to those in global memory. Registers are short: the score's gradient takes the score's, and sums for
// coarse keys cannot stay in registers. They are made for two steps at once and added in global memory.
#pragma once

#include "backward.h"
#include "backward_deep.h"

namespace hkt::kernels::cuda::sm90 {

// Where things lie in shared memory. Tiles are in panels of 64 columns: rows of 128 bytes, swizzled by as much.
struct BackwardWideLayout {
  static constexpr int stages = 2;
  static constexpr int coarse_stages = 3;
  static constexpr int row = 128;
  static constexpr int key_panel = 128 * row, key1_panel = 64 * row, key2_panel = 32 * row;
  static constexpr int k0 = 0;
  static constexpr int v = k0 + 2 * key_panel;
  static constexpr int k1 = v + 2 * key_panel;
  static constexpr int k2 = k1 + 2 * key1_panel;

  // Stages of q0 and the output's gradient. A step's sums for queries take their place when it has done with them.
  static constexpr int query_panel = 64 * row;
  static constexpr int queries = k2 + 2 * key2_panel;
  static constexpr int grad_out = 2 * query_panel;  // in a stage
  static constexpr int query_stage = 4 * query_panel;
  static constexpr int sum_panel = 64 * 64 * 4;

  static constexpr int coarse = queries + stages * query_stage;  // stages of q1 and q2
  static constexpr int q1_panel = 32 * row, q2_panel = 16 * row;
  static constexpr int q2 = 2 * q1_panel;
  static constexpr int coarse_stage = 2 * (q1_panel + q2_panel);

  // Gradients of scores; two buffers of the coarse ones.
  static constexpr int level1_buffer = 64 * 64, level2_buffer = 64 * 32;
  static constexpr int fine = coarse + coarse_stages * coarse_stage;
  static constexpr int level1 = fine + 128 * 128;
  static constexpr int level2 = level1 + 2 * level1_buffer;

  static constexpr int scores = level2 + 2 * level2_buffer;  // coarse ones
  static constexpr int rows = scores + coarse_scores_bytes;  // stages of lse and delta
  static constexpr int delta = 256;
  static constexpr int row_stage = 512;

  static constexpr int full_keys = rows + stages * row_stage;  // barriers, of 8 bytes
  static constexpr int full_queries = full_keys + 8;
  static constexpr int full_grad_out = full_queries + stages * 8;
  static constexpr int full_sums = full_grad_out + stages * 8;
  static constexpr int empty_queries = full_sums + stages * 8;
  static constexpr int full_coarse = empty_queries + stages * 8;
  static constexpr int empty_coarse = full_coarse + coarse_stages * 8;
  static constexpr int full_scores = empty_coarse + coarse_stages * 8;
  static constexpr int empty_scores = full_scores + 8;
  static constexpr int full_gradients = empty_scores + 8;
  static constexpr int empty_gradients = full_gradients + 2 * 8;
  static constexpr int end = empty_gradients + 2 * 8;
  static constexpr int bytes = end + 1024;  // the start is rounded up

  // Levels from 3 on: gradients of the scores of level 3, of two steps.
  static constexpr int deep_gradients = (end + 15) / 16 * 16;
  static constexpr int deep_bytes = deep_gradients + 2 * level_3_gradients_bytes + 1024;
  static_assert(deep_bytes <= 227 * 1024);
};

// A warp: keys or values of level 0, then queries or output gradients with their data of rows, step by step.
__device__ __forceinline__ void backward_wide_load(const BackwardParameters& p, const BackwardWork& work,
                                                   std::uint32_t shared, const CUtensorMap (&key_maps)[4],
                                                   std::uint32_t keys, const CUtensorMap (&query_maps)[4],
                                                   std::uint32_t queries, const float* row_data, std::uint32_t rows,
                                                   std::uint32_t full_queries) {
  using Layout = BackwardWideLayout;
  const int lane = threadIdx.x % 32;
  expect_bytes(shared + Layout::full_keys, 2 * Layout::key_panel, lane);
  load_keys<Layout::row, 2>(keys, key_maps, shared + Layout::full_keys, work, lane);
  row_data += static_cast<std::int64_t>(work.sequence) * p.query_tiles * backward_queries;
  BackwardRing<Layout::stages> ring;
#pragma unroll 1
  for (int i = 0; i < work.steps; ++i) {
    const int tile = work.query_tile(i);
    const std::uint32_t full = full_queries + ring.stage * 8;
    barrier_wait(shared + Layout::empty_queries + ring.stage * 8, ring.parity ^ 1);
    expect_bytes(full, 2 * Layout::query_panel + 256, lane);
    load_queries<Layout::row, 2>(queries + ring.stage * Layout::query_stage, query_maps, full, work, tile, lane);
    if (lane == 0) load_bytes(rows + ring.stage * Layout::row_stage, row_data + tile * backward_queries, 256, full);
    ring.advance();
  }
}

// A warp: the same for coarse levels.
__device__ __forceinline__ void backward_wide_load_coarse(const BackwardParameters& p, const BackwardWork& work,
                                                          std::uint32_t shared) {
  using Layout = BackwardWideLayout;
  const int lane = threadIdx.x % 32;
  expect_bytes(shared + Layout::full_keys, 2 * (Layout::key1_panel + Layout::key2_panel), lane);
  load_coarse_keys<Layout::row, 2>(shared + Layout::k1, shared + Layout::k2, p, shared + Layout::full_keys, work, lane);
  BackwardRing<Layout::coarse_stages> ring;
#pragma unroll 1
  for (int i = 0; i < work.steps; ++i) {
    const std::uint32_t full = shared + Layout::full_coarse + ring.stage * 8;
    const std::uint32_t stage = shared + Layout::coarse + ring.stage * Layout::coarse_stage;
    barrier_wait(shared + Layout::empty_coarse + ring.stage * 8, ring.parity ^ 1);
    expect_bytes(full, Layout::coarse_stage, lane);
    load_coarse_queries<Layout::row, 2>(stage, stage + Layout::q2, p, full, work, work.query_tile(i), lane);
    ring.advance();
  }
}

template <bool coarse, bool deep>
__device__ __forceinline__ float* backward_wide_query_sums(const BackwardParameters& p, const BackwardWork& work,
                                                           int tile) {
  const std::int64_t index = static_cast<std::int64_t>(work.sequence) * p.query_tiles + tile;
  return p.query_sums + index * 2 * query_sums_size(64, coarse, deep);
}

// One thread: adds each step's sums for queries and gives the stage back.
template <bool coarse, bool deep>
__device__ __forceinline__ void backward_wide_add(const BackwardParameters& p, const BackwardWork& work,
                                                  std::uint32_t shared) {
  using Layout = BackwardWideLayout;
  BackwardRing<Layout::stages> ring;
#pragma unroll 1
  for (int i = 0; i < work.steps; ++i) {
    const int tile = work.query_tile(i);
    begin_turn(p, work, tile);
    barrier_wait(shared + Layout::full_sums + ring.stage * 8, ring.parity);
    const std::uint32_t from = shared + Layout::queries + ring.stage * Layout::query_stage;
    float* to = backward_wide_query_sums<coarse, deep>(p, work, tile);
    add_floats(to, from, Layout::sum_panel);
    add_floats(to + query_sums_size(64, coarse, deep), from + Layout::sum_panel, Layout::sum_panel);
    commit_stores();
    wait_stores_read();
    barrier_arrive(shared + Layout::empty_queries + ring.stage * 8);
    end_turn(p, work, tile);
    ring.advance();
  }
  wait_stores();
}

// A warpgroup: 64 keys.
template <class T, bool coarse>
__device__ __forceinline__ void backward_wide_fine(const BackwardParameters& p, const BackwardWork& work,
                                                   std::uint32_t shared, int half) {
  using Layout = BackwardWideLayout;
  const int thread = threadIdx.x % 128, lane = thread % 32, r = lane / 4, c = lane % 4;
  const int warp = 4 * half + thread / 32;
  const int key = work.key_tile * backward_keys + warp / 2 * 32 + 4 * r + 2 * (warp % 2);  // and the next
  const std::uint64_t keys = descriptor<128>(shared + Layout::k0 + half * 64 * Layout::row);
  const std::uint64_t values = descriptor<128>(shared + Layout::v + half * 64 * Layout::row);
  const std::uint64_t key_columns = descriptor<128>(shared + Layout::k0 + half * Layout::key_panel);
  const GradientPlaces places =
      gradient_places(shared + Layout::fine, shared + Layout::level1, shared + Layout::level2, warp, lane);
  const std::uint64_t fine = descriptor<128>(shared + Layout::fine);
  const float w0 = weight(p, work, 0);
  const float c0 = log2_e * w0;
  const bool padding = work.has_padding();

  float grad_k[64], grad_v[64];
  float scores[32];  // then gradients of probabilities, then sums for queries
#pragma unroll
  for (int i = 0; i < 64; ++i) grad_k[i] = grad_v[i] = 0;
  barrier_wait(shared + Layout::full_keys, 0);
  BackwardRing<Layout::stages> ring;
#pragma unroll 1
  for (int i = 0; i < work.steps; ++i) {
    const int buffer = i % 2, parity = i / 2 % 2;
    const std::uint32_t rows = shared + Layout::rows + ring.stage * Layout::row_stage + c * 32;
    const std::uint32_t stage = shared + Layout::queries + ring.stage * Layout::query_stage;
    const std::uint64_t queries = descriptor<128>(stage, Layout::query_panel);
    const std::uint64_t grad_out = queries + Layout::grad_out / 16;

    barrier_wait(shared + Layout::full_queries + ring.stage * 8, ring.parity);
    release(scores);
    products_begin();
    start_product<T, 128, Layout::key_panel, Layout::query_panel>(scores, keys, queries);
    products_commit();
    float row_data[16];  // what is added to scores, then delta
    load_rows(row_data, rows);
    if constexpr (coarse) {
      barrier_wait(shared + Layout::full_scores, i % 2);
      add_coarse_scores(row_data, shared + Layout::scores + warp * 1024 + lane * 16);
      __syncwarp();
      if (lane == 0) barrier_arrive(shared + Layout::empty_scores);
    } else {
#pragma unroll
      for (int k = 0; k < 16; ++k) row_data[k] = -row_data[k];
    }
    products_wait<0>();
    pin(scores);
    std::uint32_t packed[16];  // probabilities
    const bool diagonal = p.causal && i < backward_keys / backward_queries;
    if (diagonal || padding)
      probabilities<T, true>(scores, packed, row_data, c0,
                             sight(work, p.causal, key, work.query_tile(i) * backward_queries + 8 * c));
    else
      probabilities<T, false>(scores, packed, row_data, c0, {});

    barrier_wait(shared + Layout::full_grad_out + ring.stage * 8, ring.parity);
    release(scores);
    pin(grad_v);
    pin(packed);
    products_begin();
    start_product<T, 128, Layout::key_panel, Layout::query_panel>(scores, values, grad_out);
    products_commit();
    start_sum<T, Layout::row>(grad_v, packed, grad_out);
    products_commit();
    load_rows(row_data, rows + Layout::delta);
    products_wait<1>();
    pin(scores);
    const GradientPlaces at = {places.fine, places.level1 + buffer * Layout::level1_buffer,
                               places.level2 + buffer * Layout::level2_buffer};
    // While grad_v's product runs, which still reads the probabilities.
    Gradients gradients;
    make_gradients<T, coarse>(gradients, [&](int element, int row) {
      const float2 pair = unpack<T>(packed[element / 2]);
      return (element % 2 == 0 ? pair.x : pair.y) * (scores[element] - row_data[row]);
    });
    if constexpr (coarse) {
      products_wait<0>();
      pin(grad_v);
      pin(packed);
      barrier_wait(shared + Layout::empty_gradients + buffer * 8, parity ^ 1);
      store_coarse_gradients(gradients, at);
    }
    store_fine_gradients(gradients, at);
    fence_async();
    __syncwarp();
    if constexpr (coarse) {
      if (lane == 0) barrier_arrive(shared + Layout::full_gradients + buffer * 8);
    }
    pin(grad_k);
    pin(gradients.fine);
    products_begin();
    start_sum<T, Layout::row>(grad_k, gradients.fine, queries);
    products_commit();

    named_sync(1, 256);  // the gradients of both warpgroups' scores are there
    release(scores);
    products_begin();
#pragma unroll
    for (int k = 0; k < 8; ++k)
      Product<T, 64, true, true>::run(scores, fine + k * 128, key_columns + k * Layout::row, k > 0);
    products_commit();
    products_wait<0>();
    pin(grad_v);
    pin(packed);
    pin(grad_k);
    pin(scores);
    named_sync(1, 256);  // both have done with them, and with this step's queries
    store_sums(stage + half * Layout::sum_panel + thread * 16, 128, scores);
    fence_async();
    __syncwarp();
    if (lane == 0) barrier_arrive(shared + Layout::full_sums + ring.stage * 8);
    ring.advance();
  }
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    if (key + h >= p.length) continue;
    write_row(row_of<T>(p.grad_k[0], work, key + h), grad_k, h, c, p.width, w0);
    write_row(row_of<T>(p.grad_v, work, key + h), grad_v, h, c, p.width, 1);
  }
}

// A warpgroup: coarse scores, sums for coarse queries and keys, whose rows are columns of the model.
template <class T, bool deep>
__device__ __forceinline__ void backward_wide_coarse(const BackwardParameters& p, const BackwardWork& work,
                                                     std::uint32_t shared) {
  using Layout = BackwardWideLayout;
  const int thread = threadIdx.x % 128, lane = thread % 32, warp = thread / 32;
  const std::uint64_t k1 = descriptor<128>(shared + Layout::k1);
  const std::uint64_t k2 = with_stride(descriptor<128>(shared + Layout::k2), 0);  // each eight rows twice
  const std::uint64_t coarse_queries = descriptor<128>(shared + Layout::coarse);
  const std::uint64_t level1 = descriptor<64>(shared + Layout::level1);
  const std::uint64_t level2 = descriptor<32>(shared + Layout::level2);
  // Of each pair of warps, whose rows belong to the same eight keys of level 2, the even one's; the odd one's are next.
  const std::uint64_t every_second = with_stride(level2, 512);
  float* const all_key_sums =
      p.key_sums + (static_cast<std::int64_t>(work.sequence) * p.key_tiles + work.key_tile) * 2 * key_sums_size(deep);
  float* const key_sums = all_key_sums + thread * 4;
  const float c1 = log2_e * weight(p, work, 1), c2 = log2_e * weight(p, work, 2);

  float sums1[16], sums2[8];  // scores, too
  release(sums1);
  release(sums2);
  const std::uint32_t deep_gradients = shared + Layout::deep_gradients;
  barrier_wait(shared + Layout::full_keys, 0);
  BackwardRing<Layout::coarse_stages> ahead;
  const auto make_scores = [&](int i) {
    const std::uint64_t q1 = coarse_queries + ahead.stage * (Layout::coarse_stage / 16);
    const std::uint64_t q2 = q1 + Layout::q2 / 16;
    const std::uint32_t keys = shared + Layout::k2 + warp * 8 * Layout::row;
    std::uint32_t level_2_keys[8];  // of one panel
    float deep_scores[2];
    if constexpr (deep) {
      read_deep_scores<T>(deep_scores, p, work, work.query_tile(i), warp, lane);
      if (i + 1 < work.steps) expect_deep_queries(p, work, work.query_tile(i + 1), thread);
    }
    load_level_2_keys<Layout::row, 64>(level_2_keys, keys, lane);
    barrier_wait(shared + Layout::full_coarse + ahead.stage * 8, ahead.parity);
    pin(sums1);
    pin(sums2);
    pin(level_2_keys);
    products_begin();
    start_level_2<T>(sums2, level_2_keys, q2, false);
    start_product<T, 128, Layout::key1_panel, Layout::q1_panel>(sums1, k1, q1);
    products_commit();
    products_wait<0>();
    pin(sums1);
    pin(sums2);
    load_level_2_keys<Layout::row, 64>(level_2_keys, keys + Layout::key2_panel, lane);
    pin(level_2_keys);
    products_begin();
    start_level_2<T>(sums2, level_2_keys, q2 + Layout::q2_panel / 16, true);
    products_commit();
    barrier_wait(shared + Layout::empty_scores, i % 2 ^ 1);
    products_wait<0>();
    pin(sums1);
    pin(sums2);
    store_coarse_scores(shared + Layout::scores + 2 * warp * 1024 + lane * 16, sums1, sums2, c1, c2,
                        deep ? deep_scores : nullptr);
    __syncwarp();
    if (lane == 0) barrier_arrive(shared + Layout::full_scores);
    ahead.advance();
  };

  int previous = 0, stage = 0;
#pragma unroll 1
  for (int i = -1; i < work.steps; ++i) {
    if (i + 1 < work.steps) make_scores(i + 1);
    if (i < 0) continue;
    const int buffer = i % 2;
    const int tile = work.query_tile(i);
    barrier_wait(shared + Layout::full_gradients + buffer * 8, i / 2 % 2);
    // The sums for keys first: the next step waits for their first buffer, and only the one after it for the second.
    if (buffer == 1) {  // the number of steps is even
      const std::uint64_t first = coarse_queries + previous * (Layout::coarse_stage / 16);
      const std::uint64_t second = coarse_queries + stage * (Layout::coarse_stage / 16);
      float* sums = key_sums;
#pragma unroll 1
      for (int panel = 0; panel < 2; ++panel) {
#pragma unroll 1
        for (int half = 0; half < 2; ++half) {
          const std::uint64_t gradients = level1 + half * (32 * 64 / 16);
          pin(sums1);
          products_begin();
#pragma unroll
          for (int k = 0; k < 2; ++k)
            Product<T, 32, true, false>::run(sums1, first + panel * (Layout::q1_panel / 16) + k * Layout::row,
                                             gradients + 2 * k, k > 0);
#pragma unroll
          for (int k = 0; k < 2; ++k)
            Product<T, 32, true, false>::run(sums1, second + panel * (Layout::q1_panel / 16) + k * Layout::row,
                                             gradients + Layout::level1_buffer / 16 + 2 * k, 1);
          products_commit();
          products_wait<0>();
          pin(sums1);
          add_registers(sums, 128, sums1);
          sums += 32 * 64;
        }
        pin(sums1);
        products_begin();
#pragma unroll
        for (int k = 0; k < 2; ++k)
          Product<T, 32, true, false>::run(sums1, first + (Layout::q2 + panel * Layout::q2_panel) / 16,
                                           every_second + k * 16, k > 0);
#pragma unroll
        for (int k = 0; k < 2; ++k)
          Product<T, 32, true, false>::run(sums1, second + (Layout::q2 + panel * Layout::q2_panel) / 16,
                                           every_second + Layout::level2_buffer / 16 + k * 16, 1);
        products_commit();
        products_wait<0>();
        pin(sums1);
        if (panel == 1 && lane == 0) {
          barrier_arrive(shared + Layout::empty_gradients);
          barrier_arrive(shared + Layout::empty_coarse + previous * 8);
          barrier_arrive(shared + Layout::empty_coarse + stage * 8);
        }
        add_registers(sums, 128, sums1);
        sums += key_sums_size(deep) - 64 * 64;
      }
    }
    if (p.turns != nullptr) {  // the last step's turn ends here, where its additions are surely done
      __threadfence();
      named_sync(2, 128);
      if (thread == 0) {
        if (i > 0) pass_turn(turn_of(p, work, work.query_tile(i - 1), 1));
        wait_turn(turn_of(p, work, tile, 1), turn(p, work, tile));
      }
      named_sync(2, 128);
    }
    if constexpr (deep) {
      named_sync(3, 128);  // all have done with the gradients of two steps ago
      sum_deep_gradients<T, 4>(deep_gradients + buffer * level_3_gradients_bytes,
                               shared + Layout::level2 + buffer * Layout::level2_buffer, warp, lane);
      __syncwarp();  // all lanes have read the buffer before the warp gives it back
    }
    float* query_sums = backward_wide_query_sums<true, deep>(p, work, tile) + 64 * 64 + thread * 4;
#pragma unroll 1
    for (int panel = 0; panel < 2; ++panel) {
      pin(sums1);
      pin(sums2);
      products_begin();
#pragma unroll
      for (int k = 0; k < 4; ++k)
        Product<T, 32, true, true>::run(sums1, k1 + panel * (Layout::key1_panel / 16) + k * Layout::row,
                                        level1 + buffer * (Layout::level1_buffer / 16) + k * 64, k > 0);
#pragma unroll
      for (int k = 0; k < 4; ++k)
        Product<T, 16, true, true>::run(sums2, k2 + panel * (Layout::key2_panel / 16) + k * (Layout::row / 2),
                                        level2 + buffer * (Layout::level2_buffer / 16) + k * 32, k > 0);
      products_commit();
      products_wait<0>();
      pin(sums1);
      pin(sums2);
      if (buffer == 1 && panel == 1 && lane == 0) barrier_arrive(shared + Layout::empty_gradients + 8);
      add_registers(query_sums, 128, sums1);
      add_registers(query_sums + 32 * 64, 128, sums2);
      query_sums += query_sums_size(64, true, deep);
    }
    if constexpr (deep) {  // from gradients of its own: the other warpgroups do not wait for it
      named_sync(3, 128);  // these are there
      add_deep_queries<T>(backward_wide_query_sums<true, true>(p, work, tile) +
                              warp / 2 * query_sums_size(64, true, true) + 112 * 64 + warp % 2 * 32 + lane % 4 * 8,
                          deep_gradients + buffer * level_3_gradients_bytes, p, work, warp, lane);
      if (buffer == 1) {
        const int tiles[2] = {work.query_tile(i - 1), tile};
        add_deep_keys<T>(all_key_sums + warp / 2 * key_sums_size(true) + 96 * 64 + warp % 2 * 32 + lane % 4 * 8,
                         deep_gradients, tiles, p, work, warp, lane);
      }
    }
    previous = stage;
    if (++stage == Layout::coarse_stages) stage = 0;
  }
  if (p.turns != nullptr) {
    __threadfence();
    named_sync(2, 128);
    if (thread == 0) pass_turn(turn_of(p, work, work.query_tile(work.steps - 1), 1));
  }
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
  const BackwardWork work = backward_work<2>(p);
  if (work.steps == 0) {  // the gradients of coarse keys come from their sums, which are zero
    clear_rows<T>(p.grad_v, p, work, 0);
    clear_rows<T>(p.grad_k[0], p, work, 0);
    return;
  }
  if (threadIdx.x == 0) {
    barrier_init(shared + Layout::full_keys, coarse ? 3 : 2);
    for (int i = 0; i < Layout::stages; ++i) {
      barrier_init(shared + Layout::full_queries + i * 8, 1);
      barrier_init(shared + Layout::full_grad_out + i * 8, 1);
      barrier_init(shared + Layout::full_sums + i * 8, 8);
      barrier_init(shared + Layout::empty_queries + i * 8, 1);
    }
    for (int i = 0; i < Layout::coarse_stages; ++i) {
      barrier_init(shared + Layout::full_coarse + i * 8, 1);
      barrier_init(shared + Layout::empty_coarse + i * 8, 4);
    }
    barrier_init(shared + Layout::full_scores, 4);
    barrier_init(shared + Layout::empty_scores, 8);
    for (int i = 0; i < 2; ++i) {
      barrier_init(shared + Layout::full_gradients + i * 8, 8);
      barrier_init(shared + Layout::empty_gradients + i * 8, 4);
    }
    fence_async();
  }
  __syncthreads();
  const int warpgroup = __shfl_sync(~0u, threadIdx.x / 128, 0);
  if (warpgroup == 0) {
    fewer_registers<24>();
    const int warp = __shfl_sync(~0u, threadIdx.x / 32, 0);
    const std::uint32_t queries = shared + Layout::queries, rows = shared + Layout::rows;
    if (warp == 0)
      backward_wide_load(p, work, shared, p.k0, shared + Layout::k0, p.q0, queries, p.lse, rows,
                         shared + Layout::full_queries);
    if (warp == 1)
      backward_wide_load(p, work, shared, p.v, shared + Layout::v, p.grad_out, queries + Layout::grad_out, p.delta,
                         rows + Layout::delta, shared + Layout::full_grad_out);
    if (threadIdx.x == 64) backward_wide_add<coarse, deep>(p, work, shared);
    if constexpr (coarse) {
      if (warp == 3) backward_wide_load_coarse(p, work, shared);
    }
  } else if (warpgroup < 3) {
    more_registers<coarse ? 208 : 240>();
    backward_wide_fine<T, coarse>(p, work, shared, warpgroup - 1);
  } else if constexpr (coarse) {
    fewer_registers<72>();
    backward_wide_coarse<T, deep>(p, work, shared);
  }
}

template <class T, bool coarse, bool deep>
void start_backward_wide(const BackwardParameters& parameters, const Device& device) {
  const unsigned blocks = static_cast<unsigned>(parameters.batch) * parameters.heads * parameters.key_tiles;
  launch(backward_wide<T, coarse, deep>, blocks, backward_wide_threads<coarse>,
         deep ? BackwardWideLayout::deep_bytes : BackwardWideLayout::bytes, device.stream, parameters);
}

}  // namespace hkt::kernels::cuda::sm90
