// SPDX-License-Identifier: Apache-2.0
// Sequences put together into batches: which go together, padded tensors, and a thread that makes them ahead of time.
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

// How sequences become tensors. Those longer than max_length are cut; T is max_length where `full`, else the longest of the
// batch; `bucket` says how many batches are sorted by length together.
struct Shape {
  std::int64_t batch = 64;
  std::int64_t max_length = 1024;
  bool full = false;
  std::int64_t bucket = 64;
};

using Order = std::vector<std::vector<std::int64_t>>;  // the sequences of each batch

// All sequences once, in an order that seed and epoch alone decide: drawn at random, sorted by length within
// buckets of many batches, so that little is padded, and the batches shuffled again.
Order training_order(const Split& split, const Shape& shape, std::uint64_t seed, std::int64_t epoch);

// All sequences once, by length, for evaluation.
Order evaluation_order(const Split& split, const Shape& shape);

Batch make_batch(const Split& split, std::span<const std::int64_t> sequences, const Shape& shape);

// How many sequences are longer than max_length.
std::int64_t count_cut(const Split& split, std::int64_t max_length);

// The tokens of the longest sequences, int64 [T] each, cut at max_length, the longest first; at most `count`, none empty.
std::vector<at::Tensor> longest_sequences(const Split& split, std::int64_t max_length, std::int64_t count);

// The batches of an order from number `first` on, made by a thread of their own, a few ahead of the reader. The split
// must outlive the queue.
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
