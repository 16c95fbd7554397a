// SPDX-License-Identifier: Apache-2.0
// HKT attention on raw pointers and strides, independent of Torch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string_view>

namespace hkt::kernels {

inline constexpr int max_levels = 8;
inline constexpr int max_width = 256;

enum class Element : std::uint8_t { float32, float64, bfloat16, float16 };

// A [batch, heads, rows, width] array whose last stride is 1; strides count elements.
struct Array {
  void* data = nullptr;
  std::int64_t batch_stride = 0;
  std::int64_t head_stride = 0;
  std::int64_t row_stride = 0;
};

// Rows of a level: ceil(length / 2^level). Never out of line, because files for different instruction sets use it.
template <class Integer>
[[gnu::always_inline]] constexpr Integer level_rows(Integer length, int level) {
  return (length + (Integer{1} << level) - 1) >> level;
}

// Everything the forward pass reads and writes. The queries are positions start … start + queries − 1 of `length` keys. Level l
// of the keys has level_rows(length, l) rows; level l of the queries begins at coarse position start >> l, see query_rows.
// Heads share keys and values in groups of heads / key_heads neighbours: head h reads key head h / (heads / key_heads).
struct AttentionForward {
  Element element = Element::float32;
  std::int64_t batch = 0;
  std::int64_t heads = 0;
  std::int64_t key_heads = 0;  // of k and v; divides heads
  std::int64_t length = 0;     // rows of v
  std::int64_t queries = 0;    // rows of q[0] and out
  std::int64_t start = 0;      // the position of the first query; start + queries <= length
  int levels = 1;
  int width = 0;
  int value_width = 0;
  bool causal = false;
  double scale = 1;

  Array q[max_levels];
  Array k[max_levels];
  Array v;
  Array out;
  const void* weights = nullptr;          // [heads, levels], contiguous; float64 for float64 elements, else float32
  const std::int64_t* lengths = nullptr;  // [batch], valid positions of each sequence; null: all of them
  void* lse = nullptr;                    // [batch, heads, queries], contiguous, the type of weights
};

// Rows of a level of `queries` queries from position `start` on: those of coarse positions start >> level to
// (start + queries − 1) >> level.
template <class Integer>
[[gnu::always_inline]] constexpr Integer query_rows(Integer start, Integer queries, int level) {
  return level_rows(start + queries, level) - (start >> level);
}

// The backward pass reads what the forward pass wrote. grad_weights is [heads, levels], the type of weights. grad_k and grad_v
// have as many heads as the queries: where heads share keys, each writes its own part of the sum.
struct AttentionBackward : AttentionForward {
  Array grad_out;
  Array grad_q[max_levels];
  Array grad_k[max_levels];
  Array grad_v;
  const void* grad_lse = nullptr;  // like lse; null: zero
  void* grad_weights = nullptr;
};

// A few new positions of every sequence against cached keys and values: decoding, verifying drafts, chunks of a prompt. The
// queries of sequence b are positions ends[b] − queries … ends[b] − 1 under the causal mask; its level l has
// level_rows(ends[b], l) cached rows, and whatever lies beyond them is not read. Rows at negative positions give out = 0 and
// lse = −inf. `start` and `lengths` are not used; `length` is the capacity, the largest end that all caches have room for.
struct AttentionExtend : AttentionForward {
  const std::int64_t* ends = nullptr;  // [batch]; on CUDA clamped to [0, length]
  // Of q[l]: row r is coarse position ((ends[b] − queries) >> l) + r. Rows beyond the last position are not read; positions
  // for which q[l] has no row count as zeros.
  std::int64_t query_rows[max_levels] = {};

  // Decoding with kept coarse scores: null, or for levels 1 and up [batch, heads, rows], the type of weights, rows contiguous.
  // R(l)[m] = weight_l · scale · ⟨q(l), k(l)[m]⟩ + R(l + 1)[m / 2] of the newest position t = ends[b] − 1. queries is 1. Level
  // l is read unless 2^l divides t or `refresh` is set; then it is computed and written.
  Array coarse[max_levels];
  bool refresh = false;
};

namespace cpu {

enum class InstructionSet : std::uint8_t { portable, avx2, avx512, avx512_bf16 };

// The widest set that this build has kernels for and this machine can run.
InstructionSet best_instruction_set();
std::string_view name(InstructionSet set);

// How a kernel uses the machine: run(body) calls body(thread) for every thread in [0, threads), in parallel if possible.
struct Machine {
  InstructionSet instruction_set = InstructionSet::portable;
  int threads = 1;
  std::function<void(const std::function<void(int)>& body)> run;
};

// Bytes of workspace (64-byte aligned) that the passes need: linear in length, at most a few times the inputs.
std::int64_t workspace_bytes(const AttentionForward& problem, const Machine& machine);
std::int64_t workspace_bytes(const AttentionBackward& problem, const Machine& machine);

// Bit-identical results for the same inputs, whatever the number of threads.
void attention_forward(const AttentionForward& problem, const Machine& machine, void* workspace);
void attention_backward(const AttentionBackward& problem, const Machine& machine, void* workspace);

// Bits of a sequence depend neither on the other sequences, nor on the capacity, nor on the number of threads.
std::int64_t workspace_bytes(const AttentionExtend& problem, const Machine& machine);
void attention_extend(const AttentionExtend& problem, const Machine& machine, void* workspace);

}  // namespace cpu

namespace cuda {

inline constexpr int oldest_capability = 80;
std::string_view built_for();  // the compute capabilities, as text

// Where a kernel runs. All pointers of a problem are device pointers, lengths too; lengths are clamped to [0, length].
struct Device {
  int capability = 0;  // 90 for compute capability 9.0
  int sm_count = 0;
  int shared_bytes = 0;        // the most shared memory of a CTA
  void* stream = nullptr;      // a cudaStream_t
  bool deterministic = false;  // bit-identical results on every run, at some cost
};

// Families of kernels, best first; families.h says which problems each takes.
enum class Family : std::uint8_t { sm90, sm80, decode, plain };

// The kernels for a problem and the device memory they need, chosen once for allocation and launch.
struct Plan {
  Family family = Family::plain;
  std::int64_t workspace_bytes = 0;  // linear in length; often 0 for the forward pass
};
Plan plan(const AttentionForward& problem, const Device& device);
Plan plan(const AttentionBackward& problem, const Device& device);

// Launch the pass on the device's stream, with the plan of this problem and device and a workspace of its size, aligned to
// 256 bytes. Throw std::runtime_error if a launch fails.
void attention_forward(const AttentionForward& problem, const Device& device, const Plan& plan, void* workspace);
void attention_backward(const AttentionBackward& problem, const Device& device, const Plan& plan, void* workspace);

// After the backward pass of heads that share keys: the sums of their gradients, in the order of the heads, into arrays like k
// and v.
void sum_over_groups(const AttentionBackward& problem, const Array (&grad_k)[max_levels], const Array& grad_v,
                     const Device& device);

// Caches. Bits of a sequence depend neither on the other sequences nor on the capacity.
Plan plan(const AttentionExtend& problem, const Device& device);
void attention_extend(const AttentionExtend& problem, const Device& device, const Plan& plan, void* workspace);

}  // namespace cuda
}  // namespace hkt::kernels
