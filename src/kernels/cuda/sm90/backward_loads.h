// Backward on Hopper: loads by a warp, of which each lane starts at most one copy of a box. Tiles are in panels of 64
// columns (or of 32, if there are no more), rows of row_bytes.
#pragma once

#include "backward.h"

namespace hkt::kernels::cuda::sm90 {

template <int row_bytes, int panels>
__device__ __forceinline__ void load_keys(std::uint32_t to, const CUtensorMap (&maps)[4], std::uint32_t barrier,
                                          const BackwardWork& work, int lane) {
  const int eight = lane % 16;  // places 8 · eight on: rows r = 0 .. 7
  const int row = work.key_tile * (backward_keys / 4) + eight / 4 * 8;
  if (lane < 16 * panels)
    load_tile(to + lane * 8 * row_bytes, maps[eight % 4], barrier, lane / 16 * 64, row, work.head, work.batch);
}

template <int row_bytes, int panels>
__device__ __forceinline__ void load_coarse_keys(std::uint32_t k1, std::uint32_t k2, const BackwardParameters& p,
                                                 std::uint32_t barrier, const BackwardWork& work, int lane) {
  const int row = work.key_tile * (backward_keys / 4);
  const int panel = lane - 8 * panels;  // of level 2
  if (panel < 0)
    load_tile(k1 + lane * 8 * row_bytes, p.k1[lane % 2], barrier, lane / 8 * 64, row + lane % 8 / 2 * 8, work.head,
              work.batch);
  else if (panel < panels)
    load_tile(k2 + panel * 32 * row_bytes, p.k2, barrier, panel * 64, row, work.head, level_2_batch(p, work));
}

template <int row_bytes, int panels>
__device__ __forceinline__ void load_queries(std::uint32_t to, const CUtensorMap (&maps)[4], std::uint32_t barrier,
                                             const BackwardWork& work, int tile, int lane) {
  if (lane < 4 * panels)
    load_tile(to + lane * 16 * row_bytes, maps[lane % 4], barrier, lane / 4 * 64, tile * (backward_queries / 4),
              work.head, work.batch);
}

template <int row_bytes, int panels>
__device__ __forceinline__ void load_coarse_queries(std::uint32_t q1, std::uint32_t q2, const BackwardParameters& p,
                                                    std::uint32_t barrier, const BackwardWork& work, int tile,
                                                    int lane) {
  const int row = tile * (backward_queries / 4);
  const int panel = lane - 2 * panels;  // of level 2
  if (panel < 0)
    load_tile(q1 + lane * 16 * row_bytes, p.q1[lane % 2], barrier, lane / 2 * 64, row, work.head, work.batch);
  else if (panel < panels)
    load_tile(q2 + panel * 16 * row_bytes, p.q2, barrier, panel * 64, row, work.head, level_2_batch(p, work));
}

// Says how many bytes will come, before any lane starts a copy.
__device__ __forceinline__ void expect_bytes(std::uint32_t barrier, int bytes, int lane) {
  if (lane == 0) barrier_expect(barrier, bytes);
  __syncwarp();
}

}  // namespace hkt::kernels::cuda::sm90
