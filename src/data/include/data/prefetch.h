// SPDX-License-Identifier: Apache-2.0
// A batch, and a thread that makes batches ahead of time.
#pragma once

#include <ATen/core/Tensor.h>

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>

namespace hkt::data {

struct Batch {
  at::Tensor tokens;   // int64 [B, T], zeros after the end of each sequence
  at::Tensor lengths;  // int64 [B]
  at::Tensor labels;   // int64 [B], the class of each sequence; of windows [B, T], the token after each
  std::int64_t valid_tokens = 0;
};

// The batches that `make` gives, in its order, until it gives none; a thread of its own calls it.
class Prefetch {
 public:
  explicit Prefetch(std::function<std::optional<Batch>()> make);
  ~Prefetch();
  Prefetch(const Prefetch&) = delete;
  Prefetch& operator=(const Prefetch&) = delete;

  std::optional<Batch> next();  // nothing after the last; throws what `make` threw, after the batches before that

 private:
  void fill(const std::function<std::optional<Batch>()>& make);

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Batch> ready_;
  std::exception_ptr error_;
  bool ended_ = false, stopped_ = false;
  std::thread thread_;
};

}  // namespace hkt::data
