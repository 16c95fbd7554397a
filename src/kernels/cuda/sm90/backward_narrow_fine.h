// SPDX-License-Identifier: Apache-2.0
// Backward on Hopper, narrow (D <= 64): a warpgroup that has 64 fine keys. It makes probabilities, gradients of scores, and
// the gradients of its keys and values.
//
// A step is made in two halves of 32 queries: softmax of one runs beside products of the other, and halves need so few
// registers that keys and values can stay in some. Read from shared memory they would be a tenth of what passes through it.
#pragma once

#include "sm90/backward_deep.h"
#include "sm90/backward_narrow_storage.h"

namespace hkt::kernels::cuda::sm90 {

// A warp's 16 rows from `from` on, of `columns` columns, as left operand of products.
template <int row_bytes, int columns>
__device__ __forceinline__ void load_operand(std::uint32_t (&operand)[columns / 4], std::uint32_t from, int lane) {
  const int row = lane % 16;
  const int swizzle = row_bytes == 128 ? row % 8 : row / 2 % 4;
#pragma unroll
  for (int i = 0; i < columns / 16; ++i)
    ldmatrix_x4(operand + 4 * i, from + row * row_bytes + ((2 * i + lane / 16) ^ swizzle) * 16);
}

// A thread's gradients of the scores of a step: of each score, by halves; of key pairs and query pairs, packed; sums over
// query quads.
struct NarrowGradients {
  std::uint32_t fine[2][8];
  std::uint32_t pairs[4];
  float quads[4];

  template <class T, bool coarse>
  __device__ __forceinline__ void make_half(const float (&probabilities)[32], const float (&grad_p)[16], int b) {
#pragma unroll
    for (int v = 0; v < 2; ++v) {
      float pair[2];
#pragma unroll
      for (int a = 0; a < 2; ++a) {
        const int j = 2 * a + v;
        float x[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) x[i] = probabilities[16 * b + 4 * j + i] * grad_p[4 * j + i];
        fine[b][2 * j] = pack<T>(x[0], x[1]);
        fine[b][2 * j + 1] = pack<T>(x[2], x[3]);
#pragma unroll
        for (int e = 0; e < 2; ++e) pair[e] = a == 0 ? x[e] + x[2 + e] : pair[e] + (x[e] + x[2 + e]);
      }
      if constexpr (coarse) {
        pairs[2 * b + v] = pack<T>(pair[0], pair[1]);
#pragma unroll
        for (int e = 0; e < 2; ++e) quads[2 * v + e] = b == 0 ? pair[e] : quads[2 * v + e] + pair[e];
      }
    }
  }
  __device__ __forceinline__ void store_half(const GradientAddresses& to, int b) const {
#pragma unroll
    for (int i = 0; i < 2; ++i) to.store_fine(2 * b + i, fine[b] + 4 * i);
  }
};

template <class T, int width, bool coarse, bool deep>
class BackwardNarrowFine {
 public:
  using Storage = BackwardNarrowStorage<width>;

  __device__ __forceinline__ BackwardNarrowFine(const BackwardParameters& parameters, const BackwardWork& cta_work,
                                                Storage& shared, int key_half)
      : p(parameters),
        work(cta_work),
        storage(shared),
        lane(threadIdx.x % 32),
        warp(4 * key_half + threadIdx.x % 128 / 32),
        key(work.key_tile * backward_keys + warp / 2 * 32 + 4 * (lane / 4) + 2 * (warp % 2)),
        c0(log2_e * weight(p, work, 0)),
        padding(work.has_padding()),
        first_rows(storage.rows[0].lse.address() + lane % 4 * 32),
        first_queries(matrix_descriptor<swizzle>(storage.queries[0].q0.address())) {}

  __device__ __forceinline__ void run() {
#pragma unroll
    for (int i = 0; i < width / 2; ++i) grad_k[i] = grad_v[i] = 0;
    if constexpr (deep) {
      make_deep_scores<T, width>(p, work, deep_slot(p, storage.slot), storage.fine_gradients[0].address(), warp, lane);
      named_barrier_arrive(BackwardBarrier::deep_scores, fine_and_coarse_threads);
    }
    storage.full_keys.wait(0);
    load_operand<Storage::row_bytes, width>(keys, storage.k0.address() + warp * 16 * Storage::row_bytes, lane);
    load_operand<Storage::row_bytes, width>(values, storage.v.address() + warp * 16 * Storage::row_bytes, lane);
    begin();
    PipelineState<Storage::stages> pipe;
#pragma unroll 1
    for (int i = 0; i < work.steps; ++i) pipe = step(i, pipe);
    write_gradients();
    if constexpr (deep) {
      // The coarse warpgroup has left its gradients, and nobody needs the keys and values any more.
      named_barrier_sync(BackwardBarrier::deep_gradients, fine_and_coarse_threads);
      // Worked out again, so that nothing of it takes registers in the steps.
      const BackwardWork same_work = backward_work<1>(p, rematerialize(blockIdx.x));
      DeepGradients<T, width, width / 2>(p, same_work, storage.slot, storage.k0.address()).run();
    }
  }

 private:
  static constexpr int swizzle = Storage::row_bytes;
  // From 32 queries to the next, in an operand whose rows they are, and in one of a sum over them.
  static constexpr std::uint64_t next_half = descriptor_offset(32 * Storage::row_bytes);

  // The first step's scores.
  __device__ __forceinline__ void begin() {
    storage.full_queries[0].wait(0);
    mark_undefined(scores);
    fence_operand(keys);
    fence_operand(values);
    wgmma_fence();
    start_scores(first_queries);
    wgmma_commit();
    load_shift(0, 0, 0);
    load_delta(0, 0);
    wgmma_wait<0>();
    fence_operand(scores);
  }

  // A step begins with its scores, and ends with the next one's: their product follows that of grad_k without a pause.
  // Returns the next step's stage.
  __device__ __forceinline__ PipelineState<Storage::stages> step(int i, PipelineState<Storage::stages> pipe) {
    const int buffer = i % 2, parity = i / 2 % 2;
    const std::uint64_t queries = first_queries + pipe.stage * descriptor_offset(sizeof(typename Storage::QueryStage));
    const std::uint64_t grad_out = queries + descriptor_offset(sizeof(Storage::QueryStage::q0));
    std::uint32_t packed[2][8];  // probabilities
    NarrowGradients gradients;

    // First half of the queries.
    wgmma_fence();
    start_grad_p(grad_out);
    wgmma_commit();
    make_probabilities(packed[0], i, 0);
    fence_operand(grad_v);
    fence_operand(packed[0]);
    wgmma_fence();
    start_sum<T, Storage::row_bytes>(grad_v, packed[0], grad_out);
    wgmma_commit();
    load_shift(i, pipe.stage, 1);
    wgmma_wait<1>();
    fence_operand(grad_p);
    gradients.template make_half<T, coarse>(scores, grad_p, 0);

    // Second half.
    load_delta(pipe.stage, 1);
    fence_operand(grad_k);
    fence_operand(gradients.fine[0]);
    wgmma_fence();
    start_grad_p(grad_out + next_half);
    wgmma_commit();
    start_sum<T, Storage::row_bytes>(grad_k, gradients.fine[0], queries);
    wgmma_commit();
    make_probabilities(packed[1], i, 1);
    fence_operand(grad_v);
    fence_operand(packed[1]);
    wgmma_fence();
    start_sum<T, Storage::row_bytes>(grad_v, packed[1], grad_out + next_half);
    wgmma_commit();
    const GradientAddresses addresses(storage.fine_gradients[buffer].address(),
                                      storage.level1_gradients[buffer].address(),
                                      storage.level2_gradients[buffer].address(), warp, rematerialize(lane) & 31);
    storage.empty_gradients[buffer].wait(parity ^ 1);
    gradients.store_half(addresses, 0);
    wgmma_wait<2>();  // not the last two: grad_k and grad_v
    fence_operand(grad_p);
    gradients.template make_half<T, coarse>(scores, grad_p, 1);
    gradients.store_half(addresses, 1);
    if constexpr (coarse) {
      const float (&quads)[4] = gradients.quads;
      addresses.store_coarse(gradients.pairs, {pack<T>(quads[0], quads[1]), pack<T>(quads[2], quads[3])});
    }
    fence_async_shared();
    __syncwarp();
    storage.full_gradients[buffer].arrive_warp();

    // The rest of grad_k, and the next step's scores.
    PipelineState<Storage::stages> next = pipe;
    const bool is_last = i + 1 == work.steps;
    if (!is_last) next.advance();  // else the last scores once more, for nobody
    storage.full_queries[next.stage].wait(next.parity);
    mark_undefined(scores);
    fence_operand(grad_k);
    fence_operand(gradients.fine[1]);
    wgmma_fence();
    start_sum<T, Storage::row_bytes>(grad_k, gradients.fine[1], queries + next_half);
    wgmma_commit();
    start_scores(first_queries + next.stage * descriptor_offset(sizeof(typename Storage::QueryStage)));
    wgmma_commit();
    load_shift(is_last ? i : i + 1, next.stage, 0);
    load_delta(next.stage, 0);
    wgmma_wait<1>();
    fence_operand(grad_k);
    fence_operand(grad_v);
    storage.empty_queries[pipe.stage].arrive_warp();
    wgmma_wait<0>();
    fence_operand(scores);
    return next;
  }

  __device__ __forceinline__ void start_scores(std::uint64_t queries) {
#pragma unroll
    for (int k = 0; k < width / 16; ++k) Wgmma<T, 64>::run(scores, keys + 4 * k, queries + 2 * k, k > 0);
  }
  __device__ __forceinline__ void start_grad_p(std::uint64_t grad_out) {
#pragma unroll
    for (int k = 0; k < width / 16; ++k) Wgmma<T, 32>::run(grad_p, values + 4 * k, grad_out + 2 * k, 1);
  }

  // Of half b of step i.
  __device__ __forceinline__ void load_shift(int i, int stage, int b) {
    const int buffer = i % 2;
    make_shift<coarse>(shift, first_rows + stage * sizeof(typename Storage::RowStage),
                       storage.coarse_scores[buffer].address(), storage.full_scores[buffer],
                       storage.empty_scores[buffer], i / 2 % 2, b, warp, lane);
  }
  // Products for the gradients of probabilities begin at -delta.
  __device__ __forceinline__ void load_delta(int stage, int b) {
    float delta[8];
    load_half_rows(delta, first_rows + stage * sizeof(typename Storage::RowStage) + sizeof(Storage::RowStage::lse), b);
#pragma unroll
    for (int i = 0; i < 16; ++i) grad_p[i] = -delta[4 * (i / 4 % 2) + 2 * (i % 2) + i / 8];
    fence_operand(grad_p);
  }
  __device__ __forceinline__ void make_probabilities(std::uint32_t (&packed)[8], int i, int b) {
    if (needs_mask(p, padding, i)) {
      const int thread_query = work.query_tile(i) * backward_queries + 8 * (lane % 4);
      half_probabilities<T, true>(scores, packed, shift, c0, make_mask(p, work, key, thread_query), b);
    } else {
      half_probabilities<T, false>(scores, packed, shift, c0, {}, b);
    }
  }

  __device__ __forceinline__ void write_gradients() {
    const int c = lane % 4;
    const float w0 = weight(p, work, 0);
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      if (key + h >= p.length) continue;
      write_row(row_of<T>(p.grad_k[0], work, key + h), grad_k, h, c, p.width, w0);
      write_row(row_of<T>(p.grad_v, work, key + h), grad_v, h, c, p.width, 1);
    }
  }

  const BackwardParameters& p;
  const BackwardWork& work;
  Storage& storage;
  const int lane;
  const int warp;  // of the eight that have fine keys
  const int key;   // the thread's, and the next
  const float c0;
  const bool padding;
  const std::uint32_t first_rows;     // lse of the thread's queries in the first stage
  const std::uint64_t first_queries;  // in the first stage

  std::uint32_t keys[width / 4], values[width / 4];
  float grad_k[width / 2], grad_v[width / 2];
  float scores[32];  // they become probabilities
  float grad_p[16];  // of half a step, minus delta
  float shift[8];    // see make_shift
};

}  // namespace hkt::kernels::cuda::sm90
