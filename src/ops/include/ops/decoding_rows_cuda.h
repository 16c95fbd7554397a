// SPDX-License-Identifier: Apache-2.0
// The rows that one new token gives to the caches of a decoding layer, at all levels: two launches that are the same for every
// position, in place of some for each level. For inference; `ends` [B], int64, lies on the device.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "hkt/export.h"

namespace hkt::ops {

// A ring holds recent rows of every sequence, [B · (rows + 2), channels]: row m at place m modulo `rows`.

// The rows of each level, [B, levels, channels], from x [B, channels], which is row ends[b] − 1 of level 0; zeros where a level
// has no new row. Rings and depthwise filters [taps, channels]: those of levels 0 … levels − 2. New rows go into the rings.
HKT_EXPORT at::Tensor new_rows_cuda(const at::Tensor& x, const at::Tensor& ends, const std::vector<at::Tensor>& rings,
                                    const std::vector<at::Tensor>& filters);

// What place_rows_cuda writes: caches [B, key heads, rows, head width], and rings of the queries of levels ≥ 1.
struct DecodingCaches {
  const std::vector<at::Tensor>& k;
  const at::Tensor& v;
  const std::vector<at::Tensor>& queries;
};
// Rotates the new rows, [B, levels, (heads + key heads) · head width], by `rotations` (complex, [positions, head width / 2]; or
// undefined), and puts them and the values, [B, key heads · head width], into the caches. Returns the current queries,
// [levels, B, heads, 1, head width].
HKT_EXPORT at::Tensor place_rows_cuda(const at::Tensor& rows, const at::Tensor& values, const at::Tensor& ends,
                                      const at::Tensor& rotations, const DecodingCaches& caches);

}  // namespace hkt::ops
