// SPDX-License-Identifier: Apache-2.0
// Backward on Hopper, its last kernel: the gradients of queries from query sums, which lie in the order of accumulators.
#include "common/backward_preprocess.h"
#include "common/launch.h"
#include "sm90/backward.h"

namespace hkt::kernels::cuda::sm90 {
namespace {

constexpr int finish_threads = 256;

struct FinishParameters {
  const float* sums;
  float* partials;
  const float* weights;
  Array inputs[max_levels];  // what the weights' gradient multiplies the sums by
  Array gradients[max_levels];
  float scale;
  int heads;
  int rows[max_levels];    // of the levels' queries
  int before[max_levels];  // rows of the first tile of queries that come before them
  int width;
  int levels;
  int tiles;
  int panels;
};

// Which tile and panel a CTA has. The first CTA has the last one: the L2 cache still has those sums.
struct FinishWork {
  int panel, tile, head, batch;
  std::int64_t place;  // of its sums among all
};

__device__ __forceinline__ FinishWork finish_work(const FinishParameters& p) {
  const unsigned place = gridDim.x - 1 - blockIdx.x;
  FinishWork work;
  work.place = place;
  work.panel = place % p.panels;
  const unsigned rest = place / p.panels;
  work.tile = rest % p.tiles;
  const unsigned sequence = rest / p.tiles;
  work.head = sequence % p.heads;
  work.batch = sequence / p.heads;
  return work;
}

// Sums in shared memory: four more after each 512, so that blocks of columns begin in different banks.
__device__ __forceinline__ int spaced(int index) { return index + index / 512 * 4; }

template <int size>
__device__ __forceinline__ void fetch(float* to, const float* sums, const FinishWork& work) {
  const float4* from = reinterpret_cast<const float4*>(sums + work.place * size);
  for (int i = threadIdx.x; i < size / 4; i += finish_threads)
    *reinterpret_cast<float4*>(to + spaced(4 * i)) = __ldg(from + i);
  __syncthreads();
}

// Eight columns of a row, of an accumulator whose rows are the array's: the place's row, columns 8 · chunk on.
__device__ __forceinline__ void read_row(float (&values)[8], const float* sums, int place, int chunk) {
  const int thread = place / 16 * 32 + place % 8 * 4;
#pragma unroll
  for (int i = 0; i < 8; ++i) values[i] = sums[spaced((chunk * 128 + thread + i / 2) * 4 + place / 8 % 2 * 2 + i % 2)];
}

// The same of an accumulator whose columns are the array's rows; it begins at `first`.
template <int columns>
__device__ __forceinline__ void read_column(float (&values)[8], const float* sums, int first, int place, int chunk) {
  const int thread = place / 8 * (2 * columns) + chunk / 2 * 32 + place / 2 % 4;
#pragma unroll
  for (int i = 0; i < 8; ++i) values[i] = sums[spaced(first + (thread + 4 * i) * 4 + chunk % 2 * 2 + place % 2)];
}

template <class T>
__device__ __forceinline__ T* chunk_of(const Array& array, const FinishWork& work, int row, int column) {
  return static_cast<T*>(array.data) + work.batch * array.batch_stride + work.head * array.head_stride +
         row * array.row_stride + column;
}

template <class T>
__device__ __forceinline__ void write_chunk(T* to, const float (&values)[8], float factor) {
  uint4 words;
  words.x = pack<T>(factor * values[0], factor * values[1]);
  words.y = pack<T>(factor * values[2], factor * values[3]);
  words.z = pack<T>(factor * values[4], factor * values[5]);
  words.w = pack<T>(factor * values[6], factor * values[7]);
  *reinterpret_cast<uint4*>(to) = words;
}

template <class T>
__device__ __forceinline__ float dot(const T* row, const float (&values)[8]) {
  const uint4 words = *reinterpret_cast<const uint4*>(row);
  const std::uint32_t pairs[4] = {words.x, words.y, words.z, words.w};
  float sum = 0;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const float2 pair = unpack<T>(pairs[i]);
    sum = fmaf(pair.x, values[2 * i], sum);
    sum = fmaf(pair.y, values[2 * i + 1], sum);
  }
  return sum;
}

__device__ __forceinline__ float weight(const FinishParameters& p, const FinishWork& work, int level) {
  return p.scale * p.weights[std::int64_t(work.head) * p.levels + level];
}

// The same of sums in natural order, which those of levels from 3 on are.
__device__ __forceinline__ void read_natural(float (&values)[8], const float* sums, int first) {
#pragma unroll
  for (int i = 0; i < 8; ++i) values[i] = sums[spaced(first + i)];
}

template <class T, int columns, bool coarse, bool deep>
__global__ void __launch_bounds__(finish_threads) query_gradients(const __grid_constant__ FinishParameters p) {
  constexpr int size = query_sums_size(columns, coarse, deep);
  constexpr int levels = deep ? max_levels : coarse ? 3 : 1;  // at most
  constexpr int chunks = columns / 8;
  __shared__ __align__(16) float sums[size + size / 512 * 4];
  __shared__ float warp_sums[levels][finish_threads / 32];
  const FinishWork work = finish_work(p);
  fetch<size>(sums, p.sums, work);
  float products[levels] = {};
#pragma unroll
  for (int level = 0; level < levels; ++level) {
    if (level >= p.levels) break;
    if (level == 7 && work.tile % 2 != 0) break;  // two tiles share a row, whose sums are the even one's
    const int places = level == 7 ? 1 : backward_queries >> level;
    const float factor = weight(p, work, level);
    for (int i = threadIdx.x; i < places * chunks; i += finish_threads) {
      const int place = i / chunks, chunk = i % chunks;
      // backward.h says which row lies in which place.
      const int in_tile = level == 0 ? place % 16 * 4 + place / 16 : level == 1 ? place % 16 * 2 + place / 16 : place;
      const int row = ((work.tile * backward_queries) >> level) + in_tile - p.before[level];
      const int column = work.panel * columns + chunk * 8;
      if (row < 0 || row >= p.rows[level] || column >= p.width) continue;
      float values[8];
      if (level == 0)
        read_row(values, sums, place, chunk);
      else if (level < 3)
        read_column<columns>(values, sums, first_sum_row(level) * columns, place, chunk);
      else
        read_natural(values, sums, (first_sum_row(level) + place) * columns + chunk * 8);
      write_chunk(chunk_of<T>(p.gradients[level], work, row, column), values, factor);
      products[level] += dot(chunk_of<const T>(p.inputs[level], work, row, column), values);
    }
  }
#pragma unroll
  for (int level = 0; level < levels; ++level) {
    for (int lanes = 16; lanes > 0; lanes /= 2) products[level] += __shfl_xor_sync(~0u, products[level], lanes);
    if (threadIdx.x % 32 == 0) warp_sums[level][threadIdx.x / 32] = products[level];
  }
  __syncthreads();
  if (threadIdx.x < p.levels) {
    float sum = 0;
    for (int i = 0; i < finish_threads / 32; ++i) sum += warp_sums[threadIdx.x][i];
    p.partials[work.place * p.levels + threadIdx.x] = p.scale * sum;
  }
}

template <class T, int columns>
void launch_query_gradients(const AttentionBackward& problem, const Device& device, const FinishParameters& p) {
  launch(p.levels > 3   ? query_gradients<T, columns, true, true>
         : p.levels > 1 ? query_gradients<T, columns, true, false>
                        : query_gradients<T, columns, false, false>,
         static_cast<unsigned>(problem.batch * problem.heads * p.tiles * p.panels), finish_threads, 0, device.stream,
         p);
}

template <class T>
void launch_query_gradients(const AttentionBackward& problem, const Device& device, const FinishParameters& p,
                            int columns) {
  if (columns == 32)
    launch_query_gradients<T, 32>(problem, device, p);
  else
    launch_query_gradients<T, 64>(problem, device, p);
}

}  // namespace

void finish_queries(const AttentionBackward& problem, const Device& device, const QuerySums& sums, float* partials) {
  FinishParameters p = {};
  p.weights = static_cast<const float*>(problem.weights);
  p.scale = static_cast<float>(problem.scale);
  p.heads = static_cast<int>(problem.heads);
  p.width = problem.width;
  p.levels = problem.levels;
  p.panels = sums.panels;
  p.sums = sums.sums;
  p.partials = partials;
  p.tiles = sums.query_tiles;
  for (int level = 0; level < problem.levels; ++level) {
    p.rows[level] = static_cast<int>(query_rows(problem.start, problem.queries, level));
    p.before[level] = static_cast<int>((problem.start >> level) - (first_tile_row(problem) >> level));
    p.inputs[level] = problem.q[level];
    p.gradients[level] = problem.grad_q[level];
  }
  if (problem.element == Element::bfloat16)
    launch_query_gradients<bfloat16>(problem, device, p, sums.columns);
  else
    launch_query_gradients<float16>(problem, device, p, sums.columns);
}

}  // namespace hkt::kernels::cuda::sm90
