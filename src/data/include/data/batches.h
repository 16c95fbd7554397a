// SPDX-License-Identifier: Apache-2.0
// Batches of sequences: their order, their padded tensors, and a queue of them.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "data/dataset.h"
#include "data/prefetch.h"

namespace hkt::data {

// How sequences become tensors. Longer ones are cut to max_length; T is max_length if `full`, else the batch's longest;
// `bucket` is the number of batches that are sorted by length together. The first `skip` tokens of each sequence are left out, or of
// each a number below `random_starts`, which `draw` decides; one token always remains.
struct Shape {
  std::int64_t batch = 64;
  std::int64_t max_length = 1024;
  bool full = false;
  std::int64_t bucket = 64;
  std::int64_t skip = 0;
  std::int64_t random_starts = 1;
  std::uint64_t draw = 0;
};

using Order = std::vector<std::vector<std::int64_t>>;  // the sequences of each batch

// Each sequence once, in an order that depends on seed and epoch only: shuffled, sorted by length within buckets of many
// batches, which keeps padding low, and the batches shuffled again.
Order training_order(const Split& split, const Shape& shape, std::uint64_t seed, std::int64_t epoch);

// Each sequence once, sorted by length, for evaluation.
Order evaluation_order(const Split& split, const Shape& shape);

Batch make_batch(const Split& split, std::span<const std::int64_t> sequences, const Shape& shape);

// How many sequences are longer than max_length.
std::int64_t count_cut(const Split& split, std::int64_t max_length);

// A few sequences to look at: which ones the seed decides, in turn one of each label. Those of at least `wanted_length` tokens
// come before shorter ones, none is empty, and all are cut at max_length.
struct Drawing {
  std::int64_t max_length = 1024;
  std::int64_t count = 8;
  std::int64_t wanted_length = 1;
  std::uint64_t seed = 0;
};
std::vector<std::int64_t> draw_balanced(const Split& split, const Drawing& drawing);
// Their tokens, int64 [T] each.
std::vector<at::Tensor> balanced_sequences(const Split& split, const Drawing& drawing);

// The batches of an order from index `first` on, prefetched by a thread. The split must outlive the queue.
class BatchQueue {
 public:
  BatchQueue(const Split& split, Order order, const Shape& shape, std::size_t first = 0);

  std::optional<Batch> next() { return batches_.next(); }  // nothing after the last

 private:
  Prefetch batches_;
};

}  // namespace hkt::data
