// SPDX-License-Identifier: Apache-2.0
// Tensors to what the kernels take: pointers and strides.
#pragma once

#include "attention_inputs.h"
#include "kernels/attention.h"

namespace hkt::ops {

// A kernel's problem and the tensors it points into; where the last stride is not 1 these are copies.
template <class Problem>
struct AttentionCall {
  Problem problem;
  std::vector<at::Tensor> held;
};

// out and lse are written by the forward pass, read by the backward pass.
AttentionCall<kernels::AttentionForward> forward_call(at::TensorList q, at::TensorList k, const at::Tensor& v,
                                                      const at::Tensor& weights, bool causal,
                                                      const std::optional<at::Tensor>& lengths,
                                                      std::optional<double> scale, const AttentionOutput& results);
AttentionCall<kernels::AttentionBackward> backward_call(const at::Tensor& grad_out, at::TensorList q, at::TensorList k,
                                                        const at::Tensor& v, const at::Tensor& weights, bool causal,
                                                        const std::optional<at::Tensor>& lengths,
                                                        std::optional<double> scale, const AttentionOutput& results,
                                                        const AttentionGradients& gradients);

}  // namespace hkt::ops
