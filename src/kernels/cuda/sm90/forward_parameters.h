// SPDX-License-Identifier: Apache-2.0
// What the host tells a forward kernel of the Hopper family.
#pragma once

#include <cuda.h>

#include "kernels/attention.h"

namespace hkt::kernels::cuda::sm90 {

// A tile of 128 query rows is kept as two blocks of 64, the even rows and the odd ones. Place 32s + i of parity e is
// row 4i + 2s + e of the tile, so that the places 32s + i of both parities share row 2i + s of level 1 and row i of
// level 2. Hence one map for each residue of rows: q0[x] sees rows 4i + x, q1[s] rows 2i + s.
struct ForwardParameters {
  CUtensorMap q0[4];
  CUtensorMap q1[2];
  CUtensorMap q2;
  CUtensorMap k0;
  CUtensorMap v;

  // The copy engine does not touch these.
  Array k1;
  Array k2;
  Array out;
  const float* weights;
  const std::int64_t* lengths;
  float* lse;

  float scale;  // in base 2
  int levels;
  int width;
  int heads;
  int length;
  int rows1;  // of level 1
  int rows2;  // of level 2; 0 if there is none
  bool causal;

  // The order of the work: see Work in forward_common.h.
  int tiles;      // of query rows of a head
  int sequences;  // heads times batch
  int group;      // sequences of a group
  int items;

  Array deep_q[max_levels - 3];  // levels from 3 on
  Array deep_k[max_levels - 3];
  float* deep_sums;  // see forward_deep.h
};

// Bytes of the sums of levels from 3 on, of 128 x 128 scores.
inline constexpr int deep_tile_bytes = 16 * 16 * 4;

// Query rows of an item of work.
template <int width>
inline constexpr int forward_rows = width == 128 ? 128 : 256;

// Starts the kernel for elements T, widths up to `width` and one level, up to three or up to max_levels.
template <class T, int width, int levels>
void start_forward(const ForwardParameters& parameters, const Device& device);

}  // namespace hkt::kernels::cuda::sm90
