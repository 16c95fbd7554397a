// SPDX-License-Identifier: Apache-2.0
// Backward on Hopper for widths above 64: a warpgroup that has 64 keys of level 0.
#pragma once

#include "backward_128_late.h"
#include "backward_deep_gradients.h"
#include "backward_deep_scores.h"
#include "backward_half.h"
#include "backward_results.h"

namespace hkt::kernels::cuda::sm90 {

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
    Gradients gradients;
    make_gradients<T, coarse>(gradients, [&](int element) {
      const float2 pair = unpack<T>(packed[element / 2]);
      return (element % 2 == 0 ? pair.x : pair.y) * scores[element];
    });
    const GradientPlaces places = gradient_places(shared + Layout::fine, shared + Layout::level1,
                                                  shared + Layout::level2, warp, again(lane) & 31);
    if constexpr (coarse) {
      barrier_wait(shared + Layout::empty_gradients, i % 2 ^ 1);
      store_coarse_gradients(gradients, places);
    }
    barrier_wait(shared + Layout::read_fine, i % 2 ^ 1);
    store_fine_gradients(gradients, places);
    fence_async();
    __syncwarp();
    if (every_lane_arrives || lane == 0) barrier_arrive(shared + Layout::full_gradients + i % 2 * 8);
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
  // The first warpgroup's sums take the place of the step's output gradients; the other's have their own.
  const auto add_sums = [&](int i) {
    if (every_lane_arrives || lane == 0) barrier_arrive(shared + Layout::read_fine);
    if (half == 1) barrier_wait(shared + Layout::empty_second_sums, i % 2 ^ 1);
    const std::uint32_t place =
        shared + (half == 1 ? Layout::second_sums : Layout::queries + i % 2 * Layout::query_stage + Layout::grad_out);
    store_sums(place + threadIdx.x % 128 * 16, 128, scores);
    fence_async();
    __syncwarp();
    if (every_lane_arrives || lane == 0)
      barrier_arrive(shared + (half == 0 ? Layout::full_sums : Layout::full_second_sums) + i % 2 * 8);
  };

  if constexpr (deep) {
    make_deep_scores<T, 128>(p, work, deep_slot(p, shared + Layout::slot), shared + Layout::fine, warp, lane);
    named_arrive(7, 384);  // the coarse warpgroup waits for them
  }
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
  if constexpr (coarse) {
    if (every_lane_arrives || lane == 0) barrier_arrive(shared + Layout::read_keys);
  }
  add_sums(last);

  const float w0 = weight(p, work, 0);
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const bool inside = key + h < p.length;
    write_chunks(row_of<T>(p.grad_k[0], work, key + h), grad_k, h, c, inside ? p.width : 0, w0);
    write_chunks(row_of<T>(p.grad_v, work, key + h), grad_v, h, c, inside ? p.width : 0, 1);
  }
  if constexpr (coarse) {
    // Worked out anew, so that nothing of it takes registers in the steps.
    const BackwardWork same_work = backward_work<2>(p, again(blockIdx.x));
    if (half == 0)
      backward_wide_late<T, 1>(p, same_work, shared);
    else
      backward_wide_late<T, 2>(p, same_work, shared);
    if constexpr (deep) {
      named_sync(8, 384);  // the coarse warpgroup's are there, and nobody needs the stages any more
      add_deep_gradients<T, 128, 32>(p, same_work, shared + Layout::slot, shared + Layout::k0);
    } else if (threadIdx.x == 128) {  // all that was in the slot has come
      barrier_wait(shared + Layout::claimed, 0);
      give_slot_back(p, slot_number(shared + Layout::slot));
    }
  }
}

}  // namespace hkt::kernels::cuda::sm90
