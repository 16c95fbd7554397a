// SPDX-License-Identifier: Apache-2.0
// Backward on Hopper, wide (64 < D <= 128). Of a CTA's four warpgroups (three with one level), two have 64 fine keys each, and
// the query sums of 64 columns each (backward_wide_fine.h); one has the coarse levels, and adds their query sums itself
// (backward_wide_coarse.h); one loads, and has TMA add the query sums of level 0 to those in global memory. There are no
// registers for sums of coarse keys in the steps: they are made after the last one (backward_wide_second_pass.h).
//
// backward.h says what steps, query sums and fine, coarse and deep levels are; backward_semaphores.h, what slots are.
#pragma once

#include "sm90/backward_wide_coarse.h"
#include "sm90/backward_wide_fine.h"

namespace hkt::kernels::cuda::sm90 {

// One level needs no coarse warpgroup, and leaves its registers to the others.
template <bool coarse>
inline constexpr int backward_wide_threads = (coarse ? 4 : 3) * warpgroup_threads;

// Registers of a thread.
template <bool coarse>
struct BackwardWideRegisters {
  static constexpr int load = 24, fine = coarse ? 208 : 240, coarse_levels = coarse ? 72 : 0;
  static_assert(registers_fit(load, fine, coarse_levels));
};

// Threads of the loading warpgroup that have something to do: the first of each warp. In the second pass, those of all but
// the adding warp load.
namespace backward_wide_role {
inline constexpr int load_keys_and_queries = 0;
inline constexpr int load_values_and_grad_out = 32;
inline constexpr int add = 64;
inline constexpr int load_coarse = 96;  // with coarse levels
}  // namespace backward_wide_role

// One thread: adds each step's query sums of level 0 and gives the stage back.
template <bool coarse, bool deep>
__device__ __forceinline__ void backward_wide_add(const BackwardParameters& p, const BackwardWork& work,
                                                  BackwardWideStorage& storage) {
  const bool ordered = p.semaphores != nullptr;
  int peeked = -1;  // the next step's semaphore: see acquire_query_sums
  PipelineState<BackwardWideStorage::stages> pipe;
#pragma unroll 1
  for (int i = 0; i < work.steps; ++i) {
    const int tile = work.query_tile(i);
    if (ordered) acquire_query_sums(p, work, tile, SumsOf::fine, peeked);
    float* const to = wide_query_sums<coarse, deep>(p, work, tile);
    storage.full_second_sums[pipe.stage].wait(pipe.parity);
    tma_reduce_add(to + query_sums_size(64, coarse, deep), storage.second_sums.address(), storage.second_sums.bytes);
    tma_commit();
    storage.full_first_sums[pipe.stage].wait(pipe.parity);
    tma_reduce_add(to, shared_address(&storage.queries[pipe.stage].grad_out), storage.second_sums.bytes);
    tma_commit();
    tma_wait_read<1>();
    storage.empty_second_sums.arrive();
    tma_wait_read();
    storage.empty_grad_out[pipe.stage].arrive();
    if (ordered) {
      peeked = peek_step(p, work, i + 1, SumsOf::fine);
      tma_wait();
      release_query_sums(p, work, tile, SumsOf::fine);
    }
    pipe.advance();
  }
  tma_wait();
}

template <bool coarse, bool deep>
__device__ __forceinline__ void init_backward_wide(const BackwardParameters& p, BackwardWideStorage& storage) {
  using Storage = BackwardWideStorage;
  storage.full_keys.init(coarse ? 3 : 2);  // loading threads
  for (int i = 0; i < Storage::stages; ++i) {
    storage.full_queries[i].init(1);
    storage.empty_queries[i].init_warps(8);
    storage.full_grad_out[i].init(1);
    storage.empty_grad_out[i].init(1);
    storage.full_first_sums[i].init_warps(4);
    storage.full_second_sums[i].init_warps(4);
  }
  for (int i = 0; i < Storage::coarse_stages; ++i) {
    storage.full_coarse_queries[i].init(1);
    storage.empty_coarse_queries[i].init_warps(4);
  }
  storage.full_scores.init_warps(4);
  storage.empty_scores.init_warps(8);
  for (Barrier& full : storage.full_gradients) full.init_warps(8);
  storage.empty_coarse_gradients.init_warps(4);
  storage.empty_second_sums.init(1);
  storage.empty_fine_gradients.init_warps(8);
  if constexpr (coarse) {
    for (int i = 0; i < Storage::second_pass_stages; ++i) {
      storage.full_second_pass[i].init(1);
      storage.empty_second_pass[i].init_warps(8);
    }
    storage.empty_keys.init_warps(8);
    storage.has_slot.init(1);
    if constexpr (deep) acquire_slot(p, storage);
  }
  fence_async_shared();
}

// The loading warpgroup.
template <bool coarse, bool deep>
__device__ __forceinline__ void backward_wide_load(const BackwardParameters& p, const BackwardWork& work,
                                                   BackwardWideStorage& storage) {
  namespace role = backward_wide_role;
  if (threadIdx.x == role::load_keys_and_queries)
    load_fine<FineLoad::keys>(p, work, storage, storage.full_queries, storage.empty_queries);
  if (threadIdx.x == role::load_values_and_grad_out)
    load_fine<FineLoad::values>(p, work, storage, storage.full_grad_out, storage.empty_grad_out);
  if (threadIdx.x == role::add) {
    // To find a slot takes a while. There is nothing to add yet.
    if constexpr (coarse && !deep) acquire_slot(p, storage);
    backward_wide_add<coarse, deep>(p, work, storage);
  }
  if constexpr (coarse) {
    if (threadIdx.x == role::load_coarse) load_coarse(p, work, storage);
    // Parts 1, 2 and 0.
    if (threadIdx.x % 32 == 0 && threadIdx.x != role::add)
      load_second_pass(p, work, storage, (threadIdx.x / 32 + 1) % 4);
  }
}

template <class T, bool coarse, bool deep>
__global__ void __launch_bounds__(backward_wide_threads<coarse>, 1)
    backward_wide(const __grid_constant__ BackwardParameters p) {
  using Registers = BackwardWideRegisters<coarse>;
  auto& storage = shared_storage<BackwardWideStorage>();
  const BackwardWork work = backward_work<2>(p, blockIdx.x);
  if (work.steps == 0) {
    clear_key_gradients<T>(p, work);
    return;
  }
  if (threadIdx.x == 0) init_backward_wide<coarse, deep>(p, storage);
  __syncthreads();
  const int warpgroup = __shfl_sync(~0u, threadIdx.x / warpgroup_threads, 0);
  if (warpgroup == 0) {
    setmaxnreg_dec<Registers::load>();
    backward_wide_load<coarse, deep>(p, work, storage);
  } else if (warpgroup < 3) {
    setmaxnreg_inc<Registers::fine>();
    BackwardWideFine<T, coarse, deep>(p, work, storage, warpgroup - 1).run();
  } else if constexpr (coarse) {
    setmaxnreg_dec<Registers::coarse_levels>();
    BackwardWideCoarse<T, deep>(p, work, storage).run();
  }
}

template <class T, bool coarse, bool deep>
void launch_backward_wide(const BackwardParameters& parameters, const Device& device) {
  const unsigned ctas = static_cast<unsigned>(parameters.batch) * parameters.heads * parameters.key_tiles;
  launch(backward_wide<T, coarse, deep>, ctas, backward_wide_threads<coarse>, shared_storage_bytes<BackwardWideStorage>,
         device.stream, parameters);
}

}  // namespace hkt::kernels::cuda::sm90
