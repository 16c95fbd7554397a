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
#include <utility>

#include "attention_blocks.h"
#include "schedule.h"

namespace hkt::kernels::cpu {
namespace {

constexpr std::int64_t heads_per_thread = 4;  // from this many on, whole heads balance the load
constexpr std::int64_t runs_per_thread = 8;   // runs of neighbouring heads, when tasks are whole heads
constexpr std::int64_t longest_prefetched = 128;

// The queries and keys of a sequence. Arrays of queries begin at position `origin`, which may be negative.
struct Window {
  std::int64_t origin;
  std::int64_t first;  // of the queries that are computed, [first, end)
  std::int64_t end;
  std::int64_t keys;
};

// Heads and sequences of a problem, and how its memory and work are divided.
class Plan {
 public:
  Plan(const AttentionForward& problem, const Machine& machine, const std::int64_t* ends = nullptr)
      : problem_(problem),
        ends_(ends),
        element_bytes_(element_bytes(problem.element)),
        whole_heads_(heads() >= heads_per_thread * machine.threads ||
                     (heads() % machine.threads == 0 && problem.lengths == nullptr && ends == nullptr)),
        slots_(whole_heads_ ? machine.threads : heads()) {}

  std::int64_t heads() const { return problem_.batch * problem_.heads; }
  bool whole_heads() const { return whole_heads_; }
  // How many prepared heads the workspace holds at a time.
  std::int64_t slots() const { return slots_; }

  Window window(std::int64_t head) const {
    const std::int64_t sequence = head / problem_.heads;
    Window window{problem_.start, problem_.start, problem_.start + problem_.queries, problem_.length};
    if (ends_) window = {ends_[sequence] - problem_.queries, 0, ends_[sequence], ends_[sequence]};
    if (problem_.lengths) window.keys = problem_.lengths[sequence];
    window.first = std::max<std::int64_t>(0, window.origin);
    window.end = std::min(window.end, window.keys);
    if (window.end <= window.first) return {window.origin, window.first, window.first, 0};
    if (problem_.causal) window.keys = window.end;
    return window;
  }

  // An upper bound of every head.
  Head shape() const {
    Head head;
    head.levels = problem_.levels;
    head.width = problem_.width;
    head.value_width = problem_.value_width;
    head.causal = problem_.causal;
    head.length = problem_.length;
    head.query_rows = std::min(problem_.length, problem_.queries + (ends_ || problem_.start ? granularity() : 0));
    return head;
  }

  Head forward_head(std::int64_t index) const {
    Head head = shape();
    const Window window = this->window(index);
    head.length = window.keys;
    head.query_base = window.first / granularity() * granularity();
    head.query_rows = window.end - head.query_base;
    head.missing = window.first - head.query_base;
    const std::int64_t key_head = key_head_of(index);
    for (int level = 0; level < problem_.levels; ++level) {
      head.q[level] = query_rows(problem_.q[level], index, head, level);
      head.k[level] = rows(problem_.k[level], index / problem_.heads, key_head);
      head.weights[level] = weight(index % problem_.heads, level) * problem_.scale;
    }
    head.v = rows(problem_.v, index / problem_.heads, key_head);
    head.out = query_rows(problem_.out, index, head, 0);
    head.lse = static_cast<char*>(problem_.lse) + row_sums_offset(index, head);
    return head;
  }

  Head backward_head(const AttentionBackward& problem, std::int64_t index) const {
    Head head = forward_head(index);
    head.grad_out = query_rows(problem.grad_out, index, head, 0);
    for (int level = 0; level < problem.levels; ++level) {
      head.grad_q[level] = query_rows(problem.grad_q[level], index, head, level);
      head.grad_k[level] = rows(problem.grad_k[level], index / problem.heads, index % problem.heads);
    }
    head.grad_v = rows(problem.grad_v, index / problem.heads, index % problem.heads);
    if (problem.grad_lse) head.grad_lse = static_cast<const char*>(problem.grad_lse) + row_sums_offset(index, head);
    return head;
  }

  // Prefetches the inputs of a short head: its rows are too few for the hardware prefetcher to detect a pattern.
  void prefetch_head(const Head& head) const {
    if (head.length > longest_prefetched) return;
    for (int level = 0; level < head.levels; ++level) {
      prefetch(head.q[level], head.query_level_rows(level), head.width);
      prefetch(head.k[level], head.level_rows(level), head.width);
      if (head.grad_out.data) {
        prefetch<1>(head.grad_q[level], head.query_level_rows(level), head.width);
        prefetch<1>(head.grad_k[level], head.level_rows(level), head.width);
      }
    }
    prefetch(head.v, head.length, head.value_width);
    if (!head.grad_out.data) return;
    prefetch<1>(head.grad_v, head.length, head.value_width);
    prefetch(head.grad_out, head.query_rows, head.value_width);
    prefetch(head.out, head.query_rows, head.value_width);
  }

  // Zeroes rows [from, to).
  void clear(const Rows& rows, std::int64_t from, std::int64_t to, int width) const {
    for (std::int64_t row = from; row < to; ++row)
      std::memset(static_cast<char*>(rows.data) + row * rows.stride * element_bytes_, 0, width * element_bytes_);
  }
  // Clears the rows of an array of queries that are not computed: before the window and after it.
  void clear_padding(const Rows& rows, const Head& head, std::int64_t index, int level, int width) const {
    const auto [begin, end] = array_rows(head, index, level);
    clear(rows, begin, head.missing >> level, width);
    clear(rows, head.length > 0 ? head.query_level_rows(level) : head.missing >> level, end, width);
  }
  void clear_lse_padding(const Head& head, std::int64_t index) const {
    const auto [begin, end] = array_rows(head, index, 0);
    for (std::int64_t row = begin; row < end; ++row) {
      if (row >= head.missing && row < head.query_rows) continue;
      if (problem_.element == Element::float64)
        static_cast<double*>(head.lse)[row] = -__builtin_inf();
      else
        static_cast<float*>(head.lse)[row] = -__builtin_inff();
    }
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
  Rows rows(const Array& array, std::int64_t sequence, std::int64_t head) const {
    const std::int64_t offset = sequence * array.batch_stride + head * array.head_stride;
    return {static_cast<char*>(array.data) + offset * element_bytes_, array.row_stride};
  }
  std::int64_t key_head_of(std::int64_t index) const {
    return index % problem_.heads / (problem_.heads / problem_.key_heads);
  }

  std::int64_t granularity() const { return std::int64_t{1} << problem_.levels; }
  // The rows that an array of queries has of a level, counted from head.query_base on.
  std::pair<std::int64_t, std::int64_t> array_rows(const Head& head, std::int64_t index, int level) const {
    const std::int64_t origin = window(index).origin, base = head.query_base >> level;
    return {(origin >> level) - base, level_rows(origin + problem_.queries, level) - base};
  }
  // Rows of an array of queries, counted from head.query_base on. Those that are missing lie before the array and are not touched.
  Rows query_rows(const Array& array, std::int64_t index, const Head& head, int level) const {
    Rows from = rows(array, index / problem_.heads, index % problem_.heads);
    const std::int64_t row = -array_rows(head, index, level).first;
    from.data = static_cast<char*>(from.data) + row * array.row_stride * element_bytes_;
    return from;
  }
  std::int64_t row_sums_offset(std::int64_t index, const Head& head) const {
    return (index * problem_.queries - array_rows(head, index, 0).first) * sum_bytes();
  }

  const AttentionForward& problem_;
  const std::int64_t* ends_;  // of every sequence's window, or null
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

// Calls prepare(head, index, piece, shared) for all pieces of all heads, then compute(head, index, block, shared, scratch) for the
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
          for (int piece = 0; piece < pieces; ++piece) prepare(head, index, piece, shared);
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
      prepare(head_of(task / pieces), task / pieces, static_cast<int>(task % pieces), parts.shared_of(task / pieces));
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
  return divide_up(problem.queries + (1 << max_levels), blocks.query_rows / 2) + 1;
}

std::int64_t forward_workspace_bytes(const AttentionForward& problem, const Plan& plan, const Machine& machine) {
  const ForwardBlocks blocks = choose_blocks(machine.instruction_set, problem.element).forward;
  return plan.slots() * blocks.shared_bytes(plan.shape()) + machine.threads * blocks.scratch_bytes(plan.shape());
}

void run_forward(const AttentionForward& problem, const Plan& plan, const Machine& machine, void* workspace) {
  const ForwardBlocks blocks = choose_blocks(machine.instruction_set, problem.element).forward;
  const Parts parts{static_cast<char*>(workspace), blocks.shared_bytes(plan.shape()),
                    blocks.scratch_bytes(plan.shape()), plan.slots()};
  const auto head_of = [&](std::int64_t index) { return plan.forward_head(index); };
  const auto rows_of = [&](const Head& head) {
    return query_block_rows(head.query_rows, head.levels, blocks.block_rows);
  };
  const auto blocks_of = [&](const Head& head) {
    return head.length == 0 ? 0 : divide_up(head.query_rows, rows_of(head));
  };
  const auto prepare = [&](const Head& head, std::int64_t index, int piece, void* shared) {
    if (piece == 0) {
      plan.clear_padding(head.out, head, index, 0, problem.value_width);
      plan.clear_lse_padding(head, index);
    }
    if (head.length > 0) blocks.prepare(head, piece, shared);
  };
  const auto compute = [&](const Head& head, std::int64_t, std::int64_t block, void* shared, void* scratch) {
    const int rows = rows_of(head);
    // Under the causal mask the last blocks take longest, so they come first.
    const std::int64_t first = (head.causal ? blocks_of(head) - 1 - block : block) * rows;
    const int valid = static_cast<int>(std::min<std::int64_t>(rows, head.query_rows - first));
    blocks.compute(head, {first, valid}, shared, scratch);
  };
  const std::int64_t most = divide_up(plan.shape().query_rows, blocks.block_rows / 2) + 1;
  run_schedule(plan, machine, parts, problem.levels + 1, most, head_of, prepare, blocks_of, compute);
}

}  // namespace

std::int64_t workspace_bytes(const AttentionForward& problem, const Machine& machine) {
  return forward_workspace_bytes(problem, Plan(problem, machine), machine);
}

std::int64_t workspace_bytes(const AttentionBackward& problem, const Machine& machine) {
  const BackwardBlocks blocks = choose_blocks(machine.instruction_set, problem.element).backward;
  const Plan plan(problem, machine);
  const std::int64_t query_blocks = plan.heads() * most_query_blocks(problem, blocks);
  return plan.slots() * blocks.shared_bytes(plan.shape()) + machine.threads * blocks.scratch_bytes(plan.shape()) +
         query_blocks * static_cast<std::int64_t>(problem.levels * sizeof(double) + sizeof(std::atomic<int>));
}

void attention_forward(const AttentionForward& problem, const Machine& machine, void* workspace) {
  run_forward(problem, Plan(problem, machine), machine, workspace);
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
  const auto prepare = [&](const Head& head, std::int64_t index, int piece, void* shared) {
    if (piece < problem.levels) {
      plan.clear_padding(head.grad_q[piece], head, index, piece, problem.width);
      plan.clear(head.grad_k[piece], head.level_rows(piece), level_rows(problem.length, piece), problem.width);
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

std::int64_t extend_workspace_bytes(const AttentionExtend& problem, const Machine& machine) {
  return forward_workspace_bytes(problem, Plan(problem, machine, problem.ends), machine);
}

void extend_in_blocks(const AttentionExtend& problem, const Machine& machine, void* workspace) {
  run_forward(problem, Plan(problem, machine, problem.ends), machine, workspace);
}

}  // namespace hkt::kernels::cpu
