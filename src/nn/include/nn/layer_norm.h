// SPDX-License-Identifier: Apache-2.0
// The layer norms of Block and Classifier.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/modules/normalization.h>

#include <cstdint>

namespace hkt {

// What the result goes into. Linear layers under autocast would round it to bfloat16 at once, so that it may come so.
enum class NormOutput : std::uint8_t { autocast, float32 };

// norm(x), by kernels of our own where x is float32 on CUDA.
at::Tensor layer_norm(const at::Tensor& x, torch::nn::LayerNorm& norm, NormOutput output);

}  // namespace hkt
