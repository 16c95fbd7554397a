// SPDX-License-Identifier: Apache-2.0
// Backward on Hopper, narrow (D <= 64): the warpgroup that has the coarse levels. It makes coarse scores a step ahead, the
// gradients of coarse keys, and the query sums of all these levels and of level 0.
#pragma once

#include "sm90/backward_deep.h"
#include "sm90/backward_narrow_storage.h"

namespace hkt::kernels::cuda::sm90 {

// Products that have columns of the head as rows have 64 of them: a tile of 32 columns is met twice, and the second half
// of what they make is left.
template <class T, int width, bool coarse, bool deep>
class BackwardNarrowCoarse {
 public:
  using Storage = BackwardNarrowStorage<width>;

  __device__ __forceinline__ BackwardNarrowCoarse(const BackwardParameters& parameters, const BackwardWork& cta_work,
                                                  Storage& shared)
      : p(parameters),
        work(cta_work),
        storage(shared),
        thread(threadIdx.x % 128),
        lane(thread % 32),
        warp(thread / 32),
        k0(matrix_descriptor<swizzle>(storage.k0.address())),
        k1(matrix_descriptor<swizzle>(storage.k1.address(), 0)),
        k2(with_stride(matrix_descriptor<swizzle>(storage.k2.address(), 0), 0)),
        coarse_queries(matrix_descriptor<swizzle>(storage.coarse_queries[0].q1.address(), 0)),
        w1(weight(p, work, 1)),
        w2(weight(p, work, 2)) {}

  __device__ __forceinline__ void run() {
#pragma unroll
    for (int i = 0; i < width / 2; ++i) grad_k1[i] = 0;
#pragma unroll
    for (int i = 0; i < 16; ++i) grad_k2[i] = 0;
    if constexpr (deep) named_barrier_sync(BackwardBarrier::deep_scores, fine_and_coarse_threads);
    storage.full_keys.wait(0);
    PipelineState<Storage::coarse_stages> ahead, pipe;
#pragma unroll 1
    for (int i = coarse ? -1 : 0; i < work.steps; ++i) {
      if constexpr (coarse) {
        if (i + 1 < work.steps) {
          make_scores(i + 1, ahead);
          ahead.advance();
        }
        if (i < 0) continue;
      }
      step(i, pipe.stage);
      pipe.advance();
    }
    if constexpr (deep) named_barrier_arrive(BackwardBarrier::deep_gradients, fine_and_coarse_threads);
    if constexpr (coarse) write_gradients();
  }

 private:
  static constexpr int swizzle = Storage::row_bytes;
  static constexpr std::uint64_t query_stage = descriptor_offset(sizeof(typename Storage::CoarseQueryStage));
  static constexpr std::uint64_t to_q2 = descriptor_offset(sizeof(Storage::CoarseQueryStage::q1));
  static constexpr std::uint64_t sixteen_rows = descriptor_offset(16 * Storage::row_bytes);
  static constexpr int sum_threads = 2 * width;  // that have columns of the head as rows

  // The tile of step i in the slot.
  __device__ __forceinline__ float* deep_tile(int i) {
    return deep_slot(p, rematerialize_storage(storage).slot) + work.query_tile(i) * deep_tile_size;
  }

  // Coarse scores of step i.
  __device__ __forceinline__ void make_scores(int i, const PipelineState<Storage::coarse_stages>& ahead) {
    const int buffer = i % 2, parity = i / 2 % 2;
    const std::uint64_t q1 = coarse_queries + ahead.stage * query_stage;
    float level1[16], level2[8];
    std::uint32_t level_2_keys[width / 8];
    float deep_scores[2];
    if constexpr (deep) read_deep_scores(deep_scores, deep_tile(i), warp, lane);
    load_level_2_keys<Storage::row_bytes, width>(level_2_keys, storage.k2.address() + warp * 8 * Storage::row_bytes,
                                                 lane);
    storage.full_coarse_queries[ahead.stage].wait(ahead.parity);
    mark_undefined(level1);
    mark_undefined(level2);
    fence_operand(level_2_keys);
    wgmma_fence();
    start_product<T, width, 0, 0>(level1, k1, q1);
    start_level_2<T>(level2, level_2_keys, q1 + to_q2, false);
    wgmma_commit();
    storage.empty_scores[buffer].wait(parity ^ 1);
    wgmma_wait<0>();
    fence_operand(level1);
    fence_operand(level2);
    store_coarse_scores(storage.coarse_scores[buffer].address(), level1, level2, log2_e * w1, log2_e * w2,
                        deep ? deep_scores : nullptr, warp, lane);
    __syncwarp();
    storage.full_scores[buffer].arrive_warp();
  }

  // From the gradients of scores of step i.
  __device__ __forceinline__ void step(int i, int stage) {
    const int buffer = i % 2, parity = i / 2 % 2;
    const bool ordered = p.semaphores != nullptr;
    storage.full_gradients[buffer].wait(parity);
    if constexpr (coarse) add_coarse(i, stage, ordered);

    // Not beside the coarse sums: together they would need registers that the other warpgroups make better use of.
    const std::uint64_t fine = matrix_descriptor<128>(storage.fine_gradients[buffer].address());
    float sums[width / 2];
    mark_undefined(sums);
    wgmma_fence();
#pragma unroll
    for (int k = 0; k < 8; ++k)
      Wgmma<T, width, true, true>::run(sums, fine + k * descriptor_offset(16 * 128), k0 + k * sixteen_rows, k > 0);
    wgmma_commit();
    if constexpr (coarse) {
      if (ordered) {
        fence_async_shared();
        __syncwarp();
        storage.full_coarse_sums.arrive_warp();
      }
    }
    storage.empty_sums[buffer].wait(parity ^ 1);
    wgmma_wait<0>();
    fence_operand(sums);
    storage.empty_gradients[buffer].arrive_warp();
    store_sums(storage.sums[buffer].address() + thread * 16, warpgroup_threads, sums);
    fence_async_shared();
    __syncwarp();
    storage.full_sums[buffer].arrive_warp();
  }

  // Coarse query sums, and what is added to the gradients of coarse keys.
  __device__ __forceinline__ void add_coarse(int i, int stage, bool ordered) {
    const int buffer = i % 2;
    const std::uint64_t level1 = matrix_descriptor<64>(storage.level1_gradients[buffer].address());
    const std::uint64_t level2 = matrix_descriptor<32>(storage.level2_gradients[buffer].address());
    // Of each pair of warps, whose rows belong to the same eight keys of level 2, the even one's; the odd one's are
    // next.
    const std::uint64_t every_second = with_stride(level2, 2 * 8 * 32);
    const std::uint64_t q1 = coarse_queries + stage * query_stage;
    float sums1[16], sums2[8];
    mark_undefined(sums1);
    mark_undefined(sums2);
    fence_operand(grad_k1);
    fence_operand(grad_k2);
    wgmma_fence();
#pragma unroll
    for (int k = 0; k < 4; ++k)
      Wgmma<T, 32, true, true>::run(sums1, k1 + k * sixteen_rows, level1 + k * descriptor_offset(16 * 64), k > 0);
#pragma unroll
    for (int k = 0; k < 4; ++k)
      Wgmma<T, 16, true, true>::run(sums2, k2 + k * (sixteen_rows / 2), level2 + k * descriptor_offset(16 * 32), k > 0);
#pragma unroll
    for (int k = 0; k < 2; ++k) Wgmma<T, width, false, true>::run(grad_k1, level1 + 2 * k, q1 + k * sixteen_rows, 1);
#pragma unroll
    for (int k = 0; k < 2; ++k)
      Wgmma<T, 32, true, false>::run(grad_k2, q1 + to_q2, every_second + k * descriptor_offset(8 * 32), 1);
    wgmma_commit();
    if constexpr (deep) store_deep_gradients<T>(deep_tile(i), storage.level2_gradients[buffer].address(), warp, lane);
    wgmma_wait<0>();
    fence_operand(sums1);
    fence_operand(sums2);
    fence_operand(grad_k1);
    fence_operand(grad_k2);
    storage.empty_coarse_queries[stage].arrive_warp();
    if (!ordered) {  // straight from registers
      float* const to =
          p.query_sums + query_sums_size(width, true, deep) *
                             (static_cast<std::int64_t>(work.sequence) * p.query_tiles + work.query_tile(i));
      if (thread < sum_threads) {
        add_sums(to + first_sum_row(1) * width + thread * 4, sum_threads, sums1);
        add_sums(to + first_sum_row(2) * width + thread * 4, sum_threads, sums2);
      }
    }
    if (ordered) {  // through shared memory, by the thread that adds those of level 0
      storage.empty_coarse_sums.wait(i % 2 ^ 1);
      if (thread < sum_threads) {
        store_sums(storage.coarse_sums.level1.address() + thread * 16, sum_threads, sums1);
        store_sums(storage.coarse_sums.level2.address() + thread * 16, sum_threads, sums2);
      }
    }
  }

  __device__ __forceinline__ void write_gradients() {
    const int r = lane / 4, c = lane % 4;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int row = work.key_tile * (backward_keys / 2) + 16 * warp + 2 * r + h;
      if (row < level_rows(p.length, 1)) write_row(row_of<T>(p.grad_k[1], work, row), grad_k1, h, c, p.width, w1);
    }
#pragma unroll
    for (int i = 0; i < 16; ++i) {
      const int column = 16 * warp + i / 2 % 2 * 8 + r;
      const int row = work.key_tile * (backward_keys / 4) + i / 4 * 8 + 2 * c + i % 2;
      if (p.levels > 2 && column < p.width && row < level_rows(p.length, 2))
        row_of<T>(p.grad_k[2], work, row)[column] = T(w2 * grad_k2[i]);
    }
  }

  const BackwardParameters& p;
  const BackwardWork& work;
  Storage& storage;
  const int thread;  // of the warpgroup
  const int lane;
  const int warp;
  // Operands.
  const std::uint64_t k0;
  const std::uint64_t k1;
  const std::uint64_t k2;              // each eight rows twice
  const std::uint64_t coarse_queries;  // in the first stage
  const float w1, w2;

  float grad_k1[width / 2];  // a row is a key
  float grad_k2[16];         // a row is a column of the model
};

}  // namespace hkt::kernels::cuda::sm90
