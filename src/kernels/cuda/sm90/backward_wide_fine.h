// SPDX-License-Identifier: Apache-2.0
// Backward on Hopper, wide (64 < D <= 128): a warpgroup that has 64 fine keys. It makes probabilities, gradients of scores, the
// gradients of its keys and values, and the query sums of one panel; after the last step, the gradients of a coarse level.
//
// The query sums of a step are made during the next one, so that the two warpgroups need not keep step with each other, and
// exponentials run beside the product for grad_k. Registers are short: the gradients of probabilities take the place of the
// scores.
#pragma once

#include "sm90/backward_deep.h"
#include "sm90/backward_wide_second_pass.h"

namespace hkt::kernels::cuda::sm90 {

// A thread's gradients of the scores of a step, packed: of each score; of key pairs and query pairs; of key pairs and query
// quads.
struct WideGradients {
  std::uint32_t fine[16];
  std::uint32_t pairs[4];
  std::uint32_t quads[2];

  // Each made by gradient(index of the accumulator's element). Block j = 2a + v of columns has the thread's queries
  // 32v + 8c + 4e + a (c = lane % 4, e = 0 and 1).
  template <class T, bool coarse, class Gradient>
  __device__ __forceinline__ void make(const Gradient& gradient) {
#pragma unroll
    for (int v = 0; v < 2; ++v) {
      float quad[2];
#pragma unroll
      for (int b = 0; b < 2; ++b) {
        float pair[2];
#pragma unroll
        for (int a = 2 * b; a < 2 * b + 2; ++a) {
          const int j = 2 * a + v;
          float x[4];
#pragma unroll
          for (int i = 0; i < 4; ++i) x[i] = gradient(4 * j + i);
          fine[2 * j] = pack<T>(x[0], x[1]);
          fine[2 * j + 1] = pack<T>(x[2], x[3]);
#pragma unroll
          for (int e = 0; e < 2; ++e) pair[e] = a % 2 == 0 ? x[e] + x[2 + e] : pair[e] + (x[e] + x[2 + e]);
        }
        if constexpr (coarse) pairs[2 * b + v] = pack<T>(pair[0], pair[1]);
#pragma unroll
        for (int e = 0; e < 2; ++e) quad[e] = b == 0 ? pair[e] : quad[e] + pair[e];
      }
      if constexpr (coarse) quads[v] = pack<T>(quad[0], quad[1]);
    }
  }
};

template <class T, bool coarse, bool deep>
class BackwardWideFine {
 public:
  using Storage = BackwardWideStorage;

  __device__ __forceinline__ BackwardWideFine(const BackwardParameters& parameters, const BackwardWork& cta_work,
                                              Storage& shared, int key_half)
      : p(parameters),
        work(cta_work),
        storage(shared),
        half(key_half),
        lane(threadIdx.x % 32),
        warp(threadIdx.x / 32 - first_fine_thread / 32),
        key(work.key_tile * backward_keys + warp / 2 * 32 + 4 * (lane / 4) + 2 * (warp % 2)),
        c0(log2_e * weight(p, work, 0)),
        padding(work.has_padding()),
        first_rows(storage.rows[0].lse.address() + lane % 4 * 32),
        first_queries(matrix_descriptor<128>(storage.queries[0].q0[0].address(), sizeof(storage.queries[0].q0[0]))),
        fine_gradients(matrix_descriptor<128>(storage.fine_gradients.address())) {}

  __device__ __forceinline__ void run() {
#pragma unroll
    for (int i = 0; i < 64; ++i) grad_k[i] = grad_v[i] = 0;
    if constexpr (deep) {
      make_deep_scores<T, 128>(p, work, deep_slot(p, storage.slot), storage.fine_gradients.address(), warp, lane);
      named_barrier_arrive(BackwardBarrier::deep_scores, fine_and_coarse_threads);
    }
    storage.full_keys.wait(0);
    begin();
#pragma unroll 1
    for (int i = 0; i + 1 < work.steps; ++i) step(i);
    finish();
    write_gradients();
    if constexpr (coarse) finish_coarse();
  }

 private:
  static constexpr int query_stage = descriptor_offset(sizeof(typename Storage::QueryStage));
  static constexpr int to_grad_out = descriptor_offset(sizeof(Storage::QueryStage::q0));
  static constexpr int sixteen_rows = descriptor_offset(16 * Storage::row_bytes);

  // An operand of which the warpgroup has one half. It is described again in each step: there are no registers to keep it in.
  template <class Array>
  __device__ __forceinline__ std::uint64_t half_of(const Array& tile, int half_bytes) {
    return matrix_descriptor<128>(shared_address(&tile) + rematerialize(half) * half_bytes);
  }

  // The first step's gradients of probabilities.
  __device__ __forceinline__ void begin() {
    issue_scores(0);
    load_shift(0, 0);
    wgmma_wait<0>();
    fence_operand(scores);
    make_probabilities(0);
    issue_grad_v(0);
    issue_grad_p(0);
    wgmma_wait<0>();
    fence_operand(grad_v);
    fence_operand(packed);
    fence_operand(scores);
  }
  // From a step's gradients of probabilities to the next one's.
  __device__ __forceinline__ void step(int i) {
    store_gradients(i);
    issue_scores(i + 1);
    issue_grad_k(i);
    load_shift(i + 1, 0);
    wgmma_wait<1>();
    fence_operand(scores);
    make_probabilities(i + 1);
    wgmma_wait<0>();
    fence_operand(grad_k);
    storage.empty_queries[i % 2].arrive_warp();

    issue_query_sums(i);
    issue_grad_v(i + 1);
    wgmma_wait<1>();
    fence_operand(scores);
    store_query_sums(i);
    issue_grad_p(i + 1);
    wgmma_wait<0>();
    fence_operand(grad_v);
    fence_operand(packed);
    fence_operand(scores);
  }
  // The last step.
  __device__ __forceinline__ void finish() {
    const int last = work.steps - 1;
    store_gradients(last);
    issue_grad_k(last);
    issue_query_sums(last);
    wgmma_wait<0>();
    fence_operand(grad_k);
    fence_operand(scores);
    if constexpr (coarse) storage.empty_keys.arrive_warp();
    store_query_sums(last);
  }
  // Gradients of the keys of coarse and deep levels.
  __device__ __forceinline__ void finish_coarse() {
    // Worked out again, so that nothing of it takes registers in the steps.
    const BackwardWork same_work = backward_work<2>(p, rematerialize(blockIdx.x));
    if (half == 0)
      second_pass<T, 1>(p, same_work, storage);
    else
      second_pass<T, 2>(p, same_work, storage);
    if constexpr (deep) {
      // The coarse warpgroup has left its gradients, and nobody needs the stages any more.
      named_barrier_sync(BackwardBarrier::deep_gradients, fine_and_coarse_threads);
      DeepGradients<T, 128, 32>(p, same_work, storage.slot, shared_address(&storage.k0)).run();
    } else if (threadIdx.x == first_fine_thread) {  // all that was in the slot has come
      storage.has_slot.wait(0);
      release_slot(p, storage.slot.load());
    }
  }

  __device__ __forceinline__ void issue_scores(int i) {
    storage.full_queries[i % 2].wait(i / 2 % 2);
    mark_undefined(scores);
    const std::uint64_t keys = half_of(storage.k0, 64 * Storage::row_bytes);
    wgmma_fence();
    start_product<T, 128, sizeof(storage.k0[0]), sizeof(storage.queries[0].q0[0])>(scores, keys,
                                                                                   first_queries + i % 2 * query_stage);
    wgmma_commit();
  }
  // What is added to the scores of step i, of half b of its queries: see make_shift.
  __device__ __forceinline__ void load_shift(int i, int b) {
    make_shift<coarse>(shift, first_rows + i % 2 * sizeof(typename Storage::RowStage), storage.coarse_scores.address(),
                       storage.full_scores, storage.empty_scores, i % 2, b, warp, lane);
  }
  template <bool masked>
  __device__ __forceinline__ void make_probabilities(int i, const Mask& mask) {
    std::uint32_t (&first)[8] = reinterpret_cast<std::uint32_t (&)[8]>(packed[0]);
    std::uint32_t (&second)[8] = reinterpret_cast<std::uint32_t (&)[8]>(packed[8]);
    half_probabilities<T, masked>(scores, first, shift, c0, mask, 0);
    load_shift(i, 1);
    half_probabilities<T, masked>(scores, second, shift, c0, mask, 1);
  }
  __device__ __forceinline__ void make_probabilities(int i) {
    if (needs_mask(p, padding, i))
      make_probabilities<true>(i, make_mask(p, work, key, work.query_tile(i) * backward_queries + 8 * (lane % 4)));
    else
      make_probabilities<false>(i, {});
  }
  __device__ __forceinline__ void issue_grad_v(int i) {
    storage.full_grad_out[i % 2].wait(i / 2 % 2);
    fence_operand(grad_v);
    fence_operand(packed);
    wgmma_fence();
    start_sum<T, Storage::row_bytes>(grad_v, packed, first_queries + to_grad_out + i % 2 * query_stage);
    wgmma_commit();
  }
  // The product for gradients of probabilities begins at -delta.
  __device__ __forceinline__ void issue_grad_p(int i) {
    const std::uint64_t values = half_of(storage.v, 64 * Storage::row_bytes);
    float delta[16];  // of queries 32v + 8c + 4e + a, at 8v + 4e + a
    const std::uint32_t from = first_rows + i % 2 * sizeof(typename Storage::RowStage) + sizeof(Storage::RowStage::lse);
#pragma unroll
    for (int v = 0; v < 2; ++v) {
#pragma unroll
      for (int e = 0; e < 2; ++e) ld_shared_f32x4(delta + 8 * v + 4 * e, from + (32 * v + 4 * e) * 4);
    }
#pragma unroll
    for (int k = 0; k < 32; ++k) scores[k] = -delta[8 * (k / 4 % 2) + 4 * (k % 2) + k / 8];
    fence_operand(scores);
    wgmma_fence();
    start_product<T, 128, sizeof(storage.v[0]), sizeof(storage.queries[0].q0[0])>(
        scores, values, first_queries + to_grad_out + i % 2 * query_stage, true);
    wgmma_commit();
  }
  // Of the scores of step i, to shared memory, where the step before has been done with.
  __device__ __forceinline__ void store_gradients(int i) {
    WideGradients gradients;
    gradients.template make<T, coarse>([&](int element) {
      const float2 pair = unpack<T>(packed[element / 2]);
      return (element % 2 == 0 ? pair.x : pair.y) * scores[element];
    });
    const GradientAddresses addresses(storage.fine_gradients.address(), storage.level1_gradients.address(),
                                      storage.level2_gradients.address(), warp, rematerialize(lane) & 31);
    if constexpr (coarse) {
      storage.empty_coarse_gradients.wait(i % 2 ^ 1);
      addresses.store_coarse(gradients.pairs, gradients.quads);
    }
    storage.empty_fine_gradients.wait(i % 2 ^ 1);
#pragma unroll
    for (int k = 0; k < 4; ++k) addresses.store_fine(k, gradients.fine + 4 * k);
    fence_async_shared();
    __syncwarp();
    storage.full_gradients[i % 2].arrive_warp();
  }
  __device__ __forceinline__ void issue_grad_k(int i) {
    const std::uint64_t queries = first_queries + i % 2 * query_stage;
    // The warpgroup's gradients of scores are there.
    named_barrier_sync(fine_warpgroup_barrier(half), warpgroup_threads);
    const std::uint64_t gradients = half_of(storage.fine_gradients, fine_gradients_bytes / 2);
    fence_operand(grad_k);
    wgmma_fence();
#pragma unroll
    for (int k = 0; k < 4; ++k)
      Wgmma<T, 128, false, true>::run(grad_k, gradients + 2 * k, queries + k * sixteen_rows, 1);
    wgmma_commit();
  }
  __device__ __forceinline__ void issue_query_sums(int i) {
    storage.full_gradients[i % 2].wait(i / 2 % 2);  // those of both warpgroups are there
    mark_undefined(scores);
    const std::uint64_t keys = half_of(storage.k0, sizeof(storage.k0[0]));
    wgmma_fence();
#pragma unroll
    for (int k = 0; k < 8; ++k)
      Wgmma<T, 64, true, true>::run(scores, fine_gradients + k * descriptor_offset(16 * 128), keys + k * sixteen_rows,
                                    k > 0);
    wgmma_commit();
  }
  // The first warpgroup's sums take the place of the step's output gradients; the other's have their own.
  __device__ __forceinline__ void store_query_sums(int i) {
    storage.empty_fine_gradients.arrive_warp();
    if (half == 1) storage.empty_second_sums.wait(i % 2 ^ 1);
    const std::uint32_t to =
        half == 1 ? storage.second_sums.address() : shared_address(&storage.queries[i % 2].grad_out);
    store_sums(to + threadIdx.x % warpgroup_threads * 16, warpgroup_threads, scores);
    fence_async_shared();
    __syncwarp();
    (half == 0 ? storage.full_first_sums : storage.full_second_sums)[i % 2].arrive_warp();
  }

  __device__ __forceinline__ void write_gradients() {
    const int c = lane % 4;
    const float w0 = weight(p, work, 0);
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int width = key + h < p.length ? p.width : 0;
      write_row_x4(row_of<T>(p.grad_k[0], work, key + h), grad_k, h, c, width, w0);
      write_row_x4(row_of<T>(p.grad_v, work, key + h), grad_v, h, c, width, 1);
    }
  }

  const BackwardParameters& p;
  const BackwardWork& work;
  Storage& storage;
  const int half;  // of the keys, and of the columns of query sums
  const int lane;
  const int warp;  // of the eight that have fine keys
  const int key;   // the thread's, and the next
  const float c0;
  const bool padding;
  const std::uint32_t first_rows;      // lse of the thread's queries in the first stage
  const std::uint64_t first_queries;   // in the first stage
  const std::uint64_t fine_gradients;  // of all keys

  float grad_k[64], grad_v[64];
  float scores[32];          // then query sums of the step before, then gradients of probabilities
  std::uint32_t packed[16];  // probabilities
  float shift[8];            // see make_shift
};

}  // namespace hkt::kernels::cuda::sm90
