// SPDX-License-Identifier: Apache-2.0
// Tensor maps: descriptions of arrays for TMA.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "kernels/attention.h"

namespace hkt::kernels::cuda::sm90 {

// Whether TMA can read and write the array: its address and strides are positive multiples of 16 bytes.
bool can_map(Element element, const Array& array);

// The array in boxes of box_rows rows and box_width columns, which lie in shared memory in rows of box_width elements
// (128 or 64 bytes), swizzled by as much. Only every row_step-th row from array.data on is seen; `rows` counts those,
// and is at least 1. What a box covers outside of the array is zero when loaded and left alone when stored.
CUtensorMap tensor_map(Element element, const Array& array, std::int64_t width, std::int64_t rows, std::int64_t heads,
                       std::int64_t batch, int box_width, int box_rows, int row_step = 1);

// Every step-th position of a level, those with the remainder: position step · i + remainder is number i. Of them an array
// that begins at position `first` and has `rows` rows has `count` ones, from row `row` on; the first is number `shift`. Where
// a map of these rows is read at number - shift, positions outside of the array are zero.
struct RemainderRows {
  std::int64_t row;
  std::int64_t count;  // at least 1, for a map's sake; if there is none, the shift is more than any number
  int shift;
};
RemainderRows remainder_rows(std::int64_t first, std::int64_t rows, int step, int remainder);

}  // namespace hkt::kernels::cuda::sm90
