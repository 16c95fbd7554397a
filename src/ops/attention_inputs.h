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
// their last stride is 1. at::empty makes them, or `allocator`, the current device's: at::empty fills what it returns when
// algorithms are to be deterministic, which takes its time on a GPU, though every element is written later.
AttentionOutput empty_attention_output(const at::Tensor& v, c10::Allocator* allocator = nullptr);
AttentionGradients empty_attention_gradients(at::TensorList q, at::TensorList k, const at::Tensor& v,
                                             const at::Tensor& weights, c10::Allocator* allocator = nullptr);

}  // namespace hkt::ops
