// SPDX-License-Identifier: Apache-2.0
// A new token's rows: the chain of filters with a thread for each channel, and the places of queries, keys and values with a
// thread for each pair of neighbouring features. One launch for all levels and sequences.
#include "common/element.h"
#include "common/launch.h"
#include "kernels/decoding_rows.h"

namespace hkt::kernels::cuda {
namespace {

constexpr int threads = 128;

template <class T>
__device__ T* ring_row(const Ring& ring, std::int64_t sequence, std::int64_t row, std::int64_t channels) {
  return static_cast<T*>(ring.data) + (sequence * ring.places + row % ring.rows) * channels;
}

template <class T>
__global__ void __launch_bounds__(threads) new_rows_kernel(const __grid_constant__ NewRows p) {
  using Sum = Arithmetic<T>;
  const int channel = static_cast<int>(blockIdx.x) * threads + static_cast<int>(threadIdx.x);
  const auto b = static_cast<std::int64_t>(blockIdx.y);
  if (channel >= p.channels) return;
  T* out = static_cast<T*>(p.rows) + b * p.levels * p.channels + channel;
  T value = static_cast<const T*>(p.x)[b * p.channels + channel];
  *out = value;
  std::int64_t row = p.ends[b] - 1;
  bool is_new = row >= 0;
  for (int level = 0; level + 1 < p.levels; ++level) {
    if (is_new) ring_row<T>(p.inputs[level], b, row, p.channels)[channel] = value;
    is_new = is_new && row % 2 == 0;
    Sum sum = 0;
    if (is_new) {
      const T* filter = static_cast<const T*>(p.filters[level]) + channel;
      for (int tap = 0; tap < p.taps && tap <= row; ++tap)
        sum += static_cast<Sum>(ring_row<T>(p.inputs[level], b, row - tap, p.channels)[channel]) *
               static_cast<Sum>(filter[tap * p.channels]);
      row /= 2;
    }
    value = static_cast<T>(sum);
    out += p.channels;
    *out = value;
  }
}

template <class T>
struct alignas(2 * sizeof(T)) Pair {
  T first, second;
};

template <class T>
__device__ Pair<T> rotated(Pair<T> pair, const PlacedRows& p, std::int64_t position, int place) {
  using Number = Arithmetic<T>;
  if (p.rotations == nullptr) return pair;
  const Number* factor = static_cast<const Number*>(p.rotations) + (position * (p.width / 2) + place) * 2;
  const Number x = static_cast<Number>(pair.first), y = static_cast<Number>(pair.second);
  return {static_cast<T>(x * factor[0] - y * factor[1]), static_cast<T>(x * factor[1] + y * factor[0])};
}

template <class T>
__global__ void __launch_bounds__(threads) place_rows_kernel(const __grid_constant__ PlacedRows p) {
  const int half = p.width / 2, level_pairs = (p.heads + p.key_heads) * half;
  const int index = static_cast<int>(blockIdx.x) * threads + static_cast<int>(threadIdx.x);
  const auto b = static_cast<std::int64_t>(blockIdx.y);
  const std::int64_t t = p.ends[b] - 1;
  if (t < 0 || index >= p.levels * level_pairs + p.key_heads * half) return;
  const auto pairs = [&](const void* data) { return static_cast<const Pair<T>*>(data); };
  const auto places = [&](void* data) { return static_cast<Pair<T>*>(data); };
  const int place = index % half;
  if (index >= p.levels * level_pairs) {  // a pair of values
    const int head = (index - p.levels * level_pairs) / half;
    const auto row = (b * p.key_heads + head) * p.k_rows[0] + t;
    places(p.v)[row * half + place] = pairs(p.values)[(b * p.key_heads + head) * half + place];
    return;
  }
  const int level = index / level_pairs, head = index % level_pairs / half;
  const bool is_new = (t & ((std::int64_t{1} << level) - 1)) == 0, is_query = head < p.heads;
  if (!is_new && !is_query) return;
  const std::int64_t m = t >> level;
  Pair<T> pair{};
  if (is_new) {
    pair = rotated(pairs(p.rows)[(b * p.levels + level) * level_pairs + head * half + place], p, t, place);
  }
  if (!is_query) {
    const auto row = (b * p.key_heads + head - p.heads) * p.k_rows[level] + m;
    places(p.k[level])[row * half + place] = pair;
    return;
  }
  if (level > 0) {
    auto* kept = ring_row<Pair<T>>(p.queries[level], b, m, p.heads * half) + head * half + place;
    if (is_new)
      *kept = pair;
    else
      pair = *kept;
  }
  places(p.q)[((level * p.batch + b) * p.heads + head) * half + place] = pair;
}

template <class Function>
void with_element(Element element, const Function& function) {
  switch (element) {
    case Element::float32:
      return function(float());
    case Element::float64:
      return function(double());
    case Element::bfloat16:
      return function(bfloat16());
    case Element::float16:
      return function(float16());
  }
}

}  // namespace

void new_rows(const NewRows& problem, const Device& device) {
  const auto grid = grid_of(ceil_divide(problem.channels, threads), static_cast<unsigned>(problem.batch));
  with_element(problem.element,
               [&]<class T>(T) { launch(new_rows_kernel<T>, grid, threads, 0, device.stream, problem); });
}

void place_rows(const PlacedRows& problem, const Device& device) {
  const int pairs = (problem.levels * (problem.heads + problem.key_heads) + problem.key_heads) * problem.width / 2;
  const auto grid = grid_of(ceil_divide(pairs, threads), static_cast<unsigned>(problem.batch));
  with_element(problem.element,
               [&]<class T>(T) { launch(place_rows_kernel<T>, grid, threads, 0, device.stream, problem); });
}

}  // namespace hkt::kernels::cuda
