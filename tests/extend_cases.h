// SPDX-License-Identifier: Apache-2.0
// Cases of hkt::attention_extend and hkt::decode, and inputs for them: caches in which everything that does not count is NaN.
#pragma once

#include <ATen/ATen.h>
#include <torch/utils.h>

#include <limits>
#include <ostream>
#include <vector>

#include "attention_cases.h"

namespace hkt::testing {

struct ExtendCase {
  std::vector<int64_t> ends;
  int64_t key_heads, group, queries, width, value_width, levels;
  int64_t spare = 0;  // positions that the caches have room for beyond the longest sequence
  bool heads_inside = false;
};

inline std::ostream& operator<<(std::ostream& out, const ExtendCase& c) {
  out << "ends=" << c.ends << " Hk=" << c.key_heads << " group=" << c.group << " n=" << c.queries << " D=" << c.width
      << " Dv=" << c.value_width << " L=" << c.levels << " spare=" << c.spare;
  return out << (c.heads_inside ? " [B,T,H,D]" : " [B,H,T,D]");
}

// Lengths of every phase around chunks of keys, mixed in a batch with short, empty and full ones; one query and many, groups,
// widths, levels and capacities varied with the number of the case.
inline std::vector<ExtendCase> extend_cases(const std::vector<std::pair<int64_t, int64_t>>& widths) {
  const std::vector<std::vector<int64_t>> batches = {
      {1},          {0, 2, 7},  {16, 3, 1}, {33, 64, 5}, {100, 101, 102, 103, 104}, {127, 128, 129}, {255, 256, 257},
      {300, 0, 17}, {511, 513}, {700, 1}};
  std::vector<ExtendCase> cases;
  size_t number = 0;
  for (const auto& ends : batches)
    for (const int64_t queries : {1, 2, 3, 8, 17, 64}) {
      const auto [width, value_width] = widths[number % widths.size()];
      const int64_t levels = choice(number, 0, 2) == 0 ? 3 : 1 + choice(number, 1, 8);
      cases.push_back({ends, 1 + choice(number, 2, 3), int64_t{1} << choice(number, 3, 4), queries, width, value_width,
                       levels, choice(number, 4, 3) * 37, choice(number, 5, 2) == 1});
      ++number;
    }
  return cases;
}

// All positions of some sequences, and the window that a call of hkt::attention_extend gets of them.
struct ExtendInputs {
  std::vector<at::Tensor> q, k;
  at::Tensor v, weights, ends;

  ExtendInputs to(at::ScalarType type) const {
    ExtendInputs other{{}, {}, v.to(type), weights.to(type == at::kDouble ? at::kDouble : at::kFloat), ends};
    for (const auto& level : q) other.q.push_back(level.to(type));
    for (const auto& level : k) other.k.push_back(level.to(type));
    return other;
  }
  // One sequence by itself.
  ExtendInputs sequence(int64_t index) const {
    ExtendInputs other{{}, {}, v.narrow(0, index, 1), weights, ends.narrow(0, index, 1)};
    for (const auto& level : q) other.q.push_back(level.narrow(0, index, 1));
    for (const auto& level : k) other.k.push_back(level.narrow(0, index, 1));
    return other;
  }
};

// Fresh random inputs from a seed.
inline ExtendInputs make_extend_inputs(const ExtendCase& c, at::ScalarType type, int64_t seed,
                                       at::Device device = at::kCPU) {
  torch::manual_seed(seed);
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const auto options = at::TensorOptions(at::kDouble);
  const auto batch = static_cast<int64_t>(c.ends.size());
  const int64_t capacity = *std::max_element(c.ends.begin(), c.ends.end()) + c.spare;
  const auto garbage = [&](int64_t heads, int64_t rows, int64_t width) {
    return c.heads_inside ? at::full({batch, rows, heads, width}, nan, options).transpose(1, 2)
                          : at::full({batch, heads, rows, width}, nan, options);
  };
  const auto fill = [&](const at::Tensor& rows, int64_t sequence, int64_t first, int64_t end) {
    if (end > first) rows[sequence].narrow(1, first, end - first).normal_();
  };
  ExtendInputs inputs;
  for (int64_t level = 0; level < c.levels; ++level) {
    const int64_t query_rows = ((c.queries + (int64_t{1} << level) - 2) >> level) + 1;
    inputs.q.push_back(garbage(c.key_heads * c.group, level == 0 ? c.queries : query_rows, c.width));
    inputs.k.push_back(garbage(c.key_heads, level_rows(capacity, level) + (level + seed) % 2, c.width));
    for (int64_t sequence = 0; sequence < batch; ++sequence) {
      const int64_t end = c.ends[sequence], first = end - c.queries;
      fill(inputs.q[level], sequence, (std::max<int64_t>(first, 0) >> level) - (first >> level),
           end == 0 ? 0 : ((end - 1) >> level) - (first >> level) + 1);
      fill(inputs.k[level], sequence, 0, level_rows(end, level));
    }
  }
  inputs.v = garbage(c.key_heads, capacity, c.value_width);
  for (int64_t sequence = 0; sequence < batch; ++sequence) fill(inputs.v, sequence, 0, c.ends[sequence]);
  inputs.weights = at::softmax(at::randn({c.key_heads * c.group, c.levels}, options), 1);
  inputs.ends = at::tensor(c.ends, at::kLong);
  inputs = inputs.to(type);
  for (auto* levels : {&inputs.q, &inputs.k})
    for (auto& level : *levels) level = level.to(device);
  inputs.v = inputs.v.to(device);
  inputs.weights = inputs.weights.to(device);
  inputs.ends = inputs.ends.to(device);
  return inputs;
}

// Sequences that grow token by token: all their rows are known, and the caches have those that have arrived.
struct GrowingSequences {
  AttentionInputs all;
  ExtendInputs caches;
  std::vector<at::Tensor> coarse;
  int64_t levels;

  GrowingSequences(int64_t batch, int64_t key_heads, int64_t group, int64_t length, int64_t width, int64_t levels,
                   at::ScalarType type, at::Device device = at::kCPU)
      : levels(levels) {
    const at::NoGradGuard no_grad;
    all = make_inputs({batch, key_heads, length, width, width, levels, true, false, Layout::heads_first, group}, type,
                      7, device);
    const double nan = std::numeric_limits<double>::quiet_NaN();
    caches.weights = all.weights.detach();
    caches.v = at::full_like(all.v.detach(), nan);
    caches.ends = at::zeros({batch}, at::TensorOptions(at::kLong).device(device));
    for (int64_t level = 0; level < levels; ++level) {
      caches.k.push_back(at::full_like(all.k[level].detach(), nan));
      if (level > 0)
        coarse.push_back(
            at::full({batch, key_heads * group, level_rows(length, level)}, nan, caches.weights.options()));
    }
  }
  // Sequence b gets its next `count` positions; they are the next call's queries.
  void append(const std::vector<int64_t>& counts, int64_t queries) {
    const at::NoGradGuard no_grad;
    std::vector<int64_t> ends;
    for (int64_t b = 0; b < caches.v.size(0); ++b) {
      const int64_t first = caches.ends[b].item<int64_t>(), end = first + counts[b];
      caches.v[b].narrow(1, first, end - first).copy_(all.v[b].narrow(1, first, end - first));
      for (int64_t level = 0; level < levels; ++level) {
        const int64_t begin = level_rows(first, level), rows = level_rows(end, level) - begin;
        caches.k[level][b].narrow(1, begin, rows).copy_(all.k[level][b].narrow(1, begin, rows));
      }
      ends.push_back(end);
    }
    caches.ends.copy_(at::tensor(ends, at::kLong));
    caches.q.clear();
    for (int64_t level = 0; level < levels; ++level) {
      const int64_t rows = level == 0 ? queries : ((queries + (int64_t{1} << level) - 2) >> level) + 1;
      auto window = at::full({caches.v.size(0), all.q[0].size(1), rows, all.q[0].size(3)},
                             std::numeric_limits<double>::quiet_NaN(), all.v.options());
      for (int64_t b = 0; b < caches.v.size(0); ++b) {
        const int64_t origin = (ends[b] - queries) >> level, first = std::max<int64_t>(ends[b] - queries, 0) >> level;
        const int64_t count = ((ends[b] - 1) >> level) + 1 - first;
        if (ends[b] == 0) continue;
        window[b].narrow(1, first - origin, count).copy_(all.q[level][b].narrow(1, first, count));
      }
      caches.q.push_back(window);
    }
  }
  // The positions from `ends` on are taken back.
  void truncate(const std::vector<int64_t>& ends) { caches.ends.copy_(at::tensor(ends, at::kLong)); }
};

// Values of more than 2³¹ elements, of which only the last `near` positions count: the keys before them score so much lower that
// their values, which are zero, add nothing. As expected, those positions by themselves.
struct FarEnd {
  ExtendInputs whole, end;
};
inline FarEnd make_far_end(int64_t queries, at::ScalarType type, at::Device device) {
  constexpr int64_t levels = 3, heads = 2, width = 8, value_width = 256, near = 600;
  constexpr int64_t length = (int64_t{1} << 31) / value_width + near;
  static_assert(length * value_width > int64_t{1} << 31 && (length - near) % 128 == 0);
  const auto options = at::TensorOptions(type).device(device);
  torch::manual_seed(queries);
  const auto weights = at::softmax(at::randn({heads, levels}, at::kDouble), 1)
                           .to(at::TensorOptions(type == at::kDouble ? at::kDouble : at::kFloat).device(device));
  const auto ends_of = [&](int64_t end) { return at::full({1}, end, options.dtype(at::kLong)); };
  FarEnd far{{{}, {}, at::zeros({1, 1, length, value_width}, options), weights, ends_of(length)},
             {{}, {}, at::randn({1, 1, near, value_width}, options), weights, ends_of(near)}};
  far.whole.v.narrow(2, length - near, near).copy_(far.end.v);
  for (int64_t level = 0; level < levels; ++level) {
    const int64_t rows = level_rows(near, level), all = level_rows(length, level);
    far.end.q.push_back(at::ones({1, heads, query_level_rows(near - queries, queries, level), width}, options) +
                        at::rand({1, heads, 1, width}, options));
    far.end.k.push_back(at::rand({1, 1, rows, width}, options));
    far.whole.q = far.end.q;
    far.whole.k.push_back(at::full({1, 1, all, width}, -20, options));
    far.whole.k.back().narrow(2, all - rows, rows).copy_(far.end.k.back());
  }
  return far;
}

}  // namespace hkt::testing
