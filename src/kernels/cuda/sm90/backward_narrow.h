// SPDX-License-Identifier: Apache-2.0
// Backward on Hopper, narrow (D <= 64). Of a CTA's four warpgroups, two have 64 fine keys each (backward_narrow_fine.h); one
// has the coarse levels and makes all query sums (backward_narrow_coarse.h); one loads, and has TMA add the query sums to
// those in global memory.
#pragma once

#include "sm90/backward_load.h"
#include "sm90/backward_narrow_coarse.h"
#include "sm90/backward_narrow_fine.h"

namespace hkt::kernels::cuda::sm90 {

inline constexpr int backward_narrow_threads = 4 * warpgroup_threads;

// Registers of a thread.
struct BackwardNarrowRegisters {
  static constexpr int load = 24, fine = 184, coarse = 120;
  static_assert(registers_fit(load, fine, coarse));
};

// Threads of the loading warpgroup that have something to do: the first of each warp.
namespace backward_narrow_role {
inline constexpr int load_keys_and_queries = 0;
inline constexpr int load_values_and_grad_out = 32;
inline constexpr int load_coarse = 64;    // with coarse levels
inline constexpr int add_odd_steps = 64;  // with one level
inline constexpr int add = 96;
}  // namespace backward_narrow_role

// One thread: adds each step's query sums; of the coarse ones those that their warpgroup does not add itself. With one
// level two threads take every second step each, because a step is short beside what a fixed order of additions needs
// between two of them.
template <int width, bool coarse, bool deep>
__device__ __forceinline__ void backward_narrow_add(const BackwardParameters& p, const BackwardWork& work,
                                                    BackwardNarrowStorage<width>& storage, int first) {
  constexpr int size = query_sums_size(width, coarse, deep);
  float* const query_sums = p.query_sums + static_cast<std::int64_t>(work.sequence) * p.query_tiles * size;
  constexpr int stride = coarse ? 1 : 2;
  const bool ordered = p.semaphores != nullptr;
  int peeked = -1;  // the next step's semaphore: see acquire_query_sums
#pragma unroll 1
  for (int i = first; i < work.steps; i += stride) {
    const int buffer = i % 2, parity = i / 2 % 2;
    const int tile = work.query_tile(i);
    float* const to = query_sums + static_cast<std::int64_t>(tile) * size;
    if (ordered) acquire_query_sums(p, work, tile, SumsOf::fine, peeked);
    if (coarse && ordered) {
      storage.full_coarse_sums.wait(i % 2);
      tma_reduce_add(to + first_sum_row(1) * width, storage.coarse_sums.level1.address(), sizeof(storage.coarse_sums));
      tma_commit();
    }
    storage.full_sums[buffer].wait(parity);
    tma_reduce_add(to, storage.sums[buffer].address(), storage.sums[buffer].bytes);
    tma_commit();
    if constexpr (coarse) {
      tma_wait_read<1>();  // the coarse sums, and those of level 0 of the step before
      storage.empty_coarse_sums.arrive();
      if (i > 0) storage.empty_sums[buffer ^ 1].arrive();
    } else {
      tma_wait_read();
      storage.empty_sums[buffer].arrive();
    }
    if (ordered) {
      peeked = peek_step(p, work, i + stride, SumsOf::fine);
      tma_wait();
      release_query_sums(p, work, tile, SumsOf::fine);
    }
  }
  tma_wait();
}

template <bool coarse, bool deep, int width>
__device__ __forceinline__ void init_backward_narrow(const BackwardParameters& p,
                                                     BackwardNarrowStorage<width>& storage) {
  using Storage = BackwardNarrowStorage<width>;
  storage.full_keys.init(coarse ? 3 : 2);  // loading threads
  for (int i = 0; i < Storage::stages; ++i) {
    storage.full_queries[i].init(2);
    storage.empty_queries[i].init_warps(8);
  }
  for (int i = 0; i < Storage::coarse_stages; ++i) {
    storage.full_coarse_queries[i].init(1);
    storage.empty_coarse_queries[i].init_warps(4);
  }
  for (int i = 0; i < Storage::buffers; ++i) {
    storage.full_scores[i].init_warps(4);
    storage.empty_scores[i].init_warps(8);
    storage.full_gradients[i].init_warps(8);
    storage.empty_gradients[i].init_warps(4);
    storage.full_sums[i].init_warps(4);
    storage.empty_sums[i].init(1);
  }
  storage.full_coarse_sums.init_warps(4);
  storage.empty_coarse_sums.init(1);
  if constexpr (deep) storage.slot.store(acquire_slot(p));
  fence_async_shared();
}

// The loading warpgroup.
template <int width, bool coarse, bool deep>
__device__ __forceinline__ void backward_narrow_load(const BackwardParameters& p, const BackwardWork& work,
                                                     BackwardNarrowStorage<width>& storage) {
  namespace role = backward_narrow_role;
  if (threadIdx.x == role::load_keys_and_queries)
    load_fine<FineLoad::keys>(p, work, storage, storage.full_queries, storage.empty_queries);
  if (threadIdx.x == role::load_values_and_grad_out)
    load_fine<FineLoad::values>(p, work, storage, storage.full_queries, storage.empty_queries);
  if constexpr (coarse) {
    if (threadIdx.x == role::load_coarse) load_coarse(p, work, storage);
  }
  if (threadIdx.x == role::add) backward_narrow_add<width, coarse, deep>(p, work, storage, 0);
  if constexpr (!coarse) {
    if (threadIdx.x == role::add_odd_steps) backward_narrow_add<width, coarse, deep>(p, work, storage, 1);
  }
}

template <class T, int width, bool coarse, bool deep>
__global__ void __launch_bounds__(backward_narrow_threads, 1)
    backward_narrow(const __grid_constant__ BackwardParameters p) {
  using Registers = BackwardNarrowRegisters;
  auto& storage = shared_storage<BackwardNarrowStorage<width>>();
  const BackwardWork work = backward_work<1>(p, blockIdx.x);
  if (work.steps == 0) {
    clear_key_gradients<T>(p, work);
    return;
  }
  if (threadIdx.x == 0) init_backward_narrow<coarse, deep>(p, storage);
  __syncthreads();
  const int warpgroup = __shfl_sync(~0u, threadIdx.x / warpgroup_threads, 0);
  if (warpgroup == 0) {
    setmaxnreg_dec<Registers::load>();
    backward_narrow_load<width, coarse, deep>(p, work, storage);
  } else if (warpgroup < 3) {
    setmaxnreg_inc<Registers::fine>();
    BackwardNarrowFine<T, width, coarse, deep>(p, work, storage, warpgroup - 1).run();
  } else {
    setmaxnreg_dec<Registers::coarse>();
    BackwardNarrowCoarse<T, width, coarse, deep>(p, work, storage).run();
  }
}

template <class T, int width, bool coarse, bool deep>
void launch_backward_narrow(const BackwardParameters& parameters, const Device& device) {
  const unsigned ctas = static_cast<unsigned>(parameters.batch) * parameters.heads * parameters.key_tiles;
  launch(backward_narrow<T, width, coarse, deep>, ctas, backward_narrow_threads,
         shared_storage_bytes<BackwardNarrowStorage<width>>, device.stream, parameters);
}

}  // namespace hkt::kernels::cuda::sm90
