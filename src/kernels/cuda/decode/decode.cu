// SPDX-License-Identifier: Apache-2.0
// The decode family: which problems it takes, its workspace, and its kernels by element type and width.
#include "common/tensor_core_kernels.h"
#include "decode/loader.h"
#include "families.h"

namespace hkt::kernels::cuda::decode {

template <class T, int width>
void start_extend(const AttentionExtend& problem, const Device& device, void* workspace);

namespace {

constexpr std::int64_t max_rows = std::int64_t(1) << 30;  // of keys and of queries, counted in 32 bits

}  // namespace

bool can_run(const AttentionExtend& problem, const Device& device) {
  if (!has_tensor_core_kernel(problem) || !inputs_are_aligned(problem, vector_elements)) return false;
  if (problem.length > max_rows || problem.queries * (problem.heads / problem.key_heads) > max_rows) return false;
  bool fits = false;
  for_kernel(problem, [&](auto, auto width) { fits = layout_of<width>(tile_rows).end <= device.shared_bytes; });
  return fits;
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
