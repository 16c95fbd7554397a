// SPDX-License-Identifier: Apache-2.0
// From tensors to the arguments of the kernels: pointers and strides.
#pragma once

#include "attention_inputs.h"
#include "kernels/attention.h"

namespace hkt::ops {

// A kernel's arguments and the tensors they point into. A tensor whose last stride is not 1 is held as a copy.
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
