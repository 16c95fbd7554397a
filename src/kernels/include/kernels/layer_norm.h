// SPDX-License-Identifier: Apache-2.0
// Layer norm of many short rows, for which torch's kernels are several times slower than memory bandwidth allows.
#pragma once

#include "kernels/attention.h"

namespace hkt::kernels::cuda {

inline constexpr int max_norm_width = 1024;

// y = (x − mean) · rstd · weight + bias for each row, rstd = 1 / √(variance + epsilon). Rows follow each other without gaps.
struct LayerNorm {
  Element element = Element::float32;  // of y and its gradient: float32 or bfloat16
  std::int64_t rows = 0;
  int width = 0;  // 1 to max_norm_width
  float epsilon = 0;

  const float* x = nullptr;
  const float* weight = nullptr;
  const float* bias = nullptr;  // read by the forward pass only
  float* mean = nullptr;        // [rows], like rstd: written by the forward pass, read by the backward pass
  float* rstd = nullptr;
  void* y = nullptr;  // written by the forward pass, not used by the backward pass
};

struct LayerNormBackward : LayerNorm {
  const void* grad_y = nullptr;
  float* grad_x = nullptr;
  float* grad_weight = nullptr;
  float* grad_bias = nullptr;
};

// Bytes of device memory that the backward pass needs: a few rows for each SM.
std::int64_t workspace_bytes(const LayerNormBackward& problem, const Device& device);

// Launch the pass on the device's stream; bit-identical results on every run. Throw std::runtime_error if a launch fails.
void layer_norm_forward(const LayerNorm& problem, const Device& device);
void layer_norm_backward(const LayerNormBackward& problem, const Device& device, void* workspace);

}  // namespace hkt::kernels::cuda
