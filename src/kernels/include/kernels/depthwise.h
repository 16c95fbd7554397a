// SPDX-License-Identifier: Apache-2.0
// Depthwise causal convolutions of rows, for which torch takes several kernels for each tap: the short convolution (step 1) and
// downsampling (step 2).
#pragma once

#include "kernels/attention.h"

namespace hkt::kernels::cuda {

// y[b, m, c] = Σ_r weight[r, c] · x[b, step · m − r, c] for step · m < length; rows before the first are zeros. A residual
// convolution adds x[b, step · m, c]. Channels lie side by side in every array.
struct Depthwise {
  Element element = Element::float32;  // of all arrays; not float64. Sums are float32
  std::int64_t batch = 0, length = 0;
  int width = 0, taps = 0;
  int step = 1;  // or 2
  bool residual = false;

  const void* x = nullptr;  // strides in elements
  std::int64_t x_batch_stride = 0, x_row_stride = 0;
  const void* weight = nullptr;  // [taps, width] without gaps
  void* y = nullptr;             // without gaps, like all below; not used by the backward pass
};

struct DepthwiseBackward : Depthwise {
  const void* grad_y = nullptr;
  void* grad_x = nullptr;
  void* grad_weight = nullptr;
};

// Bytes of device memory that the backward pass needs.
std::int64_t workspace_bytes(const DepthwiseBackward& problem, const Device& device);

// Launch the pass on the device's stream; bit-identical results on every run. Throw std::runtime_error if a launch fails.
void depthwise_forward(const Depthwise& problem, const Device& device);
void depthwise_backward(const DepthwiseBackward& problem, const Device& device, void* workspace);

}  // namespace hkt::kernels::cuda
