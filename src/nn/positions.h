// SPDX-License-Identifier: Apache-2.0
// Computed (not learned) positions: sinusoids to add and rotary factors to multiply with.
#pragma once

#include <ATen/core/Tensor.h>

#include <mutex>
#include <vector>

namespace hkt::positions {

// A cache of computed rows. A longer input, another dtype or another device adds a tensor, whose rows are a power of two.
// Older tensors are kept, because captured CUDA graphs still read them. Threads that share a model share its tables.
struct Table {
  std::mutex mutex;
  std::vector<at::Tensor> versions;
};

// The first `length` rows of sin and cos, [length, width]: sin(p / 10000^(2i/width)) at (p, 2i), the cos at (p, 2i + 1).
at::Tensor sinusoids(Table& table, int64_t length, int64_t width, const at::TensorOptions& options);

// x [B, T, heads, width] with the pairs (x[2i], x[2i + 1]) of row m rotated by the angle stride · m / 10000^(2i/width), cut into
// parts of so many heads: [B, part, T, width] each.
std::vector<at::Tensor> rotate(Table& table, const at::Tensor& x, int64_t stride, at::IntArrayRef parts);

// The factors that rotate rows at each position below `end`, and some more: complex, [at least end, width / 2].
at::Tensor all_rotations(Table& table, int64_t end, int64_t width, at::ScalarType type, const at::Device& device);

// The factors that rotate rows at the given positions, int64 and below `end`: complex, [count, 1, width / 2]; `type` is that of
// the rows.
at::Tensor rotations(Table& table, const at::Tensor& position, int64_t end, int64_t width, at::ScalarType type);

// x [count, heads, width] with the pairs of each row multiplied by its factor.
at::Tensor rotated(const at::Tensor& x, const at::Tensor& rotations);

}  // namespace hkt::positions
