// SPDX-License-Identifier: Apache-2.0
// Batches: their order and their tensors.
#include "data/batches.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <deque>
#include <map>
#include <numeric>
#include <random>
#include <utility>

#include "random.h"

namespace hkt::data {
namespace {

std::vector<std::int64_t> all_of(const Split& split) {
  std::vector<std::int64_t> sequences(static_cast<std::size_t>(split.size()));
  std::iota(sequences.begin(), sequences.end(), std::int64_t{0});
  return sequences;
}

std::int64_t length_of(const Split& split, std::int64_t sequence, std::int64_t max_length) {
  return std::min<std::int64_t>(std::ssize(split.tokens(sequence)), max_length);
}

std::int64_t length_of(const Split& split, std::int64_t sequence, const Shape& shape) {
  return length_of(split, sequence, shape.max_length);
}

// The tokens of a sequence that a batch has.
std::span<const std::uint8_t> tokens_in(const Split& split, std::int64_t sequence, const Shape& shape) {
  const auto all = split.tokens(sequence);
  if (all.empty()) return all;
  auto skip = static_cast<std::uint64_t>(shape.skip);
  if (shape.random_starts > 1) {
    std::uint64_t draws = mix(shape.draw) + mix(static_cast<std::uint64_t>(sequence));
    skip = below(static_cast<std::uint64_t>(shape.random_starts), [&] { return mix(draws++); });
  }
  const auto rest = all.subspan(std::min<std::size_t>(skip, all.size() - 1));
  return rest.first(std::min(rest.size(), static_cast<std::size_t>(shape.max_length)));
}

void sort_by_length(std::span<std::int64_t> sequences, const Split& split, const Shape& shape) {
  std::stable_sort(sequences.begin(), sequences.end(), [&](std::int64_t a, std::int64_t b) {
    return length_of(split, a, shape) < length_of(split, b, shape);
  });
}

Order cut_into_batches(const std::vector<std::int64_t>& sequences, std::size_t batch) {
  Order order;
  for (std::size_t begin = 0; begin < sequences.size(); begin += batch) {
    const auto end = std::min(begin + batch, sequences.size());
    order.emplace_back(sequences.begin() + static_cast<std::ptrdiff_t>(begin),
                       sequences.begin() + static_cast<std::ptrdiff_t>(end));
  }
  return order;
}

}  // namespace

Order training_order(const Split& split, const Shape& shape, std::uint64_t seed, std::int64_t epoch) {
  std::seed_seq both{seed, seed >> 32, static_cast<std::uint64_t>(epoch)};
  std::mt19937_64 generator(both);
  auto sequences = all_of(split);
  shuffle(sequences, generator);
  const auto batch = static_cast<std::size_t>(shape.batch);
  const auto bucket = batch * static_cast<std::size_t>(shape.bucket);
  for (std::size_t begin = 0; shape.bucket > 1 && begin < sequences.size(); begin += bucket) {
    const auto size = std::min(bucket, sequences.size() - begin);
    sort_by_length(std::span(sequences).subspan(begin, size), split, shape);
  }
  auto order = cut_into_batches(sequences, batch);
  shuffle(order, generator);
  return order;
}

Order evaluation_order(const Split& split, const Shape& shape) {
  auto sequences = all_of(split);
  sort_by_length(sequences, split, shape);
  return cut_into_batches(sequences, static_cast<std::size_t>(shape.batch));
}

Batch make_batch(const Split& split, std::span<const std::int64_t> sequences, const Shape& shape) {
  const auto count = static_cast<std::int64_t>(sequences.size());
  std::int64_t longest = shape.full ? shape.max_length : 1;
  for (const auto sequence : sequences)
    longest = std::max<std::int64_t>(longest, std::ssize(tokens_in(split, sequence, shape)));
  Batch batch{at::zeros({count, longest}, at::kLong), at::empty({count}, at::kLong), at::empty({count}, at::kLong), 0};
  auto* row = batch.tokens.mutable_data_ptr<std::int64_t>();
  for (std::int64_t i = 0; i < count; ++i, row += longest) {
    const auto sequence = sequences[static_cast<std::size_t>(i)];
    const auto tokens = tokens_in(split, sequence, shape);
    const auto length = static_cast<std::int64_t>(tokens.size());
    std::copy(tokens.begin(), tokens.end(), row);
    batch.lengths.mutable_data_ptr<std::int64_t>()[i] = length;
    batch.labels.mutable_data_ptr<std::int64_t>()[i] = split.label(sequence);
    batch.valid_tokens += length;
  }
  return batch;
}

std::int64_t count_cut(const Split& split, std::int64_t max_length) {
  std::int64_t count = 0;
  for (std::int64_t i = 0; i < split.size(); ++i) {
    count += static_cast<std::int64_t>(split.tokens(i).size()) > max_length ? 1 : 0;
  }
  return count;
}

std::vector<std::int64_t> draw_balanced(const Split& split, const Drawing& drawing) {
  std::mt19937_64 generator(drawing.seed);
  auto shuffled = all_of(split);
  shuffle(shuffled, generator);
  const auto is_long = [&](std::int64_t i) { return length_of(split, i, drawing.max_length) >= drawing.wanted_length; };
  std::stable_partition(shuffled.begin(), shuffled.end(), is_long);
  std::map<std::int64_t, std::deque<std::int64_t>> by_label;
  for (const auto i : shuffled) {
    if (!split.tokens(i).empty()) by_label[split.label(i)].push_back(i);
  }
  std::vector<std::int64_t> labels;
  for (const auto& [label, sequences] : by_label) labels.push_back(label);
  shuffle(labels, generator);  // with fewer sequences than labels, chance decides which labels are there

  std::vector<std::int64_t> drawn;
  for (bool any = true; any;) {
    any = false;
    for (const auto label : labels) {
      auto& sequences = by_label[label];
      if (sequences.empty() || std::ssize(drawn) == drawing.count) continue;
      drawn.push_back(sequences.front());
      sequences.pop_front();
      any = true;
    }
  }
  return drawn;
}

std::vector<at::Tensor> balanced_sequences(const Split& split, const Drawing& drawing) {
  std::vector<at::Tensor> sequences;
  for (const auto i : draw_balanced(split, drawing)) {
    const auto length = static_cast<std::size_t>(length_of(split, i, drawing.max_length));
    sequences.push_back(at::tensor(at::ArrayRef<std::uint8_t>(split.tokens(i).data(), length), at::kLong));
  }
  return sequences;
}

BatchQueue::BatchQueue(const Split& split, Order order, const Shape& shape, std::size_t first)
    : batches_([&split, order = std::move(order), shape, i = first]() mutable -> std::optional<Batch> {
        if (i >= order.size()) return {};
        return make_batch(split, order[i++], shape);
      }) {}

}  // namespace hkt::data
