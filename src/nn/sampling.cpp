// SPDX-License-Identifier: Apache-2.0
// Temperature, top-k and top-p sampling.
#include "hkt/sampling.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <stdexcept>
#include <string>
#include <vector>

namespace hkt {
namespace {

void check_range(const char* name, double value, bool is_good, const char* allowed) {
  if (is_good) return;
  auto text = std::to_string(value);
  text.erase(text.find_last_not_of('0') + 1);
  if (text.ends_with('.')) text.pop_back();
  throw std::invalid_argument(std::string(name) + " is " + text + "; it must be " + allowed + ".");
}

}  // namespace

Sampler::Sampler(const SamplingOptions& options) : options_(options), generator_(options.seed) {
  check_range("temperature", options.temperature, options.temperature >= 0 && std::isfinite(options.temperature),
              "0 or a positive number");
  check_range("top-k", static_cast<double>(options.top_k), options.top_k >= 0, "0 (all) or a positive integer");
  check_range("top-p", options.top_p, options.top_p > 0 && options.top_p <= 1, "above 0 and at most 1");
}

std::int64_t Sampler::sample(const at::Tensor& logits) {
  const auto values = logits.to(at::kCPU, at::kDouble).contiguous();
  const auto* value = values.const_data_ptr<double>();
  std::vector<std::int64_t> tokens(static_cast<std::size_t>(values.numel()));
  std::iota(tokens.begin(), tokens.end(), std::int64_t{0});
  std::stable_sort(tokens.begin(), tokens.end(), [&](auto a, auto b) { return value[a] > value[b]; });
  if (options_.temperature == 0) return tokens.front();
  if (options_.top_k > 0 && options_.top_k < std::ssize(tokens))
    tokens.resize(static_cast<std::size_t>(options_.top_k));

  std::vector<double> sums;  // of the probabilities so far, not normalised
  const double largest = value[tokens.front()];
  for (const auto token : tokens) {
    sums.push_back((sums.empty() ? 0 : sums.back()) + std::exp((value[token] - largest) / options_.temperature));
  }
  const auto last = std::lower_bound(sums.begin(), sums.end(), options_.top_p * sums.back());
  const double whole = last == sums.end() ? sums.back() : *last;
  constexpr int unused_bits = 11;
  const double uniform = std::ldexp(static_cast<double>(generator_() >> unused_bits), -53);  // below 1
  const auto drawn = std::upper_bound(sums.begin(), sums.end(), uniform * whole) - sums.begin();
  return tokens[static_cast<std::size_t>(std::min<std::ptrdiff_t>(drawn, std::ssize(tokens) - 1))];
}

}  // namespace hkt
