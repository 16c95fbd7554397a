// SPDX-License-Identifier: Apache-2.0
// Rotary positions in one kernel; torch's complex products take three, and float32 arrays between them.
#pragma once

#include "kernels/attention.h"

namespace hkt::kernels::cuda {

// Channels 2i and 2i + 1 of row t, as a complex number, times factors[t, i], or times its conjugate, which is the gradient.
struct Rotary {
  Element element = Element::float32;  // of x and y; not float64
  std::int64_t batch = 0, length = 0;
  int heads = 0;
  int width = 0;  // of a head; even
  bool conjugate = false;

  Array x, y;
  const float* factors = nullptr;      // real and imaginary parts in turns, width of them for each row
  std::int64_t factor_row_stride = 0;  // in floats
};

// Launches on the device's stream. Throws std::runtime_error if that fails.
void rotary(const Rotary& problem, const Device& device);

}  // namespace hkt::kernels::cuda
