// SPDX-License-Identifier: Apache-2.0
// The backward pass for heads wider than 128, as backward.h has it for others. Shared memory has room for the queries and
// grad_out of one step only: the next step's are copied when the last product that reads them is done.
#pragma once

#include "common/semaphore.h"
#include "sm80/backward_copy.h"
#include "sm80/backward_gradients.h"
#include "sm80/backward_scores.h"

namespace hkt::kernels::cuda::sm80 {

template <class T, int width, int n, int max_level_count, int fixed>
__global__ void __launch_bounds__(backward_tile::threads<width, n>, backward_tile::resident<width, n>)
    backward_wide_kernel(const __grid_constant__ AttentionBackward problem, const __grid_constant__ RowData rows,
                         const __grid_constant__ Sums all_sums, int* semaphores, const HeadGroups groups) {
  using namespace backward_tile;
  using S = Share<width, n>;
  extern __shared__ __align__(1024) unsigned char memory[];
  const Block<width, n> block(problem, fixed ? fixed : problem.levels, groups, semaphores != nullptr,
                              static_cast<std::uint32_t>(__cvta_generic_to_shared(memory)));
  const Copies<T, width, n, fixed> copy{problem, rows, block,
                                        reinterpret_cast<Source<T>*>(memory + block.layout.sources)};
  if (block.steps() > 0) {
    copy.keys_and_values();
    copy.all_of_queries(block.tile(0), 0);
    cp_async_commit();
  }
  const ReadRows<width> keys(block.k, 32 * S::key_warp()), values(block.v, 32 * S::key_warp());
  KeyGradients<width, n, max_level_count> sums(all_sums.coarse_keys +
                                               blockIdx.x * std::int64_t(parked_floats<width, n, max_level_count>));
  int* const tile_semaphores = semaphores != nullptr ? semaphores + block.tile_of_all(0) : nullptr;
  int* const is_next = reinterpret_cast<int*>(memory + block.layout.is_next);
  const int order = block.place.first / n;
  for (int step = 0; step < block.steps(); ++step) {
    const int tile = block.tile(step);
    const bool is_last = step + 1 == block.steps();
    cp_async_wait<0>();
    __syncthreads();
    {
      float probabilities[2][S::blocks][4];
      int peeked = 0;
      if (tile_semaphores && threadIdx.x == 0) peeked = semaphore_peek(tile_semaphores + tile);
      take_probabilities<T>(probabilities, block, keys, 0, tile * queries, [&] {
        if (tile_semaphores && threadIdx.x == 0) {
          fence_acq_rel();
          if (step > 0) semaphore_release(tile_semaphores + block.tile(step - 1));
          *is_next = peeked == order;
        }
        if (block.levels <= 2) return;
        write_quad_scores<T, fixed>(block, 0);
        __syncthreads();
      });
      take_gradients<T>(probabilities, block, values, 0);
    }
    __syncthreads();
    add_value_gradients<T>(sums, block, 0);
    __syncthreads();
    if (!is_last) copy.all_but_queries(block.tile(step + 1), 0);
    add_key_gradients<T>(sums, block, 0, step == 0);
    __syncthreads();
    if (!is_last) copy.only_queries(block.tile(step + 1), 0);
    cp_async_commit();
    add_query_gradients<T, fixed>(block, tile * queries, all_sums, [&] {
      if (!tile_semaphores || *is_next) return;
      if (threadIdx.x == 0) semaphore_wait(tile_semaphores + tile, order);
      __syncthreads();
    });
  }
  if (tile_semaphores && block.steps() > 0) {
    __syncthreads();
    if (threadIdx.x == 0) {
      fence_acq_rel();
      semaphore_release(tile_semaphores + block.tile(block.steps() - 1));
    }
  }
  write_key_gradients<T>(problem, block, sums, memory, all_sums.half_rows);
}

}  // namespace hkt::kernels::cuda::sm80
