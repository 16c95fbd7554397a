// SPDX-License-Identifier: Apache-2.0
// Backward on Hopper for widths up to 64: a warpgroup that has 64 keys of level 0.
#pragma once

#include "backward_64_layout.h"
#include "backward_deep_gradients.h"
#include "backward_deep_scores.h"
#include "backward_half.h"
#include "backward_results.h"

namespace hkt::kernels::cuda::sm90 {

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
    make_deep_scores<T, width>(p, work, deep_slot(p, shared + Layout::slot), shared + Layout::fine, warp, lane);
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
  Ring<Layout::stages> ring;
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

    Ring<Layout::stages> next = ring;
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
    add_deep_gradients<T, width, width / 2>(p, same_work, shared + Layout::slot, shared + Layout::k0);
  }
}

}  // namespace hkt::kernels::cuda::sm90
