// SPDX-License-Identifier: Apache-2.0
// Tables of positions that are computed, not learned: sinusoids to add and rotations to multiply with.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

namespace hkt::positions {

// Rows that were computed, at least as many as were asked for so far. A longer input, another dtype or device makes a new
// tensor, twice as long as the one before at least; the old ones stay, for a CUDA graph goes on reading its own
// where it lies.
struct Table {
  std::vector<at::Tensor> versions;
};

// The first `length` rows of sin and cos, [length, width]: (p, 2i) holds sin(p / 10000^(2i/width)), (p, 2i + 1) its cos.
at::Tensor sinusoids(Table& table, int64_t length, int64_t width, const at::TensorOptions& options);

// x [B, T, …, width] with the pairs (x[2i], x[2i + 1]) of row m turned by the angle stride · m / 10000^(2i/width).
at::Tensor rotate(Table& table, const at::Tensor& x, int64_t stride);

}  // namespace hkt::positions
