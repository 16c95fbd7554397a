// hkt::attention on the CPU: tensors to raw pointers and strides, torch's thread pool to the kernels.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/Version.h>
#include <torch/library.h>

#include <algorithm>
#include <cstdlib>

#include "attention_inputs.h"
#include "hkt/kernels.h"
#include "hkt/ops.h"

namespace hkt::ops {
namespace {

using kernels::cpu::InstructionSet;

// What the machine can run, limited by what torch itself uses (ATEN_CPU_CAPABILITY).
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

kernels::Element element_of(at::ScalarType type) {
  switch (type) {
    case at::kFloat:
      return kernels::Element::float32;
    case at::kDouble:
      return kernels::Element::float64;
    case at::kBFloat16:
      return kernels::Element::bfloat16;
    case at::kHalf:
      return kernels::Element::float16;
    default:
      TORCH_CHECK(false, "hkt::attention: no kernel for ", type);
  }
}

// The kernels read rows whose numbers lie side by side.
at::Tensor with_dense_rows(const at::Tensor& tensor) {
  return tensor.size(-1) == 1 || tensor.stride(-1) == 1 ? tensor : tensor.contiguous();
}
std::vector<at::Tensor> with_dense_rows(at::TensorList tensors) {
  std::vector<at::Tensor> dense;
  for (const at::Tensor& tensor : tensors) dense.push_back(with_dense_rows(tensor));
  return dense;
}

kernels::Array array_of(const at::Tensor& tensor) {
  return {tensor.data_ptr(), tensor.stride(0), tensor.stride(1), tensor.stride(2)};
}

void check_length_values(const at::Tensor& lengths, int64_t longest) {
  const int64_t* values = lengths.const_data_ptr<int64_t>();
  for (int64_t i = 0; i < lengths.numel(); ++i)
    TORCH_CHECK(values[i] >= 0 && values[i] <= longest, "hkt::attention: lengths[", i, "] is ", values[i],
                ", must be 0 to ", longest);
}

// Contiguous copies of the small inputs, held while the kernels run.
struct SmallInputs {
  at::Tensor weights;
  at::Tensor lengths;

  SmallInputs(const at::Tensor& weights_in, const std::optional<at::Tensor>& lengths_in, int64_t longest)
      : weights(weights_in.contiguous()) {
    if (!lengths_in) return;
    lengths = lengths_in->contiguous();
    check_length_values(lengths, longest);
  }
};

void fill_forward(kernels::AttentionForward& problem, at::TensorList q, at::TensorList k, const at::Tensor& v,
                  const SmallInputs& small, bool causal, std::optional<double> scale, const at::Tensor& out,
                  const at::Tensor& lse) {
  problem.element = element_of(v.scalar_type());
  problem.batch = v.size(0);
  problem.heads = v.size(1);
  problem.length = v.size(2);
  problem.levels = static_cast<int>(q.size());
  problem.width = static_cast<int>(q[0].size(3));
  problem.value_width = static_cast<int>(v.size(3));
  problem.causal = causal;
  problem.scale = scale.value_or(1 / std::sqrt(static_cast<double>(problem.width)));
  for (size_t level = 0; level < q.size(); ++level) {
    problem.q[level] = array_of(q[level]);
    problem.k[level] = array_of(k[level]);
  }
  problem.v = array_of(v);
  problem.out = array_of(out);
  problem.weights = small.weights.const_data_ptr();
  problem.lengths = small.lengths.defined() ? small.lengths.const_data_ptr<int64_t>() : nullptr;
  problem.lse = lse.data_ptr();
}

template <class Problem>
at::Tensor workspace_for(const Problem& problem, const kernels::cpu::Machine& machine) {
  return at::empty({kernels::cpu::workspace_bytes(problem, machine)}, at::kByte);
}

// The gradients of short sequences are blocks of middling size that come and go with every call. glibc hands the end of its
// heap back to the system when it exceeds twice the largest block that was ever mapped and freed, and the page faults that
// follow cost as much as the kernel. One block of the largest size that counts, freed untouched, ends that, as the first
// large tensor that a program frees does.
void keep_freed_memory() {
  static const bool kept = [] {
    constexpr size_t largest_that_counts = size_t{31} << 20;  // glibc: less than 32 MiB
    void* volatile block = std::malloc(largest_that_counts);  // volatile: the pair is not to be optimised away
    std::free(block);
    return true;
  }();
  static_cast<void>(kept);
}

AttentionOutput attention_cpu(at::TensorList q, at::TensorList k, const at::Tensor& v, const at::Tensor& weights,
                              bool causal, const std::optional<at::Tensor>& lengths, std::optional<double> scale) {
  check_attention_inputs(q, k, v, weights, lengths);
  const SmallInputs small(weights, lengths, v.size(2));
  auto [out, lse] = empty_attention_output(v);
  if (out.numel() == 0) return {out, lse};
  const auto dense_q = with_dense_rows(q);
  const auto dense_k = with_dense_rows(k);
  const at::Tensor dense_v = with_dense_rows(v);
  kernels::AttentionForward problem;
  fill_forward(problem, dense_q, dense_k, dense_v, small, causal, scale, out, lse);
  const auto machine = torch_machine();
  const at::Tensor workspace = workspace_for(problem, machine);
  kernels::cpu::attention_forward(problem, machine, workspace.data_ptr());
  return {out, lse};
}

AttentionGradients attention_backward_cpu(const at::Tensor& grad_out, at::TensorList q, at::TensorList k,
                                          const at::Tensor& v, const at::Tensor& weights, const at::Tensor& out,
                                          const at::Tensor& lse, bool causal, const std::optional<at::Tensor>& lengths,
                                          std::optional<double> scale) {
  check_attention_inputs(q, k, v, weights, lengths);
  check_attention_gradient(grad_out, v, out, lse);
  const SmallInputs small(weights, lengths, v.size(2));
  if (v.numel() == 0) {
    auto empty = empty_attention_gradients(q, k, v, weights);
    std::get<3>(empty).zero_();
    return empty;
  }
  keep_freed_memory();
  auto gradients = empty_attention_gradients(q, k, v, weights);
  auto& [grad_q, grad_k, grad_v, grad_weights] = gradients;
  const auto dense_q = with_dense_rows(q);
  const auto dense_k = with_dense_rows(k);
  const at::Tensor dense_v = with_dense_rows(v);
  const at::Tensor dense_grad = with_dense_rows(grad_out);
  const at::Tensor dense_out = with_dense_rows(out);
  const at::Tensor dense_lse = lse.contiguous();
  kernels::AttentionBackward problem;
  fill_forward(problem, dense_q, dense_k, dense_v, small, causal, scale, dense_out, dense_lse);
  problem.grad_out = array_of(dense_grad);
  for (size_t level = 0; level < q.size(); ++level) {
    problem.grad_q[level] = array_of(grad_q[level]);
    problem.grad_k[level] = array_of(grad_k[level]);
  }
  problem.grad_v = array_of(grad_v);
  problem.grad_weights = grad_weights.data_ptr();
  const auto machine = torch_machine();
  const at::Tensor workspace = workspace_for(problem, machine);
  kernels::cpu::attention_backward(problem, machine, workspace.data_ptr());
  return gradients;
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
