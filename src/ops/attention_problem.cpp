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

// The kernels read rows whose numbers lie side by side.
kernels::Array hold_rows(std::vector<at::Tensor>& held, const at::Tensor& tensor) {
  const bool dense = tensor.size(-1) == 1 || tensor.stride(-1) == 1;
  held.push_back(dense ? tensor : tensor.contiguous());
  const at::Tensor& kept = held.back();
  return {kept.data_ptr(), kept.stride(0), kept.stride(1), kept.stride(2)};
}

void* hold_whole(std::vector<at::Tensor>& held, const at::Tensor& tensor) {
  held.push_back(tensor.contiguous());
  return held.back().data_ptr();
}

template <class Problem>
AttentionCall<Problem> call_of(at::TensorList q, at::TensorList k, const at::Tensor& v, const at::Tensor& weights,
                               bool causal, const std::optional<at::Tensor>& lengths, std::optional<double> scale,
                               const AttentionOutput& output) {
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
    problem.q[level] = hold_rows(held, q[level]);
    problem.k[level] = hold_rows(held, k[level]);
  }
  problem.v = hold_rows(held, v);
  problem.out = hold_rows(held, std::get<0>(output));
  problem.lse = hold_whole(held, std::get<1>(output));
  problem.weights = hold_whole(held, weights);
  if (lengths) problem.lengths = static_cast<const int64_t*>(hold_whole(held, *lengths));
  return call;
}

}  // namespace

AttentionCall<kernels::AttentionForward> forward_call(at::TensorList q, at::TensorList k, const at::Tensor& v,
                                                      const at::Tensor& weights, bool causal,
                                                      const std::optional<at::Tensor>& lengths,
                                                      std::optional<double> scale, const AttentionOutput& output) {
  return call_of<kernels::AttentionForward>(q, k, v, weights, causal, lengths, scale, output);
}

AttentionCall<kernels::AttentionBackward> backward_call(const at::Tensor& grad_out, at::TensorList q, at::TensorList k,
                                                        const at::Tensor& v, const at::Tensor& weights, bool causal,
                                                        const std::optional<at::Tensor>& lengths,
                                                        std::optional<double> scale, const AttentionOutput& output,
                                                        const AttentionGradients& gradients) {
  auto call = call_of<kernels::AttentionBackward>(q, k, v, weights, causal, lengths, scale, output);
  auto& [problem, held] = call;
  const auto& [grad_q, grad_k, grad_v, grad_weights] = gradients;
  problem.grad_out = hold_rows(held, grad_out);
  for (size_t level = 0; level < q.size(); ++level) {
    problem.grad_q[level] = hold_rows(held, grad_q[level]);
    problem.grad_k[level] = hold_rows(held, grad_k[level]);
  }
  problem.grad_v = hold_rows(held, grad_v);
  problem.grad_weights = grad_weights.data_ptr();
  return call;
}

}  // namespace hkt::ops
