// SPDX-License-Identifier: Apache-2.0
// The sm80 family: which problems it takes, its workspace, and its kernels by element type, width and levels.
#include "common/tensor_core_kernels.h"
#include "families.h"
#include "sm80/plan.h"

namespace hkt::kernels::cuda::sm80 {
namespace {

// The stride and the number of rows are counted in 32 bits.
constexpr std::int64_t max_rows = std::int64_t(1) << 30, max_row_stride = max_rows - 8;
bool can_copy(const Array& array) { return is_aligned(array, vector_elements) && array.row_stride <= max_row_stride; }

}  // namespace

bool can_run(const AttentionForward& problem, const Device& device) {
  if (!has_tensor_core_kernel(problem) || problem.length > max_rows) return false;
  bool copies = can_copy(problem.v) && can_copy(problem.out);
  for (int level = 0; level < problem.levels; ++level)
    copies = copies && can_copy(problem.q[level]) && can_copy(problem.k[level]);
  if (!copies) return false;
  bool fits = false;
  for_kernel(problem, [&](auto, auto width) {
    fits = forward_tile::queries_for<width>(problem.levels, device.shared_bytes) > 0;
  });
  return fits;
}

bool can_run(const AttentionBackward& problem, const Device& device) {
  const AttentionForward& forward = problem;
  if (!can_run(forward, device) || !can_copy(problem.grad_out)) return false;
  for (int level = 0; level < problem.levels; ++level)
    if (!can_copy(problem.grad_q[level])) return false;
  bool fits = false;
  for_kernel(problem,
             [&](auto, auto width) { fits = backward_tile::keys_for<width>(problem.levels, device.shared_bytes) > 0; });
  return fits;
}

std::int64_t workspace_bytes(const AttentionForward&, const Device&) { return 0; }

std::int64_t workspace_bytes(const AttentionBackward& problem, const Device& device) {
  return workspace_of(problem, padded_width(wider(problem)), device.shared_bytes).end *
         static_cast<std::int64_t>(sizeof(float));
}

void forward(const AttentionForward& problem, const Device& device, void*) {
  for_kernel(problem, [&](auto element, auto width) { start_forward<decltype(element), width>(problem, device); });
}

bool can_run(const AttentionExtend& problem, const Device& device) {
  const AttentionForward& forward = problem;
  return can_run(forward, device) && problem.coarse[1].data == nullptr;
}

std::int64_t workspace_bytes(const AttentionExtend&, const Device&) { return 0; }

void extend(const AttentionExtend& problem, const Device& device, void*) {
  AttentionExtend causal = problem;
  causal.causal = true;
  for_kernel(problem, [&](auto element, auto width) { start_extend<decltype(element), width>(causal, device); });
}

void backward(const AttentionBackward& problem, const Device& device, void* workspace) {
  for_kernel(problem, [&](auto element, auto width) {
    using T = decltype(element);
    if (problem.levels <= 3) return start_backward<T, width, 3>(problem, device, workspace);
    start_backward<T, width, max_levels>(problem, device, workspace);
  });
}

}  // namespace hkt::kernels::cuda::sm80
