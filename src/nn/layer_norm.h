// The layer norms of Block and Classifier.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/modules/normalization.h>

#include <cstdint>

#include "hkt/export.h"

namespace hkt {

// What the result goes into. Linear layers under autocast would round it to bfloat16 at once, so that it may come so.
enum class NormFor : std::uint8_t { linear_layers, sums };

// norm(x), by kernels of our own where x is float32 on CUDA. Exported for its tests.
HKT_EXPORT at::Tensor layer_norm(const at::Tensor& x, torch::nn::LayerNorm& norm, NormFor use);

}  // namespace hkt
