// Tables of positions that are computed, not learned: sinusoids to add and rotations to multiply with.
#pragma once

#include <ATen/core/Tensor.h>

namespace hkt::positions {

// The first `length` rows of sin and cos, [length, width]: (p, 2i) holds sin(p / 10000^(2i/width)), (p, 2i + 1) its cos.
// Both functions keep a table of `longest` rows in `cache` and make a new one only for a longer input, another dtype or
// device: a step recorded on a GPU goes on reading it where it lies.
at::Tensor sinusoids(at::Tensor& cache, int64_t length, int64_t longest, int64_t width,
                     const at::TensorOptions& options);

// x [B, T, …, width] with the pairs (x[2i], x[2i + 1]) of row m turned by the angle stride · m / 10000^(2i/width).
at::Tensor rotate(at::Tensor& cache, const at::Tensor& x, int64_t stride, int64_t longest);

}  // namespace hkt::positions
