// Forward on Hopper, levels from 3 on. A tile of 128 x 128 scores has 16 x 16 of level 3. Those of all these levels,
// weighted, are summed at its resolution; the sums join the scores of level 2.
#pragma once

#include "deep.h"
#include "forward_common.h"

namespace hkt::kernels::cuda::sm90 {

// ---- sums, as they lie in shared memory ----
// [query][key % 2][key / 2]: a thread needs the keys 2j + c % 2 for the level-1 blocks j, so that four are neighbours.

inline constexpr int deep_row = 16 * 4;
inline constexpr int deep_tile = 16 * deep_row;

// Where the thread's sums begin, from the sums of its warp's eight queries on.
__device__ __forceinline__ int deep_place() { return threadIdx.x % 32 / 8 * deep_row + threadIdx.x % 2 * 32; }

// Of the thread's rows r and r + 8, for blocks j to j + 3.
struct DeepScores {
  float4 rows[2];
};
__device__ __forceinline__ DeepScores load_deep(std::uint32_t from, int j) {
  return {{load_coarse(from + j * 4), load_coarse(from + 4 * deep_row + j * 4)}};
}
__device__ __forceinline__ float deep_of(const DeepScores& deep, int r, int j) {
  const float4& row = deep.rows[r];
  return j % 4 == 0 ? row.x : j % 4 == 1 ? row.y : j % 4 == 2 ? row.z : row.w;
}

__device__ __forceinline__ void store_float(std::uint32_t to, float value) {
  asm volatile("st.shared.f32 [%0], %1;" ::"r"(to), "f"(value) : "memory");
}

// ---- by way of shared memory, for widths up to 64 ----

inline constexpr int deep_rows = 32;  // that 128 rows of level 0 have, at most

// A warp: the sums of 16 queries and of two times 8 keys, in accumulators, from rows in shared memory.
template <class T, int width>
__device__ __forceinline__ void make_deep_sums(float (&sums)[2][4], std::uint32_t queries, std::uint32_t keys,
                                               const ForwardParameters& p, const Item& item) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int i = 0; i < 8; ++i) sums[i / 4][i % 4] = 0;
#pragma unroll 1
  for (int level = 3; level < p.levels; ++level) {
    const int query = first_deep_row(16, level) + (lane % 16 >> (level - 3));
    const float c = coefficient(p, item, level);
#pragma unroll
    for (int half = 0; half < 2; ++half) {  // of the keys
      const int key = first_deep_row(16, level) + ((8 * half + lane % 8) >> (level - 3));
      float product[4];
#pragma unroll
      for (int i = 0; i < width / 32; ++i) {
        std::uint32_t b[4];
        sm80::load_matrices(b, keys + deep_offset<width>(key, 4 * i + lane / 8));
#pragma unroll
        for (int k = 0; k < 2; ++k) {
          std::uint32_t a[4];
          sm80::load_matrices(a, queries + deep_offset<width>(query, 4 * i + 2 * k + lane / 16));
          sm80::multiply<T>(product, a, b[2 * k], b[2 * k + 1], i == 0 && k == 0);
        }
      }
#pragma unroll
      for (int i = 0; i < 4; ++i) sums[half][i] = fmaf(c, product[i], sums[half][i]);
    }
  }
}

__device__ __forceinline__ void store_deep_sums(std::uint32_t to, const float (&sums)[2][4]) {
  to += threadIdx.x % 32 / 4 * deep_row + threadIdx.x % 4 * 4;
#pragma unroll
  for (int i = 0; i < 8; ++i) store_float(to + i / 2 % 2 * 8 * deep_row + i % 2 * 32 + i / 4 * 16, sums[i / 4][i % 4]);
}

// ---- straight from global memory, for width 128, whose kernel has no room in shared memory ----

// A warp: the sums of 16 keys, from first_key of level 0 on, by 8 queries, in an accumulator. A thread reads 16 bytes of
// a row at a time, the columns 8c to 8c + 7 of 32; products take them for columns 2c, 2c + 1, 2c + 8, 2c + 9 of 16, twice.
// That is another order of the columns, the same for both operands. For rows after the last one any will do: nobody
// sees their scores.
template <class T>
__device__ __forceinline__ void sum_deep_levels(float (&sums)[4], const ForwardParameters& p, const Item& item,
                                                int first_query, int first_key) {
  const int r = threadIdx.x % 32 / 4, c = threadIdx.x % 4;
#pragma unroll
  for (int i = 0; i < 4; ++i) sums[i] = 0;
#pragma unroll 1
  for (int level = 3; level < p.levels; ++level) {
    const int last_row = (p.length - 1) >> level;
    const auto row_of = [&](const Array& array, int fine_row) {
      const char* row = head_data(array, item) + 2 * min(fine_row >> level, last_row) * array.row_stride;
      return reinterpret_cast<const uint4*>(row) + c;
    };
    const uint4* const query = row_of(p.deep_q[level - 3], first_query + 8 * r);
    const uint4* const keys[2] = {row_of(p.deep_k[level - 3], first_key + 8 * r),
                                  row_of(p.deep_k[level - 3], first_key + 64 + 8 * r)};
    uint4 a[4][2], b[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const bool inside = i < 2 || 32 * i + 8 * c < p.width;  // the width is more than 64
      b[i] = inside ? __ldg(query + 4 * i) : make_uint4(0, 0, 0, 0);
#pragma unroll
      for (int h = 0; h < 2; ++h) a[i][h] = inside ? __ldg(keys[h] + 4 * i) : make_uint4(0, 0, 0, 0);
    }
    float product[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const std::uint32_t first[4] = {a[i][0].x, a[i][1].x, a[i][0].y, a[i][1].y};
      const std::uint32_t second[4] = {a[i][0].z, a[i][1].z, a[i][0].w, a[i][1].w};
      sm80::multiply<T>(product, first, b[i].x, b[i].y, i == 0);
      sm80::multiply<T>(product, second, b[i].z, b[i].w);
    }
    const float weight = coefficient(p, item, level);
#pragma unroll
    for (int i = 0; i < 4; ++i) sums[i] = fmaf(weight, product[i], sums[i]);
  }
}

// The warp's sums of 8 queries to shared memory.
__device__ __forceinline__ void store_deep_sums(std::uint32_t to, const float (&sums)[4]) {
  const int r = threadIdx.x % 32 / 4, c = threadIdx.x % 4;
#pragma unroll
  for (int i = 0; i < 4; ++i)
    store_float(to + (2 * c + i % 2) * deep_row + r % 2 * 32 + (4 * (i / 2) + r / 2) * 4, sums[i]);
}

}  // namespace hkt::kernels::cuda::sm90
