// SPDX-License-Identifier: Apache-2.0
// The schedule of attention over cached keys: which thread computes which chunk of keys, and where chunks are merged.
//
// A task is a chunk of the keys of one key head, for the queries of all heads that share it. Whoever finishes the last chunk
// of a head merges them in ascending order, so neither the number of threads nor the other sequences change a bit.
#include <algorithm>
#include <atomic>
#include <cstring>
#include <memory>

#include "attention_blocks.h"
#include "schedule.h"

namespace hkt::kernels::cpu {
namespace {

constexpr std::int64_t rows_of_pass = 64;  // queries of a group that are computed together, about
constexpr std::int64_t runs_per_thread = 4;
constexpr std::int64_t alignment = 64;

// Hands out runs of neighbouring tasks, shorter ones towards the end, so that the threads finish together.
class Runs {
 public:
  Runs(std::int64_t tasks, int threads) : tasks_(tasks), divisor_(threads * runs_per_thread) {}
  bool take(std::int64_t& first, std::int64_t& end) {
    first = next_.load(std::memory_order_relaxed);
    do {
      if (first >= tasks_) return false;
      end = first + divide_up(tasks_ - first, divisor_);
    } while (!next_.compare_exchange_weak(first, end, std::memory_order_relaxed));
    return true;
  }

 private:
  std::atomic<std::int64_t> next_{0};
  std::int64_t tasks_;
  std::int64_t divisor_;
};

// The problem by sequences and key heads, and its workspace: the chunks that are finished and the partial results of each key
// head, then a partial result and scratch for each thread. Queries are computed in passes, so that it does not grow with them.
class Plan {
 public:
  Plan(const AttentionExtend& problem, const Machine& machine)
      : problem_(problem),
        machine_(machine),
        blocks_(choose_blocks(machine.instruction_set, problem.element).decode),
        group_(problem.heads / problem.key_heads),
        pass_(std::min(problem.queries, std::max<std::int64_t>(1, rows_of_pass / group_))) {
    const DecodeHead largest = shape(pass_);
    partial_bytes_ = blocks_.partial_bytes(largest);
    scratch_bytes_ = blocks_.scratch_bytes(largest);
    for (std::int64_t b = 0; b < problem.batch; ++b)
      most_chunks_ = std::max(most_chunks_, divide_up(problem.ends[b], decode_keys));
    if (most_chunks_ == 1) most_chunks_ = 0;  // those of one chunk are merged in the thread's own memory
  }

  std::int64_t workspace_bytes() const {
    return counter_bytes() + key_heads() * most_chunks_ * partial_bytes_ +
           machine_.threads * (partial_bytes_ + scratch_bytes_);
  }

  void run(void* workspace) {
    workspace_ = static_cast<char*>(workspace);
    clear_negative_positions();
    for (first_query_ = 0; first_query_ < problem_.queries; first_query_ += pass_) {
      std::uninitialized_value_construct_n(counters(), key_heads());
      std::int64_t tasks = 0;
      for (std::int64_t b = 0; b < problem_.batch; ++b) tasks += chunks(b) * problem_.key_heads;
      Runs runs(tasks, machine_.threads);
      runs_ = &runs;
      if (tasks > 1)
        machine_.run([this](int thread) { compute(thread); });
      else
        compute(0);
    }
  }

 private:
  std::int64_t key_heads() const { return problem_.batch * problem_.key_heads; }
  std::int64_t counter_bytes() const {
    return divide_up(key_heads() * static_cast<std::int64_t>(sizeof(std::atomic<int>)), alignment) * alignment;
  }
  std::atomic<int>* counters() const { return reinterpret_cast<std::atomic<int>*>(workspace_); }
  char* partials_of(std::int64_t key_head) const {
    return workspace_ + counter_bytes() + key_head * most_chunks_ * partial_bytes_;
  }
  char* memory_of(int thread) const { return partials_of(key_heads()) + thread * (partial_bytes_ + scratch_bytes_); }

  // Of sequence b in this pass: the position behind its last query, and the chunks of keys that its queries see.
  std::int64_t end_of_pass(std::int64_t b) const {
    return problem_.ends[b] - problem_.queries + std::min(first_query_ + pass_, problem_.queries);
  }
  std::int64_t chunks(std::int64_t b) const {
    return divide_up(std::max<std::int64_t>(0, end_of_pass(b)), decode_keys);
  }

  DecodeHead shape(std::int64_t queries) const {
    DecodeHead head;
    head.levels = problem_.levels;
    head.width = problem_.width;
    head.value_width = problem_.value_width;
    head.heads = static_cast<int>(group_);
    head.queries = static_cast<int>(queries);
    return head;
  }

  DecodeHead head_of(std::int64_t b, std::int64_t key_head) const {
    const std::int64_t start = problem_.ends[b] - problem_.queries;
    const std::int64_t position = std::max<std::int64_t>(0, start + first_query_);
    const std::int64_t query = position - start;
    const std::int64_t first_head = key_head * group_;
    DecodeHead head = shape(end_of_pass(b) - position);
    head.position = position;
    head.weights = static_cast<const char*>(problem_.weights) + first_head * problem_.levels * sum_bytes();
    head.scale = problem_.scale;
    for (int level = 0; level < problem_.levels; ++level) {
      const std::int64_t row = (position >> level) - (start >> level);
      head.q[level] = part_of(problem_.q[level], b, first_head, row);
      head.query_rows[level] = problem_.query_rows[level] - row;
      const Array k = part_of(problem_.k[level], b, key_head, 0);
      head.k[level] = {k.data, k.row_stride};
    }
    const Array v = part_of(problem_.v, b, key_head, 0);
    head.v = {v.data, v.row_stride};
    head.out = part_of(problem_.out, b, first_head, query);
    head.lse_stride = problem_.queries;
    head.lse = lse_of(b, first_head, query);
    set_kept_scores(head, b, first_head);
    return head;
  }

  void set_kept_scores(DecodeHead& head, std::int64_t b, std::int64_t first_head) const {
    head.kept_level = head.levels;
    if (head.levels == 1 || !problem_.coarse[1].data) return;
    for (int level = 1; level < head.levels; ++level) {
      const Array& kept = problem_.coarse[level];
      const std::int64_t offset = b * kept.batch_stride + first_head * kept.head_stride;
      head.coarse[level] = kept;
      head.coarse[level].data = static_cast<char*>(kept.data) + offset * sum_bytes();
    }
    if (problem_.refresh) return;
    for (head.kept_level = 1; head.kept_level < head.levels; ++head.kept_level)
      if (head.position % (std::int64_t{1} << head.kept_level) != 0) return;
  }

  std::int64_t sum_bytes() const { return problem_.element == Element::float64 ? 8 : 4; }
  Array part_of(const Array& array, std::int64_t b, std::int64_t head, std::int64_t row) const {
    const std::int64_t offset = b * array.batch_stride + head * array.head_stride + row * array.row_stride;
    return {static_cast<char*>(array.data) + offset * element_bytes(problem_.element), 0, array.head_stride,
            array.row_stride};
  }
  void* lse_of(std::int64_t b, std::int64_t head, std::int64_t query) const {
    return static_cast<char*>(problem_.lse) + ((b * problem_.heads + head) * problem_.queries + query) * sum_bytes();
  }

  void clear_negative_positions() const {
    for (std::int64_t b = 0; b < problem_.batch; ++b)
      for (std::int64_t query = 0; query < std::min(problem_.queries, problem_.queries - problem_.ends[b]); ++query)
        for (std::int64_t head = 0; head < problem_.heads; ++head) {
          std::memset(part_of(problem_.out, b, head, query).data, 0,
                      problem_.value_width * element_bytes(problem_.element));
          if (problem_.element == Element::float64)
            *static_cast<double*>(lse_of(b, head, query)) = -__builtin_inf();
          else
            *static_cast<float*>(lse_of(b, head, query)) = -__builtin_inff();
        }
  }

  // The tasks of a thread, in ascending order: by sequences, then key heads, then chunks.
  void compute(int thread) const {
    std::int64_t b = 0;
    std::int64_t sequence_begin = 0;  // the first task of sequence b
    for (std::int64_t task = 0, end = 0; runs_->take(task, end);)
      for (; task < end; ++task) {
        for (; task >= sequence_begin + chunks(b) * problem_.key_heads; ++b)
          sequence_begin += chunks(b) * problem_.key_heads;
        const std::int64_t index = task - sequence_begin;
        compute_chunk(b, index / chunks(b), index % chunks(b), memory_of(thread));
      }
  }

  void compute_chunk(std::int64_t b, std::int64_t key_head, std::int64_t chunk, char* memory) const {
    const DecodeHead head = head_of(b, key_head);
    const std::int64_t index = b * problem_.key_heads + key_head;
    const std::int64_t count = chunks(b);
    const std::int64_t first = chunk * decode_keys;
    const Block keys{first, static_cast<int>(std::min<std::int64_t>(decode_keys, end_of_pass(b) - first))};
    char* partials = count == 1 ? memory : partials_of(index);
    // Of this head and not partial_bytes_: merge expects the partial results one after the other, and some have fewer queries.
    blocks_.compute(head, keys, partials + chunk * blocks_.partial_bytes(head), memory + partial_bytes_);
    if (count == 1 || counters()[index].fetch_add(1, std::memory_order_acq_rel) + 1 == count)
      blocks_.merge(head, partials, count);
  }

  const AttentionExtend& problem_;
  const Machine& machine_;
  DecodeBlocks blocks_;
  std::int64_t group_;
  std::int64_t pass_;  // queries
  std::int64_t partial_bytes_ = 0;
  std::int64_t scratch_bytes_ = 0;
  std::int64_t most_chunks_ = 0;
  char* workspace_ = nullptr;
  std::int64_t first_query_ = 0;
  Runs* runs_ = nullptr;
};

// From this many queries on, products of matrices are worth the packing of the keys.
constexpr std::int64_t queries_of_a_block = 16;
bool in_blocks(const AttentionExtend& problem) { return problem.queries >= queries_of_a_block; }

}  // namespace

std::int64_t workspace_bytes(const AttentionExtend& problem, const Machine& machine) {
  return in_blocks(problem) ? extend_workspace_bytes(problem, machine) : Plan(problem, machine).workspace_bytes();
}

void attention_extend(const AttentionExtend& problem, const Machine& machine, void* workspace) {
  if (in_blocks(problem)) return extend_in_blocks(problem, machine, workspace);
  Plan(problem, machine).run(workspace);
}

}  // namespace hkt::kernels::cpu
