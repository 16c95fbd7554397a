// SPDX-License-Identifier: Apache-2.0
// The sm80 family: which problems it takes, its workspace, and its kernels by element type, width and levels.
#include <algorithm>
#include <type_traits>

#include "common/element.h"
#include "families.h"
#include "sm80/plan.h"

namespace hkt::kernels::cuda::sm80 {
namespace {

int tile_width(const AttentionForward& problem) { return padded_width(std::max(problem.width, problem.value_width)); }

// Rows are copied in chunks of 16 bytes, 8 elements; their stride and number are counted in 32 bits.
constexpr std::int64_t max_rows = std::int64_t(1) << 30, max_row_stride = max_rows - 8;
bool is_aligned(const Array& array) {
  return reinterpret_cast<std::uintptr_t>(array.data) % 16 == 0 && array.batch_stride % 8 == 0 &&
         array.head_stride % 8 == 0 && array.row_stride % 8 == 0 && array.row_stride <= max_row_stride;
}

// start(element, width), both as types.
template <class Start>
void for_kernel(const AttentionForward& problem, const Start& start) {
  const auto for_width = [&](auto element) {
    switch (tile_width(problem)) {
      case 32:
        return start(element, std::integral_constant<int, 32>{});
      case 64:
        return start(element, std::integral_constant<int, 64>{});
      case 128:
        return start(element, std::integral_constant<int, 128>{});
      default:
        return start(element, std::integral_constant<int, 256>{});
    }
  };
  problem.element == Element::bfloat16 ? for_width(bfloat16{}) : for_width(float16{});
}

}  // namespace

bool can_run(const AttentionForward& problem, const Device& device) {
  if (problem.element != Element::bfloat16 && problem.element != Element::float16) return false;
  if (problem.width % 8 || problem.value_width % 8 || std::max(problem.width, problem.value_width) > max_width)
    return false;
  if (problem.length > max_rows) return false;
  bool aligned = is_aligned(problem.v) && is_aligned(problem.out);
  for (int level = 0; level < problem.levels; ++level)
    aligned = aligned && is_aligned(problem.q[level]) && is_aligned(problem.k[level]);
  if (!aligned) return false;
  bool fits = false;
  for_kernel(problem, [&](auto, auto width) {
    fits = forward_tile::queries_for<width>(problem.levels, device.shared_bytes) > 0;
  });
  return fits;
}

bool can_run(const AttentionBackward& problem, const Device& device) {
  const AttentionForward& forward = problem;
  if (!can_run(forward, device) || !is_aligned(problem.grad_out)) return false;
  for (int level = 0; level < problem.levels; ++level)
    if (!is_aligned(problem.grad_q[level])) return false;
  bool fits = false;
  for_kernel(problem,
             [&](auto, auto width) { fits = backward_tile::keys_for<width>(problem.levels, device.shared_bytes) > 0; });
  return fits;
}

std::int64_t workspace_bytes(const AttentionForward&, const Device&) { return 0; }

std::int64_t workspace_bytes(const AttentionBackward& problem, const Device& device) {
  return workspace_of(problem, tile_width(problem), device.shared_bytes).end * static_cast<std::int64_t>(sizeof(float));
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
