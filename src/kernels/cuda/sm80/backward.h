// SPDX-License-Identifier: Apache-2.0
// The backward pass on Ampere's tensor cores. A CTA keeps a tile of keys and walks over the queries in steps of 64, its
// warps side by side. The scores are transposed (keys are rows), so that each thread holds whole 2 × 2 cells of level 1 of
// the scores' gradient. Gradients of the queries are added up in float32 in the workspace; finish_kernel brings them home.
#pragma once

#include "common/semaphore.h"
#include "sm80/backward_copy.h"
#include "sm80/backward_gradients.h"
#include "sm80/backward_scores.h"
#include "sm80/backward_wide.h"

namespace hkt::kernels::cuda::sm80 {

// grad_k of the last level where its rows are twice as long as a tile of keys: a CTA for each row.
template <class T, int width>
__global__ void join_kernel(const __grid_constant__ AttentionBackward problem, const float* half_rows, int tiles) {
  const int rows = (tiles + 1) / 2, level = problem.levels - 1, column = 2 * threadIdx.x;
  const std::int64_t sequence = blockIdx.x / rows, row = blockIdx.x % rows;
  const std::int64_t head = sequence % problem.heads, batch = sequence / problem.heads;
  if (column >= problem.width) return;
  float x = 0, y = 0;
  for (std::int64_t tile = 2 * row; tile < min(2 * row + 2, std::int64_t(tiles)); ++tile) {
    const float* half = half_rows + (sequence * tiles + tile) * width + column;
    x += half[0], y += half[1];
  }
  const float factor =
      static_cast<const float*>(problem.weights)[head * problem.levels + level] * static_cast<float>(problem.scale);
  const Array& to = problem.grad_k[level];
  *reinterpret_cast<std::uint32_t*>(head_rows<T>(to, batch, head) + row * to.row_stride + column) =
      pack<T>(x * factor, y * factor);
}

// n: keys of a tile. fixed: the number of levels, or 0 if it is known only here; then there are up to max_level_count.
template <class T, int width, int n, int max_level_count, int fixed>
__global__ void __launch_bounds__(backward_tile::threads<width, n>, backward_tile::resident<width, n>)
    backward_kernel(const __grid_constant__ AttentionBackward problem, const __grid_constant__ RowData rows,
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
    cp_async_wait_all();
    __syncthreads();
    write_quad_scores<T, fixed>(block, 0);
  }
  const KeptRows<width, Kept<width, n, fixed>::keys> keys(block.k, 32 * S::key_warp());
  const KeptRows<width, Kept<width, n, fixed>::values> values(block.v, 32 * S::key_warp());

  KeyGradients<width, n, max_level_count> sums(all_sums.coarse_keys +
                                               blockIdx.x * std::int64_t(parked_floats<width, n, max_level_count>));
  // In a fixed order of additions to grad_q: the semaphores of the sequence's tiles. The CTAs of all earlier keys have the same
  // tiles, come before this one in the grid, and add first. One thread peeks early at the semaphore, so that usually nobody
  // waits for it, and releases that of the last step while products are in flight.
  int* const tile_semaphores = semaphores != nullptr ? semaphores + block.tile_of_all(0) : nullptr;
  int* const is_next = reinterpret_cast<int*>(memory + block.layout.is_next);
  const int order = block.place.first / n;
  for (int step = 0; step < block.steps(); ++step) {
    const int stage = step % 2, tile = block.tile(step);
    const bool is_last = step + 1 == block.steps();
    __syncthreads();
    {
      float probabilities[2][S::blocks][4];
      int peeked = 0;
      if (tile_semaphores && threadIdx.x == 0) peeked = semaphore_peek(tile_semaphores + tile);
      take_probabilities<T>(probabilities, block, keys, stage, tile * queries, [&] {
        if (!is_last) copy.all_of_queries(block.tile(step + 1), stage ^ 1);
        cp_async_commit();
        if (tile_semaphores && threadIdx.x == 0) {
          fence_acq_rel();
          if (step > 0) semaphore_release(tile_semaphores + block.tile(step - 1));
          *is_next = peeked == order;
        }
      });
      take_gradients<T>(probabilities, block, values, stage);
    }
    cp_async_wait<0>();
    __syncthreads();
    if (!is_last) write_quad_scores<T, fixed>(block, stage ^ 1);
    add_value_gradients<T>(sums, block, stage);
    add_key_gradients<T>(sums, block, stage, step == 0);
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

// grad_q from its sums, and its part of the weights' gradient: 64 rows of one level a CTA. The first CTAs have the last
// heads, whose sums the cache still has. parts: room for them in a head and level; all_parts: those of all levels of a head.
template <class T, int width>
__global__ void __launch_bounds__(256)
    finish_kernel(const __grid_constant__ AttentionBackward problem, const __grid_constant__ Sums all_sums,
                  float* partials, int parts, int all_parts) {
  __shared__ float dots[8];
  constexpr int vectors = width / 8, queries = backward_tile::queries;
  const int block = gridDim.x - 1 - blockIdx.x;
  const std::int64_t sequence = block / all_parts;
  int level = 0, part = block % all_parts;
  for (; part >= (finished_rows(problem, level) + 63) / 64; ++level) part -= (finished_rows(problem, level) + 63) / 64;
  const std::int64_t head = sequence % problem.heads, batch = sequence / problem.heads;
  const QueryTiles tiles = query_tiles(problem);
  const Window window = window_of(problem, batch);
  // Row 0 of the level's gradient among the rows of the tiles, and the end of its rows, and of those that are not padding.
  const int origin = (window.first >> level) - (tiles.first * queries >> level);
  const int rows = finished_rows(problem, level), valid = origin + query_row_count(problem, window, level);
  const bool in_fragments = level <= last_fragment_level;
  const int of_sums = level < 7 ? 1 : 2;               // rows of them in one of the level
  const int before = level < 7 ? 0 : tiles.first % 2;  // rows of them missing in the first one
  const std::int64_t sum_row_count = sum_rows(problem, level);
  const float* const sums = all_sums.queries[level];
  const Array& from = problem.q[level];
  const Array& to = problem.grad_q[level];
  const T* q = head_rows<const T>(from, batch, head);
  T* result = head_rows<T>(to, batch, head);
  const float scale = static_cast<float>(problem.scale);
  const float factor = static_cast<const float*>(problem.weights)[head * problem.levels + level] * scale;
  float dot = 0;
  for (int i = threadIdx.x; i < 32 * vectors; i += 256) {
    const int vector = i % vectors, r = i / vectors % 8;
    const std::int64_t block_row = part * 64 + i / vectors / 8 * 16, first = block_row + r;  // and the row 8 further
    if (first >= rows || 8 * vector >= problem.width) continue;
    float u[2][8];
    if (in_fragments)
      read_rows(u, sums + ((sequence * sum_row_count + block_row) / 16 * vectors + vector) * fragment_floats, r);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const std::int64_t row = first + 8 * half;
      if (row >= rows) break;
      if (row < origin) continue;
      if (!in_fragments) {
        const std::int64_t sum_row = of_sums * row - before;
        const float* natural = sums + (sequence * sum_row_count + sum_row) * width + 8 * vector;
        const bool one = sum_row >= 0, two = of_sums == 2 && sum_row + 1 < sum_row_count;
#pragma unroll
        for (int j = 0; j < 8; ++j) u[half][j] = (one ? natural[j] : 0) + (two ? natural[width + j] : 0);
      }
      uint4 eight = {};
      if (row < valid) eight = *reinterpret_cast<const uint4*>(q + (row - origin) * from.row_stride + 8 * vector);
      const std::uint32_t pairs[4] = {eight.x, eight.y, eight.z, eight.w};
      std::uint32_t packed[4];
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const float2 x = unpack<T>(pairs[j]);
        dot += u[half][2 * j] * x.x + u[half][2 * j + 1] * x.y;
        packed[j] = pack<T>(u[half][2 * j] * factor, u[half][2 * j + 1] * factor);
      }
      *reinterpret_cast<uint4*>(result + (row - origin) * to.row_stride + 8 * vector) = {packed[0], packed[1],
                                                                                         packed[2], packed[3]};
    }
  }
  for (int offset = 16; offset > 0; offset /= 2) dot += __shfl_xor_sync(~0u, dot, offset);
  if (threadIdx.x % 32 == 0) dots[threadIdx.x / 32] = dot;
  __syncthreads();
  if (threadIdx.x != 0) return;
  float total = 0;
  for (const float value : dots) total += value;
  partials[(sequence * parts + part) * problem.levels + level] = total * scale;
}

template <class T, int width, int n, int max_level_count, int fixed>
auto kernel_for() {
  if constexpr (width > 128)
    return backward_wide_kernel<T, width, n, max_level_count, fixed>;
  else
    return backward_kernel<T, width, n, max_level_count, fixed>;
}

// The kernel for a tile of n keys.
template <class T, int width, int n, int max_level_count>
void start_tiles(const AttentionBackward& problem, const Device& device, const Workspace& w, float* base,
                 const Sums& sums) {
  using namespace backward_tile;
  const std::int64_t key_tiles = ceil_divide<std::int64_t>(problem.length, n);
  const dim3 blocks = grid_of(problem.batch * problem.heads * key_tiles);
  int* const semaphores = device.deterministic ? reinterpret_cast<int*>(base + w.semaphores) : nullptr;
  const std::int64_t places = device.sm_count * resident<width, n>;
  const HeadGroups groups = device.deterministic ? ordered_head_groups(problem, problem.causal ? 8 : 12, places)
                                                 : head_groups(problem, key_tiles, places);
  const auto kernel = max_level_count == 3 && problem.levels == 3 ? kernel_for<T, width, n, 3, 3>()
                                                                  : kernel_for<T, width, n, max_level_count, 0>();
  const RowData rows{base + w.lse, base + w.delta, first_tile_row(problem), padded_queries(problem)};
  launch(kernel, blocks, threads<width, n>, layout_of<width, n>(problem.levels).end, device.stream, problem, rows, sums,
         semaphores, groups);
  if (n >> (problem.levels - 1) == 0)
    launch(join_kernel<T, width>, grid_of(problem.batch * problem.heads * ((key_tiles + 1) / 2)), width / 2, 0,
           device.stream, problem, base + w.half_rows, static_cast<int>(key_tiles));
}

template <class T, int width, int max_level_count>
void start_backward(const AttentionBackward& problem, const Device& device, void* workspace) {
  using namespace backward_tile;
  float* base = static_cast<float*>(workspace);
  const Workspace w = workspace_of(problem, width, device.shared_bytes);
  const auto stream = static_cast<cudaStream_t>(device.stream);
  Sums sums{};
  for (int level = 0; level < problem.levels; ++level) sums.queries[level] = base + w.sums[level];
  sums.coarse_keys = base + w.coarse_keys;
  sums.half_rows = base + w.half_rows;
  backward_preprocess(problem, device, base + w.lse, base + w.delta);
  check(cudaMemsetAsync(base + w.sums[0], 0, (w.end - w.sums[0]) * sizeof(float), stream), "clearing the workspace");
  if (keys_for<width>(problem.levels, device.shared_bytes) == 64)
    start_tiles<T, width, 64, max_level_count>(problem, device, w, base, sums);
  else if constexpr (width < 128 || (width == 128 && max_level_count == 3))
    start_tiles<T, width, 128, max_level_count>(problem, device, w, base, sums);
  std::int64_t all_parts = 0;
  for (int level = 0; level < problem.levels; ++level) all_parts += ceil_divide(finished_rows(problem, level), 64);
  launch(finish_kernel<T, width>, grid_of(problem.batch * problem.heads * all_parts), 256, 0, device.stream, problem,
         sums, base + w.partials, static_cast<int>(w.parts), static_cast<int>(all_parts));
  sum_weight_gradient(problem, device, base + w.partials, static_cast<int>(w.parts));
}

}  // namespace hkt::kernels::cuda::sm80
