// SPDX-License-Identifier: Apache-2.0
// Tensors as arguments of the kernels, with copies of the inputs that the kernels cannot read.
#include "attention_problem.h"

#include <cmath>

namespace hkt::ops {
namespace {

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

// The kernels read and write contiguous rows only.
bool has_contiguous_rows(const at::Tensor& tensor) { return tensor.size(-1) == 1 || tensor.stride(-1) == 1; }
kernels::Array array_of(const at::Tensor& tensor) {
  return {tensor.data_ptr(), tensor.stride(0), tensor.stride(1), tensor.stride(2)};
}

// An input, copied unless its rows are contiguous.
kernels::Array input(std::vector<at::Tensor>& held, const at::Tensor& tensor) {
  held.push_back(has_contiguous_rows(tensor) ? tensor.resolve_neg() : tensor.contiguous());
  return array_of(held.back());
}
void* contiguous_input(std::vector<at::Tensor>& held, const at::Tensor& tensor, at::ScalarType type) {
  held.push_back(tensor.to(type).contiguous());
  return held.back().data_ptr();
}

// A result. Never a copy: the kernel would write to the copy and not to the result.
kernels::Array output(const at::Tensor& tensor) {
  TORCH_INTERNAL_ASSERT(has_contiguous_rows(tensor) && !tensor.is_neg(),
                        "hkt::attention: the rows of a result are not contiguous");
  return array_of(tensor);
}
void* contiguous_output(const at::Tensor& tensor) {
  TORCH_INTERNAL_ASSERT(tensor.is_contiguous() && !tensor.is_neg(), "hkt::attention: a result is not contiguous");
  return tensor.data_ptr();
}

template <class Problem>
AttentionCall<Problem> call_of(at::TensorList q, at::TensorList k, const at::Tensor& v, const at::Tensor& weights,
                               bool causal, const std::optional<at::Tensor>& lengths, std::optional<double> scale) {
  AttentionCall<Problem> call;
  auto& [problem, held] = call;
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
    problem.q[level] = input(held, q[level]);
    problem.k[level] = input(held, k[level]);
  }
  problem.v = input(held, v);
  problem.weights = contiguous_input(held, weights, weight_type(v.scalar_type()));
  if (lengths) problem.lengths = static_cast<const int64_t*>(contiguous_input(held, *lengths, at::kLong));
  return call;
}

}  // namespace

AttentionCall<kernels::AttentionForward> forward_call(at::TensorList q, at::TensorList k, const at::Tensor& v,
                                                      const at::Tensor& weights, bool causal,
                                                      const std::optional<at::Tensor>& lengths,
                                                      std::optional<double> scale, const AttentionOutput& results) {
  auto call = call_of<kernels::AttentionForward>(q, k, v, weights, causal, lengths, scale);
  call.problem.out = output(std::get<0>(results));
  call.problem.lse = contiguous_output(std::get<1>(results));
  return call;
}

AttentionCall<kernels::AttentionBackward> backward_call(const at::Tensor& grad_out, at::TensorList q, at::TensorList k,
                                                        const at::Tensor& v, const at::Tensor& weights, bool causal,
                                                        const std::optional<at::Tensor>& lengths,
                                                        std::optional<double> scale, const AttentionOutput& results,
                                                        const AttentionGradients& gradients) {
  auto call = call_of<kernels::AttentionBackward>(q, k, v, weights, causal, lengths, scale);
  auto& [problem, held] = call;
  const auto& [grad_q, grad_k, grad_v, grad_weights] = gradients;
  problem.out = input(held, std::get<0>(results));
  problem.lse = contiguous_input(held, std::get<1>(results), weight_type(v.scalar_type()));
  problem.grad_out = input(held, grad_out);
  for (size_t level = 0; level < q.size(); ++level) {
    problem.grad_q[level] = output(grad_q[level]);
    problem.grad_k[level] = output(grad_k[level]);
  }
  problem.grad_v = output(grad_v);
  problem.grad_weights = contiguous_output(grad_weights);
  return call;
}

}  // namespace hkt::ops
