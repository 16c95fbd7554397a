// Backward on Hopper for widths above 64. Of a block's four warpgroups, two have 64 keys each and make probabilities,
// gradients of scores, the gradients of keys and values, and for 64 columns each the sums for the gradients of
// queries; one makes coarse scores a step ahead and everything that the coarse levels' gradients need; one loads, and
// adds sums to those in global memory. Registers are short: the score's gradient takes the score's, and sums for
// coarse keys cannot stay in registers. They are made for two steps at once and added in global memory.
#pragma once

#include <type_traits>

#include "backward.h"
#include "backward_deep.h"
#include "backward_half.h"

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
  static constexpr int empty_grad_out = empty_gradients + 2 * 8;
  static constexpr int empty_fine = empty_grad_out + stages * 8;
  static constexpr int full_second_sums = empty_fine + 8;
  static constexpr int read_fine = full_second_sums + stages * 8;
  static constexpr int end = read_fine + 8;
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
                                                   std::uint32_t full_queries, std::uint32_t empty_queries) {
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
    barrier_wait(empty_queries + ring.stage * 8, ring.parity ^ 1);
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
    const std::uint32_t from = shared + Layout::queries + ring.stage * Layout::query_stage + Layout::grad_out;
    float* const to = backward_wide_query_sums<coarse, deep>(p, work, tile);
    // The second warpgroup's first: their place is needed sooner.
    barrier_wait(shared + Layout::full_second_sums + ring.stage * 8, ring.parity);
    add_floats(to + query_sums_size(64, coarse, deep), shared + Layout::fine, Layout::sum_panel);
    commit_stores();
    barrier_wait(shared + Layout::full_sums + ring.stage * 8, ring.parity);
    add_floats(to, from, Layout::sum_panel);
    commit_stores();
    wait_stores_read_but<1>();
    barrier_arrive(shared + Layout::empty_fine);
    wait_stores_read();
    barrier_arrive(shared + Layout::empty_grad_out + ring.stage * 8);
    end_turn(p, work, tile);
    ring.advance();
  }
  wait_stores();
}

// A warpgroup: 64 keys. The sums for queries of a step are made during the next one, so that the two warpgroups need
// not keep step with each other, and exponentials run beside the product for grad_k.
template <class T, bool coarse, bool deep>
__device__ __forceinline__ void backward_wide_fine(const BackwardParameters& p, const BackwardWork& work,
                                                   std::uint32_t shared, int half) {
  using Layout = BackwardWideLayout;
  const int lane = threadIdx.x % 32, c = lane % 4;
  const int warp = threadIdx.x / 32 - 4;
  const int key = work.key_tile * backward_keys + warp / 2 * 32 + 4 * (lane / 4) + 2 * (warp % 2);  // and the next
  // Operands are described anew in each step: there are no registers to keep them in.
  const auto operand = [&](int place, int half_bytes) {
    return descriptor<128>(shared + place + again(half) * half_bytes);
  };
  const std::uint64_t first_queries = descriptor<128>(shared + Layout::queries, Layout::query_panel);
  const std::uint64_t fine = descriptor<128>(shared + Layout::fine);
  const float c0 = log2_e * weight(p, work, 0);
  const bool padding = work.has_padding();

  float grad_k[64], grad_v[64];
  float scores[32];          // then sums for queries of the step before, then gradients of probabilities
  std::uint32_t packed[16];  // probabilities
#pragma unroll
  for (int i = 0; i < 64; ++i) grad_k[i] = grad_v[i] = 0;

  const auto start_scores = [&](int i) {
    barrier_wait(shared + Layout::full_queries + i % 2 * 8, i / 2 % 2);
    release(scores);
    const std::uint64_t keys = operand(Layout::k0, 64 * Layout::row);
    products_begin();
    start_product<T, 128, Layout::key_panel, Layout::query_panel>(scores, keys,
                                                                  first_queries + i % 2 * (Layout::query_stage / 16));
    products_commit();
  };
  // What is added to scores of half b of the queries: coarse ones - lse.
  float shift[8];
  const auto make_shift = [&](int i, int b) {
    load_half_rows(shift, shared + Layout::rows + i % 2 * Layout::row_stage + c * 32, b);
    if constexpr (coarse) {
      float coarse_scores[4];
      if (b == 0) barrier_wait(shared + Layout::full_scores, i % 2);
      load_4(coarse_scores, shared + Layout::scores + warp * 1024 + lane * 16 + b * 512);
      if (b == 1) {
        __syncwarp();
        if (every_lane_arrives || lane == 0) barrier_arrive(shared + Layout::empty_scores);
      }
#pragma unroll
      for (int k = 0; k < 8; ++k) shift[k] = coarse_scores[k / 2] - shift[k];
    } else {
#pragma unroll
      for (int k = 0; k < 8; ++k) shift[k] = -shift[k];
    }
    pin(shift);
  };
  const auto make_probabilities = [&](int i) {
    std::uint32_t (&first)[8] = reinterpret_cast<std::uint32_t (&)[8]>(packed[0]);
    std::uint32_t (&second)[8] = reinterpret_cast<std::uint32_t (&)[8]>(packed[8]);
    if (padding || (p.causal && i < backward_keys / backward_queries)) {
      const Sight seen = sight(work, p.causal, key, work.query_tile(i) * backward_queries + 8 * c);
      half_probabilities<T, true>(scores, first, shift, c0, seen, 0);
      make_shift(i, 1);
      half_probabilities<T, true>(scores, second, shift, c0, seen, 1);
    } else {
      half_probabilities<T, false>(scores, first, shift, c0, {}, 0);
      make_shift(i, 1);
      half_probabilities<T, false>(scores, second, shift, c0, {}, 1);
    }
  };
  const std::uint64_t first_grad_out = first_queries + Layout::grad_out / 16;
  const auto start_grad_v = [&](int i) {
    barrier_wait(shared + Layout::full_grad_out + i % 2 * 8, i / 2 % 2);
    pin(grad_v);
    pin(packed);
    products_begin();
    start_sum<T, Layout::row>(grad_v, packed, first_grad_out + i % 2 * (Layout::query_stage / 16));
    products_commit();
  };
  // The product for gradients of probabilities begins at -delta.
  const auto start_grad_p = [&](int i) {
    const std::uint64_t values = operand(Layout::v, 64 * Layout::row);
    const std::uint64_t grad_out = first_grad_out + i % 2 * (Layout::query_stage / 16);
    float delta[16];
    load_rows(delta, shared + Layout::rows + i % 2 * Layout::row_stage + Layout::delta + c * 32);
#pragma unroll
    for (int k = 0; k < 32; ++k) scores[k] = -delta[8 * (k / 4 % 2) + 4 * (k % 2) + k / 8];
    pin(scores);
    products_begin();
#pragma unroll
    for (int k = 0; k < 8; ++k)
      Product<T, 64>::run(scores, values + k / 4 * (Layout::key_panel / 16) + k % 4 * 2,
                          grad_out + k / 4 * (Layout::query_panel / 16) + k % 4 * 2, 1);
    products_commit();
  };
  // Of step i, to shared memory, where the step before has been done with.
  const auto store_gradients = [&](int i) {
    const int buffer = i % 2, parity = i / 2 % 2;
    Gradients gradients;
    make_gradients<T, coarse>(gradients, [&](int element, int) {
      const float2 pair = unpack<T>(packed[element / 2]);
      return (element % 2 == 0 ? pair.x : pair.y) * scores[element];
    });
    const GradientPlaces places =
        gradient_places(shared + Layout::fine, shared + Layout::level1 + buffer * Layout::level1_buffer,
                        shared + Layout::level2 + buffer * Layout::level2_buffer, warp, again(lane) & 31);
    if constexpr (coarse) {
      barrier_wait(shared + Layout::empty_gradients + buffer * 8, parity ^ 1);
      store_coarse_gradients(gradients, places);
    }
    barrier_wait(shared + Layout::empty_fine, i % 2 ^ 1);
    store_fine_gradients(gradients, places);
    fence_async();
    __syncwarp();
    if (every_lane_arrives || lane == 0) barrier_arrive(shared + Layout::full_gradients + buffer * 8);
  };
  const auto start_grad_k = [&](int i) {
    const std::uint64_t queries = first_queries + i % 2 * (Layout::query_stage / 16);
    named_sync(4 + half, 128);  // the warpgroup's gradients are there
    const std::uint64_t gradients_of_keys = operand(Layout::fine, 64 * 128);
    pin(grad_k);
    products_begin();
#pragma unroll
    for (int k = 0; k < 4; ++k)
      Product<T, 128, false, true>::run(grad_k, gradients_of_keys + 2 * k, queries + k * Layout::row, 1);
    products_commit();
  };
  const auto start_sums = [&](int i) {
    barrier_wait(shared + Layout::full_gradients + i % 2 * 8, i / 2 % 2);  // those of both warpgroups are there
    release(scores);
    const std::uint64_t key_columns = operand(Layout::k0, Layout::key_panel);
    products_begin();
#pragma unroll
    for (int k = 0; k < 8; ++k)
      Product<T, 64, true, true>::run(scores, fine + k * 128, key_columns + k * Layout::row, k > 0);
    products_commit();
  };
  // One warpgroup's sums take the place of the step's output gradients, the other's that of the gradients of scores.
  const auto add_sums = [&](int i) {
    if (every_lane_arrives || lane == 0) barrier_arrive(shared + Layout::read_fine);
    if (half == 1) barrier_wait(shared + Layout::read_fine, i % 2);
    const std::uint32_t place =
        shared + (half == 1 ? Layout::fine : Layout::queries + i % 2 * Layout::query_stage + Layout::grad_out);
    store_sums(place + threadIdx.x % 128 * 16, 128, scores);
    fence_async();
    __syncwarp();
    if (every_lane_arrives || lane == 0)
      barrier_arrive(shared + (half == 0 ? Layout::full_sums : Layout::full_second_sums) + i % 2 * 8);
  };

  barrier_wait(shared + Layout::full_keys, 0);
  start_scores(0);
  make_shift(0, 0);
  products_wait<0>();
  pin(scores);
  make_probabilities(0);
  start_grad_v(0);
  start_grad_p(0);
  products_wait<0>();
  pin(grad_v);
  pin(packed);
  pin(scores);
#pragma unroll 1
  for (int i = 0; i + 1 < work.steps; ++i) {
    store_gradients(i);
    start_scores(i + 1);
    start_grad_k(i);
    make_shift(i + 1, 0);
    products_wait<1>();
    pin(scores);
    make_probabilities(i + 1);
    products_wait<0>();
    pin(grad_k);
    if (every_lane_arrives || lane == 0) barrier_arrive(shared + Layout::empty_queries + i % 2 * 8);

    start_sums(i);
    start_grad_v(i + 1);
    products_wait<1>();
    pin(scores);
    add_sums(i);
    start_grad_p(i + 1);
    products_wait<0>();
    pin(grad_v);
    pin(packed);
    pin(scores);
  }
  const int last = work.steps - 1;
  store_gradients(last);
  start_grad_k(last);
  start_sums(last);
  products_wait<0>();
  pin(grad_k);
  pin(scores);
  add_sums(last);

  const float w0 = weight(p, work, 0);
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const bool inside = key + h < p.length;
    write_chunks(row_of<T>(p.grad_k[0], work, key + h), grad_k, h, c, inside ? p.width : 0, w0);
    write_chunks(row_of<T>(p.grad_v, work, key + h), grad_v, h, c, inside ? p.width : 0, 1);
  }
}

// The accumulator of a product as it lies in global memory; as add_registers, where nothing is there yet.
template <int count>
__device__ __forceinline__ void store_registers(float* to, const float (&sums)[count]) {
#pragma unroll
  for (int i = 0; i < count / 4; ++i)
    *reinterpret_cast<float4*>(to + i * 512) =
        make_float4(sums[4 * i], sums[4 * i + 1], sums[4 * i + 2], sums[4 * i + 3]);
}

// An operand of products, described anew each time: there are no registers to keep it in.
template <int swizzle>
__device__ __forceinline__ std::uint64_t operand(std::uint32_t shared, int place) {
  return descriptor<swizzle>(again(shared) + place);
}

// A warpgroup: coarse scores, sums for coarse queries and keys, whose rows are columns of the model. Few products are
// waited for one by one: while sums of one kind are added, products for the next run.
template <class T, bool deep>
__device__ __forceinline__ void backward_wide_coarse(const BackwardParameters& p, const BackwardWork& work,
                                                     std::uint32_t shared) {
  using Layout = BackwardWideLayout;
  const int thread = threadIdx.x % 128, lane = thread % 32, warp = thread / 32;
  float* const all_key_sums =
      p.key_sums + (static_cast<std::int64_t>(work.sequence) * p.key_tiles + work.key_tile) * 2 * key_sums_size(deep);
  const float c1 = log2_e * weight(p, work, 1), c2 = log2_e * weight(p, work, 2);
  const std::uint32_t deep_gradients = shared + Layout::deep_gradients;
  barrier_wait(shared + Layout::full_keys, 0);
  int stage = Layout::coarse_stages - 2, parity = 1;  // of the coarse queries of a step
  const auto advance = [&]() {
    if (++stage == Layout::coarse_stages) {
      stage = 0;
      parity ^= 1;
    }
  };
  const auto queries = [&](int which, int place) {
    return operand<128>(shared, Layout::coarse + which * Layout::coarse_stage + place);
  };
  const auto make_scores = [&](int i) {
    const int next = stage == 0 ? Layout::coarse_stages - 1 : stage - 1;  // the step after the next
    const int next_parity = stage == 0 ? parity : parity ^ 1;
    const std::uint64_t q1 = queries(next, 0);
    const std::uint64_t q2 = q1 + Layout::q2 / 16;
    const std::uint32_t keys = again(shared) + Layout::k2 + warp * 8 * Layout::row;
    float scores1[16], scores2[8], deep_scores[2];
    std::uint32_t level_2_keys[8];  // of one panel
    if constexpr (deep) {
      read_deep_scores<T>(deep_scores, p, work, work.query_tile(i), warp, lane);
      if (i + 1 < work.steps) expect_deep_queries(p, work, work.query_tile(i + 1), thread);
    }
    load_level_2_keys<Layout::row, 64>(level_2_keys, keys, lane);
    barrier_wait(shared + Layout::full_coarse + next * 8, next_parity);
    release(scores1);
    release(scores2);
    pin(level_2_keys);
    products_begin();
    start_level_2<T>(scores2, level_2_keys, q2, false);
    products_commit();
    start_product<T, 128, Layout::key1_panel, Layout::q1_panel>(scores1, operand<128>(shared, Layout::k1), q1);
    products_commit();
    products_wait<1>();  // the other product goes on
    pin(scores2);
    load_level_2_keys<Layout::row, 64>(level_2_keys, keys + Layout::key2_panel, lane);
    pin(level_2_keys);
    products_begin();
    start_level_2<T>(scores2, level_2_keys, q2 + Layout::q2_panel / 16, true);
    products_commit();
    barrier_wait(shared + Layout::empty_scores, i % 2 ^ 1);
    products_wait<0>();
    pin(scores1);
    pin(scores2);
    store_coarse_scores(shared + Layout::scores + 2 * warp * 1024 + lane * 16, scores1, scores2, c1, c2,
                        deep ? deep_scores : nullptr);
    __syncwarp();
    if (every_lane_arrives || lane == 0) barrier_arrive(shared + Layout::full_scores);
  };
  // Sums are made 16 registers at a time: while one product runs, the sums of the one before it are added. Without the
  // barrier the compiler would start the next product before it reads the sums, and would need registers for both.
  const auto add_sums = [&](float* to, const auto& sums, bool is_first = false) {
    if (is_first)
      store_registers(to, sums);
    else
      add_registers(to, 128, sums);
    __syncwarp();
  };
  const auto start_keys_1 = [&](float (&sums)[16], int panel, int half) {
    release(sums);
    const std::uint64_t first = queries(stage == 0 ? Layout::coarse_stages - 1 : stage - 1, panel * Layout::q1_panel);
    const std::uint64_t second = queries(stage, panel * Layout::q1_panel);
    const std::uint64_t gradients = operand<64>(shared, Layout::level1 + half * 32 * 64);
    products_begin();
#pragma unroll
    for (int k = 0; k < 4; ++k)
      Product<T, 32, true, false>::run(sums, (k < 2 ? first : second) + k % 2 * Layout::row,
                                       gradients + k / 2 * (Layout::level1_buffer / 16) + k % 2 * 2, k > 0);
    products_commit();
  };
  const auto start_keys_2 = [&](float (&sums)[16], int panel) {
    release(sums);
    const std::uint64_t first =
        queries(stage == 0 ? Layout::coarse_stages - 1 : stage - 1, Layout::q2 + panel * Layout::q2_panel);
    const std::uint64_t second = queries(stage, Layout::q2 + panel * Layout::q2_panel);
    // Of each pair of warps, whose rows belong to the same eight keys of level 2, the even one's; the odd one's are
    // next.
    const std::uint64_t gradients = with_stride(operand<32>(shared, Layout::level2), 512);
    products_begin();
#pragma unroll
    for (int k = 0; k < 4; ++k)
      Product<T, 32, true, false>::run(sums, k < 2 ? first : second,
                                       gradients + k / 2 * (Layout::level2_buffer / 16) + k % 2 * 16, k > 0);
    products_commit();
  };
  const auto start_queries_1 = [&](float (&sums)[16], int buffer, int panel) {
    release(sums);
    const std::uint64_t keys = operand<128>(shared, Layout::k1 + panel * Layout::key1_panel);
    const std::uint64_t gradients = operand<64>(shared, Layout::level1 + buffer * Layout::level1_buffer);
    products_begin();
#pragma unroll
    for (int k = 0; k < 4; ++k)
      Product<T, 32, true, true>::run(sums, keys + k * Layout::row, gradients + k * 64, k > 0);
    products_commit();
  };
  const auto start_queries_2 = [&](float (&sums)[8], int buffer, int panel) {
    release(sums);
    const std::uint64_t keys =
        with_stride(operand<128>(shared, Layout::k2 + panel * Layout::key2_panel), 0);  // each eight rows twice
    const std::uint64_t gradients = operand<32>(shared, Layout::level2 + buffer * Layout::level2_buffer);
    products_begin();
#pragma unroll
    for (int k = 0; k < 4; ++k)
      Product<T, 16, true, true>::run(sums, keys + k * (Layout::row / 2), gradients + k * 32, k > 0);
    products_commit();
  };
  // A step's additions were started a while ago, so that to wait for their end does not take long.
  const auto end_turn_of = [&](int i) {
    if (p.turns == nullptr) return;
    __threadfence();
    named_sync(2, 128);
    if (thread == 0) pass_turn(turn_of(p, work, work.query_tile(i), 1));
  };
  // With the second of a pair of steps the sums for keys of both are added, first: the next step waits for the first
  // one's gradients and coarse queries, and only the one after it for the second one's.
  const auto add_step = [&](auto is_second, int i) {
    constexpr int buffer = is_second;
    const int tile = work.query_tile(i);
    float a[16];
    if constexpr (is_second) {
      float* const sums = all_key_sums + again(thread) * 4;
      constexpr int next_panel = key_sums_size(deep);
      const bool is_first = !deep && i == 1;
      float b[16];
      start_keys_1(a, 0, 0);
      start_keys_1(b, 0, 1);
      products_wait<1>();
      pin(a);
      add_sums(sums, a, is_first);
      start_keys_1(a, 1, 0);
      products_wait<1>();
      pin(b);
      add_sums(sums + 32 * 64, b, is_first);
      start_keys_1(b, 1, 1);
      products_wait<1>();
      pin(a);
      add_sums(sums + next_panel, a, is_first);
      start_keys_2(a, 0);
      products_wait<1>();
      pin(b);
      add_sums(sums + next_panel + 32 * 64, b, is_first);
      start_keys_2(b, 1);
      products_wait<1>();
      pin(a);
      add_sums(sums + 64 * 64, a, is_first);
      start_queries_1(a, buffer, 0);
      products_wait<1>();
      pin(b);
      if (every_lane_arrives || lane == 0) {
        barrier_arrive(shared + Layout::empty_gradients);
        barrier_arrive(shared + Layout::empty_coarse + (stage == 0 ? Layout::coarse_stages - 1 : stage - 1) * 8);
        barrier_arrive(shared + Layout::empty_coarse + stage * 8);
      }
      add_sums(sums + next_panel + 64 * 64, b, is_first);
    } else {
      start_queries_1(a, buffer, 0);
    }
    float* const sums = backward_wide_query_sums<true, deep>(p, work, tile) + 64 * 64 + again(thread) * 4;
    float c[8];
    start_queries_2(c, buffer, 0);
    if (p.turns != nullptr) {
      if (thread == 0) wait_turn(turn_of(p, work, tile, 1), turn(p, work, tile));
      named_sync(2, 128);
    }
    products_wait<1>();
    pin(a);
    add_sums(sums, a);
    products_wait<0>();
    pin(c);
    add_sums(sums + 32 * 64, c);
  };
  const auto add_second_panel = [&](auto is_second, int i) {
    constexpr int buffer = is_second;
    float* const sums = backward_wide_query_sums<true, deep>(p, work, work.query_tile(i)) +
                        query_sums_size(64, true, deep) + 64 * 64 + again(thread) * 4;
    float a[16], c[8];
    start_queries_1(a, buffer, 1);
    start_queries_2(c, buffer, 1);
    products_wait<1>();
    pin(a);
    add_sums(sums, a);
    products_wait<0>();
    pin(c);
    if (buffer == 1 && (every_lane_arrives || lane == 0)) barrier_arrive(shared + Layout::empty_gradients + 8);
    add_sums(sums + 32 * 64, c);
  };
  const auto step = [&](auto is_second, int i) {
    constexpr int buffer = is_second;
    if (i > 0) end_turn_of(i - 1);
    barrier_wait(shared + Layout::full_gradients + buffer * 8, i / 2 % 2);
    if constexpr (deep) {
      named_sync(3, 128);  // all have done with the gradients of two steps ago
      sum_deep_gradients<T, 4>(deep_gradients + buffer * level_3_gradients_bytes,
                               shared + Layout::level2 + buffer * Layout::level2_buffer, warp, lane);
      __syncwarp();  // all lanes have read the buffer before the warp gives it back
    }
    add_step(is_second, i);
    if (i + 2 < work.steps) make_scores(i + 2);
    add_second_panel(is_second, i);
    if constexpr (deep) {  // from gradients of its own: the other warpgroups do not wait for it
      const int tile = work.query_tile(i);
      named_sync(3, 128);  // these are there
      add_deep_queries<T>(backward_wide_query_sums<true, true>(p, work, tile) +
                              warp / 2 * query_sums_size(64, true, true) + 112 * 64 + warp % 2 * 32 + lane % 4 * 8,
                          deep_gradients + buffer * level_3_gradients_bytes, p, work, warp, lane);
      if constexpr (is_second) {
        const int tiles[2] = {work.query_tile(i - 1), tile};
        add_deep_keys<T>(all_key_sums + warp / 2 * key_sums_size(true) + 96 * 64 + warp % 2 * 32 + lane % 4 * 8,
                         deep_gradients, tiles, p, work, warp, lane);
      }
    }
  };

  make_scores(0);
  advance();
  make_scores(1);
#pragma unroll 1
  for (int i = 0; i < work.steps; i += 2) {  // the number of steps is even
    advance();
    step(std::false_type(), i);
    advance();
    step(std::true_type(), i + 1);
  }
  end_turn_of(work.steps - 1);
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
    if constexpr (coarse && !deep) {
      float4* const sums = reinterpret_cast<float4*>(
          p.key_sums +
          (static_cast<std::int64_t>(work.sequence) * p.key_tiles + work.key_tile) * 2 * key_sums_size(deep));
      for (int i = threadIdx.x; i < key_sums_size(deep) / 2; i += blockDim.x) sums[i] = make_float4(0, 0, 0, 0);
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
    for (int i = 0; i < 2; ++i) {
      barrier_init_warps(shared + Layout::full_gradients + i * 8, 8);
      barrier_init_warps(shared + Layout::empty_gradients + i * 8, 4);
    }
    barrier_init(shared + Layout::empty_fine, 1);
    barrier_init_warps(shared + Layout::read_fine, 8);
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
                         shared + Layout::full_queries, shared + Layout::empty_queries);
    if (warp == 1)
      backward_wide_load(p, work, shared, p.v, shared + Layout::v, p.grad_out, queries + Layout::grad_out, p.delta,
                         rows + Layout::delta, shared + Layout::full_grad_out, shared + Layout::empty_grad_out);
    if (threadIdx.x == 64) backward_wide_add<coarse, deep>(p, work, shared);
    if constexpr (coarse) {
      if (warp == 3) backward_wide_load_coarse(p, work, shared);
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
  launch(backward_wide<T, coarse, deep>, blocks, backward_wide_threads<coarse>,
         deep ? BackwardWideLayout::deep_bytes : BackwardWideLayout::bytes, device.stream, parameters);
}

}  // namespace hkt::kernels::cuda::sm90
