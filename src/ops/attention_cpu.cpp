// SPDX-License-Identifier: Apache-2.0
// hkt::attention on the CPU: gives the kernels pointers, strides and torch's thread pool.
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
                              bool causal, const std::optional<at::Tensor>& lengths, std::optional<double> scale) {
  check_attention_inputs(q, k, v, weights, lengths);
  check_length_values(lengths, v.size(2));
  const auto output = empty_attention_output(v);
  if (v.numel() == 0) return output;
  const auto call = forward_call(q, k, v, weights, causal, lengths, scale, output);
  const auto machine = torch_machine();
  const at::Tensor workspace = workspace_for(call.problem, machine);
  kernels::cpu::attention_forward(call.problem, machine, workspace.data_ptr());
  return output;
}

AttentionGradients attention_backward_cpu(const at::Tensor& grad_out, at::TensorList q, at::TensorList k,
                                          const at::Tensor& v, const at::Tensor& weights, const at::Tensor& out,
                                          const at::Tensor& lse, bool causal, const std::optional<at::Tensor>& lengths,
                                          std::optional<double> scale) {
  check_attention_inputs(q, k, v, weights, lengths);
  check_attention_gradient(grad_out, v, out, lse);
  check_length_values(lengths, v.size(2));
  keep_freed_memory();
  const auto gradients = empty_attention_gradients(q, k, v, weights);
  if (v.numel() == 0) {
    std::get<3>(gradients).zero_();
    return in_types_of_inputs(gradients, weights);
  }
  const auto call = backward_call(grad_out, q, k, v, weights, causal, lengths, scale, {out, lse}, gradients);
  const auto machine = torch_machine();
  const at::Tensor workspace = workspace_for(call.problem, machine);
  kernels::cpu::attention_backward(call.problem, machine, workspace.data_ptr());
  return in_types_of_inputs(gradients, weights);
}

TORCH_LIBRARY_IMPL(hkt, CPU, m) {
  m.impl("attention", attention_cpu);
  m.impl("attention_backward", attention_backward_cpu);
}

}  // namespace
}  // namespace hkt::ops

namespace hkt {

std::string cpu_kernels() { return std::string(kernels::cpu::name(ops::instruction_set())); }

}  // namespace hkt
