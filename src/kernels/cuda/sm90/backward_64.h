// Backward on Hopper for widths up to 64. Of a block's four warpgroups, two have 64 keys each and make probabilities,
// gradients of scores, and the gradients of keys and values; one makes coarse scores a step ahead, the gradients of
// coarse keys, and the sums for the gradients of queries; one loads, and has the copy engine add the sums to those in
// global memory.
#pragma once

#include "backward.h"
#include "backward_deep_gradients.h"
#include "backward_deep_scores.h"
#include "backward_half.h"

namespace hkt::kernels::cuda::sm90 {

// Where things lie in shared memory. Rows of tiles are `row` bytes, swizzled by as much.
template <int width>
struct BackwardNarrowLayout {
  static constexpr int stages = 3;
  static constexpr int coarse_stages = 3;
  static constexpr int row = 2 * width;
  static constexpr int k0 = 0;
  static constexpr int v = k0 + 128 * row;
  static constexpr int k1 = v + 128 * row;
  static constexpr int k2 = k1 + 64 * row;

  static constexpr int queries = k2 + 32 * row;  // stages of q0 and the output's gradient
  static constexpr int grad_out = 64 * row;      // in a stage
  static constexpr int query_stage = 128 * row;
  static constexpr int coarse = queries + stages * query_stage;  // stages of q1 and q2
  static constexpr int q2 = 32 * row;
  static constexpr int coarse_stage = 48 * row;

  // Gradients of scores, two buffers each.
  static constexpr int fine_buffer = 128 * 128, level1_buffer = 64 * 64, level2_buffer = 64 * 32;
  static constexpr int fine = coarse + coarse_stages * coarse_stage;
  static constexpr int level1 = fine + 2 * fine_buffer;
  static constexpr int level2 = level1 + 2 * level1_buffer;

  static constexpr int scores = level2 + 2 * level2_buffer;  // coarse ones, two buffers
  static constexpr int sums_buffer = 64 * width * 4;         // sums for queries, of level 0 in two buffers
  static constexpr int sums = scores + 2 * coarse_scores_bytes;
  static constexpr int coarse_sums = sums + 2 * sums_buffer;
  static constexpr int coarse_sums_bytes = (32 + 16) * width * 4;
  static constexpr int sums2 = 32 * width * 4;  // in the coarse ones

  static constexpr int rows = coarse_sums + coarse_sums_bytes;  // stages of lse and delta
  static constexpr int delta = 256;
  static constexpr int row_stage = 512;

  static constexpr int full_keys = rows + stages * row_stage;  // barriers, of 8 bytes
  static constexpr int full_queries = full_keys + 8;
  static constexpr int empty_queries = full_queries + stages * 8;
  static constexpr int full_coarse = empty_queries + stages * 8;
  static constexpr int empty_coarse = full_coarse + coarse_stages * 8;
  static constexpr int full_scores = empty_coarse + coarse_stages * 8;
  static constexpr int empty_scores = full_scores + 2 * 8;
  static constexpr int full_gradients = empty_scores + 2 * 8;
  static constexpr int empty_gradients = full_gradients + 2 * 8;
  static constexpr int full_sums = empty_gradients + 2 * 8;
  static constexpr int empty_sums = full_sums + 2 * 8;
  static constexpr int full_coarse_sums = empty_sums + 2 * 8;
  static constexpr int empty_coarse_sums = full_coarse_sums + 8;
  static constexpr int end = empty_coarse_sums + 8;
  static constexpr int deep_slot = end;
  static constexpr int bytes = deep_slot + 8 + 1024;  // the start is rounded up
  static_assert(bytes <= 227 * 1024);
  static_assert(queries % 1024 == 0 && coarse % 1024 == 0 && fine % 1024 == 0 && coarse_stage % (8 * row) == 0);
};

// A warp: keys or values of level 0, then queries or output gradients with their data of rows, step by step.
template <int width>
__device__ __forceinline__ void backward_narrow_load(const BackwardParameters& p, const BackwardWork& work,
                                                     std::uint32_t shared, const CUtensorMap (&key_maps)[4],
                                                     std::uint32_t keys, const CUtensorMap (&query_maps)[4],
                                                     std::uint32_t queries, const float* row_data, std::uint32_t rows) {
  using Layout = BackwardNarrowLayout<width>;
  const int lane = threadIdx.x % 32;
  expect_bytes(shared + Layout::full_keys, 128 * Layout::row, lane);
  load_keys<Layout::row, 1>(keys, key_maps, shared + Layout::full_keys, work, lane);
  row_data += static_cast<std::int64_t>(work.sequence) * p.query_tiles * backward_queries;
  BackwardRing<Layout::stages> ring;
#pragma unroll 1
  for (int i = 0; i < work.steps; ++i) {
    const int tile = work.query_tile(i);
    const std::uint32_t full = shared + Layout::full_queries + ring.stage * 8;
    barrier_wait(shared + Layout::empty_queries + ring.stage * 8, ring.parity ^ 1);
    expect_bytes(full, 64 * Layout::row + 256, lane);
    load_queries<Layout::row, 1>(queries + ring.stage * Layout::query_stage, query_maps, full, work, tile, lane);
    if (lane == 0) load_bytes(rows + ring.stage * Layout::row_stage, row_data + tile * backward_queries, 256, full);
    ring.advance();
  }
}

// A warp: the same for coarse levels.
template <int width>
__device__ __forceinline__ void backward_narrow_load_coarse(const BackwardParameters& p, const BackwardWork& work,
                                                            std::uint32_t shared) {
  using Layout = BackwardNarrowLayout<width>;
  const int lane = threadIdx.x % 32;
  expect_bytes(shared + Layout::full_keys, 96 * Layout::row, lane);
  load_coarse_keys<Layout::row, 1>(shared + Layout::k1, shared + Layout::k2, p, shared + Layout::full_keys, work, lane);
  BackwardRing<Layout::coarse_stages> ring;
#pragma unroll 1
  for (int i = 0; i < work.steps; ++i) {
    const std::uint32_t full = shared + Layout::full_coarse + ring.stage * 8;
    const std::uint32_t stage = shared + Layout::coarse + ring.stage * Layout::coarse_stage;
    barrier_wait(shared + Layout::empty_coarse + ring.stage * 8, ring.parity ^ 1);
    expect_bytes(full, Layout::coarse_stage, lane);
    load_coarse_queries<Layout::row, 1>(stage, stage + Layout::q2, p, full, work, work.query_tile(i), lane);
    ring.advance();
  }
}

// One thread: adds each step's sums for queries; of the coarse ones those that their warpgroup does not add itself.
// With one level two threads take the steps by turns, because a step is short beside what a fixed order of additions
// needs between two of them.
template <int width, bool coarse, bool deep>
__device__ __forceinline__ void backward_narrow_add(const BackwardParameters& p, const BackwardWork& work,
                                                    std::uint32_t shared, int first) {
  using Layout = BackwardNarrowLayout<width>;
  constexpr int size = query_sums_size(width, coarse, deep);
  float* const query_sums = p.query_sums + static_cast<std::int64_t>(work.sequence) * p.query_tiles * size;
#pragma unroll 1
  for (int i = first; i < work.steps; i += coarse ? 1 : 2) {
    const int buffer = i % 2, parity = i / 2 % 2;
    const int tile = work.query_tile(i);
    float* const to = query_sums + static_cast<std::int64_t>(tile) * size;
    begin_turn(p, work, tile);
    const bool ordered = p.turns != nullptr;
    if (coarse && ordered) {
      barrier_wait(shared + Layout::full_coarse_sums, i % 2);
      add_floats(to + 64 * width, shared + Layout::coarse_sums, Layout::coarse_sums_bytes);
      commit_stores();
    }
    barrier_wait(shared + Layout::full_sums + buffer * 8, parity);
    add_floats(to, shared + Layout::sums + buffer * Layout::sums_buffer, Layout::sums_buffer);
    commit_stores();
    if constexpr (coarse) {
      wait_stores_read_but<1>();  // the coarse sums, and those of level 0 of the step before
      barrier_arrive(shared + Layout::empty_coarse_sums);
      if (i > 0) barrier_arrive(shared + Layout::empty_sums + (buffer ^ 1) * 8);
    } else {
      wait_stores_read();
      barrier_arrive(shared + Layout::empty_sums + buffer * 8);
    }
    end_turn(p, work, tile);
  }
  wait_stores();
}

// A warpgroup: 64 keys. Its keys and values are operands in registers: read from shared memory they would be a tenth of
// what passes through it.
template <class T, int width, bool coarse, bool deep>
__device__ __forceinline__ void backward_narrow_fine(const BackwardParameters& p, const BackwardWork& work,
                                                     std::uint32_t shared, int half) {
  using Layout = BackwardNarrowLayout<width>;
  constexpr int swizzle = Layout::row;
  constexpr int half_sum = 2 * Layout::row;         // from 32 queries to the next, in an operand of a sum over them
  constexpr int half_tile = 32 * Layout::row / 16;  // the same in an operand whose rows they are
  const int lane = threadIdx.x % 32, r = lane / 4, c = lane % 4;
  const int warp = 4 * half + threadIdx.x % 128 / 32;
  const int key = work.key_tile * backward_keys + warp / 2 * 32 + 4 * r + 2 * (warp % 2);  // and the next
  const float c0 = log2_e * weight(p, work, 0);
  const bool padding = work.has_padding();

  float grad_k[width / 2], grad_v[width / 2];
  float scores[32];  // they become probabilities
  float grad_p[16], shift[8];
#pragma unroll
  for (int i = 0; i < width / 2; ++i) grad_k[i] = grad_v[i] = 0;
  const std::uint32_t first_rows = shared + Layout::rows + c * 32;
  const std::uint64_t first_queries = descriptor<swizzle>(shared + Layout::queries);
  // What is added to the scores of half b of step i: coarse scores - lse.
  const auto make_shift = [&](int i, int stage, int b) {
    const int buffer = i % 2;
    load_half_rows(shift, first_rows + stage * Layout::row_stage, b);
    if constexpr (coarse) {
      float coarse_scores[4];
      if (b == 0) barrier_wait(shared + Layout::full_scores + buffer * 8, i / 2 % 2);
      load_4(coarse_scores, shared + Layout::scores + buffer * coarse_scores_bytes + warp * 1024 + lane * 16 + b * 512);
      if (b == 1) {
        __syncwarp();
        if (every_lane_arrives || lane == 0) barrier_arrive(shared + Layout::empty_scores + buffer * 8);
      }
#pragma unroll
      for (int k = 0; k < 8; ++k) shift[k] = coarse_scores[k / 2] - shift[k];
    } else {
#pragma unroll
      for (int k = 0; k < 8; ++k) shift[k] = -shift[k];
    }
    pin(shift);
  };
  const auto load_delta = [&](int stage, int b) {
    float delta[8];
    load_half_rows(delta, first_rows + stage * Layout::row_stage + Layout::delta, b);
    begin_at_delta(grad_p, delta);
    pin(grad_p);
  };

  if constexpr (deep) {
    make_deep_scores<T, width>(p, work, deep_slot(p, shared + Layout::deep_slot), shared + Layout::fine, warp, lane);
    named_arrive(7, 384);  // the coarse warpgroup waits for them
  }
  barrier_wait(shared + Layout::full_keys, 0);
  std::uint32_t keys[width / 4], values[width / 4];
  load_operand<Layout::row, width>(keys, shared + Layout::k0 + warp * 16 * Layout::row, lane);
  load_operand<Layout::row, width>(values, shared + Layout::v + warp * 16 * Layout::row, lane);
  const auto start_scores = [&](std::uint64_t queries) {
#pragma unroll
    for (int k = 0; k < width / 16; ++k) Product<T, 64>::run(scores, keys + 4 * k, queries + 2 * k, k > 0);
  };
  const auto start_grad_p = [&](std::uint64_t grad_out) {
#pragma unroll
    for (int k = 0; k < width / 16; ++k) Product<T, 32>::run(grad_p, values + 4 * k, grad_out + 2 * k, 1);
  };
  barrier_wait(shared + Layout::full_queries, 0);
  release(scores);
  pin(keys);
  pin(values);
  products_begin();
  start_scores(first_queries);
  products_commit();
  make_shift(0, 0, 0);
  load_delta(0, 0);
  products_wait<0>();
  pin(scores);
  // A step begins with its scores, and ends with the next one's: their product follows that of grad_k without a pause.
  BackwardRing<Layout::stages> ring;
#pragma unroll 1
  for (int i = 0; i < work.steps; ++i) {
    const int buffer = i % 2, parity = i / 2 % 2;
    const std::uint64_t queries = first_queries + ring.stage * (Layout::query_stage / 16);
    const std::uint64_t grad_out = queries + Layout::grad_out / 16;
    const bool masked = padding || (p.causal && i < backward_keys / backward_queries);
    const auto make_probabilities = [&](std::uint32_t (&packed)[8], int b) {
      if (masked)
        half_probabilities<T, true>(scores, packed, shift, c0,
                                    sight(work, p.causal, key, work.query_tile(i) * backward_queries + 8 * c), b);
      else
        half_probabilities<T, false>(scores, packed, shift, c0, {}, b);
    };
    std::uint32_t packed[2][8], fine[2][8];
    CoarseGradients sums;

    products_begin();
    start_grad_p(grad_out);
    products_commit();
    make_probabilities(packed[0], 0);
    pin(grad_v);
    pin(packed[0]);
    products_begin();
    start_half_sum<T, Layout::row>(grad_v, packed[0], grad_out);
    products_commit();
    make_shift(i, ring.stage, 1);
    products_wait<1>();
    pin(grad_p);
    half_gradients<T, coarse>(fine[0], sums, scores, grad_p, 0);

    load_delta(ring.stage, 1);
    pin(grad_k);
    pin(fine[0]);
    products_begin();
    start_grad_p(grad_out + half_tile);
    products_commit();
    start_half_sum<T, Layout::row>(grad_k, fine[0], queries);
    products_commit();
    make_probabilities(packed[1], 1);
    pin(grad_v);
    pin(packed[1]);
    products_begin();
    start_half_sum<T, Layout::row>(grad_v, packed[1], grad_out + half_sum);
    products_commit();
    const GradientPlaces places = gradient_places(
        shared + Layout::fine + buffer * Layout::fine_buffer, shared + Layout::level1 + buffer * Layout::level1_buffer,
        shared + Layout::level2 + buffer * Layout::level2_buffer, warp, again(lane) & 31);
    barrier_wait(shared + Layout::empty_gradients + buffer * 8, parity ^ 1);
    store_half_gradients(fine[0], places.fine, 0);
    products_wait<2>();  // not the last two: grad_k and grad_v
    pin(grad_p);
    half_gradients<T, coarse>(fine[1], sums, scores, grad_p, 1);
    store_half_gradients(fine[1], places.fine, 1);
    if constexpr (coarse) {
      store_blocks(places.level1, sums.pairs[0], sums.pairs[1], sums.pairs[2], sums.pairs[3]);
      store_blocks(places.level2, pack<T>(sums.quads[0], sums.quads[1]), pack<T>(sums.quads[2], sums.quads[3]));
    }
    fence_async();
    __syncwarp();
    if (every_lane_arrives || lane == 0) barrier_arrive(shared + Layout::full_gradients + buffer * 8);

    BackwardRing<Layout::stages> next = ring;
    const bool is_last = i + 1 == work.steps;
    if (!is_last) next.advance();  // else the last scores once more, for nobody
    barrier_wait(shared + Layout::full_queries + next.stage * 8, next.parity);
    release(scores);
    pin(grad_k);
    pin(fine[1]);
    products_begin();
    start_half_sum<T, Layout::row>(grad_k, fine[1], queries + half_sum);
    products_commit();
    start_scores(first_queries + next.stage * (Layout::query_stage / 16));
    products_commit();
    make_shift(is_last ? i : i + 1, next.stage, 0);
    load_delta(next.stage, 0);
    products_wait<1>();
    pin(grad_k);
    pin(grad_v);
    if (every_lane_arrives || lane == 0) barrier_arrive(shared + Layout::empty_queries + ring.stage * 8);
    products_wait<0>();
    pin(scores);
    ring = next;
  }
  const float w0 = weight(p, work, 0);
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    if (key + h >= p.length) continue;
    write_row(row_of<T>(p.grad_k[0], work, key + h), grad_k, h, c, p.width, w0);
    write_row(row_of<T>(p.grad_v, work, key + h), grad_v, h, c, p.width, 1);
  }
  if constexpr (deep) {
    named_sync(8, 384);  // the coarse warpgroup's are there, and nobody needs the keys and values any more
    // Worked out anew, so that nothing of it takes registers in the steps.
    const BackwardWork same_work = backward_work<1>(p, again(blockIdx.x));
    add_deep_gradients<T, width, width / 2>(p, same_work, shared + Layout::deep_slot, shared + Layout::k0);
  }
}

// A warpgroup: coarse scores, gradients of coarse keys, sums for queries. Products that have columns of the model as
// rows have 64 of them: a tile of 32 columns is met twice, and the second half of what they make is left.
template <class T, int width, bool coarse, bool deep>
__device__ __forceinline__ void backward_narrow_coarse(const BackwardParameters& p, const BackwardWork& work,
                                                       std::uint32_t shared) {
  using Layout = BackwardNarrowLayout<width>;
  constexpr int swizzle = Layout::row;
  constexpr int sum_threads = 2 * width;  // that have a row of such a product
  const int thread = threadIdx.x % 128, lane = thread % 32, warp = thread / 32, r = lane / 4, c = lane % 4;
  const std::uint64_t k0 = descriptor<swizzle>(shared + Layout::k0);
  const std::uint64_t k1 = descriptor<swizzle>(shared + Layout::k1, 0);
  const std::uint64_t k2 = with_stride(descriptor<swizzle>(shared + Layout::k2, 0), 0);  // each eight rows twice
  const std::uint64_t coarse_queries = descriptor<swizzle>(shared + Layout::coarse, 0);

  const float w1 = weight(p, work, 1), w2 = weight(p, work, 2);
  const float c1 = log2_e * w1, c2 = log2_e * w2;
  float grad_k1[width / 2];  // a row is a key
  float grad_k2[16];         // a row is a column of the model
#pragma unroll
  for (int i = 0; i < width / 2; ++i) grad_k1[i] = 0;
#pragma unroll
  for (int i = 0; i < 16; ++i) grad_k2[i] = 0;
  if constexpr (deep) named_sync(7, 384);  // their scores are there
  const auto deep_tile = [&](int i) {
    return deep_slot(p, again(shared) + Layout::deep_slot) + work.query_tile(i) * deep_tile_size;
  };
  barrier_wait(shared + Layout::full_keys, 0);

  BackwardRing<Layout::coarse_stages> ahead;
  const auto make_scores = [&](int i) {
    const int buffer = i % 2, parity = i / 2 % 2;
    const std::uint64_t q1 = coarse_queries + ahead.stage * (Layout::coarse_stage / 16);
    float level1[16], level2[8];
    std::uint32_t level_2_keys[width / 8];
    float deep_scores[2];
    if constexpr (deep) read_deep_scores(deep_scores, deep_tile(i), warp, lane);
    load_level_2_keys<Layout::row, width>(level_2_keys, shared + Layout::k2 + warp * 8 * Layout::row, lane);
    barrier_wait(shared + Layout::full_coarse + ahead.stage * 8, ahead.parity);
    release(level1);
    release(level2);
    pin(level_2_keys);
    products_begin();
    start_product<T, width, 0, 0>(level1, k1, q1);
    start_level_2<T>(level2, level_2_keys, q1 + Layout::q2 / 16, false);
    products_commit();
    barrier_wait(shared + Layout::empty_scores + buffer * 8, parity ^ 1);
    products_wait<0>();
    pin(level1);
    pin(level2);
    store_coarse_scores(shared + Layout::scores + buffer * coarse_scores_bytes + 2 * warp * 1024 + lane * 16, level1,
                        level2, c1, c2, deep ? deep_scores : nullptr);
    __syncwarp();
    if (every_lane_arrives || lane == 0) barrier_arrive(shared + Layout::full_scores + buffer * 8);
    ahead.advance();
  };

  BackwardRing<Layout::coarse_stages> ring;
#pragma unroll 1
  for (int i = coarse ? -1 : 0; i < work.steps; ++i) {
    if constexpr (coarse) {
      if (i + 1 < work.steps) make_scores(i + 1);
      if (i < 0) continue;
    }
    const int buffer = i % 2, parity = i / 2 % 2;
    const std::uint64_t fine = descriptor<128>(shared + Layout::fine + buffer * Layout::fine_buffer);
    const std::uint64_t level1 = descriptor<64>(shared + Layout::level1 + buffer * Layout::level1_buffer);
    const std::uint64_t level2 = descriptor<32>(shared + Layout::level2 + buffer * Layout::level2_buffer);
    // Of each pair of warps, whose rows belong to the same eight keys of level 2, the even one's; the odd one's are
    // next.
    const std::uint64_t every_second = with_stride(level2, 512);
    const std::uint64_t q1 = coarse_queries + ring.stage * (Layout::coarse_stage / 16);
    const std::uint64_t q2 = q1 + Layout::q2 / 16;
    const bool ordered = p.turns != nullptr;
    float sums0[width / 2], sums1[16], sums2[8];

    barrier_wait(shared + Layout::full_gradients + buffer * 8, parity);
    if constexpr (coarse) {
      release(sums1);
      release(sums2);
      pin(grad_k1);
      pin(grad_k2);
      products_begin();
#pragma unroll
      for (int k = 0; k < 4; ++k) Product<T, 32, true, true>::run(sums1, k1 + k * Layout::row, level1 + k * 64, k > 0);
#pragma unroll
      for (int k = 0; k < 4; ++k)
        Product<T, 16, true, true>::run(sums2, k2 + k * (Layout::row / 2), level2 + k * 32, k > 0);
#pragma unroll
      for (int k = 0; k < 2; ++k) Product<T, width, false, true>::run(grad_k1, level1 + 2 * k, q1 + k * Layout::row, 1);
#pragma unroll
      for (int k = 0; k < 2; ++k) Product<T, 32, true, false>::run(grad_k2, q2, every_second + k * 16, 1);
      products_commit();
      if constexpr (deep)
        store_deep_gradients<T>(deep_tile(i), shared + Layout::level2 + buffer * Layout::level2_buffer, warp, lane);
      products_wait<0>();
      pin(sums1);
      pin(sums2);
      pin(grad_k1);
      pin(grad_k2);
      if (every_lane_arrives || lane == 0) barrier_arrive(shared + Layout::empty_coarse + ring.stage * 8);
      if (!ordered) {  // in any order: straight from registers
        float* const to =
            p.query_sums + query_sums_size(width, true, deep) *
                               (static_cast<std::int64_t>(work.sequence) * p.query_tiles + work.query_tile(i));
        if (thread < sum_threads) {
          add_registers(to + 64 * width + thread * 4, sum_threads, sums1);
          add_registers(to + 96 * width + thread * 4, sum_threads, sums2);
        }
      }
      if (ordered) {  // through shared memory
        barrier_wait(shared + Layout::empty_coarse_sums, i % 2 ^ 1);
        if (thread < sum_threads) {
          store_sums(shared + Layout::coarse_sums + thread * 16, sum_threads, sums1);
          store_sums(shared + Layout::coarse_sums + Layout::sums2 + thread * 16, sum_threads, sums2);
        }
      }
    }
    // Not beside the coarse sums: together they would need registers that the other warpgroups make better use of.
    release(sums0);
    products_begin();
#pragma unroll
    for (int k = 0; k < 8; ++k) Product<T, width, true, true>::run(sums0, fine + k * 128, k0 + k * Layout::row, k > 0);
    products_commit();
    if constexpr (coarse) {
      if (ordered) {
        fence_async();
        __syncwarp();
        if (every_lane_arrives || lane == 0) barrier_arrive(shared + Layout::full_coarse_sums);
      }
    }
    barrier_wait(shared + Layout::empty_sums + buffer * 8, parity ^ 1);
    products_wait<0>();
    pin(sums0);
    if (every_lane_arrives || lane == 0) barrier_arrive(shared + Layout::empty_gradients + buffer * 8);
    store_sums(shared + Layout::sums + buffer * Layout::sums_buffer + thread * 16, 128, sums0);
    fence_async();
    __syncwarp();
    if (every_lane_arrives || lane == 0) barrier_arrive(shared + Layout::full_sums + buffer * 8);
    ring.advance();
  }
  if constexpr (deep) named_arrive(8, 384);

  if constexpr (coarse) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int row = work.key_tile * (backward_keys / 2) + 16 * warp + 2 * r + h;
      if (row < level_rows(p, 1)) write_row(row_of<T>(p.grad_k[1], work, row), grad_k1, h, c, p.width, w1);
    }
#pragma unroll
    for (int i = 0; i < 16; ++i) {
      const int column = 16 * warp + i / 2 % 2 * 8 + r;
      const int row = work.key_tile * (backward_keys / 4) + i / 4 * 8 + 2 * c + i % 2;
      if (p.levels > 2 && column < p.width && row < level_rows(p, 2))
        row_of<T>(p.grad_k[2], work, row)[column] = T(w2 * grad_k2[i]);
    }
  }
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
    if constexpr (deep) sm80::store_4(shared + Layout::deep_slot, claim_deep_slot(p));
    fence_async();
  }
  __syncthreads();
  const int warpgroup = __shfl_sync(~0u, threadIdx.x / 128, 0);
  if (warpgroup == 0) {
    fewer_registers<24>();
    const int warp = __shfl_sync(~0u, threadIdx.x / 32, 0);
    const std::uint32_t queries = shared + Layout::queries, rows = shared + Layout::rows;
    if (warp == 0) backward_narrow_load<width>(p, work, shared, p.k0, shared + Layout::k0, p.q0, queries, p.lse, rows);
    if (warp == 1)
      backward_narrow_load<width>(p, work, shared, p.v, shared + Layout::v, p.grad_out, queries + Layout::grad_out,
                                  p.delta, rows + Layout::delta);
    if constexpr (coarse) {
      if (warp == 2) backward_narrow_load_coarse<width>(p, work, shared);
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
