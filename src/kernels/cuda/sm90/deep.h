// SPDX-License-Identifier: Apache-2.0
// Levels from 3 on, on Hopper: what the forward and the backward share.
//
// Blocks of 8 x 8 scores share one score of level 3, so 128 x 128 scores have 16 x 16 of level 3, and of levels 4 to 7
// those of 8, 4, 2 and 1 rows. That is small work, for which the products of a warp suffice. The rows of levels 4 to 7
// are 15 together: all their products are taken as one of 16 x 16, of which the blocks on the diagonal count. So the
// work does not grow with the levels.
#pragma once

#include "common/mma.h"
#include "common/problem.h"
#include "common/shared_memory.h"
#include "kernels/attention.h"

namespace hkt::kernels::cuda::sm90 {

static_assert(max_levels <= 8, "128 rows have 15 of levels 4 to 7, and none of their own of coarser ones");

// A tile that has `count` rows of level 3 has half as many of level 4 after them, and so on. Where a level begins; that
// of the level after the last is the number of rows.
__host__ __device__ constexpr int first_deep_row(int count, int level) { return level_base(count, level - 3); }
// The level of a row, of a tile with 16 of level 3: the first of five digits that is 0 tells.
__device__ __forceinline__ int deep_level(int row) { return 3 + __clz(~(row << 27)); }

}  // namespace hkt::kernels::cuda::sm90
