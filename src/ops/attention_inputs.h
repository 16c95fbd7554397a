// SPDX-License-Identifier: Apache-2.0
// What hkt::attention accepts, and the shape-only part of what it returns.
#pragma once

#include <ATen/ATen.h>

#include <optional>
#include <tuple>
#include <vector>

namespace hkt::ops {

using AttentionOutput = std::tuple<at::Tensor, at::Tensor>;
using AttentionGradients = std::tuple<std::vector<at::Tensor>, std::vector<at::Tensor>, at::Tensor, at::Tensor>;

// Raises an error that names the argument, what it was and what is allowed. Works on symbolic sizes.
void check_attention_inputs(at::TensorList q, at::TensorList k, const at::Tensor& v, const at::Tensor& weights,
                            const std::optional<at::Tensor>& lengths);
void check_attention_gradient(const at::Tensor& grad_out, const at::Tensor& v, const at::Tensor& out,
                              const at::Tensor& lse);

// The element type in which the weights are computed with, whatever they come in.
at::ScalarType weight_type(at::ScalarType element);

// Uninitialised results, the gradient of the weights in weight_type. Each is laid out as the input it belongs
// to, so that what was [B, T, H, D] in memory stays so, or contiguous where rows of that overlap or are not dense. The last
// stride is always 1: no result is ever copied. at::empty makes them, or `allocator`, the current device's: at::empty fills what it returns when
// algorithms are to be deterministic, which takes its time on a GPU, though every element is written later.
AttentionOutput empty_attention_output(const at::Tensor& v, c10::Allocator* allocator = nullptr);
AttentionGradients empty_attention_gradients(at::TensorList q, at::TensorList k, const at::Tensor& v,
                                             const at::Tensor& weights, c10::Allocator* allocator = nullptr);

// The gradients as a caller gets them: that of the weights in the type in which they came.
AttentionGradients in_types_of_inputs(AttentionGradients gradients, const at::Tensor& weights);

}  // namespace hkt::ops
