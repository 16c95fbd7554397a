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

// Uninitialised results. They are laid out as the input they belong to, so that what was [B, T, H, D] in memory stays so;
// their last stride is 1.
AttentionOutput empty_attention_output(const at::Tensor& v);
AttentionGradients empty_attention_gradients(at::TensorList q, at::TensorList k, const at::Tensor& v,
                                             const at::Tensor& weights);

}  // namespace hkt::ops
