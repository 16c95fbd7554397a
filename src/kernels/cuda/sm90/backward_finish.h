// SPDX-License-Identifier: Apache-2.0
// Backward on Hopper, its last part: gradients from sums that lie in the order of accumulators.
#pragma once

#include "kernels/attention.h"

namespace hkt::kernels::cuda::sm90 {

// Sums of backward.h of one problem, in panels of `columns` columns.
struct BackwardSums {
  const float* queries;
  int columns;
  int panels;
  int query_tiles;
};

// Writes grad_q, and for each tile of queries and panel its part of the weights' gradient: [batch, heads, query_tiles
// · panels, levels].
void finish_queries(const AttentionBackward& problem, const Device& device, const BackwardSums& sums, float* partials);

}  // namespace hkt::kernels::cuda::sm90
