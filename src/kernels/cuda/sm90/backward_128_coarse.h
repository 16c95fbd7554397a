// Backward on Hopper for widths above 64: the warpgroup that has the coarse levels.
#pragma once

#include <type_traits>

#include "backward_128_layout.h"
#include "backward_deep_gradients.h"
#include "backward_deep_scores.h"
#include "backward_turns.h"

namespace hkt::kernels::cuda::sm90 {

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
  float* const all_key_sums = backward_wide_key_sums(p, work);
  const float c1 = log2_e * weight(p, work, 1), c2 = log2_e * weight(p, work, 2);
  if constexpr (deep) named_sync(7, 384);  // their scores are there
  const auto deep_tile = [&](int i) {
    return deep_slot(p, again(shared) + Layout::deep_slot) + work.query_tile(i) * deep_tile_size;
  };
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
    if constexpr (deep) read_deep_scores(deep_scores, deep_tile(i), warp, lane);
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
    const auto store_deep = [&] {  // while products run; the buffer is given back later
      if constexpr (deep)
        store_deep_gradients<T>(deep_tile(i), shared + Layout::level2 + buffer * Layout::level2_buffer, warp, lane);
    };
    float a[16];
    if constexpr (is_second) {
      float* const sums = all_key_sums + again(thread) * 4;
      constexpr int next_panel = key_sums_size;
      const bool is_first = i == 1;
      float b[16];
      start_keys_1(a, 0, 0);
      start_keys_1(b, 0, 1);
      store_deep();
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
      store_deep();
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
    add_step(is_second, i);
    if (i + 2 < work.steps) make_scores(i + 2);
    add_second_panel(is_second, i);
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
  if constexpr (deep) named_arrive(8, 384);
}

}  // namespace hkt::kernels::cuda::sm90
