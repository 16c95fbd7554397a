// Backward on Hopper, levels from 3 on: their scores, and their gradients from those of scores. A tile of 128 keys by 64
// queries has 16 x 8 scores of level 3. All of it is for the coarse warpgroup.
#pragma once

#include "backward.h"

namespace hkt::kernels::cuda::sm90 {

// d[16 × 8] += a[16 × 8] · b[8 × 8].
template <class T>
__device__ __forceinline__ void multiply_8(float (&d)[4], std::uint32_t a0, std::uint32_t a1, std::uint32_t b);
#define HKT_MULTIPLY_8(TYPE, NAME)                                                                                \
  template <>                                                                                                     \
  __device__ __forceinline__ void multiply_8<TYPE>(float (&d)[4], std::uint32_t a0, std::uint32_t a1,             \
                                                   std::uint32_t b) {                                             \
    asm("mma.sync.aligned.m16n8k8.row.col.f32." NAME "." NAME ".f32 {%0,%1,%2,%3}, {%4,%5}, {%6}, {%0,%1,%2,%3};" \
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])                                                          \
        : "r"(a0), "r"(a1), "r"(b));                                                                              \
  }
HKT_MULTIPLY_8(bfloat16, "bf16")
HKT_MULTIPLY_8(float16, "f16")
#undef HKT_MULTIPLY_8

inline constexpr int deep_narrow_levels = max_levels;  // that shared memory has room for, at widths up to 64

// Where the rows of these levels lie in shared memory, and what is made of them.
struct DeepPlaces {
  std::uint32_t keys;       // rows of the block's keys
  std::uint32_t gradients;  // of scores: see sum_deep_gradients
  std::uint32_t sums;       // for queries, float32: rows of `width` columns, in the order of the queries' rows
};

// Copies the rows of a tile of queries, or of the block's keys; for a warpgroup.
template <int width>
__device__ __forceinline__ void copy_deep_queries(std::uint32_t to, const BackwardParameters& p,
                                                  const BackwardWork& work, int tile, int thread) {
  copy_deep_rows<width, 8, 128>(to, p.deep_q, work.batch, work.head, p.levels, p.length, p.width,
                                tile * backward_queries, thread);
}
template <int width>
__device__ __forceinline__ void copy_deep_keys(std::uint32_t to, const BackwardParameters& p, const BackwardWork& work,
                                               int thread) {
  copy_deep_rows<width, 16, 128>(to, p.deep_k, work.batch, work.head, p.levels, p.length, p.width,
                                 work.key_tile * backward_keys, thread);
}

// What these levels add to a thread's scores of level 2: its key is 8 · warp + r of them, its queries 8v + 2c and the
// next; of level 3 that is key 4 · warp + r / 2 and query 4v + c. The operands are laid out for that.
template <class T, int width>
__device__ __forceinline__ void add_deep_scores(float (&scores)[2], std::uint32_t keys, std::uint32_t queries,
                                                const BackwardParameters& p, const BackwardWork& work, int warp,
                                                int lane) {
  scores[0] = scores[1] = 0;
#pragma unroll 1
  for (int level = 3; level < p.levels; ++level) {
    const int key = first_deep_row(16, level) + ((4 * warp + lane % 8 / 2) >> (level - 3));
    const int query = first_deep_row(8, level) + ((lane % 8 / 2 + lane % 2 * 4) >> (level - 3));
    float product[4];
#pragma unroll
    for (int i = 0; i < width / 32; ++i) {
      std::uint32_t a[4], b[4];
      sm80::load_matrices(a, keys + deep_offset<width>(key, 4 * i + lane / 8));
      sm80::load_matrices(b, queries + deep_offset<width>(query, 4 * i + lane / 8));
#pragma unroll
      for (int k = 0; k < 2; ++k) {
        const std::uint32_t twice[4] = {a[2 * k], a[2 * k], a[2 * k + 1], a[2 * k + 1]};
        sm80::multiply<T>(product, twice, b[2 * k], b[2 * k + 1], i == 0 && k == 0);
      }
    }
    const float c = log2_e * weight(p, work, level);
#pragma unroll
    for (int v = 0; v < 2; ++v) scores[v] = fmaf(c, product[v], scores[v]);
  }
}

// Gradients of scores, rows of 8 queries of level 3 (16 bytes): of the 16 keys of level 3, then of the 8 of level 4, and
// so on. The last row is zero.
inline constexpr int deep_zero_row = first_deep_row(16, max_levels);
inline constexpr int deep_gradients_bytes = (deep_zero_row + 1) * 16;
inline constexpr int level_3_gradients_bytes = 16 * 16;  // of level 3 alone

// Makes them, up to level `levels` - 1, of those of pairs of keys and quads of queries, which lie as
// GradientPlaces::level2 says. For a warpgroup: a thread has a key of level 3, and a warp two queries.
template <class T, int levels>
__device__ __forceinline__ void sum_deep_gradients(std::uint32_t to, std::uint32_t level2, int warp, int lane) {
  const int key = lane / 2, query = 2 * warp + lane % 2;
  const std::uint32_t from =
      level2 + (key / 4 * 16 + key % 4 * 2) * 32 + (query / 4 ^ key % 4 / 2) * 16 + query % 4 * 4;
  float sum = 0;
#pragma unroll
  for (int i = 0; i < 4; ++i) {  // pairs of keys of two warps
    std::uint32_t pair;
    asm volatile("ld.shared.b32 %0, [%1];" : "=r"(pair) : "r"(from + i / 2 * (8 * 32) + i % 2 * 32) : "memory");
    const float2 values = unpack<T>(pair);
    sum += values.x + values.y;
  }
  to += query * 2;
#pragma unroll
  for (int level = 3; level < levels; ++level) {
    if (level > 3) sum += __shfl_xor_sync(~0u, sum, 1 << (level - 3));
    if (key % (1 << (level - 3)) == 0)
      sm80::store_2(to + (first_deep_row(16, level) + (key >> (level - 3))) * 16, pack<T>(sum, 0));
  }
}

// Sums for the gradients of keys, of a warp's 16 columns: of the 16 of level 3, and of coarser ones, in the order above.
struct DeepKeySums {
  float level3[2][4];
  float coarser[2][4];
};

__device__ __forceinline__ void clear(DeepKeySums& sums) {
#pragma unroll
  for (int i = 0; i < 8; ++i) sums.level3[i / 4][i % 4] = sums.coarser[i / 4][i % 4] = 0;
}

// sums += gradients · queries, for the warp's columns.
template <class T, int width>
__device__ __forceinline__ void add_deep_keys(DeepKeySums& sums, std::uint32_t gradients, std::uint32_t queries,
                                              int levels, int warp, int lane) {
  // The queries' rows at which a level begins, each as often as it has queries of level 3.
  const auto load_queries = [&](std::uint32_t (&b)[4], int level) {
    const int query = first_deep_row(8, level) + (lane % 8 >> (level - 3));
    sm80::load_transposed(b, queries + deep_offset<width>(query, 2 * warp + lane / 8 % 2));
  };
  std::uint32_t a[4], b[4];
  sm80::load_matrices(a, gradients + lane % 16 * 16);
  load_queries(b, 3);
#pragma unroll
  for (int n = 0; n < 2; ++n) multiply_8<T>(sums.level3[n], a[0], a[1], b[n]);
#pragma unroll 1
  for (int level = 4; level < levels; ++level) {
    const int row = 16 + lane % 16;
    const bool mine = deep_level<16>(row) == level;
    sm80::load_matrices(a, gradients + (mine ? row : deep_zero_row) * 16);
    load_queries(b, level);
#pragma unroll
    for (int n = 0; n < 2; ++n) multiply_8<T>(sums.coarser[n], a[0], a[1], b[n]);
  }
}

// The sums for queries, keys^T · gradients, for the warp's columns.
template <class T, int width>
__device__ __forceinline__ void store_deep_queries(const DeepPlaces& places, int levels, int warp, int lane) {
  const int r = lane / 4, c = lane % 4;
  std::uint32_t b[4];
  sm80::load_transposed(b, places.gradients + lane % 16 * 16);
#pragma unroll 1
  for (int level = 3; level < levels; ++level) {
    const int key = first_deep_row(16, level) + ((lane / 16 * 8 + lane % 8) >> (level - 3));
    std::uint32_t a[4];
    sm80::load_transposed(a, places.keys + deep_offset<width>(key, 2 * warp + lane / 8 % 2));
    float x[4];
    sm80::multiply<T>(x, a, b[0], b[1], true);  // columns r and r + 8, queries 2c and 2c + 1 of level 3
    const std::uint32_t to = places.sums + (first_deep_row(8, level) * width + 16 * warp + r) * 4;
    const auto store = [](std::uint32_t at, float value) {
      asm volatile("st.shared.f32 [%0], %1;" ::"r"(at), "f"(value) : "memory");
    };
    if (level == 3) {
#pragma unroll
      for (int i = 0; i < 4; ++i) store(to + ((2 * c + i % 2) * width + i / 2 * 8) * 4, x[i]);
    } else {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        float sum = x[2 * h] + x[2 * h + 1];
        if (level > 4) sum += __shfl_xor_sync(~0u, sum, 1);
        if (level > 5) sum += __shfl_xor_sync(~0u, sum, 2);  // of level 7 it is half a query's
        if (level == 4 || c == 0 || (level == 5 && c == 2)) store(to + ((c >> (level - 4)) * width + h * 8) * 4, sum);
      }
    }
  }
}

// The gradients of keys of these levels, from their sums.
template <class T>
__device__ __forceinline__ void write_deep_keys(const DeepKeySums& sums, const BackwardParameters& p,
                                                const BackwardWork& work, int warp, int lane) {
  const auto write = [&](const float (&values)[2][4], int level, int key, int h) {  // key: of the tile's
    const int row = work.key_tile * (backward_keys >> level) + key;
    if (row >= level_rows(p, level)) return;
    T* const to = row_of<T>(p.grad_k[level], work, row) + 16 * warp + lane % 4 * 2;
    const float factor = weight(p, work, level);
#pragma unroll
    for (int n = 0; n < 2; ++n)
      if (16 * warp + 8 * n < p.width)
        *reinterpret_cast<std::uint32_t*>(to + 8 * n) =
            pack<T>(factor * values[n][2 * h], factor * values[n][2 * h + 1]);
  };
  const int r = lane / 4;
  write(sums.level3, 3, r, 0);
  write(sums.level3, 3, r + 8, 1);
  if (p.levels > 4) write(sums.coarser, 4, r, 0);
  const int level = deep_level<16>(24 + r);
  if (level < p.levels) write(sums.coarser, level, 24 + r - first_deep_row(16, level), 1);
}

// ---- width 128: there is no room for rows in shared memory, so they are read where they lie, again and again ----

// Rows of one level of the block's head. After the last one it comes again: its scores' gradients are zero there.
struct DeepRows {
  const char* first;
  std::int64_t stride;  // bytes
  int level;
  int last;
  __device__ __forceinline__ const char* row(int level_3_row) const {
    return first + min(level_3_row >> (level - 3), last) * stride;
  }
};
__device__ __forceinline__ DeepRows rows_of_level(const Array (&arrays)[max_levels - 3], const BackwardParameters& p,
                                                  const BackwardWork& work, int level) {
  const Array& array = arrays[level - 3];
  return {reinterpret_cast<const char*>(row_of<std::uint16_t>(array, work, 0)), 2 * array.row_stride, level,
          (p.length - 1) >> level};
}

// Asks for the rows of a tile of queries early, so that they are near when they are needed.
__device__ __forceinline__ void expect_deep_queries(const BackwardParameters& p, const BackwardWork& work, int tile,
                                                    int thread) {
  const int place = thread / 2, column = thread % 2 * 64;
  if (place >= first_deep_row(8, p.levels) || column >= p.width) return;
  const int level = deep_level<8>(place);
  const DeepRows rows = rows_of_level(p.deep_q, p, work, level);
  const int row = tile * 8 + ((place - first_deep_row(8, level)) << (level - 3));
  asm volatile("prefetch.global.L1 [%0];" ::"l"(rows.row(row) + column * 2));
}

// As add_deep_scores. A thread reads 16 bytes of a row at a time, the columns 8c to 8c + 7 of 32; products take them for
// columns 2c, 2c + 1, 2c + 8, 2c + 9 of 16, twice. That is another order of the columns, the same for both operands.
template <class T>
__device__ __forceinline__ void read_deep_scores(float (&scores)[2], const BackwardParameters& p,
                                                 const BackwardWork& work, int tile, int warp, int lane) {
  scores[0] = scores[1] = 0;
#pragma unroll 1
  for (int level = 3; level < p.levels; ++level) {
    const char* const key =
        rows_of_level(p.deep_k, p, work, level).row(work.key_tile * 16 + 4 * warp + lane / 8) + lane % 4 * 16;
    const char* const query =
        rows_of_level(p.deep_q, p, work, level).row(tile * 8 + lane / 8 + lane / 4 % 2 * 4) + lane % 4 * 16;
    float product[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const bool inside = i < 2 || 32 * i + lane % 4 * 8 < p.width;  // the width is more than 64
      const uint4 zero = make_uint4(0, 0, 0, 0);
      const uint4 a = inside ? __ldg(reinterpret_cast<const uint4*>(key + i * 64)) : zero;
      const uint4 b = inside ? __ldg(reinterpret_cast<const uint4*>(query + i * 64)) : zero;
      sm80::multiply<T>(product, {a.x, a.x, a.y, a.y}, b.x, b.y, i == 0);
      sm80::multiply<T>(product, {a.z, a.z, a.w, a.w}, b.z, b.w);
    }
    const float c = log2_e * weight(p, work, level);
#pragma unroll
    for (int v = 0; v < 2; ++v) scores[v] = fmaf(c, product[v], scores[v]);
  }
}

// Right operands for a product over 16 rows, eight from each of the given ones of level 3 on, and a warp's 32 columns:
// block j has columns 4n + j of these.
__device__ __forceinline__ void read_deep_rows(std::uint32_t (&b)[4][2], const DeepRows& rows, const int (&first)[2],
                                               int column, int width, int lane) {
  column += lane / 4 * 4;
#pragma unroll
  for (int k = 0; k < 2; ++k) {
    uint2 pair[2];
#pragma unroll
    for (int i = 0; i < 2; ++i)
      pair[i] = column < width
                    ? __ldg(reinterpret_cast<const uint2*>(rows.row(first[k] + lane % 4 * 2 + i) + column * 2))
                    : make_uint2(0, 0);
    b[0][k] = __byte_perm(pair[0].x, pair[1].x, 0x5410);
    b[1][k] = __byte_perm(pair[0].x, pair[1].x, 0x7632);
    b[2][k] = __byte_perm(pair[0].y, pair[1].y, 0x5410);
    b[3][k] = __byte_perm(pair[0].y, pair[1].y, 0x7632);
  }
}

// Half h of the sums of such products: the thread's eight columns of a row are neighbours.
__device__ __forceinline__ void add_deep_row(float* to, const float (&sums)[4][4], int h) {
#pragma unroll
  for (int e = 0; e < 2; ++e)
    asm volatile("red.relaxed.gpu.global.add.v4.f32 [%0], {%1,%2,%3,%4};" ::"l"(to + 4 * e), "f"(sums[0][2 * h + e]),
                 "f"(sums[1][2 * h + e]), "f"(sums[2][2 * h + e]), "f"(sums[3][2 * h + e])
                 : "memory");
}

// Adds the sums for queries to `to`: the first row, the thread's columns, as add_deep_row has them.
template <class T>
__device__ __forceinline__ void add_deep_queries(float* to, std::uint32_t gradients, const BackwardParameters& p,
                                                 const BackwardWork& work, int warp, int lane) {
  std::uint32_t a[4];
  sm80::load_transposed(a, gradients + lane % 16 * 16);
#pragma unroll 1
  for (int level = 3; level < p.levels; ++level) {
    const int first[2] = {work.key_tile * 16, work.key_tile * 16 + 8};
    std::uint32_t b[4][2];
    read_deep_rows(b, rows_of_level(p.deep_k, p, work, level), first, 32 * warp, p.width, lane);
    float sums[4][4];
#pragma unroll
    for (int j = 0; j < 4; ++j) sm80::multiply<T>(sums[j], {a[0], 0, a[1], 0}, b[j][0], b[j][1], true);
    const int shared_by = min(1 << (level - 3), 8);  // queries of level 3 that have the same one of this level
    for (int over = 1; over < shared_by; over *= 2) {
#pragma unroll
      for (int j = 0; j < 4; ++j) {
#pragma unroll
        for (int e = 0; e < 2; ++e) sums[j][e] += __shfl_xor_sync(~0u, sums[j][e], 4 * over);
      }
    }
    const int r = lane / 4;
    if (r % shared_by == 0) add_deep_row(to + (first_deep_row(8, level) + (r >> (level - 3))) * 64, sums, 0);
  }
}

// Adds the sums for keys of two steps: their gradients of level 3, one behind the other, and their tiles of queries.
template <class T>
__device__ __forceinline__ void add_deep_keys(float* to, std::uint32_t gradients, const int (&tiles)[2],
                                              const BackwardParameters& p, const BackwardWork& work, int warp,
                                              int lane) {
  const int r = lane / 4;
  const int first[2] = {tiles[0] * 8, tiles[1] * 8};
  std::uint32_t a[4];
  sm80::load_matrices(a, gradients + lane * 16);  // the second step's after the first's
#pragma unroll 1
  for (int level = 3; level < p.levels; ++level) {
    std::uint32_t b[4][2];
    read_deep_rows(b, rows_of_level(p.deep_q, p, work, level), first, 32 * warp, p.width, lane);
    float sums[4][4];
#pragma unroll
    for (int j = 0; j < 4; ++j) sm80::multiply<T>(sums[j], a, b[j][0], b[j][1], true);
    const int shared_by = min(1 << (level - 3), 8);  // keys r of level 3 that have the same one of this level
    for (int over = 1; over < shared_by; over *= 2) {
#pragma unroll
      for (int i = 0; i < 16; ++i) sums[i / 4][i % 4] += __shfl_xor_sync(~0u, sums[i / 4][i % 4], 4 * over);
    }
    if (level == 7) {  // r and r + 8, too
#pragma unroll
      for (int i = 0; i < 8; ++i) sums[i / 2][i % 2] += sums[i / 2][2 + i % 2];
    }
    float* const rows = to + first_deep_row(16, level) * 64;
    if (r % shared_by == 0) {
      add_deep_row(rows + (r >> (level - 3)) * 64, sums, 0);
      if (level < 7) add_deep_row(rows + ((r + 8) >> (level - 3)) * 64, sums, 1);
    }
  }
}

}  // namespace hkt::kernels::cuda::sm90
