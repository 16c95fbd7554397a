// SPDX-License-Identifier: Apache-2.0
// Forward on Hopper, what its kernels share: the order of the work, copies of coarse keys, softmax, output.
//
// In an accumulator of 64 x N a thread owns rows r and r + 8 of its warp's 16, and columns 2c, 2c + 1 of each block of
// eight columns (c = lane % 4): element 4j + 2r' + b is row r + 8r', column 8j + 2c + b. Keys of level 0 lie in natural
// order. Coarse keys are permuted within eights, so that a thread owns the coarse scores of its own fine ones:
// level 1: place 8j + 2c + b holds row 8j + 4b + c, the key pair of columns 2c, 2c + 1 of fine block 2j + b;
// level 2: place 8u + 2c + b holds row 4j + 2(c % 2) + c / 2 of block j = 2u + b of level 1, which belongs to column b'
// = c % 2 of that block; the neighbour lane has the one for the other column. Where products sum both levels
// (forward_small_summed.h) level 2 lies twice, at the places of level 1: place 8j + 2c + b holds row 4j + 2b + c / 2.
#pragma once

#include "forward_parameters.h"
#include "hopper.h"

namespace hkt::kernels::cuda::sm90 {

inline constexpr int key_rows = 128;     // of a tile of keys
inline constexpr int copy_threads = 64;  // that copy coarse keys: the last two warps of the producers

// Tells the compiler that all threads of the warp have the same value, so that it and what follows from it can be kept
// once for the warp and not in each thread's registers. All threads of the warp must call this.
__device__ __forceinline__ int uniform(int value) { return __shfl_sync(~0u, value, 0); }

// ---- the work ----

// Work is dealt out in groups of sequences, so that those that are read at a time stay in the cache. The items of a
// group, each a tile of query rows of one head, are dealt to the blocks forth and back in turn. With a causal mask they
// are ordered by tiles, the last one first: it sees most keys, and the lighter ones even out the load. The first block
// to get one differs from group to group, for the same reason. This says where a block is.
struct Work {
  int group = 0;
  int round = -1;
};

// Items of the group; 0 after the last group.
__device__ __forceinline__ int group_items(const ForwardParameters& p, int group) {
  return max(0, min(p.group, p.sequences - group * p.group)) * p.tiles;
}

// The block's item of the group and round: it may be beyond the last one.
__device__ __forceinline__ int item_index(const ForwardParameters& p, const Work& work) {
  const unsigned blocks = gridDim.x;
  const unsigned dealt = static_cast<unsigned>(work.group * p.group * p.tiles) % blocks;
  const unsigned turn = blockIdx.x >= dealt ? blockIdx.x - dealt : blockIdx.x + blocks - dealt;
  return static_cast<int>(work.round * blocks + (work.round % 2 == 0 ? turn : blocks - 1 - turn));
}

// Moves on to the block's next item; false if there is none.
__device__ __forceinline__ bool next_item(const ForwardParameters& p, Work& work) {
  for (;;) {
    ++work.round;
    const int items = group_items(p, work.group);
    if (items == 0) return false;
    if (item_index(p, work) < items) return true;
    ++work.group;
    work.round = -1;
  }
}

// A tile of query rows of one head.
struct Item {
  int tile;
  int head;
  int batch;
  int length;  // valid rows of the sequence
  int turn;    // 0 and 1 in turn for a block's items
};

// All threads of the warp must call this.
__device__ __forceinline__ Item read_item(const ForwardParameters& p, const Work& work) {
  const unsigned index = item_index(p, work);
  const unsigned first = work.group * p.group;
  unsigned sequence = first + index / p.tiles;
  unsigned tile = index % p.tiles;
  if (p.causal) {
    const unsigned size = min(p.group, p.sequences - static_cast<int>(first));
    sequence = first + index % size;
    tile = p.tiles - 1 - index / size;
  }
  Item item;
  item.tile = static_cast<int>(tile);
  item.batch = static_cast<int>(sequence / p.heads);
  item.head = static_cast<int>(sequence % p.heads);
  item.turn = work.round & 1;
  item.length = p.length;
  if (p.lengths != nullptr) {
    const std::int64_t length = __ldg(reinterpret_cast<const long long*>(p.lengths) + item.batch);
    item.length = uniform(length < 0 ? 0 : length < p.length ? static_cast<int>(length) : p.length);
  }
  return item;
}

// The same without keeping anything in registers since the item was read first.
__device__ __forceinline__ Item read_item_again(const ForwardParameters& p, Work work) {
  asm volatile("" : "+r"(work.group), "+r"(work.round));
  return read_item(p, work);
}

// Tiles of keys that the 128 query rows from `first_row` on see. Only the last of them can need a mask.
__device__ __forceinline__ int key_tiles(const ForwardParameters& p, const Item& item, int first_row) {
  if (first_row >= item.length) return 0;
  const int keys = p.causal ? min(item.length, first_row + 128) : item.length;
  return (keys + key_rows - 1) / key_rows;
}

// Whether some of those rows do not see all of that many tiles of keys.
__device__ __forceinline__ bool needs_mask(const ForwardParameters& p, const Item& item, int first_row, int tiles) {
  return tiles * key_rows > (p.causal ? min(item.length, first_row + 1) : item.length);
}

// The last key that a row sees.
__device__ __forceinline__ int last_key(const ForwardParameters& p, const Item& item, int row) {
  return p.causal ? min(item.length - 1, row) : item.length - 1;
}

// What the score of a level is multiplied by.
__device__ __forceinline__ float coefficient(const ForwardParameters& p, const Item& item, int level) {
  if (level >= p.levels) return 0;
  return p.scale * __ldg(p.weights + static_cast<std::int64_t>(item.head) * p.levels + level);
}

__device__ __forceinline__ const char* head_data(const Array& array, const Item& item) {
  return static_cast<const char*>(array.data) + 2 * (item.batch * array.batch_stride + item.head * array.head_stride);
}

// ---- copies of coarse keys ----

// Copies rows of a level, first_row on, to the places above; zeros beyond the array's rows and width. Tiles have rows of
// `columns` elements, swizzled; wider arrays take several tiles, one after another. For copy_threads threads.
// With `twice` each row of level 2 lies at the places of its two rows of level 1.
template <int level, int columns, int width, int places, bool twice = false>
__device__ __forceinline__ void copy_keys(std::uint32_t to, const Array& keys, const Item& item, int first_row,
                                          int rows, int used_width, int thread) {
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
  const char* from = head_data(keys, item) + 2 * (row * keys.row_stride + chunk * 8);
#pragma unroll
  for (int i = 0; i < places / step; ++i) {
#pragma unroll
    for (int part = 0; part < width / columns; ++part)
      copy_16(to + part * places * row_bytes + i * step * row_bytes, from + part * row_bytes,
              row + i * row_step < rows && part * columns + chunk * 8 < used_width);
    from += 2 * row_step * keys.row_stride;
  }
}

// ---- products ----

// Nothing is known of these any more: a product that starts from zero will write them.
template <int count>
__device__ __forceinline__ void forget(float (&values)[count]) {
#pragma unroll
  for (int i = 0; i < count; ++i) asm volatile("" : "=f"(values[i]));
}

// s = q · k^T over `width` columns, which lie in tiles of 64 columns, q_tile and k_tile bytes apart; s += with `add`.
template <class T, int width, int q_tile, int k_tile, int count>
__device__ __forceinline__ void start_scores(float (&s)[count], std::uint64_t q, std::uint64_t k, bool add = false) {
#pragma unroll
  for (int i = 0; i < width / 16; ++i)
    Product<T, count * 2>::run(s, q + i / 4 * (q_tile / 16) + i % 4 * 2, k + i / 4 * (k_tile / 16) + i % 4 * 2,
                               add || i > 0);
}

// out += p · v, v in natural order of keys, in rows of row_bytes.
template <class T, int row_bytes, int count, int registers>
__device__ __forceinline__ void start_values(float (&out)[count], const std::uint32_t (&p)[registers],
                                             std::uint64_t v) {
#pragma unroll
  for (int i = 0; i < registers / 4; ++i) Product<T, count * 2, false, true>::run(out, p + 4 * i, v + i * row_bytes, 1);
}

// ---- scores ----

// Of a thread's two rows: what its scores are counted from, and the sum of the thread's own exponentials. The largest
// score may be more than the reference, but by no more than 8: that is room enough in the exponentials, and spares most
// tiles the search for the largest.
struct RowState {
  float reference[2];
  float sum[2];
};
inline constexpr int no_limit = -2147483647 - 1;  // before the first tile
inline constexpr int room = 0x41000000;           // 8 as a float

__device__ __forceinline__ void clear(RowState& rows) {
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

// Coarse scores pass through shared memory, four of a thread at a time.
__device__ __forceinline__ void store_coarse(std::uint32_t to, float4 coarse) {
  asm volatile("st.shared.v4.f32 [%0], {%1, %2, %3, %4};" ::"r"(to), "f"(coarse.x), "f"(coarse.y), "f"(coarse.z),
               "f"(coarse.w)
               : "memory");
}
__device__ __forceinline__ float4 load_coarse(std::uint32_t from) {
  float4 coarse;
  asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(coarse.x), "=f"(coarse.y), "=f"(coarse.z), "=f"(coarse.w)
               : "r"(from)
               : "memory");
  return coarse;
}

// x = c0 · s0 + the coarse scores of block j of level 1 - the rows' reference, in fine blocks 2j and 2j + 1.
__device__ __forceinline__ void add_coarse(float (&x)[64], float c0, int j, float4 coarse, const RowState& rows) {
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
__device__ __forceinline__ void multiply(float (&x)[64], float c0, const RowState& rows) {
#pragma unroll
  for (int i = 0; i < 64; ++i) x[i] = fmaf(x[i], c0, -rows.reference[i / 2 % 2]);
}

// Scores of keys after `limit` (counted from the thread's first column) do not count; the second limit is that of row r
// + 8.
__device__ __forceinline__ void mask(float (&x)[64], int limit0, int limit1) {
#pragma unroll
  for (int j = 0; j < 16; ++j) {
#pragma unroll
    for (int b = 0; b < 2; ++b) {
      if (8 * j + b > limit0) x[4 * j + b] = -INFINITY;
      if (8 * j + b > limit1) x[4 * j + 2 + b] = -INFINITY;
    }
  }
}

// ---- softmax, in base 2 ----

// Takes in a tile of scores, relative to the rows' references. These are raised only when a score is more than `room`
// above one (and set at the first tile, when `limit` is INT_MIN), which is seldom. Says whether that was so for a row of
// the warp; sums of earlier exponentials must then be multiplied by `factor`; the rows' own are, here.
// Positive floats are ordered as integers are, and negative ones are negative integers, so three can be compared at once.
// Every row sees a key of every tile that is computed, so its reference is finite from the first tile on.
__device__ __forceinline__ bool raise_reference(float (&x)[64], RowState& rows, int limit, float (&factor)[2]) {
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
  const bool raise = __any_sync(~0u, largest[0] >= limit);
  if (raise) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      float most = x[2 * r];
#pragma unroll
      for (int i = 0; i < 64; ++i)
        if (i / 2 % 2 == r) most = fmaxf(most, x[i]);
      most = fmaxf(most, __shfl_xor_sync(~0u, most, 1));
      most = fmaxf(most, __shfl_xor_sync(~0u, most, 2));
      // A row that is within its room stays as it is: its bits must not depend on its neighbours.
      const float by = limit < 0 || most >= __int_as_float(limit) ? most : 0;
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

// Ends a section of the program: the assembler moves no instruction from one to another, which keeps exponentials in the
// shadow of the products they are meant to hide. The value is never negative, and must be ready here.
__device__ __forceinline__ void end_section(float value) {
  asm volatile(
      "{\n.reg .pred never;\nAGAIN:\nsetp.lt.f32 never, %0, 0f00000000;\nvote.sync.any.pred never, never, -1;\n"
      "@!never bra.uni DONE;\nnanosleep.u32 1;\nbra.uni AGAIN;\nDONE:\n}\n" ::"f"(value)
      : "memory");
}

// Of blocks [first, last) of the tile; block after block, so that packing them can follow at once. With `alone` as a
// section of their own.
template <int first = 0, int last = 16, bool alone = false>
__device__ __forceinline__ void exponentials(float (&x)[64], RowState& rows) {
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
  if constexpr (alone) {
    end_section(rows.sum[0] + rows.sum[1]);
    return;
  }
  // Never. Without a use the assembler postpones the sums, keeps all exponentials until then, and spills.
  asm volatile("{\n.reg .pred never;\nsetp.lt.f32 never, %0, 0f00000000;\n@never st.shared.f32 [%1], %0;\n}\n" ::"f"(
                   rows.sum[0] + rows.sum[1]),
               "r"(0)
               : "memory");
}

// As the left operand of the product with the values: of half a tile, blocks [first, first + 8).
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

// Four lanes have one register of each of four blocks; then each has a block.
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

// Writes the thread's rows `row` and row + 32, out and lse; rows after the sequence are 0 and -infinity.
template <class T, int count>
__device__ __forceinline__ void write_rows(const ForwardParameters& p, const Item& item, int first_row,
                                           const float (&out)[count], const RowState& rows) {
  const int c = threadIdx.x % 4;
  char* const base = const_cast<char*>(head_data(p.out, item));
  float* const lse = p.lse + (static_cast<std::int64_t>(item.batch) * p.heads + item.head) * p.length;
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const int row = first_row + 32 * r;
    const bool exists = row < p.length;
    const bool valid = row < item.length;
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
