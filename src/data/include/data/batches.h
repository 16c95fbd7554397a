// SPDX-License-Identifier: Apache-2.0
// Batches of sequences: their order, their padded tensors, and a thread that prefetches them.
#pragma once

#include <ATen/core/Tensor.h>

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <mutex>
#include <optional>
#include <span>
#include <thread>
#include <vector>

#include "data/dataset.h"

namespace hkt::data {

struct Batch {
  at::Tensor tokens;   // int64 [B, T], zeros after the end of each sequence
  at::Tensor lengths;  // int64 [B]
  at::Tensor labels;   // int64 [B]
  std::int64_t valid_tokens = 0;
};

// How sequences become tensors. Longer ones are cut to max_length; T is max_length if `full`, else the batch's longest;
// `bucket` is the number of batches that are sorted by length together.
struct Shape {
  std::int64_t batch = 64;
  std::int64_t max_length = 1024;
  bool full = false;
  std::int64_t bucket = 64;
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

// The tokens of the longest sequences, int64 [T] each, cut at max_length, the longest first; at most `count`, none empty.
std::vector<at::Tensor> longest_sequences(const Split& split, std::int64_t max_length, std::int64_t count);

// The batches of an order from index `first` on, prefetched by a thread. The split must outlive the queue.
class BatchQueue {
 public:
  BatchQueue(const Split& split, Order order, const Shape& shape, std::size_t first = 0);
  ~BatchQueue();
  BatchQueue(const BatchQueue&) = delete;
  BatchQueue& operator=(const BatchQueue&) = delete;

  std::optional<Batch> next();  // nothing after the last

 private:
  void fill(const Split& split, const Order& order, const Shape& shape, std::size_t first);

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Batch> ready_;
  std::exception_ptr error_;
  bool ended_ = false, stopped_ = false;
  std::thread thread_;
};

}  // namespace hkt::data
