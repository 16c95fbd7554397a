// SPDX-License-Identifier: Apache-2.0
// Tensors as arguments of the kernels, with copies of the inputs that the kernels cannot read.
#include "attention_problem.h"

#include <cmath>

namespace hkt::ops {

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
      TORCH_CHECK(false, "hkt: no kernel for ", type);
  }
}

namespace {

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

// What all problems have in common. `inputs`: of hkt::attention or hkt::attention_extend.
template <class Problem, class Inputs>
AttentionCall<Problem> call_of(const Inputs& inputs) {
  const at::TensorList q = inputs.q;
  const at::Tensor& v = inputs.v;
  AttentionCall<Problem> call;
  auto& [problem, held] = call;
  problem.element = element_of(v.scalar_type());
  problem.batch = v.size(0);
  problem.heads = q[0].size(1);
  problem.key_heads = v.size(1);
  problem.length = v.size(2);
  problem.queries = q[0].size(2);
  problem.levels = static_cast<int>(q.size());
  problem.width = static_cast<int>(q[0].size(3));
  problem.value_width = static_cast<int>(v.size(3));
  problem.scale = inputs.scale.value_or(1 / std::sqrt(static_cast<double>(problem.width)));
  for (size_t level = 0; level < q.size(); ++level) {
    problem.q[level] = input(held, q[level]);
    problem.k[level] = input(held, inputs.k[level]);
  }
  problem.v = input(held, v);
  problem.weights = contiguous_input(held, inputs.weights, weight_type(v.scalar_type()));
  return call;
}

const int64_t* integers(std::vector<at::Tensor>& held, const at::Tensor& tensor) {
  return static_cast<const int64_t*>(contiguous_input(held, tensor, at::kLong));
}

template <class Problem>
AttentionCall<Problem> window_call(const AttentionInputs& inputs) {
  auto call = call_of<Problem>(inputs);
  auto& [problem, held] = call;
  problem.start = inputs.start.expect_int();
  problem.causal = inputs.causal;
  if (inputs.lengths) problem.lengths = integers(held, *inputs.lengths);
  return call;
}

}  // namespace

AttentionCall<kernels::AttentionForward> forward_call(const AttentionInputs& inputs, const AttentionOutput& results) {
  auto call = window_call<kernels::AttentionForward>(inputs);
  call.problem.out = output(std::get<0>(results));
  call.problem.lse = contiguous_output(std::get<1>(results));
  return call;
}

AttentionCall<kernels::AttentionBackward> backward_call(const at::Tensor& grad_out,
                                                        const std::optional<at::Tensor>& grad_lse,
                                                        const AttentionInputs& inputs, const AttentionOutput& results,
                                                        const AttentionGradients& gradients) {
  auto call = window_call<kernels::AttentionBackward>(inputs);
  auto& [problem, held] = call;
  const auto& [grad_q, grad_k, grad_v, grad_weights] = gradients;
  const auto sum_type = weight_type(inputs.v.scalar_type());
  problem.out = input(held, std::get<0>(results));
  problem.lse = contiguous_input(held, std::get<1>(results), sum_type);
  problem.grad_out = input(held, grad_out);
  if (grad_lse) problem.grad_lse = contiguous_input(held, *grad_lse, sum_type);
  for (size_t level = 0; level < inputs.q.size(); ++level) {
    problem.grad_q[level] = output(grad_q[level]);
    problem.grad_k[level] = output(grad_k[level]);
  }
  problem.grad_v = output(grad_v);
  problem.grad_weights = contiguous_output(grad_weights);
  return call;
}

KeyGradients key_gradients(const AttentionGradients& gradients) {
  KeyGradients arrays;
  const auto& grad_k = std::get<1>(gradients);
  for (size_t level = 0; level < grad_k.size(); ++level) arrays.k[level] = output(grad_k[level]);
  arrays.v = output(std::get<2>(gradients));
  return arrays;
}

AttentionCall<kernels::AttentionExtend> extend_call(const ExtendInputs& inputs, const AttentionOutput& results) {
  auto call = call_of<kernels::AttentionExtend>(inputs);
  auto& [problem, held] = call;
  problem.length = cache_capacity(inputs);
  problem.causal = true;
  problem.out = output(std::get<0>(results));
  problem.lse = contiguous_output(std::get<1>(results));
  problem.ends = integers(held, inputs.ends);
  for (size_t level = 0; level < inputs.q.size(); ++level) problem.query_rows[level] = inputs.q[level].size(2);
  problem.refresh = inputs.refresh;
  if (!inputs.coarse) return call;
  for (size_t i = 0; i < inputs.coarse->size(); ++i) {
    const at::Tensor& rows = (*inputs.coarse)[i];
    problem.coarse[i + 1] = {rows.data_ptr(), rows.stride(0), rows.stride(1), 1};
  }
  return call;
}

}  // namespace hkt::ops
