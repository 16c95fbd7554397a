// SPDX-License-Identifier: Apache-2.0
// What the schedules of the CPU kernels share: sizes, and a queue of tasks.
#pragma once

#include <atomic>

#include "kernels/attention.h"

namespace hkt::kernels::cpu {

inline std::int64_t element_bytes(Element element) {
  return element == Element::float64 ? 8 : element == Element::float32 ? 4 : 2;
}

inline std::int64_t divide_up(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

// Hands out the indices of tasks to the threads, in order.
class Queue {
 public:
  explicit Queue(std::int64_t tasks) : tasks_(tasks) {}
  bool take(std::int64_t& task) {
    task = next_.fetch_add(1, std::memory_order_relaxed);
    return task < tasks_;
  }

 private:
  std::atomic<std::int64_t> next_{0};
  std::int64_t tasks_;
};

// attention_extend for many queries, by the blocks of the forward pass (attention.cpp), which pack the keys first.
std::int64_t extend_workspace_bytes(const AttentionExtend& problem, const Machine& machine);
void extend_in_blocks(const AttentionExtend& problem, const Machine& machine, void* workspace);

}  // namespace hkt::kernels::cpu
