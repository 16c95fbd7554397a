// SPDX-License-Identifier: Apache-2.0
// Checks of the arguments of hkt::attention, and allocation of its results.
#pragma once

#include <ATen/ATen.h>

#include <optional>
#include <tuple>
#include <vector>

namespace hkt::ops {

using AttentionOutput = std::tuple<at::Tensor, at::Tensor>;
using AttentionGradients = std::tuple<std::vector<at::Tensor>, std::vector<at::Tensor>, at::Tensor, at::Tensor>;

// Throws an error that names the argument, its value and what is allowed. Works on symbolic sizes.
void check_attention_inputs(at::TensorList q, at::TensorList k, const at::Tensor& v, const at::Tensor& weights,
                            const std::optional<at::Tensor>& lengths);
void check_attention_gradient(const at::Tensor& grad_out, const at::Tensor& v, const at::Tensor& out,
                              const at::Tensor& lse);

// The dtype that the weights are converted to: float64 for float64 elements, else float32.
at::ScalarType weight_type(at::ScalarType element);

// Uninitialised results; the gradient of the weights has weight_type. Each has the memory layout of its input, so that
// [B, T, H, D] in memory stays so, or is contiguous if rows of the input overlap or are not contiguous. The last stride is
// always 1, so that no result needs a copy. The memory comes from at::empty or, if given, from `allocator`, which must be
// the current device's: under torch.use_deterministic_algorithms at::empty fills the memory, which is slow on a GPU and
// useless here, because the kernels write every element.
AttentionOutput empty_attention_output(const at::Tensor& v, c10::Allocator* allocator = nullptr);
AttentionGradients empty_attention_gradients(at::TensorList q, at::TensorList k, const at::Tensor& v,
                                             const at::Tensor& weights, c10::Allocator* allocator = nullptr);

// The gradients as the caller expects them: that of the weights converted to their own dtype.
AttentionGradients in_types_of_inputs(AttentionGradients gradients, const at::Tensor& weights);

}  // namespace hkt::ops
