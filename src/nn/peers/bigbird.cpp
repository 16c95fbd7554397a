// SPDX-License-Identifier: Apache-2.0
// BigBird: random keys beside a window and global tokens.
#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>

#include "numbers.h"
#include "sparse.h"

namespace hkt::peers {
namespace {

at::Tensor drawn(std::int64_t rows, std::int64_t count) {
  auto table = at::empty({rows, count}, at::kDouble);
  auto* value = table.mutable_data_ptr<double>();
  for (std::int64_t i = 0; i < table.numel(); ++i) value[i] = uniform(static_cast<std::uint64_t>(i));
  return table;
}

}  // namespace

at::Tensor RandomKeys::draws(std::int64_t length, std::int64_t count, at::Device device) {
  const std::lock_guard lock(mutex_);
  for (const auto& table : tables_) {
    if (table.size(0) >= length && table.device() == device) return table.narrow(0, 0, length);
  }
  constexpr std::int64_t least = 256;
  std::int64_t rows = least;
  while (rows < length) rows *= 2;
  const c10::InferenceMode normal(false);
  return tables_.emplace_back(drawn(rows, count).to(device)).narrow(0, 0, length);
}

at::Tensor bigbird(const Inputs& inputs, const Window& window, RandomKeys& keys, std::int64_t count) {
  const auto length = inputs.q.size(2);
  auto pattern = pattern_of(window, length, inputs.q.device());
  if (count == 0 || length == 0) return attention_over(inputs, pattern);
  const auto draws = keys.draws(length, count, inputs.q.device()).unsqueeze(0);  // [1, T, count]
  at::Tensor choices;  // how many keys each query chooses among, [B or 1, T or 1, 1]
  if (inputs.causal) {
    choices = at::arange(1, length + 1, draws.options()).view({1, length, 1});
  } else if (inputs.lengths) {
    choices = inputs.lengths->to(at::kDouble).view({-1, 1, 1});
  } else {
    choices = at::full({1, 1, 1}, static_cast<double>(length), draws.options());
  }
  const auto chosen = (draws * choices).floor().to(at::kLong);
  auto random = at::zeros({chosen.size(0), length, length}, pattern.options());
  random.scatter_(2, chosen, true);
  return attention_over(inputs, random.logical_or(pattern));
}

}  // namespace hkt::peers
