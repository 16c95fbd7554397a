// SPDX-License-Identifier: Apache-2.0
// The plain family over cached keys: its workspace, and its kernels by element type.
#include "families.h"
#include "plain/extend.h"

namespace hkt::kernels::cuda::plain {

std::int64_t workspace_bytes(const AttentionExtend& problem, const Device&) {
  const Split split = decode::split_of(problem, tile_rows_of(problem));
  return problem.element == Element::float64 ? Partials<double>::bytes(problem, split)
                                             : Partials<float>::bytes(problem, split);
}

void extend(const AttentionExtend& problem, const Device& device, void* workspace) {
  if (problem.batch * problem.heads * problem.queries == 0) return;
  switch (problem.element) {
    case Element::float32:
      return start_extend<float>(problem, device, workspace);
    case Element::float64:
      return start_extend<double>(problem, device, workspace);
    case Element::bfloat16:
      return start_extend<bfloat16>(problem, device, workspace);
    case Element::float16:
      return start_extend<float16>(problem, device, workspace);
  }
}

}  // namespace hkt::kernels::cuda::plain
