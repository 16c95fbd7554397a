// SPDX-License-Identifier: Apache-2.0
// The schedule of the CPU kernels: which thread computes which block, in which part of the workspace.
//
// With many heads, or the same number for every thread, a task is a run of whole heads. With few heads, all heads are
// prepared first, and then a task is a block of a head. Both sum in the same order, so neither this choice nor the number
// of threads changes a bit of the results.
#include <algorithm>
#include <atomic>
#include <cstring>
#include <memory>
#include <new>
#include <thread>

#include "attention_blocks.h"

namespace hkt::kernels::cpu {
namespace {

constexpr std::int64_t heads_per_thread = 4;  // from this many on, whole heads balance the load
constexpr std::int64_t runs_per_thread = 8;   // runs of neighbouring heads, when tasks are whole heads
constexpr std::int64_t longest_prefetched = 128;

Blocks choose_blocks(InstructionSet set, Element element) {
#ifdef HKT_X86_KERNELS
  if (set == InstructionSet::avx512_bf16 && element == Element::bfloat16) return avx512_bf16::blocks();
  if (set >= InstructionSet::avx512) return avx512::blocks(element);
  if (set == InstructionSet::avx2) return avx2::blocks(element);
#else
  static_cast<void>(set);
#endif
  return portable::blocks(element);
}

std::int64_t element_bytes(Element element) {
  return element == Element::float64 ? 8 : element == Element::float32 ? 4 : 2;
}

std::int64_t divide_up(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

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

// Heads and sequences of a problem, and how its memory and work are divided.
class Plan {
 public:
  Plan(const AttentionForward& problem, const Machine& machine)
      : problem_(problem),
        element_bytes_(element_bytes(problem.element)),
        whole_heads_(heads() >= heads_per_thread * machine.threads ||
                     (heads() % machine.threads == 0 && problem.lengths == nullptr)),
        slots_(whole_heads_ ? machine.threads : heads()) {}

  std::int64_t heads() const { return problem_.batch * problem_.heads; }
  bool whole_heads() const { return whole_heads_; }
  // How many prepared heads the workspace holds at a time.
  std::int64_t slots() const { return slots_; }

  std::int64_t valid_rows(std::int64_t head) const {
    return problem_.lengths ? problem_.lengths[head / problem_.heads] : problem_.length;
  }

  Head shape() const {
    Head head;
    head.levels = problem_.levels;
    head.width = problem_.width;
    head.value_width = problem_.value_width;
    head.causal = problem_.causal;
    head.length = problem_.length;
    return head;
  }

  Head forward_head(std::int64_t index) const {
    Head head = shape();
    head.length = valid_rows(index);
    for (int level = 0; level < problem_.levels; ++level) {
      head.q[level] = rows(problem_.q[level], index);
      head.k[level] = rows(problem_.k[level], index);
      head.weights[level] = weight(index % problem_.heads, level) * problem_.scale;
    }
    head.v = rows(problem_.v, index);
    head.out = rows(problem_.out, index);
    head.lse = static_cast<char*>(problem_.lse) + index * problem_.length * sum_bytes();
    return head;
  }

  Head backward_head(const AttentionBackward& problem, std::int64_t index) const {
    Head head = forward_head(index);
    head.grad_out = rows(problem.grad_out, index);
    for (int level = 0; level < problem.levels; ++level) {
      head.grad_q[level] = rows(problem.grad_q[level], index);
      head.grad_k[level] = rows(problem.grad_k[level], index);
    }
    head.grad_v = rows(problem.grad_v, index);
    return head;
  }

  // Prefetches the inputs of a short head: its rows are too few for the hardware prefetcher to detect a pattern.
  void prefetch_head(const Head& head) const {
    if (head.length > longest_prefetched) return;
    for (int level = 0; level < head.levels; ++level) {
      prefetch(head.q[level], head.level_rows(level), head.width);
      prefetch(head.k[level], head.level_rows(level), head.width);
      if (head.grad_out.data) {
        prefetch<1>(head.grad_q[level], head.level_rows(level), head.width);
        prefetch<1>(head.grad_k[level], head.level_rows(level), head.width);
      }
    }
    prefetch(head.v, head.length, head.value_width);
    if (!head.grad_out.data) return;
    prefetch<1>(head.grad_v, head.length, head.value_width);
    prefetch(head.grad_out, head.length, head.value_width);
    prefetch(head.out, head.length, head.value_width);
  }

  // Zeroes rows [from, to).
  void clear(const Rows& rows, std::int64_t from, std::int64_t to, int width) const {
    for (std::int64_t row = from; row < to; ++row)
      std::memset(static_cast<char*>(rows.data) + row * rows.stride * element_bytes_, 0, width * element_bytes_);
  }
  void clear_lse(const Head& head) const {
    for (std::int64_t row = head.length; row < problem_.length; ++row)
      if (problem_.element == Element::float64)
        static_cast<double*>(head.lse)[row] = -__builtin_inf();
      else
        static_cast<float*>(head.lse)[row] = -__builtin_inff();
  }

 private:
  template <int for_writing = 0>
  void prefetch(const Rows& rows, std::int64_t count, int width) const {
    constexpr std::int64_t line = 64;
    for (std::int64_t row = 0; row < count; ++row) {
      const char* data = static_cast<const char*>(rows.data) + row * rows.stride * element_bytes_;
      for (std::int64_t byte = 0; byte < width * element_bytes_; byte += line)
        __builtin_prefetch(data + byte, for_writing);
    }
  }

  std::int64_t sum_bytes() const { return problem_.element == Element::float64 ? 8 : 4; }
  double weight(std::int64_t head, int level) const {
    const std::int64_t at = head * problem_.levels + level;
    return problem_.element == Element::float64 ? static_cast<const double*>(problem_.weights)[at]
                                                : static_cast<const float*>(problem_.weights)[at];
  }
  Rows rows(const Array& array, std::int64_t head) const {
    const std::int64_t offset = head / problem_.heads * array.batch_stride + head % problem_.heads * array.head_stride;
    return {static_cast<char*>(array.data) + offset * element_bytes_, array.row_stride};
  }

  const AttentionForward& problem_;
  std::int64_t element_bytes_;
  bool whole_heads_;
  std::int64_t slots_;
};

// The workspace: a shared part for each prepared head, then a scratch part for each thread.
struct Parts {
  char* shared;
  std::int64_t shared_bytes;
  std::int64_t scratch_bytes;
  std::int64_t slots;
  char* shared_of(std::int64_t slot) const { return shared + slot * shared_bytes; }
  char* scratch_of(int thread) const { return shared + slots * shared_bytes + thread * scratch_bytes; }
};

// Calls prepare(head, piece, shared) for all pieces of all heads, then compute(head, index, block, shared, scratch) for the
// blocks of each in ascending order. head_of(index) describes a head, blocks_of(head) counts its blocks.
template <class HeadOf, class Prepare, class BlocksOf, class Compute>
void run_schedule(const Plan& plan, const Machine& machine, const Parts& parts, int pieces, std::int64_t most_blocks,
                  HeadOf head_of, Prepare prepare, BlocksOf blocks_of, Compute compute) {
  if (plan.whole_heads()) {
    // Runs of neighbouring heads: small heads taken one by one would let the threads' prefetchers compete for memory.
    const std::int64_t run = std::max<std::int64_t>(1, plan.heads() / (machine.threads * runs_per_thread));
    Queue queue(divide_up(plan.heads(), run));
    machine.run([&](int thread) {
      char* shared = parts.shared_of(thread);
      for (std::int64_t task = 0; queue.take(task);)
        for (std::int64_t index = task * run; index < std::min(plan.heads(), (task + 1) * run); ++index) {
          const Head head = head_of(index);
          for (int piece = 0; piece < pieces; ++piece) prepare(head, piece, shared);
          if (index + 1 < plan.heads()) plan.prefetch_head(head_of(index + 1));
          const std::int64_t blocks = blocks_of(head);
          for (std::int64_t block = 0; block < blocks; ++block)
            compute(head, index, block, shared, parts.scratch_of(thread));
        }
    });
    return;
  }
  Queue preparations(plan.heads() * pieces);
  machine.run([&](int) {
    for (std::int64_t task = 0; preparations.take(task);)
      prepare(head_of(task / pieces), static_cast<int>(task % pieces), parts.shared_of(task / pieces));
  });
  Queue queue(plan.heads() * most_blocks);
  machine.run([&](int thread) {
    for (std::int64_t task = 0; queue.take(task);) {
      const std::int64_t index = task / most_blocks;
      const std::int64_t block = task % most_blocks;
      const Head head = head_of(index);
      if (block < blocks_of(head)) compute(head, index, block, parts.shared_of(index), parts.scratch_of(thread));
    }
  });
}

// One thread computes all key blocks of a head, in order.
struct NoSemaphore final : Semaphore {
  void wait(int) override {}
  void release(int) override {}
};

// A counter per query block. There is no deadlock: a key block waits only for key blocks that were handed out before it.
class CountingSemaphore final : public Semaphore {
 public:
  CountingSemaphore(std::atomic<int>* finished, int key_block) : finished_(finished), key_block_(key_block) {}
  void wait(int query_block) override {
    for (int spins = 0; finished_[query_block].load(std::memory_order_acquire) != key_block_; ++spins)
      if (spins > 1000) std::this_thread::yield();
  }
  void release(int query_block) override { finished_[query_block].store(key_block_ + 1, std::memory_order_release); }

 private:
  std::atomic<int>* finished_;
  int key_block_;
};

void add_weight_gradients(const AttentionBackward& problem, const Plan& plan, const double* sums,
                          std::int64_t most_query_blocks) {
  for (std::int64_t head = 0; head < problem.heads; ++head)
    for (int level = 0; level < problem.levels; ++level) {
      double total = 0;
      for (std::int64_t index = head; index < plan.heads(); index += problem.heads)
        for (std::int64_t block = 0; block < most_query_blocks; ++block)
          total += sums[(index * most_query_blocks + block) * problem.levels + level];
      const std::int64_t at = head * problem.levels + level;
      if (problem.element == Element::float64)
        static_cast<double*>(problem.grad_weights)[at] = total * problem.scale;
      else
        static_cast<float*>(problem.grad_weights)[at] = static_cast<float>(total * problem.scale);
    }
}

// An upper bound: the number of query blocks varies with a sequence's length.
std::int64_t most_query_blocks(const AttentionBackward& problem, const BackwardBlocks& blocks) {
  return divide_up(problem.length, blocks.query_rows / 2) + 1;
}

}  // namespace

std::int64_t workspace_bytes(const AttentionForward& problem, const Machine& machine) {
  const ForwardBlocks blocks = choose_blocks(machine.instruction_set, problem.element).forward;
  const Plan plan(problem, machine);
  return plan.slots() * blocks.shared_bytes(plan.shape()) + machine.threads * blocks.scratch_bytes(plan.shape());
}

std::int64_t workspace_bytes(const AttentionBackward& problem, const Machine& machine) {
  const BackwardBlocks blocks = choose_blocks(machine.instruction_set, problem.element).backward;
  const Plan plan(problem, machine);
  const std::int64_t query_blocks = plan.heads() * most_query_blocks(problem, blocks);
  return plan.slots() * blocks.shared_bytes(plan.shape()) + machine.threads * blocks.scratch_bytes(plan.shape()) +
         query_blocks * static_cast<std::int64_t>(problem.levels * sizeof(double) + sizeof(std::atomic<int>));
}

void attention_forward(const AttentionForward& problem, const Machine& machine, void* workspace) {
  const ForwardBlocks blocks = choose_blocks(machine.instruction_set, problem.element).forward;
  const Plan plan(problem, machine);
  const Parts parts{static_cast<char*>(workspace), blocks.shared_bytes(plan.shape()),
                    blocks.scratch_bytes(plan.shape()), plan.slots()};
  const auto head_of = [&](std::int64_t index) { return plan.forward_head(index); };
  const auto rows_of = [&](const Head& head) { return query_block_rows(head.length, head.levels, blocks.block_rows); };
  const auto blocks_of = [&](const Head& head) { return head.length == 0 ? 0 : divide_up(head.length, rows_of(head)); };
  const auto prepare = [&](const Head& head, int piece, void* shared) {
    if (piece == 0) {
      plan.clear(head.out, head.length, problem.length, problem.value_width);
      plan.clear_lse(head);
    }
    if (head.length > 0) blocks.prepare(head, piece, shared);
  };
  const auto compute = [&](const Head& head, std::int64_t, std::int64_t block, void* shared, void* scratch) {
    const int rows = rows_of(head);
    // Under the causal mask the last blocks take longest, so they come first.
    const std::int64_t first = (head.causal ? blocks_of(head) - 1 - block : block) * rows;
    const int valid = static_cast<int>(std::min<std::int64_t>(rows, head.length - first));
    blocks.compute(head, {first, valid}, shared, scratch);
  };
  const std::int64_t most = divide_up(problem.length, blocks.block_rows / 2) + 1;
  run_schedule(plan, machine, parts, problem.levels + 1, most, head_of, prepare, blocks_of, compute);
}

void attention_backward(const AttentionBackward& problem, const Machine& machine, void* workspace) {
  const BackwardBlocks blocks = choose_blocks(machine.instruction_set, problem.element).backward;
  const Plan plan(problem, machine);
  const Parts parts{static_cast<char*>(workspace), blocks.shared_bytes(plan.shape()),
                    blocks.scratch_bytes(plan.shape()), plan.slots()};
  const std::int64_t query_blocks = most_query_blocks(problem, blocks);
  double* weight_sums = reinterpret_cast<double*>(parts.scratch_of(machine.threads));
  std::memset(weight_sums, 0, plan.heads() * query_blocks * problem.levels * sizeof(double));
  auto* finished = reinterpret_cast<std::atomic<int>*>(weight_sums + plan.heads() * query_blocks * problem.levels);
  std::uninitialized_value_construct_n(finished, plan.heads() * query_blocks);

  const auto head_of = [&](std::int64_t index) { return plan.backward_head(problem, index); };
  const auto blocks_of = [&](const Head& head) { return divide_up(head.length, blocks.key_rows); };
  const auto prepare = [&](const Head& head, int piece, void* shared) {
    if (piece < problem.levels) {
      const std::int64_t rows = divide_up(problem.length, std::int64_t{1} << piece);
      plan.clear(head.grad_q[piece], head.level_rows(piece), rows, problem.width);
      plan.clear(head.grad_k[piece], head.level_rows(piece), rows, problem.width);
    } else {
      plan.clear(head.grad_v, head.length, problem.length, problem.value_width);
    }
    if (head.length > 0) blocks.prepare(head, piece, shared);
  };
  const auto compute = [&](const Head& head, std::int64_t index, std::int64_t block, void* shared, void* scratch) {
    const std::int64_t first = block * blocks.key_rows;
    const int valid = static_cast<int>(std::min<std::int64_t>(blocks.key_rows, head.length - first));
    NoSemaphore none;
    CountingSemaphore counting(finished + index * query_blocks, static_cast<int>(block));
    Semaphore& semaphore = plan.whole_heads() ? static_cast<Semaphore&>(none) : counting;
    blocks.compute(head, {first, valid}, shared, scratch, semaphore,
                   weight_sums + index * query_blocks * problem.levels);
  };
  run_schedule(plan, machine, parts, problem.levels + 1, divide_up(problem.length, blocks.key_rows), head_of, prepare,
               blocks_of, compute);
  add_weight_gradients(problem, plan, weight_sums, query_blocks);
}

}  // namespace hkt::kernels::cpu
