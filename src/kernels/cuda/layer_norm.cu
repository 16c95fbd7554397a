// SPDX-License-Identifier: Apache-2.0
// Layer norm at the speed of memory: a few lanes of a warp hold a row in registers and, while they work on it, already
// load the next one. Blocks stay and stride over the rows; each sums the gradients of weight and bias over its rows, and
// a second kernel adds these sums, always in the same order.
#include <algorithm>

#include "common/column_sums.h"
#include "common/element.h"
#include "common/launch.h"
#include "kernels/layer_norm.h"

namespace hkt::kernels::cuda {
namespace {

constexpr int warp = 32;
constexpr int threads = 256;
constexpr int warps = threads / warp;
constexpr int most_blocks = 2;  // resident on an SM

// How a row is spread: lane i of `lanes` holds columns 4 (v · lanes + i) to + 3 for each v < vectors. `whole`: the width
// is a multiple of 4 and every row is aligned, so that four columns are one access.
template <int lanes_, int vectors_, bool whole_>
struct Spread {
  static constexpr int lanes = lanes_, vectors = vectors_;
  static constexpr bool whole = whole_;
  static constexpr int width = 4 * lanes * vectors;
  static constexpr int rows = threads / lanes;  // that a block holds at a time
  // Long rows fill the registers: no place for a second block or for the next row.
  static constexpr bool ahead = vectors <= 4;
  static constexpr int blocks = ahead ? most_blocks : 1;

  static __device__ int column(int v) { return 4 * (v * lanes + static_cast<int>(threadIdx.x) % lanes); }
  // The row of this thread when its block starts; a block stops only when none of its rows is left, because all lanes of
  // a warp take part in sums.
  static __device__ std::int64_t first_row() {
    return static_cast<std::int64_t>(blockIdx.x) * rows + static_cast<int>(threadIdx.x) / lanes;
  }
  static __device__ bool block_has_rows(std::int64_t row, std::int64_t all) {
    return row - static_cast<int>(threadIdx.x) / lanes < all;
  }
  static __device__ std::int64_t step() { return static_cast<std::int64_t>(gridDim.x) * rows; }
};

// Four neighbours as they lie in memory.
template <class T>
struct Four;
template <>
struct alignas(16) Four<float> {
  float numbers[4] = {};

  Four() = default;
  __device__ explicit Four(const float (&from)[4]) : numbers{from[0], from[1], from[2], from[3]} {}
  __device__ float operator[](int i) const { return numbers[i]; }
};
template <>
struct alignas(8) Four<bfloat16> {
  std::uint32_t pairs[2] = {};

  Four() = default;
  __device__ explicit Four(const float (&from)[4])
      : pairs{pack<bfloat16>(from[0], from[1]), pack<bfloat16>(from[2], from[3])} {}
  __device__ float operator[](int i) const {
    const float2 pair = unpack<bfloat16>(pairs[i / 2]);
    return i % 2 == 0 ? pair.x : pair.y;
  }
};

// This lane's four columns number v of a row, zeros from column `width` on.
template <class S, class T>
__device__ __forceinline__ Four<T> load(const T* row, int v, int width) {
  const T* from = row + S::column(0) + 4 * S::lanes * v;  // one address and constant distances from it
  if constexpr (S::whole) {
    return S::column(v) < width ? *reinterpret_cast<const Four<T>*>(from) : Four<T>();
  } else {
    float numbers[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) numbers[i] = S::column(v) + i < width ? static_cast<float>(from[i]) : 0;
    return Four<T>(numbers);
  }
}

template <class S, class T>
__device__ __forceinline__ void store(T* row, int v, int width, const float (&numbers)[4]) {
  T* to = row + S::column(0) + 4 * S::lanes * v;
  if constexpr (S::whole) {
    if (S::column(v) < width) *reinterpret_cast<Four<T>*>(to) = Four<T>(numbers);
  } else {
#pragma unroll
    for (int i = 0; i < 4; ++i)
      if (S::column(v) + i < width) to[i] = static_cast<T>(numbers[i]);
  }
}

// Over lanes that differ in the bits from `from` to below `to`.
template <int from, int to>
__device__ __forceinline__ float sum_over_lanes(float x) {
#pragma unroll
  for (int offset = from; offset < to; offset *= 2) x += __shfl_xor_sync(~0u, x, offset);
  return x;
}

// The part of a row that a lane holds; zeros where there is no such row.
template <class S>
struct ForwardRow {
  Four<float> x[S::vectors];

  __device__ __forceinline__ void load_from(const LayerNorm& problem, std::int64_t row) {
    const int width = row < problem.rows ? problem.width : 0;
#pragma unroll
    for (int v = 0; v < S::vectors; ++v) x[v] = load<S>(problem.x + row * problem.width, v, width);
  }
};

template <class S, class T>
__global__ void __launch_bounds__(threads, S::blocks) forward_kernel(const __grid_constant__ LayerNorm problem) {
  const float share = 1.f / static_cast<float>(problem.width);
  Four<float> weight[S::vectors], bias[S::vectors];
#pragma unroll
  for (int v = 0; v < S::vectors; ++v) {
    weight[v] = load<S>(problem.weight, v, problem.width);
    bias[v] = load<S>(problem.bias, v, problem.width);
  }
  std::int64_t row = S::first_row();
  ForwardRow<S> next;
  next.load_from(problem, row);
  for (; S::block_has_rows(row, problem.rows); row += S::step()) {
    const ForwardRow<S> now = next;
    if constexpr (S::ahead) next.load_from(problem, row + S::step());

    float sum = 0;
#pragma unroll
    for (int v = 0; v < S::vectors; ++v)
#pragma unroll
      for (int i = 0; i < 4; ++i) sum += now.x[v][i];
    const float mean = sum_over_lanes<1, S::lanes>(sum) * share;
    float squares = 0;
#pragma unroll
    for (int v = 0; v < S::vectors; ++v)
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const bool inside = S::column(v) + (S::whole ? 0 : i) < problem.width;
        const float centred = inside ? now.x[v][i] - mean : 0;
        squares += centred * centred;
      }
    const float rstd = rsqrtf(sum_over_lanes<1, S::lanes>(squares) * share + problem.epsilon);

    if (row < problem.rows) {
      T* y = static_cast<T*>(problem.y) + row * problem.width;
#pragma unroll
      for (int v = 0; v < S::vectors; ++v) {
        float numbers[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) numbers[i] = (now.x[v][i] - mean) * rstd * weight[v][i] + bias[v][i];
        store<S>(y, v, problem.width, numbers);
      }
      if (threadIdx.x % S::lanes == 0) {
        problem.mean[row] = mean;
        problem.rstd[row] = rstd;
      }
    }
    if constexpr (!S::ahead) next.load_from(problem, row + S::step());
  }
}

// A row that is not there has gradient zero, and so adds nothing to any sum.
template <class S, class T>
struct BackwardRow {
  Four<float> x[S::vectors];
  Four<T> grad[S::vectors];
  float mean, rstd;

  __device__ __forceinline__ void load_from(const LayerNormBackward& problem, std::int64_t row) {
    const bool there = row < problem.rows;
    const int width = there ? problem.width : 0;
    mean = there ? problem.mean[row] : 0;
    rstd = there ? problem.rstd[row] : 0;
#pragma unroll
    for (int v = 0; v < S::vectors; ++v) {
      x[v] = load<S>(problem.x + row * problem.width, v, width);
      grad[v] = load<S>(static_cast<const T*>(problem.grad_y) + row * problem.width, v, width);
    }
  }
};

// sums[c] = Σ over the block's threads of what they hold for column c.
template <class S>
__device__ void sum_over_block(float (&mine)[S::vectors][4], float (&shared)[warps][S::width], int width, float* sums) {
  const int lane = threadIdx.x % warp;
  __syncthreads();  // whoever read `shared` before is done
#pragma unroll
  for (int v = 0; v < S::vectors; ++v)
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float sum = sum_over_lanes<S::lanes, warp>(mine[v][i]);
      if (lane < S::lanes) shared[threadIdx.x / warp][S::column(v) + i] = sum;
    }
  __syncthreads();
  for (int column = threadIdx.x; column < width; column += threads) {
    float sum = 0;
#pragma unroll
    for (int w = 0; w < warps; ++w) sum += shared[w][column];
    sums[column] = sum;
  }
}

// partials: [blocks, 2, width], what each block's rows add to the gradients of weight and bias.
template <class S, class T>
__global__ void __launch_bounds__(threads, S::blocks)
    backward_kernel(const __grid_constant__ LayerNormBackward problem, float* partials) {
  __shared__ float shared[warps][S::width];
  __shared__ alignas(16) float weights[S::width];
  const float share = 1.f / static_cast<float>(problem.width);
  float grad_weight[S::vectors][4] = {}, grad_bias[S::vectors][4] = {};
  for (int column = threadIdx.x; column < S::width; column += threads)
    weights[column] = column < problem.width ? problem.weight[column] : 0;
  __syncthreads();

  std::int64_t row = S::first_row();
  BackwardRow<S, T> next;
  next.load_from(problem, row);
  for (; S::block_has_rows(row, problem.rows); row += S::step()) {
    const BackwardRow<S, T> now = next;
    if constexpr (S::ahead) next.load_from(problem, row + S::step());

    __syncwarp();  // for the compiler, which would keep all weights in registers otherwise and have too few for the rest

    // With g = grad_y · weight: grad_x = rstd · (g − Σ g / width − normed · Σ (g · normed) / width).
    float g[S::vectors][4], normed[S::vectors][4];
    float sum = 0, product = 0;
#pragma unroll
    for (int v = 0; v < S::vectors; ++v) {
      const auto& weight = *reinterpret_cast<const Four<float>*>(weights + S::column(v));
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float grad = now.grad[v][i];
        normed[v][i] = (now.x[v][i] - now.mean) * now.rstd;
        g[v][i] = grad * weight[i];
        grad_weight[v][i] += grad * normed[v][i];
        grad_bias[v][i] += grad;
        sum += g[v][i];
        product += g[v][i] * normed[v][i];
      }
    }
    sum = sum_over_lanes<1, S::lanes>(sum) * share;
    product = sum_over_lanes<1, S::lanes>(product) * share;
    if (row < problem.rows) {
      float* grad_x = problem.grad_x + row * problem.width;
#pragma unroll
      for (int v = 0; v < S::vectors; ++v) {
        float numbers[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) numbers[i] = now.rstd * (g[v][i] - sum - normed[v][i] * product);
        store<S>(grad_x, v, problem.width, numbers);
      }
    }
    if constexpr (!S::ahead) next.load_from(problem, row + S::step());
  }
  float* mine = partials + static_cast<std::int64_t>(blockIdx.x) * 2 * problem.width;
  sum_over_block<S>(grad_weight, shared, problem.width, mine);
  sum_over_block<S>(grad_bias, shared, problem.width, mine + problem.width);
}

__global__ void __launch_bounds__(column_sum_threads)
    sum_kernel(const __grid_constant__ LayerNormBackward problem, const float* partials, int parts) {
  const auto [column, is_mine, sum] = column_sum(partials, parts, 2 * problem.width);
  if (!is_mine) return;
  (column < problem.width ? problem.grad_weight[column] : problem.grad_bias[column - problem.width]) = sum;
}

template <class... Pointers>
bool aligned(const Pointers*... pointers) {
  return ((reinterpret_cast<std::uintptr_t>(pointers) % 16 == 0) && ...);
}

// Calls function(Spread) with the one for rows of this width.
template <class Function>
void with_spread(int width, bool is_aligned, Function function) {
  if (width < 1 || width > max_norm_width)
    throw std::runtime_error("hkt: layer norm of width " + std::to_string(width));
  if (width % 4 != 0 || !is_aligned) return function(Spread<32, 8, false>());
  if (width <= 32) return function(Spread<4, 2, true>());
  if (width <= 64) return function(Spread<4, 4, true>());
  if (width <= 128) return function(Spread<8, 4, true>());
  if (width <= 256) return function(Spread<16, 4, true>());
  if (width <= 512) return function(Spread<32, 4, true>());
  return function(Spread<32, 8, true>());
}

// At least one, which writes the gradients of weight and bias where there are no rows.
template <class S>
int blocks_for(const LayerNorm& problem, const Device& device) {
  const auto most = static_cast<std::int64_t>(device.sm_count) * S::blocks;
  return static_cast<int>(std::clamp<std::int64_t>(ceil_divide<std::int64_t>(problem.rows, S::rows), 1, most));
}

}  // namespace

std::int64_t workspace_bytes(const LayerNormBackward& problem, const Device& device) {
  const std::int64_t row_bytes = 2 * problem.width * static_cast<std::int64_t>(sizeof(float));
  return row_bytes * device.sm_count * most_blocks;
}

void layer_norm_forward(const LayerNorm& problem, const Device& device) {
  if (problem.rows == 0) return;
  const bool is_aligned = aligned(problem.x, problem.weight, problem.bias, static_cast<const char*>(problem.y));
  with_spread(problem.width, is_aligned, [&]<class S>(S) {
    launch(problem.element == Element::bfloat16 ? forward_kernel<S, bfloat16> : forward_kernel<S, float>,
           blocks_for<S>(problem, device), threads, 0, device.stream, problem);
  });
}

void layer_norm_backward(const LayerNormBackward& problem, const Device& device, void* workspace) {
  auto* partials = static_cast<float*>(workspace);
  const bool is_aligned = aligned(problem.x, problem.weight, static_cast<const char*>(problem.grad_y), problem.grad_x);
  with_spread(problem.width, is_aligned, [&]<class S>(S) {
    const int blocks = blocks_for<S>(problem, device);
    launch(problem.element == Element::bfloat16 ? backward_kernel<S, bfloat16> : backward_kernel<S, float>, blocks,
           threads, 0, device.stream, problem, partials);
    launch(sum_kernel, ceil_divide(2 * problem.width, column_sum_columns), column_sum_threads, 0, device.stream,
           problem, partials, blocks);
  });
}

}  // namespace hkt::kernels::cuda
