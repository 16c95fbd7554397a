// SPDX-License-Identifier: Apache-2.0
// The shapes that every implementation of hkt::attention is tested on, and inputs for them.
#pragma once

#include <ATen/ATen.h>
#include <torch/utils.h>

#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "hkt/ops.h"

namespace hkt::testing {

// Of q, k and v in memory. With far_rows 128 rows span 2³¹ elements, of which only the used ones are touched.
enum class Layout { heads_first, heads_inside, padded_rows, transposed_rows, far_rows };

struct AttentionCase {
  int64_t batch, heads, length, width, value_width, levels;
  bool causal = false;
  bool with_lengths = false;
  Layout layout = Layout::heads_first;
  int64_t group = 1;     // heads of queries for each head of keys
  int64_t start = 0;     // the position of the first query
  int64_t queries = -1;  // −1: as many as there are keys

  int64_t query_count() const { return queries < 0 ? length - start : queries; }
};

inline std::ostream& operator<<(std::ostream& out, const AttentionCase& c) {
  static const char* layouts[] = {"[B,H,T,D]", "[B,T,H,D]", "padded rows", "transposed rows", "far rows"};
  return out << "B=" << c.batch << " H=" << c.heads << " T=" << c.length << " D=" << c.width << " Dv=" << c.value_width
             << " L=" << c.levels << (c.causal ? " causal" : " full") << (c.with_lengths ? " lengths " : " ")
             << layouts[static_cast<int>(c.layout)] << " group=" << c.group << " start=" << c.start
             << " n=" << c.query_count();
}

// One of `count` choices for part `part` of case `number`, scattered, so that no two parts go in step.
inline int64_t choice(size_t number, size_t part, size_t count) {
  uint64_t mixed = (number * 64 + part + 1) * 0x9e3779b97f4a7c15ULL;
  mixed = (mixed ^ mixed >> 30) * 0xbf58476d1ce4e5b9ULL;
  mixed = (mixed ^ mixed >> 27) * 0x94d049bb133111ebULL;
  return static_cast<int64_t>((mixed ^ mixed >> 31) % count);
}

// Every length at which something changes: nothing, one, around vectors, tiles and blocks; each with both masks, with and
// without lengths, and widths, levels and layouts varied with the number of the case.
inline std::vector<AttentionCase> attention_cases() {
  const std::vector<int64_t> lengths = {0,  1,   2,   3,   5,   7,   15,  16,  17,  31,  33,  48,  63,  64,  65, 95,
                                        97, 127, 130, 191, 193, 255, 256, 257, 287, 300, 389, 511, 513, 601, 771};
  const std::vector<std::pair<int64_t, int64_t>> widths = {{32, 32}, {64, 64}, {1, 1},   {17, 5},  {128, 128},
                                                           {8, 72},  {40, 24}, {3, 130}, {96, 16}, {256, 256}};
  std::vector<AttentionCase> cases;
  size_t number = 0;
  for (const int64_t length : lengths)
    for (const bool causal : {false, true})
      for (const bool with_lengths : {false, true}) {
        const auto [width, value_width] = widths[number % widths.size()];
        const int64_t levels = number % 3 == 0 ? 3 : 1 + static_cast<int64_t>(number / 3 % 8);
        cases.push_back({1 + static_cast<int64_t>(number % 3), 1 + static_cast<int64_t>(number / 2 % 3), length, width,
                         value_width, levels, causal, with_lengths, static_cast<Layout>(number % 4)});
        ++number;
      }
  return cases;
}

// Queries anywhere and shared heads: starts of every remainder, around tiles and at the end; windows of one row and of many.
inline std::vector<AttentionCase> window_cases(const std::vector<int64_t>& widths) {
  std::vector<AttentionCase> cases;
  size_t number = 0;
  for (const int64_t length : {1, 9, 70, 300, 643})
    for (const int64_t start : {0, 1, 2, 3, 5, 63, 64, 100, 127, 129, 255, 256, 642}) {
      if (start >= length) continue;
      for (const int64_t queries : {int64_t{1}, int64_t{2}, int64_t{37}, int64_t{130}, length - start}) {
        if (start + queries > length) continue;
        const int64_t width = widths[number % widths.size()];
        const int64_t value_width = choice(number, 0, 3) > 0 ? width : widths[choice(number, 1, widths.size())];
        const int64_t levels = choice(number, 2, 3) == 0 ? 3 : 1 + choice(number, 3, 8);
        cases.push_back({2, 1 + choice(number, 4, 2), length, width, value_width, levels, choice(number, 5, 5) < 3,
                         choice(number, 6, 7) < 2, choice(number, 7, 2) ? Layout::heads_first : Layout::heads_inside,
                         1 + choice(number, 8, 4), start, queries});
        ++number;
      }
    }
  cases.push_back({2, 2, 30, 8, 8, 3, true, false, Layout::heads_first, 2, 7, 0});
  return cases;
}

// Shapes that the tensor-core kernels take, around the edges of their tiles.
inline std::vector<AttentionCase> tensor_core_cases() {
  std::vector<AttentionCase> cases;
  size_t number = 0;
  for (const int64_t width : {32, 64, 128, 40, 96})
    for (const int64_t length : {1, 3, 64, 100, 128, 129, 255, 256, 257, 383, 640, 1000})
      for (const bool causal : {false, true})
        for (const bool with_lengths : {false, true}) {
          const int64_t levels = number % 2 == 0 ? 3 : 1 + static_cast<int64_t>(number / 2 % 8);
          cases.push_back({2, 3, length, width, width, levels, causal, with_lengths,
                           number % 3 == 0 ? Layout::heads_first : Layout::heads_inside});
          ++number;
        }
  return cases;
}

// More levels than three, each with both masks, with and without lengths, around the edges of tiles and of coarse rows.
inline std::vector<AttentionCase> deep_cases() {
  std::vector<AttentionCase> cases;
  size_t number = 0;
  for (const int64_t width : {32, 64, 128, 24, 96})
    for (const int64_t length : {5, 63, 129, 264, 385, 643, 1023})
      for (const bool causal : {false, true})
        for (const int64_t levels : {4, 5, 8}) {
          const bool with_lengths = number % 4 >= 2;
          cases.push_back({2, 3, length, width, width, levels + static_cast<int64_t>(levels == 5 ? number / 3 % 3 : 0),
                           causal, with_lengths, number % 5 < 2 ? Layout::heads_first : Layout::heads_inside});
          ++number;
        }
  return cases;
}

struct AttentionInputs {
  std::vector<at::Tensor> q, k;
  at::Tensor v, weights;
  std::optional<at::Tensor> lengths;
  int64_t start = 0;

  std::vector<at::Tensor> all() const {
    std::vector<at::Tensor> tensors(q);
    tensors.insert(tensors.end(), k.begin(), k.end());
    tensors.push_back(v);
    tensors.push_back(weights);
    return tensors;
  }
  std::string name(size_t index) const {
    if (index < q.size()) return "q[" + std::to_string(index) + "]";
    if (index < 2 * q.size()) return "k[" + std::to_string(index - q.size()) + "]";
    return index == 2 * q.size() ? "v" : "weights";
  }
  // The same values in another type, as fresh leaves in the same layout.
  AttentionInputs to(at::ScalarType type) const {
    const auto leaf = [](const at::Tensor& tensor, at::ScalarType to) {
      return tensor.detach().to(to, /*non_blocking=*/false, /*copy=*/true).requires_grad_();
    };
    AttentionInputs other{{},      {},   leaf(v, type), leaf(weights, type == at::kDouble ? at::kDouble : at::kFloat),
                          lengths, start};
    for (const auto& tensor : q) other.q.push_back(leaf(tensor, type));
    for (const auto& tensor : k) other.k.push_back(leaf(tensor, type));
    return other;
  }
};

inline at::Tensor random_in_layout(const AttentionCase& c, int64_t heads, int64_t rows, int64_t width,
                                   at::TensorOptions options) {
  switch (c.layout) {
    case Layout::heads_first:
      return at::randn({c.batch, heads, rows, width}, options);
    case Layout::heads_inside:
      return at::randn({c.batch, rows, heads, width}, options).transpose(1, 2);
    case Layout::padded_rows:
      return at::randn({c.batch, heads, rows, width + 3}, options).narrow(3, 1, width);
    case Layout::transposed_rows:
      return at::randn({c.batch, heads, width, rows}, options).transpose(2, 3);
    case Layout::far_rows:
      return at::empty({c.batch, heads, rows, int64_t{1} << 24}, options).narrow(3, 0, width).normal_();
  }
  return {};
}

// Rows of a level of queries from `start` on.
inline int64_t query_level_rows(int64_t start, int64_t queries, int64_t level) {
  return level_rows(start + queries, level) - (start >> level);
}

// Fresh random inputs from a seed; c.heads counts those of the keys. Lengths always hold a zero or a full sequence where the batch has room.
inline AttentionInputs make_inputs(const AttentionCase& c, at::ScalarType type, int64_t seed,
                                   at::Device device = at::kCPU) {
  torch::manual_seed(seed);
  const auto options = at::TensorOptions(type).device(device);
  AttentionInputs inputs;
  for (int64_t level = 0; level < c.levels; ++level) {
    const int64_t rows = query_level_rows(c.start, c.query_count(), level);
    inputs.q.push_back(random_in_layout(c, c.heads * c.group, rows, c.width, options).requires_grad_());
    inputs.k.push_back(random_in_layout(c, c.heads, level_rows(c.length, level), c.width, options).requires_grad_());
  }
  inputs.start = c.start;
  inputs.v = random_in_layout(c, c.heads, c.length, c.value_width, options).requires_grad_();
  const auto weight_type = type == at::kDouble ? at::kDouble : at::kFloat;
  inputs.weights =
      at::softmax(at::randn({c.heads * c.group, c.levels}, options.dtype(weight_type)), 1).detach().requires_grad_();
  if (c.with_lengths) {
    auto lengths = at::randint(c.length + 1, {c.batch}, at::kLong);
    if (c.batch > 1) lengths[0] = seed % 2 ? 0 : c.length;
    inputs.lengths = lengths.to(device);
  }
  return inputs;
}

}  // namespace hkt::testing
