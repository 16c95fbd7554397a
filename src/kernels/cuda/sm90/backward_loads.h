// Backward on Hopper: loads. One thread starts all copies of a kind: an instruction for the copy engine has its operands
// from registers of a whole warp, so that lanes that start one each would only put theirs there by turns, some 50 cycles
// apiece. Tiles are in panels of 64 columns (or of 32, if there are no more), rows of row_bytes.
#pragma once

#include "backward.h"

namespace hkt::kernels::cuda::sm90 {

template <int row_bytes, int panels>
__device__ __forceinline__ void load_keys(std::uint32_t to, const CUtensorMap (&maps)[4], std::uint32_t barrier,
                                          const BackwardWork& work) {
  const int row = work.key_tile * (backward_keys / 4);
#pragma unroll 1
  for (int i = 0; i < 4 * panels; ++i) {
#pragma unroll
    for (int k = 0; k < 4; ++k)  // places 8 · (4i + k) on of a panel
      load_tile(to + (4 * i + k) * 8 * row_bytes, maps[k], barrier, i / 4 * 64, row + i % 4 * 8, work.head, work.batch);
  }
}

template <int row_bytes, int panels>
__device__ __forceinline__ void load_coarse_keys(std::uint32_t k1, std::uint32_t k2, const BackwardParameters& p,
                                                 std::uint32_t barrier, const BackwardWork& work) {
  const int row = work.key_tile * (backward_keys / 4);
#pragma unroll 1
  for (int i = 0; i < 4 * panels; ++i) {
#pragma unroll
    for (int k = 0; k < 2; ++k)
      load_tile(k1 + (2 * i + k) * 8 * row_bytes, p.k1[k], barrier, i / 4 * 64, row + i % 4 * 8, work.head, work.batch);
  }
#pragma unroll
  for (int i = 0; i < panels; ++i)
    load_tile(k2 + i * 32 * row_bytes, p.k2, barrier, i * 64, row, work.head, level_2_batch(p, work));
}

template <int row_bytes, int panels>
__device__ __forceinline__ void load_queries(std::uint32_t to, const CUtensorMap (&maps)[4], std::uint32_t barrier,
                                             const BackwardWork& work, int tile) {
#pragma unroll
  for (int i = 0; i < 4 * panels; ++i)
    load_tile(to + i * 16 * row_bytes, maps[i % 4], barrier, i / 4 * 64, tile * (backward_queries / 4), work.head,
              work.batch);
}

template <int row_bytes, int panels>
__device__ __forceinline__ void load_coarse_queries(std::uint32_t q1, std::uint32_t q2, const BackwardParameters& p,
                                                    std::uint32_t barrier, const BackwardWork& work, int tile) {
  const int row = tile * (backward_queries / 4);
#pragma unroll
  for (int i = 0; i < 2 * panels; ++i)
    load_tile(q1 + i * 16 * row_bytes, p.q1[i % 2], barrier, i / 2 * 64, row, work.head, work.batch);
#pragma unroll
  for (int i = 0; i < panels; ++i)
    load_tile(q2 + i * 16 * row_bytes, p.q2, barrier, i * 64, row, work.head, level_2_batch(p, work));
}

}  // namespace hkt::kernels::cuda::sm90
