// The backward pass on Ampere's tensor cores. A block keeps a tile of keys and walks over the queries in steps of 64, eight
// warps side by side. The scores are transposed (keys are rows), so that each thread holds whole 2 × 2 cells of level 1 of
// the scores' gradient. Gradients of the queries are added up in float32 in the workspace; finish_kernel brings them home.
#pragma once

#include "../backward_common.h"
#include "plan.h"
#include "tile.h"

namespace hkt::kernels::cuda::sm80 {

// Float32 sums of grad_q of each level, [batch, heads, rows of the level, padded width], and where they begin.
struct QuerySums {
  float* data[max_levels];
};

__device__ __forceinline__ void add_pair(float* to, float x, float y) {
#if __CUDA_ARCH__ >= 900
  asm volatile("red.relaxed.gpu.global.add.v2.f32 [%0], {%1, %2};" ::"l"(to), "f"(x), "f"(y) : "memory");
#else
  atomicAdd(to, x);
  atomicAdd(to + 1, y);
#endif
}

// sums[m][n] += left · right: `left` 16·rows × 16·steps, fragments given by load_left(step, m, fragment); `right` holds the
// tokens of the inner dimension as rows: right_row(inner) of them, columns from 8·chunk on.
template <class T, int rows, int blocks, int steps, int width, class LoadLeft, class RightRow>
__device__ __forceinline__ void add_outer(float (&sums)[rows][blocks][4], const LoadLeft& load_left,
                                          Swizzled<width> right, const RightRow& right_token, int chunk) {
#pragma unroll
  for (int step = 0; step < steps; ++step) {
    std::uint32_t a[rows][4];
#pragma unroll
    for (int m = 0; m < rows; ++m) load_left(step, m, a[m]);
    const int token = right_token(16 * step + 8 * right_chunk() + right_row());
#pragma unroll
    for (int n = 0; n < blocks; n += 2) {
      std::uint32_t b[4];
      load_transposed(b, right.at(token, chunk + (blocks == 1 ? 0 : n + right_block())));
#pragma unroll
      for (int m = 0; m < rows; ++m) {
        multiply<T>(sums[m][n], a[m], b[0], b[1]);
        if constexpr (blocks > 1) multiply<T>(sums[m][n + 1], a[m], b[2], b[3]);
      }
    }
  }
}

template <class T, int width, int max_level_count>
__global__ void __launch_bounds__(backward_tile::threads)
    backward_kernel(const __grid_constant__ AttentionBackward problem, const float* lse, const float* delta,
                    const __grid_constant__ QuerySums query_sums, int* turns) {
  using namespace backward_tile;
  constexpr int n = keys<width>;
  constexpr int key_warps = n / 32, query_warps = 8 / key_warps, warp_queries = queries / query_warps;
  constexpr int blocks = warp_queries / 8;               // of a warp's scores
  constexpr int columns = width / query_warps;           // of a warp's part of grad_k and grad_v
  constexpr int column_blocks = columns / 8;
  constexpr int query_columns = width / 4;               // of a warp's part of grad_q
  constexpr int query_blocks = query_columns / 8;
  const int levels = max_level_count == 1 ? 1 : problem.levels;

  extern __shared__ __align__(1024) unsigned char memory[];
  const Swizzled<width> k{static_cast<std::uint32_t>(__cvta_generic_to_shared(memory))};
  const Swizzled<width> v = k.from_row(level_base(n, levels));
  const Swizzled<width> stages = v.from_row(n);
  const int stage_rows = level_base(queries, levels) + queries;
  const Swizzled<queries> p{stages.from_row(2 * stage_rows).base};          // [key][query]
  const Swizzled<queries> ds = p.from_row(n);                               // [key][query]
  const Swizzled<queries / 2> pooled{ds.from_row(n).base};                  // [key pair][query pair]
  const std::uint32_t row_values = pooled.from_row(n / 2).base;             // lse and delta of the two stages
  float* const row_data =
      reinterpret_cast<float*>(memory + (row_values - static_cast<std::uint32_t>(__cvta_generic_to_shared(memory))));

  const std::int64_t tiles = (problem.length + n - 1) / n;
  const std::int64_t head = blockIdx.x / tiles % problem.heads, batch = blockIdx.x / tiles / problem.heads;
  std::int64_t length = problem.length;
  if (problem.lengths) length = max(std::int64_t(0), min(length, problem.lengths[batch]));
  const Place place{static_cast<std::int64_t>(blockIdx.x) % tiles * n, head, batch, length};
  const std::int64_t sequence = batch * problem.heads + head;
  const std::int64_t padded = (problem.length + 127) / 128 * 128;
  const float* weights = static_cast<const float*>(problem.weights) + head * problem.levels;
  const float unit = static_cast<float>(problem.scale) * log2_e;

  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int key_warp = warp % key_warps, query_warp = warp / key_warps;
  const int row = 32 * key_warp + 2 * (lane / 4);  // key of the tile; + parity, + 16 for the fragment's second half
  const int column = query_warp * warp_queries + 2 * (lane % 4);

  float grad_v[2][column_blocks][4] = {}, grad_k[2][column_blocks][4] = {};
  float grad_coarse[max_level_count > 1 ? max_level_count - 1 : 1][1][column_blocks][4] = {};

  const auto copy_queries = [&](std::int64_t query, int stage) {
    const Swizzled<width> q = stages.from_row(stage * stage_rows);
    copy_levels<T, width, threads>(q, problem.q, place, query, problem.length, levels, queries, problem.width);
    copy_rows<T, width, threads>(q.from_row(level_base(queries, levels)), 0, rows_of<T>(problem.grad_out, place),
                                 problem.grad_out.row_stride, query, problem.length, queries, problem.value_width);
    if (threadIdx.x < 2 * queries / 4) {
      const int array = threadIdx.x / (queries / 4), four = threadIdx.x % (queries / 4);
      copy_16(row_values + stage * 2 * queries * 4 + (array * queries + 4 * four) * 4,
              (array ? delta : lse) + sequence * padded + query + 4 * four, true);
    }
    commit_copies();
  };

  const std::int64_t begin = problem.causal ? place.first / queries * queries : 0;
  const std::int64_t end = place.first < length ? length : 0;
  if (begin < end) {
    copy_levels<T, width, threads>(k, problem.k, place, place.first, problem.length, levels, n, problem.width);
    copy_rows<T, width, threads>(v, 0, rows_of<T>(problem.v, place), problem.v.row_stride, place.first, problem.length,
                                 n, problem.value_width);
    copy_queries(begin, 0);
  }
  int stage = 0;
  for (std::int64_t query = begin; query < end; query += queries, stage ^= 1) {
    wait_copies<0>();
    __syncthreads();
    if (query + queries < end) copy_queries(query + queries, stage ^ 1);
    const Swizzled<width> q = stages.from_row(stage * stage_rows);
    const Swizzled<width> grad_out = q.from_row(level_base(queries, levels));
    const float* row_lse = row_data + stage * 2 * queries;
    const float* row_delta = row_lse + queries;

    float coarse[(blocks + 1) / 2][4] = {}, scores[2][blocks][4] = {};
    if constexpr (max_level_count > 1)
      for (int level = levels - 1; level > 0; --level) {
        float sums[(blocks + 1) / 2][4] = {};
        add_coarse<T, width>(sums, k, level_base(n, level), 16 * key_warp, q, level_base(queries, level),
                             query_warp * warp_queries / 2, level);
        const float weight = weights[level] * unit;
#pragma unroll
        for (int b = 0; b < (blocks + 1) / 2; ++b)
#pragma unroll
          for (int i = 0; i < 4; ++i) coarse[b][i] += weight * sums[b][i];
      }
    add_fine<T, width>(scores, k, 32 * key_warp, q, query_warp * warp_queries);
    const float weight = weights[0] * unit;
    const bool masked = place.first + n > length || (problem.causal && place.first + n > query);
#pragma unroll
    for (int parity = 0; parity < 2; ++parity)
#pragma unroll
      for (int b = 0; b < blocks; ++b) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const int place_q = column + 8 * b + i % 2;
          float x = fmaf(scores[parity][b][i], weight, coarse_of(coarse, b, i / 2)) - row_lse[place_q];
          if (masked) {
            const std::int64_t key = place.first + row + parity + 16 * (i / 2);
            if (key >= length || (problem.causal && key > query + place_q)) x = -INFINITY;
          }
          scores[parity][b][i] = exp2_fast(x);
        }
#pragma unroll
        for (int half = 0; half < 2; ++half)
          asm volatile("st.shared.b32 [%0], %1;" ::"r"(p.at(row + parity + 16 * half,
                                                             query_warp * (warp_queries / 8) + b) +
                                                        4 * (lane % 4)),
                       "r"(pack<T>(scores[parity][b][2 * half], scores[parity][b][2 * half + 1]))
                       : "memory");
      }
    float grads[2][blocks][4] = {};
    add_fine<T, width>(grads, v, 32 * key_warp, grad_out, query_warp * warp_queries);
#pragma unroll
    for (int b = 0; b < blocks; ++b) {
      float sums[2] = {};
#pragma unroll
      for (int parity = 0; parity < 2; ++parity)
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          float pair[2];
#pragma unroll
          for (int i = 0; i < 2; ++i) {
            pair[i] = scores[parity][b][2 * half + i] *
                      (grads[parity][b][2 * half + i] - row_delta[column + 8 * b + i]);
            sums[half] += pair[i];
          }
          asm volatile("st.shared.b32 [%0], %1;" ::"r"(ds.at(row + parity + 16 * half,
                                                              query_warp * (warp_queries / 8) + b) +
                                                       4 * (lane % 4)),
                       "r"(pack<T>(pair[0], pair[1]))
                       : "memory");
        }
      if constexpr (max_level_count > 1) {
        const int pair_column = query_warp * (warp_queries / 2) + 4 * b + lane % 4;
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const std::uint32_t value = pack<T>(sums[half], 0);
          asm volatile("st.shared.b16 [%0], %1;" ::"r"(pooled.at(row / 2 + 8 * half, pair_column / 8) +
                                                       2 * (pair_column % 8)),
                       "h"(static_cast<unsigned short>(value))
                       : "memory");
        }
      }
    }
    __syncthreads();

    const auto natural = [](int token) { return token; };
    const auto left_of = [&](const auto& values, int first) {
      return [&values, first](int step, int m, std::uint32_t(&a)[4]) {
        load_matrices(a, values.at(first + 16 * m + left_row(), 2 * step + left_chunk()));
      };
    };
    add_outer<T, 2, column_blocks, queries / 16>(grad_v, left_of(p, 32 * key_warp), grad_out, natural,
                                                 query_warp * column_blocks);
    add_outer<T, 2, column_blocks, queries / 16>(grad_k, left_of(ds, 32 * key_warp), q, natural,
                                                 query_warp * column_blocks);
    if constexpr (max_level_count > 1) {
#pragma unroll
      for (int level = 1; level < max_level_count; ++level)
        if (level < levels)
          add_outer<T, 1, column_blocks, queries / 32>(
              grad_coarse[level - 1], left_of(pooled, 16 * key_warp), q,
              [level](int pair) { return level_base(queries, level) + (pair >> (level - 1)); },
              query_warp * column_blocks);
    }

    // grad_q: 4 warps side by side along the width, 2 along the queries.
    const int along = warp % 4, across = warp / 4;
    const auto turned = [&](const auto& values, int first) {  // values[key][query] as [query][key]
      return [&values, first](int step, int m, std::uint32_t(&a)[4]) {
        const int matrix = threadIdx.x % 32 / 8;
        load_transposed(a, values.at(16 * step + 8 * (matrix / 2) + right_row(), (first + 16 * m) / 8 + matrix % 2));
      };
    };
    const std::int64_t tile = query / queries;
    int* turn = turns + sequence * ((problem.length + queries - 1) / queries) + tile;
    if (turns) {  // equal bits: tiles of keys add in order
      if (threadIdx.x == 0)
        while (atomicAdd(turn, 0) != static_cast<int>(place.first / n)) __nanosleep(64);
      __syncthreads();
      __threadfence();
    }
    {
      float sums[2][query_blocks][4] = {};
      add_outer<T, 2, query_blocks, n / 16>(sums, turned(ds, 32 * across), k, natural, along * query_blocks);
      float* to = query_sums.data[0] + (sequence * problem.length + query + 32 * across) * width + along * query_columns;
#pragma unroll
      for (int m = 0; m < 2; ++m)
#pragma unroll
        for (int b = 0; b < query_blocks; ++b)
#pragma unroll
          for (int half = 0; half < 2; ++half) {
            const int r = 16 * m + lane / 4 + 8 * half;
            if (query + 32 * across + r < problem.length)
              add_pair(to + r * width + 8 * b + 2 * (lane % 4), sums[m][b][2 * half], sums[m][b][2 * half + 1]);
          }
    }
    if constexpr (max_level_count > 1)
      for (int level = 1; level < levels; ++level) {
        float sums[1][query_blocks][4] = {};
        add_outer<T, 1, query_blocks, n / 32>(
            sums, turned(pooled, 16 * across), k,
            [level](int pair) { return level_base(n, level) + (pair >> (level - 1)); }, along * query_blocks);
        // Rows of this level that lie in one warp are added up first, so that each address is met once, in order.
        const std::int64_t rows = level_length(problem.length, level);
        const int group = min(1 << (level - 1), 16);
#pragma unroll
        for (int b = 0; b < query_blocks; ++b)
#pragma unroll
          for (int i = 0; i < 4; ++i) {
            float& value = sums[0][b][i];
            if (group > 1) value += __shfl_xor_sync(~0u, value, 4);
            if (group > 2) value += __shfl_xor_sync(~0u, value, 8);
            if (group > 4) value += __shfl_xor_sync(~0u, value, 16);
          }
        if (group > 8) {
#pragma unroll
          for (int b = 0; b < query_blocks; ++b)
#pragma unroll
            for (int i = 0; i < 2; ++i) sums[0][b][i] += sums[0][b][i + 2];
        }
        const auto add_rows = [&] {
#pragma unroll
          for (int half = 0; half < 2; ++half) {
            const int pair = 16 * across + lane / 4 + 8 * half;
            const std::int64_t to_row = ((query / 2) + pair) >> (level - 1);
            if (pair % group || to_row >= rows) continue;
            float* to = query_sums.data[level] + (sequence * rows + to_row) * width + along * query_columns;
#pragma unroll
            for (int b = 0; b < query_blocks; ++b)
              add_pair(to + 8 * b + 2 * (lane % 4), sums[0][b][2 * half], sums[0][b][2 * half + 1]);
          }
        };
        // From level 6 on both halves of the warps have the same row, and must add to it in order.
        const bool takes_turns = turns && level >= 6;
        if (!takes_turns || across == 0) add_rows();
        if (takes_turns) {
          __threadfence();
          __syncthreads();
          if (across == 1) add_rows();
        }
      }
    if (turns) {
      __threadfence();
      __syncthreads();
      if (threadIdx.x == 0) atomicAdd(turn, 1);
    }
  }

  // grad_k of the coarse levels has the rows of level 1: those of coarser levels are added up in order.
  const auto store = [&](const Array& to, const auto& sums, float factor, int out_width) {
    T* result = static_cast<T*>(to.data) + batch * to.batch_stride + head * to.head_stride;
#pragma unroll
    for (int m = 0; m < 2; ++m)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const std::int64_t to_row = place.first + 32 * key_warp + 16 * m + 8 * half + lane / 4;
        if (to_row >= problem.length) continue;
#pragma unroll
        for (int b = 0; b < column_blocks; ++b) {
          const int c = query_warp * columns + 8 * b + 2 * (lane % 4);
          if (c < out_width)
            *reinterpret_cast<std::uint32_t*>(result + to_row * to.row_stride + c) =
                pack<T>(sums[m][b][2 * half] * factor, sums[m][b][2 * half + 1] * factor);
        }
      }
  };
  store(problem.grad_v, grad_v, 1.0f, problem.value_width);
  store(problem.grad_k[0], grad_k, weights[0] * static_cast<float>(problem.scale), problem.width);
  if constexpr (max_level_count > 1) {
    float(*scratch)[width] = reinterpret_cast<float(*)[width]>(memory);  // [n / 2][width], over k and v
#pragma unroll
    for (int level = 1; level < max_level_count; ++level) {
      if (level >= levels) break;
      wait_copies<0>();
      __syncthreads();
#pragma unroll
      for (int b = 0; b < column_blocks; ++b)
#pragma unroll
        for (int i = 0; i < 4; ++i)
          scratch[16 * key_warp + lane / 4 + 8 * (i / 2)][query_warp * columns + 8 * b + 2 * (lane % 4) + i % 2] =
              grad_coarse[level - 1][0][b][i];
      __syncthreads();
      const Array& to = problem.grad_k[level];
      T* result = static_cast<T*>(to.data) + batch * to.batch_stride + head * to.head_stride;
      const int group = 1 << (level - 1), count = n / 2 / group;
      const float factor = weights[level] * static_cast<float>(problem.scale);
      for (int i = threadIdx.x; i < count * (width / 2); i += threads) {
        const int r = i / (width / 2), c = i % (width / 2) * 2;
        const std::int64_t to_row = (place.first >> level) + r;
        if (to_row >= level_length(problem.length, level) || c >= problem.width) continue;
        float x = 0, y = 0;
        for (int j = 0; j < group; ++j) {
          x += scratch[r * group + j][c];
          y += scratch[r * group + j][c + 1];
        }
        *reinterpret_cast<std::uint32_t*>(result + to_row * to.row_stride + c) = pack<T>(x * factor, y * factor);
      }
    }
  }
}

// grad_q of one level from its sums, and its part of the weights' gradient: a warp for each row, 64 rows a block.
template <class T, int width>
__global__ void __launch_bounds__(256)
    finish_kernel(const __grid_constant__ AttentionBackward problem, const float* sums, float* partials, int level,
                  std::int64_t parts, std::int64_t level_parts) {
  __shared__ float dots[8];
  const std::int64_t rows = level_length(problem.length, level);
  const std::int64_t sequence = blockIdx.x / level_parts, part = blockIdx.x % level_parts;
  const std::int64_t head = sequence % problem.heads, batch = sequence / problem.heads;
  const Place place{0, head, batch, 0};
  const T* q = rows_of<T>(problem.q[level], place);
  const Array& to = problem.grad_q[level];
  T* result = static_cast<T*>(to.data) + batch * to.batch_stride + head * to.head_stride;
  const float scale = static_cast<float>(problem.scale);
  const float factor = static_cast<const float*>(problem.weights)[head * problem.levels + level] * scale;
  float dot = 0;
  for (int i = threadIdx.x; i < 64 * (width / 2); i += 256) {
    const std::int64_t row = part * 64 + i / (width / 2);
    const int column = i % (width / 2) * 2;
    if (row >= rows || column >= problem.width) continue;
    const float2 u = *reinterpret_cast<const float2*>(sums + (sequence * rows + row) * width + column);
    const float2 x = unpack<T>(*reinterpret_cast<const std::uint32_t*>(q + row * problem.q[level].row_stride + column));
    dot += u.x * x.x + u.y * x.y;
    *reinterpret_cast<std::uint32_t*>(result + row * to.row_stride + column) = pack<T>(u.x * factor, u.y * factor);
  }
  for (int offset = 16; offset > 0; offset /= 2) dot += __shfl_xor_sync(~0u, dot, offset);
  if (threadIdx.x % 32 == 0) dots[threadIdx.x / 32] = dot;
  __syncthreads();
  if (threadIdx.x != 0) return;
  float total = 0;
  for (const float value : dots) total += value;
  partials[(sequence * parts + part) * problem.levels + level] = total * scale;
}

template <class T, int width, int max_level_count>
void start_backward(const AttentionBackward& problem, const Device& device, void* workspace) {
  using namespace backward_tile;
  float* base = static_cast<float*>(workspace);
  const Workspace w = workspace_of(problem, width);
  const auto stream = static_cast<cudaStream_t>(device.stream);
  check(cudaMemsetAsync(base + w.sums[0], 0, (w.end - w.sums[0]) * sizeof(float), stream), "clearing the workspace");
  row_data(problem, device, base + w.lse, base + w.delta);
  QuerySums sums{};
  for (int level = 0; level < problem.levels; ++level) sums.data[level] = base + w.sums[level];
  const std::int64_t sequences = problem.batch * problem.heads;
  const std::int64_t blocks = sequences * ceil_divide<std::int64_t>(problem.length, keys<width>);
  launch(backward_kernel<T, width, max_level_count>, dim3(static_cast<unsigned>(blocks)), threads,
         shared_bytes<width>(problem.levels), device.stream, problem, base + w.lse, base + w.delta, sums,
         device.deterministic ? reinterpret_cast<int*>(base + w.turns) : nullptr);
  for (int level = 0; level < problem.levels; ++level) {
    const std::int64_t rows = ceil_divide<std::int64_t>(problem.length, std::int64_t(1) << level);
    const std::int64_t parts = ceil_divide<std::int64_t>(rows, 64);
    launch(finish_kernel<T, width>, dim3(static_cast<unsigned>(sequences * parts)), 256, 0, device.stream, problem,
           base + w.sums[level], base + w.partials, level, w.parts, parts);
  }
  sum_weight_gradient(problem, device, base + w.partials, static_cast<int>(w.parts));
}

}  // namespace hkt::kernels::cuda::sm80
