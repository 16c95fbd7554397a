// SPDX-License-Identifier: Apache-2.0
// Windows: their places and their tensors.
#include "data/windows.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <functional>
#include <stdexcept>
#include <string>

#include "random.h"

namespace hkt::data {
namespace {

void check_length(std::int64_t length) {
  if (length >= 1) return;
  throw std::invalid_argument("the length of a window is " + std::to_string(length) + "; it must be at least 1.");
}

void check_size(const Stream& stream, std::int64_t length) {
  check_length(length);
  if (std::ssize(stream.tokens) > length) return;
  throw std::invalid_argument("the stream has " + std::to_string(stream.tokens.size()) +
                              " tokens; a window of length " + std::to_string(length) + " needs at least " +
                              std::to_string(length + 1) + ".");
}

Batch zeros(std::int64_t batch, std::int64_t length) {
  return {at::zeros({batch, length}, at::kLong), at::zeros({batch}, at::kLong), at::zeros({batch, length}, at::kLong),
          0};
}

// Row `row` of the batch: inputs from `begin` on, and the tokens after them.
void fill(Batch& batch, std::int64_t row, const Stream& stream, std::int64_t begin, std::int64_t length) {
  const auto* tokens = stream.tokens.data() + begin;
  const auto place = row * batch.tokens.size(1);
  std::copy_n(tokens, length, batch.tokens.mutable_data_ptr<std::int64_t>() + place);
  std::copy_n(tokens + 1, length, batch.labels.mutable_data_ptr<std::int64_t>() + place);
  batch.lengths.mutable_data_ptr<std::int64_t>()[row] = length;
  batch.valid_tokens += length;
}

std::function<std::optional<Batch>()> batches_of(const Stream& stream, std::int64_t length, std::int64_t batch,
                                                 std::uint64_t seed, std::int64_t first, std::int64_t end) {
  check_size(stream, length);
  return [=, step = first]() mutable -> std::optional<Batch> {
    if (step >= end) return {};
    return make_windows(stream, length, batch, seed, step++);
  };
}

}  // namespace

std::int64_t window_place(std::int64_t places, std::uint64_t seed, std::int64_t step, std::int64_t index) {
  const auto key = mix(mix(mix(seed) + static_cast<std::uint64_t>(step)) + static_cast<std::uint64_t>(index));
  std::uint64_t draws = 0;
  return static_cast<std::int64_t>(below(static_cast<std::uint64_t>(places), [&] { return mix(key + draws++); }));
}

Batch make_windows(const Stream& stream, std::int64_t length, std::int64_t batch, std::uint64_t seed,
                   std::int64_t step) {
  check_size(stream, length);
  const auto places = std::ssize(stream.tokens) - length;
  auto result = zeros(batch, length);
  for (std::int64_t i = 0; i < batch; ++i) fill(result, i, stream, window_place(places, seed, step, i), length);
  return result;
}

WindowQueue::WindowQueue(const Stream& stream, std::int64_t length, std::int64_t batch, std::uint64_t seed,
                         std::int64_t first, std::int64_t end)
    : batches_(batches_of(stream, length, batch, seed, first, end)) {}

std::vector<at::Tensor> drawn_windows(const Stream& stream, std::int64_t length, std::int64_t count,
                                      std::uint64_t seed) {
  const auto size = std::ssize(stream.tokens);
  length = std::min(length, size);
  std::vector<std::int64_t> begins;
  for (std::int64_t begin = 0; length > 0 && begin + length <= size; begin += length) begins.push_back(begin);
  std::mt19937_64 generator(seed);
  shuffle(begins, generator);
  begins.resize(std::min(begins.size(), static_cast<std::size_t>(count)));
  std::vector<at::Tensor> windows;
  for (const auto begin : begins) {
    windows.push_back(at::empty({length}, at::kLong));
    std::copy_n(stream.tokens.data() + begin, length, windows.back().mutable_data_ptr<std::int64_t>());
  }
  return windows;
}

std::vector<ScoredWindow> scored_windows(std::int64_t tokens, std::int64_t length) {
  check_length(length);
  std::vector<ScoredWindow> windows;
  const auto stride = (length + 1) / 2;
  std::int64_t scored = 1;  // the first token, which nothing predicts, and those that a window has scored
  for (std::int64_t begin = 0; scored < tokens; begin += stride) {
    const auto inputs = std::min(length, tokens - 1 - begin);
    windows.push_back({begin, scored - 1 - begin, inputs});
    scored = begin + inputs + 1;
  }
  return windows;
}

Batch make_windows(const Stream& stream, std::span<const ScoredWindow> windows, std::int64_t length) {
  auto batch = zeros(std::ssize(windows), length);
  for (std::int64_t i = 0; i < std::ssize(windows); ++i) {
    const auto& window = windows[static_cast<std::size_t>(i)];
    fill(batch, i, stream, window.begin, window.length);
  }
  return batch;
}

}  // namespace hkt::data
