// SPDX-License-Identifier: Apache-2.0
// From tensors to the arguments of the kernels: pointers and strides.
#pragma once

#include "attention_inputs.h"
#include "kernels/attention.h"

namespace hkt::ops {

// Throws c10::Error for a type that the kernels do not take.
kernels::Element element_of(at::ScalarType type);

// A kernel's arguments and the tensors they point into. A tensor whose last stride is not 1 is held as a copy.
template <class Problem>
struct AttentionCall {
  Problem problem;
  std::vector<at::Tensor> held;
};

// out and lse are written by the forward pass, read by the backward pass.
AttentionCall<kernels::AttentionForward> forward_call(const AttentionInputs& inputs, const AttentionOutput& results);
AttentionCall<kernels::AttentionBackward> backward_call(const at::Tensor& grad_out,
                                                        const std::optional<at::Tensor>& grad_lse,
                                                        const AttentionInputs& inputs, const AttentionOutput& results,
                                                        const AttentionGradients& gradients);

// Where the gradients of keys and values lie.
struct KeyGradients {
  kernels::Array k[kernels::max_levels];
  kernels::Array v;
};
KeyGradients key_gradients(const AttentionGradients& gradients);

AttentionCall<kernels::AttentionExtend> extend_call(const ExtendInputs& inputs, const AttentionOutput& results);

}  // namespace hkt::ops
