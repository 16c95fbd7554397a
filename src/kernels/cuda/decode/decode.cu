// SPDX-License-Identifier: Apache-2.0
// The decode family: which problems it takes, its workspace, and its kernels by element type and width.
#include <type_traits>

#include "common/element.h"
#include "decode/loader.h"
#include "families.h"

namespace hkt::kernels::cuda::decode {

template <class T, int width>
void start_extend(const AttentionExtend& problem, const Device& device, void* workspace);

namespace {

constexpr std::int64_t max_rows = std::int64_t(1) << 30;  // of keys and of queries, counted in 32 bits

// Rows are copied in chunks of 16 bytes, 8 elements.
bool is_aligned(const Array& array) {
  return reinterpret_cast<std::uintptr_t>(array.data) % 16 == 0 && array.batch_stride % 8 == 0 &&
         array.head_stride % 8 == 0 && array.row_stride % 8 == 0;
}

// start(element, width), both as types.
template <class Start>
void for_kernel(const AttentionExtend& problem, const Start& start) {
  const int wider = std::max(problem.width, problem.value_width);
  const auto for_width = [&](auto element) {
    if (wider <= 32) return start(element, std::integral_constant<int, 32>{});
    if (wider <= 64) return start(element, std::integral_constant<int, 64>{});
    if (wider <= 128) return start(element, std::integral_constant<int, 128>{});
    start(element, std::integral_constant<int, 256>{});
  };
  problem.element == Element::bfloat16 ? for_width(bfloat16{}) : for_width(float16{});
}

}  // namespace

bool can_run(const AttentionExtend& problem, const Device& device) {
  if (problem.element != Element::bfloat16 && problem.element != Element::float16) return false;
  if (problem.width % 8 || problem.value_width % 8 || std::max(problem.width, problem.value_width) > max_width)
    return false;
  if (problem.length > max_rows || problem.queries * (problem.heads / problem.key_heads) > max_rows) return false;
  bool aligned = is_aligned(problem.v);
  for (int level = 0; level < problem.levels; ++level)
    aligned = aligned && is_aligned(problem.q[level]) && is_aligned(problem.k[level]);
  bool fits = false;
  for_kernel(problem, [&](auto, auto width) { fits = layout_of<width>(tile_rows).end <= device.shared_bytes; });
  return aligned && fits;
}

std::int64_t workspace_bytes(const AttentionExtend& problem, const Device&) {
  return Partials<float>::bytes(problem, split_of(problem, tile_rows));
}

void extend(const AttentionExtend& problem, const Device& device, void* workspace) {
  if (problem.batch * problem.heads * problem.queries == 0) return;
  for_kernel(problem,
             [&](auto element, auto width) { start_extend<decltype(element), width>(problem, device, workspace); });
}

}  // namespace hkt::kernels::cuda::decode
