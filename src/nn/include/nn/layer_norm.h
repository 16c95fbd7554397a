// SPDX-License-Identifier: Apache-2.0
// The layer norms of Block and Classifier.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/modules/normalization.h>

#include <cstdint>

namespace hkt {

// The dtype of the result: float32, or under bfloat16 autocast bfloat16, for linear layers that would round it anyway.
enum class NormOutput : std::uint8_t { autocast, float32 };

// norm(x); by hkt's kernels if x is float32 on CUDA.
at::Tensor layer_norm(const at::Tensor& x, torch::nn::LayerNorm& norm, NormOutput output);

}  // namespace hkt
