// SPDX-License-Identifier: Apache-2.0
// Forward on Hopper, what both kernels do with a tile of 128 keys: copies of coarse keys, wgmma, softmax over the sum of all
// levels, output.
//
// In an accumulator of 64 x N a thread owns rows r and r + 8 of its warp's 16, and columns 2c, 2c + 1 of each block of
// eight columns (c = lane % 4): element 4j + 2r' + b is row r + 8r', column 8j + 2c + b. Keys of level 0 lie in natural
// order. Coarse keys are permuted within eights, so that a thread owns the coarse scores of its own fine ones, and upsampling
// is free:
// level 1: place 8j + 2c + b holds row 8j + 4b + c, the key pair of columns 2c, 2c + 1 of fine block 2j + b;
// level 2: place 8u + 2c + b holds row 4j + 2(c % 2) + c / 2 of block j = 2u + b of level 1, which belongs to column b'
// = c % 2 of that block; the neighbour lane has the one for the other column. Where wgmma sums both levels
// (forward_narrow_summed.h) each row of level 2 lies twice, at the places of level 1: place 8j + 2c + b holds row
// 4j + 2b + c / 2.
#pragma once

#include <bit>

#include "common/cp_async.h"
#include "sm90/forward.h"
#include "sm90/tma.h"
#include "sm90/wgmma.h"

namespace hkt::kernels::cuda::sm90 {

// ---- copies of coarse keys ----

// Copies rows of a level, first_row on, to the places above; zeros beyond the array's rows and width. Tiles have rows of
// `columns` elements, swizzled; wider arrays take several tiles, one after another. With `twice` each row of level 2 lies at
// the places of its two rows of level 1. copy_threads threads call this.
template <int level, int columns, int width, int places, bool twice = false>
__device__ __forceinline__ void copy_coarse_keys(std::uint32_t to, const Array& keys, const Item& item, int head,
                                                 int first_row, int rows, int used_width, int thread) {
  constexpr int row_bytes = columns * 2;
  constexpr int chunks = row_bytes / 16;
  constexpr int step = copy_threads / chunks;  // rows that all threads copy at once
  static_assert(step % 8 == 0 && places % step == 0);
  const int chunk = thread % chunks;
  const int place = thread / chunks;
  const int c = place / 2 % 4;
  const int b = place % 2;
  const int row = twice ? first_row + place / 8 * 4 + 2 * b + c / 2
                        : first_row + place / 8 * 8 + 4 * b + (level == 1 ? c : 2 * (c % 2) + c / 2);
  constexpr int row_step = twice ? step / 2 : step;
  const int swizzled = chunk ^ (row_bytes == 128 ? place % 8 : place / 2 % 4);
  to += place * row_bytes + swizzled * 16;
  const char* from = head_data(keys, item, head) + 2 * (row * keys.row_stride + chunk * 8);
#pragma unroll
  for (int i = 0; i < places / step; ++i) {
#pragma unroll
    for (int part = 0; part < width / columns; ++part)
      cp_async_16(to + part * places * row_bytes + i * step * row_bytes, from + part * row_bytes,
                  row + i * row_step < rows && part * columns + chunk * 8 < used_width);
    from += 2 * row_step * keys.row_stride;
  }
}

// Copies the values of a tile of keys beyond which the sequence ends, with zeros from its end on: what a cache has there may be
// NaN. A warp calls this instead of a TMA load.
template <int columns, int width>
__device__ __forceinline__ void copy_last_values(std::uint32_t to, const ForwardParameters& p, const Item& item,
                                                 int head, int first_row, Barrier& full) {
  constexpr int row_bytes = columns * 2, chunks = row_bytes / 16, step = 32 / chunks;
  const int lane = threadIdx.x % 32, chunk = lane % chunks;
  const char* const values = head_data(p.values, item, head) + chunk * 16;
#pragma unroll 1
  for (int part = 0; part < width / columns; ++part)
#pragma unroll 2
    for (int row = lane / chunks; row < key_rows; row += step) {
      const int swizzled = chunk ^ (row_bytes == 128 ? row % 8 : row / 2 % 4);
      cp_async_16(to + (part * key_rows + row) * row_bytes + swizzled * 16,
                  values + part * row_bytes + 2 * (first_row + row) * p.values.row_stride,
                  first_row + row < item.length && part * columns + chunk * 8 < p.width);
    }
  cp_async_commit();
  cp_async_wait<0>();
  fence_async_shared();
  __syncwarp();
  if (lane == 0) full.arrive();
}

// ---- wgmma, issued and not waited for ----

// s = q · k^T over `width` columns, which lie in tiles of 64 columns, q_tile and k_tile bytes apart; s += with `accumulate`.
template <class T, int width, int q_tile, int k_tile, int count>
__device__ __forceinline__ void issue_qk(float (&s)[count], std::uint64_t q, std::uint64_t k, bool accumulate = false) {
#pragma unroll
  for (int i = 0; i < width / 16; ++i)
    Wgmma<T, count * 2>::run(s, q + i / 4 * (q_tile / 16) + i % 4 * 2, k + i / 4 * (k_tile / 16) + i % 4 * 2,
                             accumulate || i > 0);
}

// out += p · v, v in natural order of keys, in rows of row_bytes.
template <class T, int row_bytes, int count, int registers>
__device__ __forceinline__ void issue_pv(float (&out)[count], const std::uint32_t (&p)[registers], std::uint64_t v) {
#pragma unroll
  for (int i = 0; i < registers / 4; ++i) Wgmma<T, count * 2, false, true>::run(out, p + 4 * i, v + i * row_bytes, 1);
}

// ---- scores ----

// Of a thread's two rows: what scores are counted from, and the sum of the thread's own exponentials. The reference is not
// always the row's maximum: a score may exceed it by up to rescale_threshold, which exponentials have room for. That spares
// most tiles the rows' maxima and the rescaling of the output.
struct SoftmaxState {
  float reference[2];
  float sum[2];
};
inline constexpr int rescale_threshold = std::bit_cast<int>(8.0f);  // in base 2
inline constexpr int rescale_always = INT32_MIN;                    // at the first tile

__device__ __forceinline__ void clear(SoftmaxState& rows) {
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    rows.reference[r] = 0;
    rows.sum[r] = 0;
  }
}

// c1 · s1 + c2 · s2 of block j of level 1: of the thread's rows r and r + 8, two columns each. `deep`, if there is one, has
// for each of the two rows what coarser levels add to the thread's score of level 2.
__device__ __forceinline__ float4 join_levels(const float (&s1)[32], const float (&s2)[16], float c1, float c2, int j,
                                              const float* deep = nullptr) {
  const bool second = threadIdx.x % 2 != 0;  // has the second column's score of level 2
  float joined[4];
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const float score = s2[j / 2 * 4 + 2 * r + j % 2];
    const float mine = deep != nullptr ? fmaf(c2, score, deep[r]) : c2 * score;
    const float other = __shfl_xor_sync(~0u, mine, 1);
    joined[2 * r] = fmaf(c1, s1[4 * j + 2 * r], second ? other : mine);
    joined[2 * r + 1] = fmaf(c1, s1[4 * j + 2 * r + 1], second ? mine : other);
  }
  return {joined[0], joined[1], joined[2], joined[3]};
}

// x = c0 · s0 + the coarse scores of block j of level 1 - the rows' reference, in fine blocks 2j and 2j + 1.
__device__ __forceinline__ void add_coarse(float (&x)[64], float c0, int j, float4 coarse, const SoftmaxState& rows) {
  const float joined[4] = {coarse.x - rows.reference[0], coarse.y - rows.reference[0], coarse.z - rows.reference[1],
                           coarse.w - rows.reference[1]};
#pragma unroll
  for (int b = 0; b < 2; ++b) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        float& value = x[(2 * j + b) * 4 + 2 * r + i];
        value = fmaf(value, c0, joined[2 * r + b]);
      }
    }
  }
}

// x = c0 · s0 - the rows' reference.
__device__ __forceinline__ void apply_weight(float (&x)[64], float c0, const SoftmaxState& rows) {
#pragma unroll
  for (int i = 0; i < 64; ++i) x[i] = fmaf(x[i], c0, -rows.reference[i / 2 % 2]);
}

// Scores of keys after the last that a row sees do not count. Keys are counted from the thread's first column; last1 is for
// row r + 8.
__device__ __forceinline__ void mask(float (&x)[64], int last0, int last1) {
#pragma unroll
  for (int j = 0; j < 16; ++j) {
#pragma unroll
    for (int b = 0; b < 2; ++b) {
      if (8 * j + b > last0) x[4 * j + b] = -INFINITY;
      if (8 * j + b > last1) x[4 * j + 2 + b] = -INFINITY;
    }
  }
}

// ---- softmax, in base 2 ----

// Takes in a tile of scores, relative to the rows' references. These are raised only when a score reaches the threshold,
// which is seldom, and set at the first tile. Returns whether a row of the warp had its reference raised: the output so far
// must then be multiplied by `factor`, as the rows' sums are here.
// Positive floats are ordered as integers are, and negative ones are negative integers, so three can be compared at once.
// Every row sees a key of every tile that is computed, so its reference is finite from the first tile on.
__device__ __forceinline__ bool raise_reference(float (&x)[64], SoftmaxState& rows, int threshold, float (&factor)[2]) {
  int largest[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) largest[i] = __float_as_int(x[i]);
#pragma unroll
  for (int i = 4; i + 7 < 64; i += 8) {
#pragma unroll
    for (int k = 0; k < 4; ++k)
      largest[k] = __vimax3_s32(largest[k], __float_as_int(x[i + 2 * k]), __float_as_int(x[i + 2 * k + 1]));
  }
  largest[0] = __vimax3_s32(largest[0], __float_as_int(x[60]), __float_as_int(x[61]));
  largest[1] = __vimax3_s32(largest[1], __float_as_int(x[62]), __float_as_int(x[63]));
  largest[0] = __vimax3_s32(largest[0], largest[1], max(largest[2], largest[3]));
  const bool raise = __any_sync(~0u, largest[0] >= threshold);
  if (raise) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      float most = x[2 * r];
#pragma unroll
      for (int i = 0; i < 64; ++i)
        if (i / 2 % 2 == r) most = fmaxf(most, x[i]);
      most = fmaxf(most, __shfl_xor_sync(~0u, most, 1));
      most = fmaxf(most, __shfl_xor_sync(~0u, most, 2));
      // A row that is below the threshold stays as it is: its bits must not depend on its neighbours.
      const float by = threshold < 0 || most >= __int_as_float(threshold) ? most : 0;
      rows.reference[r] += by;
      factor[r] = exp2_fast(fminf(-by, 0));
      rows.sum[r] *= factor[r];
#pragma unroll
      for (int i = 0; i < 64; ++i)
        if (i / 2 % 2 == r) x[i] -= by;
    }
  }
  return raise;
}

// ptxas moves no instruction across this, which keeps exponentials in the shadow of the wgmma they overlap with. The value
// must be ready here, and is never negative: the loop is never taken.
__device__ __forceinline__ void scheduling_fence(float value) {
  asm volatile(
      "{\n.reg .pred never;\nAGAIN:\nsetp.lt.f32 never, %0, 0f00000000;\nvote.sync.any.pred never, never, -1;\n"
      "@!never bra.uni DONE;\nnanosleep.u32 1;\nbra.uni AGAIN;\nDONE:\n}\n" ::"f"(value)
      : "memory");
}

// x = 2^x, in blocks [first, last) of the tile: block after block, so that packing them can follow at once. With `fenced`
// nothing that comes later is moved among them.
template <int first = 0, int last = 16, bool fenced = false>
__device__ __forceinline__ void exponentiate(float (&x)[64], SoftmaxState& rows) {
  float odd[2] = {0, 0};
#pragma unroll
  for (int j = first; j < last; ++j) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      float& value = x[4 * j + 2 * r];
      float& next = x[4 * j + 2 * r + 1];
      value = exp2_fast(value);
      next = exp2_fast(next);
      rows.sum[r] += value;
      odd[r] += next;
    }
  }
#pragma unroll
  for (int r = 0; r < 2; ++r) rows.sum[r] += odd[r];
  if constexpr (fenced) {
    scheduling_fence(rows.sum[0] + rows.sum[1]);
    return;
  }
  // Never stores. Without a use ptxas postpones the sums, keeps all exponentials until then, and spills.
  asm volatile("{\n.reg .pred never;\nsetp.lt.f32 never, %0, 0f00000000;\n@never st.shared.f32 [%1], %0;\n}\n" ::"f"(
                   rows.sum[0] + rows.sum[1]),
               "r"(0)
               : "memory");
}

// Probabilities as wgmma's left operand: of half a tile, blocks [first, first + 8).
template <class T, int first>
__device__ __forceinline__ void pack_probabilities(const float (&x)[64], std::uint32_t (&p)[16]) {
#pragma unroll
  for (int i = 0; i < 16; ++i) p[i] = pack<T>(x[4 * first + 2 * i], x[4 * first + 2 * i + 1]);
}
template <class T>
__device__ __forceinline__ void pack_probabilities(const float (&x)[64], std::uint32_t (&p)[32]) {
#pragma unroll
  for (int i = 0; i < 32; ++i) p[i] = pack<T>(x[2 * i], x[2 * i + 1]);
}

template <int count>
__device__ __forceinline__ void rescale(float (&out)[count], const float (&factor)[2]) {
#pragma unroll
  for (int i = 0; i < count; ++i) out[i] *= factor[i / 2 % 2];
}

// ---- output ----

// Four lanes have one register of each of four blocks; afterwards each lane has a whole block.
__device__ __forceinline__ void transpose_quad(std::uint32_t (&a)[4]) {
  const bool odd = threadIdx.x & 1;
  const bool high = threadIdx.x & 2;
#pragma unroll
  for (int i = 0; i < 4; i += 2) {
    const std::uint32_t got = __shfl_xor_sync(~0u, odd ? a[i] : a[i + 1], 1);
    a[i] = odd ? got : a[i];
    a[i + 1] = odd ? a[i + 1] : got;
  }
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const std::uint32_t got = __shfl_xor_sync(~0u, high ? a[i] : a[i + 2], 2);
    a[i] = high ? got : a[i];
    a[i + 2] = high ? a[i + 2] : got;
  }
}

// Writes the thread's rows first_row and first_row + 32, out and lse, if they are queries; padding rows are 0 and -infinity.
template <class T, int count, class Parameters>
__device__ __forceinline__ void store_output(const Parameters& p, const Item& item, int first_row,
                                             const float (&out)[count], const SoftmaxState& rows) {
  const int c = threadIdx.x % 4;
  char* const base = const_cast<char*>(head_data(p.out, item, item.head));
  const int start = first_query(p, item);
  float* const lse = p.lse + (static_cast<std::int64_t>(item.batch) * p.heads + item.head) * query_count(p);
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const int row = first_row - start + 32 * r;
    const bool exists = static_cast<unsigned>(row) < query_count(p);
    const bool valid = static_cast<unsigned>(first_row + 32 * r) < item.length;  // not before position 0, nor padding
    float sum = rows.sum[r];
    sum += __shfl_xor_sync(~0u, sum, 1);
    sum += __shfl_xor_sync(~0u, sum, 2);
    const float inverse = 1 / sum;
    if (exists && c == 0) lse[row] = valid ? ln_2 * (rows.reference[r] + __log2f(sum)) : -INFINITY;
#pragma unroll
    for (int group = 0; group < count / 16; ++group) {
      std::uint32_t block[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float* pair = out + 16 * group + 4 * i + 2 * r;
        block[i] = valid ? pack<T>(pair[0] * inverse, pair[1] * inverse) : 0;
      }
      transpose_quad(block);
      const int column = 8 * (4 * group + c);
      if (exists && column < p.width)
        *reinterpret_cast<uint4*>(base + 2 * (row * p.out.row_stride + column)) = {block[0], block[1], block[2],
                                                                                   block[3]};
    }
  }
}

}  // namespace hkt::kernels::cuda::sm90
