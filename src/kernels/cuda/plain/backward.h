// The backward pass for any element type and shape, in float64 or float32. One kernel serves both sides: a block keeps a
// tile of queries and walks over the keys to get grad_q, or keeps a tile of keys and walks over the queries to get grad_k
// and grad_v. Nothing is added by two blocks but rows of level 7, which two tiles share; of two terms the order is moot.
#pragma once

#include <algorithm>

#include "../families.h"
#include "tile.h"

namespace hkt::kernels::cuda::plain {

enum class Side { queries, keys };

inline std::int64_t tiles_of(const AttentionForward& problem) {
  return ceil_divide<std::int64_t>(problem.length, tile);
}

// delta[b, h, i] = Σ out · grad_out
template <class S>
__global__ void delta_kernel(const __grid_constant__ AttentionBackward problem, Arithmetic<S>* delta) {
  using T = Arithmetic<S>;
  const std::int64_t rows = problem.batch * problem.heads * problem.length;
  const std::int64_t all = (std::int64_t(blockIdx.x) * blockDim.x + threadIdx.x) / 32;
  if (all >= rows) return;
  const std::int64_t row = all % problem.length, head = all / problem.length % problem.heads;
  const std::int64_t batch = all / problem.length / problem.heads;
  const S* out = rows_of<S>(problem.out, batch, head, 0).data + row * problem.out.row_stride;
  const S* grad = rows_of<S>(problem.grad_out, batch, head, 0).data + row * problem.grad_out.row_stride;
  T sum = 0;
  if (row < valid_length(problem, batch))
    for (int column = threadIdx.x % 32; column < problem.value_width; column += 32) 
      sum += static_cast<T>(out[column]) * static_cast<T>(grad[column]);
  for (int lane = 16; lane > 0; lane /= 2) sum += __shfl_xor_sync(~0u, sum, lane);
  if (threadIdx.x % 32 == 0) delta[all] = sum;
}

// sums[4·rows][64·chunks] of a level: adds dS(l) · other(l), where `gradient` is [other token][own token] at the level's
// resolution.
template <int size, int chunks, class S, class T>
__device__ void add_gradient(T (&sums)[chunks][size][4], Panels<T>& shared, const T (*gradient)[pitch],
                             const Rows<S>& other, std::int64_t first, int level, int width) {
  const int count = resolution(level);
#pragma unroll
  for (int c = 0; c < chunks; ++c)
    for (int k = 0; k < count && tile * c < width; k += depth) {
      __syncthreads();
      load_straight(shared.b, other, first, level, k, tile * c, width);
      __syncthreads();
      add_product(sums[c], gradient + k, shared.b, min(depth, count - k));
    }
}

// Writes sums · weight to the rows of a level, and returns the thread's part of Σ sums · own.
template <int size, int chunks, class S, class T>
__device__ T write_gradient(const T (&sums)[chunks][size][4], const Array& to, const Rows<S>& own, std::int64_t batch,
                            std::int64_t head, std::int64_t first, int level, int width, T weight) {
  const int x = threadIdx.x % 16, y = threadIdx.x / 16;
  S* result = static_cast<S*>(to.data) + batch * to.batch_stride + head * to.head_stride;
  T dot = 0;
#pragma unroll
  for (int c = 0; c < chunks; ++c)
#pragma unroll
    for (int i = 0; i < size; ++i)
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const std::int64_t row = level_row(first, level, size * y + i);
        const int column = tile * c + 4 * x + j;
        if (row >= own.count || column >= width) continue;
        dot += sums[c][i][j] * static_cast<T>(own.data[row * own.stride + column]);
        S* place = result + row * to.row_stride + column;
        if (level <= 2)
          *place = static_cast<S>(sums[c][i][j] * weight);
        else
          atomicAdd(place, static_cast<S>(sums[c][i][j] * weight));
      }
  return dot;
}

// Sum over the block; valid in thread 0.
template <class T>
__device__ T sum_of_block(T value) {
  __shared__ T sums[threads / 32];
  for (int lane = 16; lane > 0; lane /= 2) value += __shfl_xor_sync(~0u, value, lane);
  __syncthreads();
  if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = value;
  __syncthreads();
  T total = 0;
  if (threadIdx.x == 0)
    for (const T sum : sums) total += sum;
  return total;
}

// Adds up groups of `group` neighbouring rows of [16][columns], in order: what a coarser level's rows are made of.
template <class T, int chunks>
__device__ void sum_groups(T (&sums)[chunks][1][4], T (*scratch)[pitch], int group) {
  const int x = threadIdx.x % 16, y = threadIdx.x / 16;
#pragma unroll
  for (int c = 0; c < chunks; ++c) {
    __syncthreads();
#pragma unroll
    for (int j = 0; j < 4; ++j) scratch[y][4 * x + j] = sums[c][0][j];
    __syncthreads();
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      T total = 0;
      if (y % group == 0)
        for (int i = y; i < y + group && i < 16; ++i) total += scratch[i][4 * x + j];
      sums[c][0][j] = total;
    }
  }
}

// One side of the backward pass: gradients of levels 0 to 2 (fine), or of three further ones from `base` on.
// partials: [batch, heads, tiles, levels], the weights' gradient (queries' side only).
template <class S, Side side, bool fine, int chunks>
__global__ void __launch_bounds__(threads)
    backward_kernel(const __grid_constant__ AttentionBackward problem, const Arithmetic<S>* delta,
                    Arithmetic<S>* partials, int base) {
  using T = Arithmetic<S>;
  constexpr bool by_query = side == Side::queries;
  auto& [shared, tile_values] = shared_memory<T>();
  const int x = threadIdx.x % 16, y = threadIdx.x / 16;
  const auto [first, head, batch] = place_of_block(problem);
  const std::int64_t length = valid_length(problem, batch);
  const std::int64_t sequence = batch * problem.heads + head;
  const T* lse = static_cast<const T*>(problem.lse) + sequence * problem.length;
  const T* row_delta = delta + sequence * problem.length;
  const Array(&own)[max_levels] = by_query ? problem.q : problem.k;
  const Array(&other)[max_levels] = by_query ? problem.k : problem.q;
  const Rows<S> own_value = rows_of<S>(by_query ? problem.grad_out : problem.v, batch, head, problem.length);
  const Rows<S> other_value = rows_of<S>(by_query ? problem.v : problem.grad_out, batch, head, problem.length);
  const auto other_rows = [&](int level) {
    return rows_of<S>(other[level], batch, head, level_rows(problem.length, level));
  };

  constexpr int value_chunks = !by_query && fine ? chunks : 1;
  T sums0[fine ? chunks : 1][4][4] = {}, sums1[fine ? chunks : 1][2][4] = {}, sums2[chunks][1][4] = {};
  T sums3[fine ? 1 : chunks][1][4] = {}, sums4[fine ? 1 : chunks][1][4] = {};
  T value_sums[value_chunks][4][4] = {};

  const std::int64_t begin = !by_query && problem.causal ? first : 0;
  const std::int64_t end = by_query && problem.causal ? min(length, first + tile) : length;
  for (std::int64_t step = begin; step < end && first < length; step += tile) {
    T scores[4][4] = {}, grads[4][4] = {};
    add_scores<S>(scores, shared, problem, own, first, other, step, batch, head);
    add_level<4>(grads, shared, own_value, first, other_value, step, 0, problem.value_width, T(1));
    __syncthreads();
#pragma unroll
    for (int i = 0; i < 4; ++i)
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const std::int64_t a = first + 4 * y + i, b = step + 4 * x + j;
        const std::int64_t query = by_query ? a : b, key = by_query ? b : a;
        const bool counts = query < length && key < length && !(problem.causal && key > query);
        scores[i][j] = counts ? natural_exp(scores[i][j] - lse[query]) : T(0);
        tile_values[4 * x + j][4 * y + i] = scores[i][j];
        grads[i][j] = counts ? scores[i][j] * (grads[i][j] - row_delta[query]) : T(0);
      }
    if constexpr (!by_query && fine)
      add_gradient<4>(value_sums, shared, tile_values, other_value, step, 0, problem.value_width);
    if constexpr (fine) {
      __syncthreads();
#pragma unroll
      for (int i = 0; i < 4; ++i)
#pragma unroll
        for (int j = 0; j < 4; ++j) tile_values[4 * x + j][4 * y + i] = grads[i][j];
      add_gradient<4>(sums0, shared, tile_values, other_rows(0), step, 0, problem.width);
      __syncthreads();
      T pairs[2][2];
#pragma unroll
      for (int i = 0; i < 2; ++i)
#pragma unroll
        for (int j = 0; j < 2; ++j)
          pairs[i][j] = (grads[2 * i][2 * j] + grads[2 * i][2 * j + 1]) +
                        (grads[2 * i + 1][2 * j] + grads[2 * i + 1][2 * j + 1]);
      if (problem.levels > 1) {
#pragma unroll
        for (int i = 0; i < 2; ++i)
#pragma unroll
          for (int j = 0; j < 2; ++j) tile_values[2 * x + j][2 * y + i] = pairs[i][j];
        add_gradient<2>(sums1, shared, tile_values, other_rows(1), step, 1, problem.width);
      }
    }
    __syncthreads();
    T sum = 0;
#pragma unroll
    for (int i = 0; i < 4; ++i) sum += (grads[i][0] + grads[i][1]) + (grads[i][2] + grads[i][3]);
    tile_values[x][y] = sum;
    const int level = fine ? 2 : base;
    if (problem.levels > level) add_gradient<1>(sums2, shared, tile_values, other_rows(level), step, level, problem.width);
    if constexpr (!fine) {
      if (problem.levels > base + 1)
        add_gradient<1>(sums3, shared, tile_values, other_rows(base + 1), step, base + 1, problem.width);
      if (problem.levels > base + 2)
        add_gradient<1>(sums4, shared, tile_values, other_rows(base + 2), step, base + 2, problem.width);
    }
    __syncthreads();
  }

  const T* weights = static_cast<const T*>(problem.weights) + head * problem.levels;
  const Array(&grad_own)[max_levels] = by_query ? problem.grad_q : problem.grad_k;
  const auto finish = [&](auto& sums, int level) {
    if (level >= problem.levels) return;
    if constexpr (!fine) sum_groups(sums, tile_values, 1 << (level - 2));
    const Rows<S> rows = rows_of<S>(own[level], batch, head, level_rows(problem.length, level));
    const T weight = weights[level] * T(problem.scale);
    const T dot = write_gradient(sums, grad_own[level], rows, batch, head, first, level, problem.width, weight);
    if constexpr (by_query) {
      const T total = sum_of_block(dot);
      const std::int64_t tiles = (problem.length + tile - 1) / tile;
      if (threadIdx.x == 0)
        partials[(sequence * tiles + first / tile) * problem.levels + level] = total * T(problem.scale);
    }
  };
  if constexpr (fine) {
    finish(sums0, 0);
    finish(sums1, 1);
    finish(sums2, 2);
    if constexpr (!by_query) {
      const Rows<S> values = rows_of<S>(problem.v, batch, head, problem.length);
      write_gradient(value_sums, problem.grad_v, values, batch, head, first, 0, problem.value_width, T(1));
    }
  } else {
    finish(sums2, base);
    finish(sums3, base + 1);
    finish(sums4, base + 2);
  }
}

// Levels beyond 2 are added to, so they start at zero.
template <class S>
__global__ void zero_kernel(const __grid_constant__ Array array, std::int64_t rows, int heads, int width,
                            std::int64_t count) {
  const std::int64_t i = std::int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= count) return;
  const std::int64_t column = i % width, row = i / width % rows, head = i / width / rows % heads;
  const std::int64_t batch = i / width / rows / heads;
  S* rows_begin = static_cast<S*>(array.data) + batch * array.batch_stride + head * array.head_stride;
  rows_begin[row * array.row_stride + column] = static_cast<S>(0.0f);
}

template <class T>
__global__ void weights_kernel(const __grid_constant__ AttentionBackward problem, const T* partials,
                               std::int64_t tiles) {
  const int head = blockIdx.x, level = blockIdx.y;
  T sum = 0;
  for (std::int64_t i = threadIdx.x; i < problem.batch * tiles; i += threads)
    sum += partials[((i / tiles * problem.heads + head) * tiles + i % tiles) * problem.levels + level];
  sum = sum_of_block(sum);
  if (threadIdx.x == 0) static_cast<T*>(problem.grad_weights)[head * problem.levels + level] = sum;
}

template <class S>
void start_backward(const AttentionBackward& problem, const Device& device, void* workspace) {
  using T = Arithmetic<S>;
  T* delta = static_cast<T*>(workspace);
  const std::int64_t rows = problem.batch * problem.heads * problem.length;
  T* partials = delta + rows;
  const auto blocks_of = [](std::int64_t items) { return dim3(static_cast<unsigned>(ceil_divide<std::int64_t>(items, threads))); };
  launch(delta_kernel<S>, blocks_of(rows * 32), threads, 0, device.stream, problem, delta);
  for (int level = 3; level < problem.levels; ++level)
    for (const Array& array : {problem.grad_q[level], problem.grad_k[level]}) {
      const std::int64_t level_length = ceil_divide<std::int64_t>(problem.length, std::int64_t(1) << level);
      const std::int64_t count = problem.batch * problem.heads * level_length * problem.width;
      launch(zero_kernel<S>, blocks_of(count), threads, 0, device.stream, array, level_length, int(problem.heads),
             problem.width, count);
    }
  for_chunks(std::max(problem.width, problem.value_width), [&](auto chunks) {
    launch(backward_kernel<S, Side::queries, true, chunks>, blocks_for(problem), threads, sizeof(Shared<T>), device.stream, problem,
           delta, partials, 0);
    launch(backward_kernel<S, Side::keys, true, chunks>, blocks_for(problem), threads, sizeof(Shared<T>), device.stream, problem, delta,
           partials, 0);
    for (int base = 3; base < problem.levels; base += 3) {
      launch(backward_kernel<S, Side::queries, false, chunks>, blocks_for(problem), threads, sizeof(Shared<T>), device.stream, problem,
             delta, partials, base);
      launch(backward_kernel<S, Side::keys, false, chunks>, blocks_for(problem), threads, sizeof(Shared<T>), device.stream, problem,
             delta, partials, base);
    }
  });
  launch(weights_kernel<T>, dim3(unsigned(problem.heads), problem.levels), threads, 0, device.stream, problem, partials,
         tiles_of(problem));
}

}  // namespace hkt::kernels::cuda::plain
