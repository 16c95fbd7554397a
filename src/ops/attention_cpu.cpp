// SPDX-License-Identifier: Apache-2.0
// The attention operators on the CPU: gives the kernels pointers, strides and torch's thread pool.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/Version.h>
#include <torch/library.h>

#include <algorithm>
#include <cstdlib>

#include "attention_problem.h"
#include "hkt/ops.h"

namespace hkt::ops {
namespace {

using kernels::cpu::InstructionSet;

// The machine's best instruction set, limited to what torch itself uses (ATEN_CPU_CAPABILITY).
InstructionSet instruction_set() {
  static const InstructionSet set = [] {
    const std::string torch_uses = at::get_cpu_capability();
    const InstructionSet most = torch_uses == "AVX512" ? InstructionSet::avx512_bf16
                                : torch_uses == "AVX2" ? InstructionSet::avx2
                                                       : InstructionSet::portable;
    return std::min(most, kernels::cpu::best_instruction_set());
  }();
  return set;
}

kernels::cpu::Machine torch_machine() {
  const int threads = at::in_parallel_region() ? 1 : at::get_num_threads();
  return {instruction_set(), threads, [threads](const std::function<void(int)>& body) {
            at::parallel_for(0, threads, 1, [&](int64_t begin, int64_t end) {
              for (int64_t thread = begin; thread < end; ++thread) body(static_cast<int>(thread));
            });
          }};
}

void check_length_values(const std::optional<at::Tensor>& lengths, int64_t longest) {
  if (!lengths) return;
  const auto int64_lengths = lengths->to(at::kLong);
  const auto values = int64_lengths.accessor<int64_t, 1>();
  for (int64_t i = 0; i < values.size(0); ++i)
    TORCH_CHECK(values[i] >= 0 && values[i] <= longest, "hkt::attention: lengths[", i, "] is ", values[i],
                ", must be 0 to ", longest);
}

template <class Problem>
at::Tensor workspace_for(const Problem& problem, const kernels::cpu::Machine& machine) {
  return at::empty({kernels::cpu::workspace_bytes(problem, machine)}, at::kByte);
}

// The gradients of short sequences are medium-sized blocks, allocated and freed with every call. glibc returns the top of
// its heap to the system when that exceeds twice the largest block that was ever mapped and freed, and the page faults that
// follow cost as much as the kernel. Freeing one block of the largest size that glibc takes into account raises that limit
// for good, as the first large tensor that a program frees does.
void keep_freed_memory() {
  static const bool kept = [] {
    constexpr size_t largest_block = size_t{31} << 20;  // glibc takes blocks below 32 MiB into account
    void* volatile block = std::malloc(largest_block);  // volatile keeps the pair from being optimised away
    std::free(block);
    return true;
  }();
  static_cast<void>(kept);
}

AttentionOutput attention_cpu(at::TensorList q, at::TensorList k, const at::Tensor& v, const at::Tensor& weights,
                              bool causal, const std::optional<at::Tensor>& lengths, std::optional<double> scale,
                              int64_t start) {
  const AttentionInputs inputs{q, k, v, weights, causal, lengths, scale, start};
  check_attention_inputs(inputs);
  check_length_values(lengths, v.size(2));
  const auto output = empty_attention_output(q, v);
  if (std::get<0>(output).numel() == 0) return output;
  const auto call = forward_call(inputs, output);
  const auto machine = torch_machine();
  const at::Tensor workspace = workspace_for(call.problem, machine);
  kernels::cpu::attention_forward(call.problem, machine, workspace.data_ptr());
  return output;
}

AttentionGradients attention_backward_cpu(const at::Tensor& grad_out, const std::optional<at::Tensor>& grad_lse,
                                          at::TensorList q, at::TensorList k, const at::Tensor& v,
                                          const at::Tensor& weights, const at::Tensor& out, const at::Tensor& lse,
                                          bool causal, const std::optional<at::Tensor>& lengths,
                                          std::optional<double> scale, int64_t start) {
  const AttentionInputs inputs{q, k, v, weights, causal, lengths, scale, start};
  check_attention_inputs(inputs);
  check_attention_gradient(grad_out, grad_lse, inputs, out, lse);
  check_length_values(lengths, v.size(2));
  keep_freed_memory();
  const auto gradients = empty_attention_gradients(inputs);
  if (out.numel() == 0) {
    set_to_zero(gradients);
    return in_types_of_inputs(gradients, weights);
  }
  const auto per_head = per_head_gradients(inputs, gradients);
  const auto call = backward_call(grad_out, grad_lse, inputs, {out, lse}, per_head);
  const auto machine = torch_machine();
  const at::Tensor workspace = workspace_for(call.problem, machine);
  kernels::cpu::attention_backward(call.problem, machine, workspace.data_ptr());
  sum_over_groups(per_head, gradients);
  return in_types_of_inputs(gradients, weights);
}

// Ends within the caches, and a row of q for every position.
void check_end_values(const ExtendInputs& inputs) {
  const char* op = inputs.coarse ? "hkt::decode" : "hkt::attention_extend";
  const int64_t capacity = cache_capacity(inputs), queries = inputs.q[0].size(2);
  const auto int64_ends = inputs.ends.to(at::kLong);
  const auto ends = int64_ends.accessor<int64_t, 1>();
  for (int64_t i = 0; i < ends.size(0); ++i) {
    TORCH_CHECK(ends[i] >= 0 && ends[i] <= capacity, op, ": ends[", i, "] is ", ends[i], ", must be 0 to ", capacity,
                ", the positions that all caches have room for");
    if (ends[i] == 0 || queries == 0) continue;
    for (size_t level = 1; level < inputs.q.size(); ++level) {
      const int64_t rows = ((ends[i] - 1) >> level) - ((ends[i] - queries) >> level) + 1;
      TORCH_CHECK(inputs.q[level].size(2) >= rows, op, ": q[", level, "] has ", inputs.q[level].size(2),
                  " rows, must have ", rows, " for positions ", ends[i] - queries, " to ", ends[i] - 1, " of sequence ",
                  i);
    }
  }
}

AttentionOutput extend_on_cpu(const ExtendInputs& inputs) {
  check_extend_inputs(inputs);
  check_end_values(inputs);
  const auto output = empty_attention_output(inputs.q, inputs.v);
  if (std::get<0>(output).numel() == 0) return output;
  const auto call = extend_call(inputs, output);
  const auto machine = torch_machine();
  const at::Tensor workspace = workspace_for(call.problem, machine);
  kernels::cpu::attention_extend(call.problem, machine, workspace.data_ptr());
  return output;
}

AttentionOutput extend_cpu(at::TensorList q, at::TensorList k, const at::Tensor& v, const at::Tensor& weights,
                           const at::Tensor& ends, std::optional<double> scale) {
  return extend_on_cpu({q, k, v, weights, ends, scale});
}

AttentionOutput decode_cpu(at::TensorList q, at::TensorList k, const at::Tensor& v, const at::Tensor& weights,
                           const at::Tensor& ends, at::TensorList coarse, std::optional<double> scale, bool refresh) {
  const auto output = extend_on_cpu({q, k, v, weights, ends, scale, coarse, refresh});
  count_as_written(coarse);
  return output;
}

TORCH_LIBRARY_IMPL(hkt, CPU, m) {
  m.impl("attention_extend", extend_cpu);
  m.impl("decode", decode_cpu);
  m.impl("attention", attention_cpu);
  m.impl("attention_backward", attention_backward_cpu);
}

}  // namespace
}  // namespace hkt::ops

namespace hkt {

std::string cpu_kernels() { return std::string(kernels::cpu::name(ops::instruction_set())); }

}  // namespace hkt
