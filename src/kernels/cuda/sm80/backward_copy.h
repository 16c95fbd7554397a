// SPDX-License-Identifier: Apache-2.0
// What a CTA of the backward pass copies to shared memory: its keys and values, and in each step queries and grad_out.
#pragma once

#include "sm80/backward_block.h"

namespace hkt::kernels::cuda::sm80 {

template <class T, int width, int n, int fixed>
struct Copies {
  static constexpr int threads = backward_tile::threads<width, n>, queries = backward_tile::queries;
  const AttentionBackward& problem;
  const RowData& rows;
  const Block<width, n>& block;
  Source<T>* sources;

  // Starts copying keys and values, and finds the sources of queries and grad_out.
  __device__ __forceinline__ void keys_and_values() const {
    const Place& place = block.place;
    const int levels = block.levels;
    find_sources(sources, problem.k, problem.v, levels, place.batch, place.key_head,
                 [&](int level) { return level_rows(place.length, level); });
    __syncthreads();
    copy_levels<T, width, threads, fixed>(block.k, sources, place.first, 0, levels, n, problem.width);
    copy_rows<T, width, threads>(block.v, 0, sources[levels], place.first, n, problem.value_width);
    __syncthreads();
    find_sources(sources, problem.q, problem.grad_out, levels, place.batch, place.head,
                 [&](int level) { return query_row_count(problem, block.window, level); });
    __syncthreads();
  }
  // Start copying what belongs to a tile of queries.
  __device__ __forceinline__ void all_of_queries(int tile, int stage) const {
    const auto copy = [&](auto may_be_before) {
      copy_queries<may_be_before>(tile, stage);
      copy_grad_out<may_be_before>(tile, stage);
    };
    is_first(tile) ? copy(std::true_type{}) : copy(std::false_type{});
    row_data(tile, stage);
  }
  __device__ __forceinline__ void only_queries(int tile, int stage) const {
    is_first(tile) ? copy_queries<true>(tile, stage) : copy_queries<false>(tile, stage);
  }
  __device__ __forceinline__ void all_but_queries(int tile, int stage) const {
    is_first(tile) ? copy_grad_out<true>(tile, stage) : copy_grad_out<false>(tile, stage);
    row_data(tile, stage);
  }

 private:
  // Whether the tile begins before the queries do.
  __device__ __forceinline__ bool is_first(int tile) const { return tile * queries < block.window.first; }
  template <bool may_be_before>
  __device__ __forceinline__ void copy_queries(int tile, int stage) const {
    copy_levels<T, width, threads, fixed, may_be_before>(block.q(stage), sources, tile * queries, block.window.first,
                                                         block.levels, queries, problem.width);
  }
  template <bool may_be_before>
  __device__ __forceinline__ void copy_grad_out(int tile, int stage) const {
    copy_rows<T, width, threads, may_be_before>(block.grad_out(stage), 0, sources[block.levels],
                                                tile * queries - block.window.first, queries, problem.value_width);
  }
  // lse and delta.
  __device__ __forceinline__ void row_data(int tile, int stage) const {
    if (threadIdx.x >= 2 * queries / 4) return;
    const int array = threadIdx.x / (queries / 4), four = threadIdx.x % (queries / 4);
    const float* from = (array ? rows.delta : rows.lse) + block.sequence * rows.count;
    cp_async_16(block.row_data(stage, array) + 16 * four, from + (tile * queries - rows.first + 4 * four), true);
  }
};

}  // namespace hkt::kernels::cuda::sm80
