// SPDX-License-Identifier: Apache-2.0
// The thread that makes batches, and the queue it fills.
#include "data/prefetch.h"

#include <utility>

namespace hkt::data {
namespace {

constexpr std::size_t batches_ahead = 8;

}  // namespace

Prefetch::Prefetch(std::function<std::optional<Batch>()> make)
    : thread_([this, make = std::move(make)] { fill(make); }) {}

Prefetch::~Prefetch() {
  {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void Prefetch::fill(const std::function<std::optional<Batch>()>& make) {
  std::exception_ptr error;
  try {
    while (auto batch = make()) {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return stopped_ || ready_.size() < batches_ahead; });
      if (stopped_) return;
      ready_.push_back(std::move(*batch));
      changed_.notify_all();
    }
  } catch (...) {
    error = std::current_exception();
  }
  const std::lock_guard lock(mutex_);
  error_ = error;
  ended_ = true;
  changed_.notify_all();
}

std::optional<Batch> Prefetch::next() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return ended_ || !ready_.empty(); });
  if (ready_.empty()) {
    if (error_) std::rethrow_exception(error_);
    return {};
  }
  auto batch = std::move(ready_.front());
  ready_.pop_front();
  changed_.notify_all();
  return batch;
}

}  // namespace hkt::data
