// SPDX-License-Identifier: Apache-2.0
// The plain family: its workspace, and its kernels by element type.
#include "common/element.h"
#include "common/launch.h"
#include "families.h"

namespace hkt::kernels::cuda::plain {

template <class S>
void start_forward(const AttentionForward& problem, const Device& device);
template <class S>
void start_backward(const AttentionBackward& problem, const Device& device, void* workspace);

std::int64_t workspace_bytes(const AttentionForward&, const Device&) { return 0; }

// delta for each row, and for each tile its part of the weights' gradient.
std::int64_t workspace_bytes(const AttentionBackward& problem, const Device&) {
  const std::int64_t sequences = problem.batch * problem.heads;
  const std::int64_t tiles = ceil_divide<std::int64_t>(problem.queries, 64) + 1;
  return sequences * (problem.queries + tiles * problem.levels) * (problem.element == Element::float64 ? 8 : 4);
}

void forward(const AttentionForward& problem, const Device& device, void*) {
  switch (problem.element) {
    case Element::float32:
      return start_forward<float>(problem, device);
    case Element::float64:
      return start_forward<double>(problem, device);
    case Element::bfloat16:
      return start_forward<bfloat16>(problem, device);
    case Element::float16:
      return start_forward<float16>(problem, device);
  }
}

void backward(const AttentionBackward& problem, const Device& device, void* workspace) {
  switch (problem.element) {
    case Element::float32:
      return start_backward<float>(problem, device, workspace);
    case Element::float64:
      return start_backward<double>(problem, device, workspace);
    case Element::bfloat16:
      return start_backward<bfloat16>(problem, device, workspace);
    case Element::float16:
      return start_backward<float16>(problem, device, workspace);
  }
}

}  // namespace hkt::kernels::cuda::plain
