// SPDX-License-Identifier: Apache-2.0
// Shared by the attention benchmarks on CPU and GPU: shapes, inputs, and the ways to compute HKT.
#pragma once

#include <ATen/ATen.h>
#include <torch/autograd.h>

#include <cmath>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "concatenated.h"
#include "harness.h"
#include "hkt/ops.h"
#include "hkt/reference.h"

namespace hkt::bench {

struct Shape {
  int64_t batch, heads, length, width;
  int64_t levels = 3;
  int64_t group = 1;  // heads of queries for each head of keys
};

inline std::string text(const Shape& s) {
  return std::to_string(s.batch) + ", " + std::to_string(s.heads) + ", " + std::to_string(s.length) + ", " +
         std::to_string(s.width);
}

// FLOPs by the definition, two per multiply-add: scores at every level and values. Backward, which includes the forward pass,
// has four products per level and three with values.
inline double operations(const Shape& s, bool causal, bool backward) {
  double scores = 0;
  for (int64_t level = 0; level < s.levels; ++level) scores += std::pow(0.25, level);
  const double products = backward ? 4 * scores + 3 : scores + 1;
  return 2.0 * static_cast<double>(s.batch * s.heads) * std::pow(static_cast<double>(s.length), 2) *
         static_cast<double>(s.width) * products * (causal ? 0.5 : 1);
}

// Laid out as in a model: [B, T, H, D] in memory.
struct Inputs {
  std::vector<at::Tensor> q, k, all;
  at::Tensor v, weights, direction;

  Inputs(const Shape& s, at::ScalarType type, at::Device device) {
    const auto options = at::TensorOptions(type).device(device);
    const auto rows = [&](int64_t count, int64_t heads) {
      return at::randn({s.batch, count, heads, s.width}, options).transpose(1, 2).requires_grad_();
    };
    const int64_t key_heads = s.heads / s.group;
    for (int64_t level = 0; level < s.levels; ++level) {
      q.push_back(rows(level_rows(s.length, level), s.heads));
      k.push_back(rows(level_rows(s.length, level), key_heads));
    }
    v = rows(s.length, key_heads);
    weights = at::softmax(at::randn({s.heads, s.levels}, options.dtype(at::kFloat)), 1).detach().requires_grad_();
    direction = rows(s.length, s.heads).detach();
    all = q;
    all.insert(all.end(), k.begin(), k.end());
    all.push_back(v);
    all.push_back(weights);
  }
};

using Forward = std::function<at::Tensor()>;

inline Candidate candidate(const std::string& name, bool backward, const Forward& forward,
                           const std::vector<at::Tensor>& wanted, const at::Tensor& direction) {
  if (backward) return {name, [=] { torch::autograd::grad({forward()}, wanted, {direction}); }};
  return {name, [=] {
            const at::NoGradGuard no_grad;
            forward();
          }};
}

inline at::Tensor ours(const Inputs& in, bool causal) {
  return std::get<0>(hkt::attention(in.q, in.k, in.v, in.weights, causal));
}

inline at::Tensor concatenated(const Inputs& in, bool causal) {
  return testing::concatenated(in.q, in.k, in.v, in.weights, causal);
}

inline at::Tensor materialised(const Inputs& in, bool causal) {
  return std::get<0>(reference::attention(in.q, in.k, in.v, in.weights, causal));
}

}  // namespace hkt::bench
