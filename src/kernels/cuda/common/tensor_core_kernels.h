// SPDX-License-Identifier: Apache-2.0
// Which kernel of a tensor-core family that has one for each 16-bit element type and padded width takes a problem.
#pragma once

#include <algorithm>

#include "common/element.h"
#include "common/problem.h"

namespace hkt::kernels::cuda {

// Rows are copied in vectors of 16 bytes.
inline constexpr int vector_elements = 8;

inline int wider(const AttentionForward& problem) { return std::max(problem.width, problem.value_width); }

// Element types and widths that there are kernels for.
inline bool has_tensor_core_kernel(const AttentionForward& problem) {
  return (problem.element == Element::bfloat16 || problem.element == Element::float16) &&
         problem.width % vector_elements == 0 && problem.value_width % vector_elements == 0 &&
         wider(problem) <= max_width;
}

// start(element, width), both as types.
template <class Start>
void for_kernel(const AttentionForward& problem, const Start& start) {
  for_width(wider(problem), [&](auto width) {
    problem.element == Element::bfloat16 ? start(bfloat16{}, width) : start(float16{}, width);
  });
}

}  // namespace hkt::kernels::cuda
