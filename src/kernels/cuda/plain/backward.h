// SPDX-License-Identifier: Apache-2.0
// The backward pass for any element type and shape, in float64 or float32. One kernel serves both sides: a CTA keeps a
// tile of queries and walks over the keys to get grad_q, or keeps a tile of keys and walks over the queries to get grad_k
// and grad_v. Nothing is added by two CTAs but rows of level 7, which two tiles share; of two terms the order is moot.
#pragma once

#include "families.h"
#include "plain/tile.h"

namespace hkt::kernels::cuda::plain {

enum class Side { queries, keys };
enum class Part { fine, coarse };  // gradients of levels 0 to 2, or of those beyond

template <class S>
using BackwardShape = std::conditional_t<std::is_same_v<S, double>, Shape<double, 4, 4>, Shape<float, 4, 8>>;
inline constexpr int small_threads = 256;  // of the kernels that only sum

// delta[b, h, i] = Σ out · grad_out − grad_lse, for queries i
template <class S>
__global__ void delta_kernel(const __grid_constant__ AttentionBackward problem, Arithmetic<S>* delta) {
  using T = Arithmetic<S>;
  const std::int64_t rows = problem.batch * problem.heads * problem.queries;
  const std::int64_t all = (std::int64_t(blockIdx.x) * blockDim.x + threadIdx.x) / 32;
  if (all >= rows) return;
  const std::int64_t row = all % problem.queries, head = all / problem.queries % problem.heads;
  const std::int64_t batch = all / problem.queries / problem.heads;
  const S* out = head_rows<const S>(problem.out, batch, head) + row * problem.out.row_stride;
  const S* grad = head_rows<const S>(problem.grad_out, batch, head) + row * problem.grad_out.row_stride;
  T sum = 0;
  if (problem.start + row < window_of(problem, batch).end)
    for (int column = threadIdx.x % 32; column < problem.value_width; column += 32)
      sum += static_cast<T>(out[column]) * static_cast<T>(grad[column]);
  for (int lane = 16; lane > 0; lane /= 2) sum += __shfl_xor_sync(~0u, sum, lane);
  if (threadIdx.x % 32) return;
  delta[all] = problem.grad_lse ? sum - static_cast<const T*>(problem.grad_lse)[all] : sum;
}

// Sums of neighbouring 2 × 2.
template <class T, int rows, int columns>
__device__ __forceinline__ void pool(T (&to)[rows][columns], const T (&from)[2 * rows][2 * columns]) {
#pragma unroll
  for (int i = 0; i < rows; ++i)
#pragma unroll
    for (int j = 0; j < columns; ++j)
      to[i][j] = (from[2 * i][2 * j] + from[2 * i][2 * j + 1]) + (from[2 * i + 1][2 * j] + from[2 * i + 1][2 * j + 1]);
}

// Writes sums · weight to rows [begin, end) of a level, of which thread row y has `rows` if y is a multiple of `group`, and
// returns the thread's part of Σ sums · own. Both arrays begin with row `begin`.
template <int padded, int rows, class S, class T>
__device__ T write_gradient(const T (&sums)[rows][padded / 16], const Array& to, const Array& own, std::int64_t batch,
                            std::int64_t head, std::int64_t own_head, std::int64_t first_row, std::int64_t begin,
                            std::int64_t end, int group, int width, T weight, bool is_shared) {
  S* result = head_rows<S>(to, batch, head) - begin * to.row_stride;
  const S* from = head_rows<const S>(own, batch, own_head) - begin * own.row_stride;
  T dot = 0;
  if (thread_y() % group) return dot;
#pragma unroll
  for (int i = 0; i < rows; ++i)
#pragma unroll
    for (int j = 0; j < padded / 16; ++j) {
      const std::int64_t row = first_row + (rows * thread_y() + i) / group;
      const int column = column_of<T, padded>(j);
      if (row < begin || row >= end || column >= width) continue;
      dot += sums[i][j] * static_cast<T>(from[row * own.row_stride + column]);
      S* place = result + row * to.row_stride + column;
      if (is_shared)
        atomicAdd(place, static_cast<S>(sums[i][j] * weight));
      else
        *place = static_cast<S>(sums[i][j] * weight);
    }
  return dot;
}

// Sum over the CTA; valid in thread 0.
template <int threads, class T>
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

// Adds up groups of `group` neighbouring thread rows, in order, into the first one of each: the rows of a coarse level.
template <int padded, class T>
__device__ void sum_groups(T (&sums)[1][padded / 16], T* scratch, int group) {
  __syncthreads();
#pragma unroll
  for (int j = 0; j < padded / 16; ++j) scratch[thread_y() * padded + column_of<T, padded>(j)] = sums[0][j];
  __syncthreads();
  if (thread_y() % group) return;
#pragma unroll
  for (int j = 0; j < padded / 16; ++j)
    for (int y = thread_y() + 1; y < thread_y() + group; ++y)
      sums[0][j] += scratch[y * padded + column_of<T, padded>(j)];
}

// The jobs of one step over the other tokens, in order: columns of the scores, columns of the probabilities' gradient, then
// rows for the products with it. ends[level]: of the rows of that level.
struct Jobs {
  int scores, grads, values, ends[max_levels], count;
};
template <class Shape, int padded, Side side, Part part>
__device__ Jobs jobs_of(const AttentionForward& problem) {
  using T = typename Shape::T;
  constexpr int panel_rows = panel_rows_of<Shape, padded>;
  Jobs jobs{};
  jobs.scores = (problem.width + depth<T> - 1) / depth<T>;
  jobs.grads = jobs.scores + (problem.value_width + depth<T> - 1) / depth<T>;
  jobs.values = jobs.grads;
  if (side == Side::keys && part == Part::fine) jobs.values += Shape::other_tokens / panel_rows;
  jobs.count = jobs.values;
#pragma unroll
  for (int level = 0; level < max_levels; ++level) {
    const bool is_here = (level < 3) == (part == Part::fine) && level < problem.levels;
    if (is_here) jobs.count += max(1, (Shape::other_tokens >> level) / panel_rows);
    jobs.ends[level] = jobs.count;
  }
  return jobs;
}

// One side of the backward pass. partials: [batch, heads, tiles, levels], the weights' gradient (queries' side only).
template <class S, Side side, Part part, int padded>
__global__ void __launch_bounds__(BackwardShape<S>::threads)
    backward_kernel(const __grid_constant__ AttentionBackward problem, const Arithmetic<S>* delta,
                    Arithmetic<S>* partials, bool aligned) {
  using Shape = BackwardShape<S>;
  using T = typename Shape::T;
  constexpr bool by_query = side == Side::queries, is_fine = part == Part::fine, has_values = !by_query && is_fine;
  constexpr int panel_rows = panel_rows_of<Shape, padded>, columns = padded / 16;
  extern __shared__ __align__(128) unsigned char memory[];
  __shared__ Sources<S> sources;
  const int levels = problem.levels;
  const int stage_size = stage_bytes<Shape>(levels);
  const Tile<Shape> tile{memory + 2 * stage_size};
  const TileRange tiles = by_query ? query_tiles(problem) : key_tiles(problem);
  const auto [first, head, batch] = place_of_block(problem, tiles, by_query && problem.causal);
  const Window window = window_of(problem, batch);
  const std::int64_t length = window.keys;
  const std::int64_t sequence = batch * problem.heads + head;
  const T* weights = static_cast<const T*>(problem.weights) + head * levels;
  const T scale = T(problem.scale);
  const T* lse = static_cast<const T*>(problem.lse) + sequence * problem.queries - problem.start;
  const T* row_delta = delta + sequence * problem.queries - problem.start;
  const Array(&own)[max_levels] = by_query ? problem.q : problem.k;
  find_sources<by_query>(sources, problem, problem.grad_out, batch, head, window);

  const Jobs jobs = jobs_of<Shape, padded, side, part>(problem);
  const int other_offset = level_base(own_tokens, levels) * row_bytes;
  const auto start = [&](int job, std::int64_t other, unsigned char* stage) {
    if (job < jobs.scores)
      return copy_levels<Shape>(stage, sources, levels, first, other, job * depth<T>, problem.width, aligned);
    if (job < jobs.grads) {
      const int column = (job - jobs.scores) * depth<T>;
      copy_columns<Shape>(stage, sources.own_value, first, own_tokens, 0, column, problem.value_width, aligned);
      copy_columns<Shape>(stage + other_offset, sources.other_value, other, Shape::other_tokens, 0, column,
                          problem.value_width, aligned);
      return;
    }
    const Rows<S>* rows = &sources.other_value;
    int level = 0, begin = jobs.grads;
    if (job >= jobs.values) {
      begin = jobs.values;
#pragma unroll
      for (int l = 0; l + 1 < max_levels; ++l)
        if (job >= jobs.ends[l]) level = l + 1, begin = jobs.ends[l];
      rows = &sources.other[level];
    }
    copy_panel<Shape, padded>(stage, *rows, (other >> level) + (job - begin) * panel_rows,
                              min(panel_rows, rows_in_tile(Shape::other_tokens, level)),
                              job < jobs.values ? problem.value_width : problem.width, aligned);
  };

  T sums0[is_fine ? 4 : 1][columns] = {}, sums1[is_fine ? 2 : 1][columns] = {}, sums2[1][columns] = {};
  T sums_beyond[is_fine ? 1 : max_levels - 3][1][columns] = {};
  T value_sums[has_values ? 4 : 1][columns] = {};
  LevelScores<Shape> scores;
  T grads[4][Shape::columns] = {};

  // A tile of other tokens must not begin inside a row of the coarsest level.
  const int unit = levels > 7 ? Shape::other_tokens : own_tokens;
  const std::int64_t first_query = problem.causal ? max(first, problem.start) : problem.start;  // that sees these keys
  const std::int64_t begin = by_query ? 0 : first_query / unit * unit;
  const std::int64_t last_key = problem.causal ? min(length, first + own_tokens) : length;
  const std::int64_t end = by_query ? (first >= window.end ? 0 : last_key) : (first >= length ? 0 : window.end);
  int job = 0, stage_number = 0;
  std::int64_t other = begin;
  if (other < end) start(0, other, memory);
  while (other < end) {
    const bool is_last = job + 1 == jobs.count;
    const std::int64_t next = is_last ? other + Shape::other_tokens : other;
    unsigned char* stage = memory + stage_number * stage_size;
    stage_number ^= 1;
    cp_async_wait_all();
    __syncthreads();
    if (next < end) start(is_last ? 0 : job + 1, next, memory + stage_number * stage_size);

    if (job < jobs.scores) {
      scores.add(stage, levels, weights, scale);
    } else if (job < jobs.grads) {
      add_products<Shape>(grads, stage, stage + other_offset, 0);
      if (job + 1 == jobs.grads) {
        scores.combine(levels, weights, scale);
#pragma unroll
        for (int i = 0; i < 4; ++i)
#pragma unroll
          for (int j = 0; j < Shape::columns; ++j) {
            const std::int64_t a = first + 4 * thread_y() + i, b = other + Shape::columns * thread_x() + j;
            const std::int64_t query = by_query ? a : b, key = by_query ? b : a;
            const bool counts =
                query >= problem.start && query < window.end && key < length && !(problem.causal && key > query);
            const T p = counts ? natural_exp(scores.fine[i][j] - lse[query]) : T(0);
            grads[i][j] = counts ? p * (grads[i][j] - row_delta[query]) : T(0);
            scores.fine[i][j] = p;
          }
      }
    }
    if constexpr (has_values)
      if (job >= jobs.grads && job < jobs.values) {
        if (job == jobs.grads) tile.write(scores.fine);
        add_outer<Shape, padded>(value_sums, tile, (job - jobs.grads) * panel_rows, stage, panel_rows);
      }
    if constexpr (is_fine) {
      if (job >= jobs.values && job < jobs.ends[0]) {
        if (job == jobs.values) tile.write(grads);
        add_outer<Shape, padded>(sums0, tile, (job - jobs.values) * panel_rows, stage, panel_rows);
      }
      T pairs[2][Shape::columns / 2];
      if (job >= jobs.ends[0] && job < jobs.ends[1]) {
        pool(pairs, grads);
        if (job == jobs.ends[0]) tile.write(pairs);
        add_outer<Shape, padded>(sums1, tile, (job - jobs.ends[0]) * panel_rows, stage,
                                 min(panel_rows, Shape::other_tokens / 2));
      }
      if (job >= jobs.ends[1] && job < jobs.ends[2]) {
        T fours[1][Shape::columns / 4];
        pool(pairs, grads);
        pool(fours, pairs);
        if (job == jobs.ends[1]) tile.write(fours);
        add_outer<Shape, padded>(sums2, tile, (job - jobs.ends[1]) * panel_rows, stage,
                                 min(panel_rows, Shape::other_tokens / 4));
      }
    } else if (job >= jobs.values) {
      // All levels beyond 2 at the thread's own resolution: 16 cells of 4 × columns in a row.
      if (job == jobs.values) {
        T sum[1][1] = {};
#pragma unroll
        for (int i = 0; i < 4; ++i)
#pragma unroll
          for (int j = 0; j < Shape::columns; ++j) sum[0][0] += grads[i][j];
        tile.write(sum);
      }
#pragma unroll
      for (int level = 3; level < max_levels; ++level)
        if (job >= jobs.ends[level - 1] && job < jobs.ends[level])
          add_outer<Shape, padded>(sums_beyond[level - 3], tile, 0, stage, 16, level - (Shape::columns == 8 ? 3 : 2));
    }
    if (is_last) {
      scores = {};
#pragma unroll
      for (int i = 0; i < 4; ++i)
#pragma unroll
        for (int j = 0; j < Shape::columns; ++j) grads[i][j] = 0;
    }
    job = is_last ? 0 : job + 1;
    other = next;
  }

  cp_async_wait_all();
  const Array(&grad_own)[max_levels] = by_query ? problem.grad_q : problem.grad_k;
  const auto finish = [&](auto& sums, int level) {
    if (level >= levels) return;
    const int group = level > 2 ? min(16, 1 << (level - 2)) : 1;
    if constexpr (!is_fine) sum_groups<padded>(sums, reinterpret_cast<T*>(memory), group);
    const T dot = write_gradient<padded, std::extent_v<std::remove_reference_t<decltype(sums)>>, S>(
        sums, grad_own[level], own[level], batch, head, by_query ? head : key_head(problem, head), first >> level,
        by_query ? problem.start >> level : 0,
        level_rows(by_query ? problem.start + problem.queries : problem.length, level), group, problem.width,
        weights[level] * scale, level > 6);
    if constexpr (by_query) {
      const T total = sum_of_block<Shape::threads>(dot);
      const std::int64_t tile = sequence * tiles.count + first / own_tokens - tiles.first;
      if (threadIdx.x == 0) partials[tile * levels + level] = total * scale;
    }
  };
  if constexpr (is_fine) {
    finish(sums0, 0);
    finish(sums1, 1);
    finish(sums2, 2);
    if constexpr (has_values)
      write_gradient<padded, 4, S>(value_sums, problem.grad_v, problem.v, batch, head, key_head(problem, head), first,
                                   0, problem.length, 1, problem.value_width, T(1), false);
  } else {
#pragma unroll
    for (int level = 3; level < max_levels; ++level) finish(sums_beyond[level - 3], level);
  }
}

// Level 7 is added to, so it starts at zero.
template <class S>
__global__ void zero_kernel(const __grid_constant__ Array array, std::int64_t rows, int heads, int width,
                            std::int64_t count) {
  const std::int64_t i = std::int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= count) return;
  const std::int64_t column = i % width, row = i / width % rows, head = i / width / rows % heads;
  const std::int64_t batch = i / width / rows / heads;
  S* rows_begin = head_rows<S>(array, batch, head);
  rows_begin[row * array.row_stride + column] = static_cast<S>(0.0f);
}

template <class T>
__global__ void weights_kernel(const __grid_constant__ AttentionBackward problem, const T* partials,
                               std::int64_t tiles) {
  const int head = blockIdx.x, level = blockIdx.y;
  T sum = 0;
  for (std::int64_t i = threadIdx.x; i < problem.batch * tiles; i += small_threads)
    sum += partials[((i / tiles * problem.heads + head) * tiles + i % tiles) * problem.levels + level];
  sum = sum_of_block<small_threads>(sum);
  if (threadIdx.x == 0) static_cast<T*>(problem.grad_weights)[head * problem.levels + level] = sum;
}

template <class S, Part part, int padded>
void start_sides(const AttentionBackward& problem, const Device& device, const Arithmetic<S>* delta,
                 Arithmetic<S>* partials) {
  using Shape = BackwardShape<S>;
  const bool aligned = inputs_are_aligned(problem, lanes<S>) && is_aligned(problem.grad_out, lanes<S>);
  const auto start = [&](auto kernel, const TileRange& tiles) {
    launch(kernel, blocks_for(problem, tiles), Shape::threads, shared_bytes<Shape>(problem.levels), device.stream,
           problem, delta, partials, aligned);
  };
  start(backward_kernel<S, Side::queries, part, padded>, query_tiles(problem));
  start(backward_kernel<S, Side::keys, part, padded>, key_tiles(problem));
}

template <class S>
void start_backward(const AttentionBackward& problem, const Device& device, void* workspace) {
  using T = Arithmetic<S>;
  T* delta = static_cast<T*>(workspace);
  const std::int64_t rows = problem.batch * problem.heads * problem.queries;
  T* partials = delta + rows;
  const auto blocks_of = [](std::int64_t items) { return grid_of(ceil_divide<std::int64_t>(items, small_threads)); };
  launch(delta_kernel<S>, blocks_of(rows * 32), small_threads, 0, device.stream, problem, delta);
  if (constexpr int level = 7; problem.levels > level)
    for (const auto& [array, level_length] :
         {std::pair{problem.grad_q[level], kernels::query_rows(problem.start, problem.queries, level)},
          std::pair{problem.grad_k[level], level_rows(problem.length, level)}}) {
      const std::int64_t count = problem.batch * problem.heads * level_length * problem.width;
      launch(zero_kernel<S>, blocks_of(count), small_threads, 0, device.stream, array, level_length,
             static_cast<int>(problem.heads), problem.width, count);
    }
  const int width = std::max(problem.width, problem.value_width);
  for_width(width, [&](auto padded) { start_sides<S, Part::fine, padded>(problem, device, delta, partials); });
  if (problem.levels > 3) {
    if (width <= 128)
      start_sides<S, Part::coarse, 128>(problem, device, delta, partials);
    else
      start_sides<S, Part::coarse, 256>(problem, device, delta, partials);
  }
  launch(weights_kernel<T>, grid_of(problem.heads, problem.levels), small_threads, 0, device.stream, problem, partials,
         query_tiles(problem).count);
}

}  // namespace hkt::kernels::cuda::plain
