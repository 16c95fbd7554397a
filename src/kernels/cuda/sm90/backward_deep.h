// SPDX-License-Identifier: Apache-2.0
// Backward on Hopper: levels from 3 on.
//
// A CTA has 128 keys. Two ideas keep these levels from costing much:
// One product for all levels from 4 on, whose rows are 15 of 128 keys and 15 of 128 queries (a unit): see deep.h.
// No product in a step. Products that small would only wait for memory and for each other. So all scores of a CTA are
//   made before its first step, and the gradients of keys and queries after its last one, many at a time. A step only
//   reads the sums of scores of all these levels at the resolution of level 3, and leaves the gradients of these sums in
//   their place: deep_tile_size floats of the CTA's slot, which are 8 bytes for each query of a head.
#pragma once

#include "sm90/backward_products.h"
#include "sm90/backward_semaphores.h"

namespace hkt::kernels::cuda::sm90 {

// ---- sums of scores and their gradients in the slot ----

// Where the number of key k and query q of level 3 lies in a tile.
__device__ __forceinline__ int deep_index(int k, int q) { return k * 8 + q % 4 * 2 + q / 4; }

// The CTA's. `slot` has its number.
__device__ __forceinline__ float* deep_slot(const BackwardParameters& p, const Word& slot) {
  return p.deep_sums + static_cast<std::int64_t>(slot.load()) * p.query_tiles * deep_tile_size;
}

// ---- rows of deep levels ----

// The same row of each unit: `unit_row` counts the 16 of level 3, then the 8 of level 4, and so on.
struct DeepRow {
  const char* first;  // that of unit 0
  std::int64_t stride;
  std::int64_t next;  // row
  int rows;           // of the level in a unit
  int begin, last;    // rows that exist, counted from the first unit's
};
// Of an array whose row 0 is `before` rows after the first unit's first one, and which has rows up to `last`.
__device__ __forceinline__ DeepRow deep_row(const Array& array, const BackwardWork& work, int head, int level,
                                            int unit_row, int before, int last) {
  const int row = unit_row - first_deep_row(16, level) - before, rows = backward_keys >> level;
  return {reinterpret_cast<const char*>(row_of<std::uint16_t>(array, work, head, row)),
          2 * rows * array.row_stride,
          2 * array.row_stride,
          rows,
          -row,
          last - row};
}
__device__ __forceinline__ DeepRow deep_key_row(const BackwardParameters& p, const BackwardWork& work, int unit_row) {
  const int level = deep_level(unit_row);
  if (level >= p.levels) return {nullptr, 0, 0, 1, 0, -1};
  return deep_row(p.deep_k[level - 3], work, work.key_head, level, unit_row, 0, (p.length - 1) >> level);
}
__device__ __forceinline__ DeepRow deep_query_row(const BackwardParameters& p, const BackwardWork& work, int unit_row) {
  const int level = deep_level(unit_row);
  if (level >= p.levels) return {nullptr, 0, 0, 1, 0, -1};
  const int first = p.start >> level;
  return deep_row(p.deep_q[level - 3], work, work.head, level, unit_row, first - (p.first_row >> level),
                  ((p.end - 1) >> level) - first);
}
// Columns of the unit's row, or of the one after it if the level has more than one; zeros outside.
template <class Columns>
__device__ __forceinline__ Columns read_deep(const DeepRow& row, int unit, int column, int width, int after = 0) {
  const int place = unit * row.rows + after;
  if (place < row.begin || place > row.last || column >= width || after == row.rows) return {};
  return __ldg(reinterpret_cast<const Columns*>(row.first + unit * row.stride + after * row.next + column * 2));
}

// The units of a CTA, in the order of its steps.
struct DeepUnits {
  int first;
  int count;
  int rotation;
  __device__ __forceinline__ int operator[](int i) const {
    const int rotated = i + rotation;
    return first + (rotated >= count ? rotated - count : rotated);
  }
};
__device__ __forceinline__ DeepUnits deep_units(const BackwardParameters& p, const BackwardWork& work) {
  const int count = (work.steps + 1) / 2;
  return {work.first / 2, count, p.rotate ? work.key_tile % count : 0};
}

// ---- before the first step: scores ----

// What levels from 4 on add to the sums of level 3. Weighted scores change hands in shared memory: 8 x 8 of level 4, then
// 8 x 8 of the others, of which the blocks on the diagonal count: 4 x 4, 2 x 2, 1.
inline constexpr int coarser_block_bytes = 8 * 8 * 4;
inline constexpr int coarser_deep_bytes = 2 * coarser_block_bytes;

// Row r, columns 2c and the next of either (r = lane / 4, c = lane % 4).
__device__ __forceinline__ void store_coarser_deep(std::uint32_t to, int block, float x, float y, int lane) {
  st_shared_f32x2(to + block * coarser_block_bytes + lane / 4 * 32 + lane % 4 * 8, x, y);
}
// What they add to row r + 8h, columns 8n + 2c and the next of level 3.
__device__ __forceinline__ float coarser_deep_sum(std::uint32_t from, int h, int n, int lane) {
  const int r = lane / 4, c = lane % 4;
  const auto load = [&](int index) { return ld_shared_f32(from + index * 4); };
  return load((4 * h + r / 2) * 8 + 4 * n + c) + load(64 + (2 * h + r / 4) * 8 + 2 * n + c / 2) +
         load(64 + (4 + h) * 8 + 4 + n) + load(64 + 6 * 8 + 6);
}

// Eight warps: each takes a unit at a time, and has its part of the shared memory at `exchange`. A thread reads 16 bytes of
// a row at once, the columns 8c to 8c + 7 of 32; products take them for columns 2c, 2c + 1, 2c + 8, 2c + 9 of 16, twice.
// That is another order of the columns, the same for both operands.
template <class T, int width>
__device__ __forceinline__ void make_deep_scores(const BackwardParameters& p, const BackwardWork& work, float* slot,
                                                 std::uint32_t exchange, int warp, int lane) {
  constexpr int parts = width / 32;
  exchange += warp * coarser_deep_bytes;
  const int r = lane / 4, c = lane % 4;
  const bool has_coarser = p.levels > 4;
  uint4 keys[2][2][parts];
  DeepRow rows[2][2];  // of queries
#pragma unroll
  for (int block = 0; block < 2; ++block) {  // level 3, coarser ones
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int unit_row = 16 * block + 8 * h + r;
      const DeepRow row = deep_key_row(p, work, unit_row);
#pragma unroll
      for (int i = 0; i < parts; ++i) keys[block][h][i] = read_deep<uint4>(row, work.key_tile, 32 * i + 8 * c, p.width);
      rows[block][h] = deep_query_row(p, work, unit_row);
    }
  }
  const float c3 = log2_e * weight(p, work, 3), c4 = log2_e * weight(p, work, 4);
  const float c5 = log2_e * weight(p, work, deep_level(24 + r));  // or of a coarser one
  const DeepUnits units = deep_units(p, work);
#pragma unroll 1
  for (int i = warp; i < units.count; i += 8) {
    const int unit = units.first + i;
    uint4 queries[2][2][parts];
#pragma unroll
    for (int block = 0; block < 2; ++block) {
#pragma unroll
      for (int n = 0; n < 2; ++n) {
#pragma unroll
        for (int k = 0; k < parts; ++k)
          queries[block][n][k] = read_deep<uint4>(rows[block][n], unit, 32 * k + 8 * c, p.width);
      }
    }
    float products[2][2][4];
#pragma unroll
    for (int block = 0; block < 2; ++block) {
#pragma unroll
      for (int k = 0; k < parts; ++k) {
        const uint4 &a = keys[block][0][k], &b = keys[block][1][k];
        const std::uint32_t first[4] = {a.x, b.x, a.y, b.y}, second[4] = {a.z, b.z, a.w, b.w};
#pragma unroll
        for (int n = 0; n < 2; ++n) {
          const uint4& q = queries[block][n][k];
          mma<T>(products[block][n], first, q.x, q.y, k == 0);
          mma<T>(products[block][n], second, q.z, q.w);
        }
      }
    }
    float coarser[2][2] = {};  // of keys r and r + 8, queries 8n + 2c and the next
    if (has_coarser) {
      store_coarser_deep(exchange, 0, c4 * products[1][0][0], c4 * products[1][0][1], lane);
      store_coarser_deep(exchange, 1, c5 * products[1][1][2], c5 * products[1][1][3], lane);
      __syncwarp();
#pragma unroll
      for (int h = 0; h < 2; ++h) {
#pragma unroll
        for (int n = 0; n < 2; ++n) coarser[h][n] = coarser_deep_sum(exchange, h, n, lane);
      }
      __syncwarp();
    }
#pragma unroll
    for (int n = 0; n < 2; ++n) {
      float* const to = slot + static_cast<std::int64_t>(2 * unit + n) * deep_tile_size;
#pragma unroll
      for (int e = 0; e < 4; ++e)
        to[deep_index(r + e / 2 * 8, 2 * c + e % 2)] = fmaf(c3, products[0][n][e], coarser[e / 2][n]);
    }
  }
}

// ---- in a step, for the coarse warpgroup ----

// What deep levels add to a thread's scores of level 2. Its key is 8 · warp + r of them, its queries 8v + 2c and the next;
// of level 3 that is key 4 · warp + r / 2 and query 4v + c.
__device__ __forceinline__ void read_deep_scores(float (&scores)[2], const float* tile, int warp, int lane) {
  const float* const from = tile + deep_index(4 * warp + lane / 8, lane % 4);
  asm volatile("ld.global.v2.f32 {%0,%1}, [%2];" : "=f"(scores[0]), "=f"(scores[1]) : "l"(from) : "memory");
}

// Gradients of level 3, from those of pairs of keys and quads of queries, which lie as GradientAddresses::level2 says. A
// thread has a key of level 3, and a warp two queries.
template <class T>
__device__ __forceinline__ void store_deep_gradients(float* tile, std::uint32_t level2, int warp, int lane) {
  const int key = lane / 2, query = 2 * warp + lane % 2;
  const std::uint32_t from =
      level2 + (key / 4 * 16 + key % 4 * 2) * 32 + (query / 4 ^ key % 4 / 2) * 16 + query % 4 * 4;
  float sum = 0;
#pragma unroll
  for (int i = 0; i < 4; ++i) {  // pairs of keys of two warps
    const float2 values = unpack<T>(ld_shared_b32(from + i / 2 * (8 * 32) + i % 2 * 32));
    sum += values.x + values.y;
  }
  asm volatile("st.global.f32 [%0], %1;" ::"l"(tile + deep_index(key, query)), "f"(sum) : "memory");
  __syncwarp();  // all lanes have read the buffer before the warp gives it back
}

// ---- after the last step: gradients ----

// Of a unit, in shared memory: 16 x 16 gradients of level 3, rows are keys; then the 16 x 16 of coarser ones, which are
// zero but for the blocks on the diagonal.
inline constexpr int deep_gradient_row_bytes = 16 * 2;
inline constexpr int deep_matrix_bytes = 16 * deep_gradient_row_bytes;
inline constexpr int deep_unit_bytes = 2 * deep_matrix_bytes;

// A warp makes them. A thread has keys 2a and 2a + 1 and queries 4b to 4b + 3 of level 3 (a = lane / 4, b = lane % 4).
__device__ __forceinline__ void read_deep_gradients(float (&x)[2][4], const float* slot, const BackwardWork& work,
                                                    int unit, int lane) {
  const int a = lane / 4, b = lane % 4;
  const int tile = 2 * unit + b / 2;
  const bool inside = tile < work.first + work.steps;
  const float* const from = slot + static_cast<std::int64_t>(tile) * deep_tile_size + deep_index(2 * a, b % 2 * 4);
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    x[i / 4][i % 4] = 0;
    if (inside)
      asm volatile("ld.global.f32 %0, [%1];" : "=f"(x[i / 4][i % 4]) : "l"(from + i / 4 * 8 + i % 4 * 2) : "memory");
  }
}
template <class T>
__device__ __forceinline__ void sum_deep_gradients(std::uint32_t to, const float (&x)[2][4], int levels, int lane) {
  const int a = lane / 4, b = lane % 4;
#pragma unroll
  for (int k = 0; k < 2; ++k)
    st_shared_b32x2(to + (2 * a + k) * deep_gradient_row_bytes + b * 8, pack<T>(x[k][0], x[k][1]),
                    pack<T>(x[k][2], x[k][3]));
  if (levels <= 4) return;
  to += deep_matrix_bytes;
  st_shared_f32x4(to + lane * 16, 0, 0, 0, 0);
  __syncwarp();
  const float two[2] = {x[0][0] + x[0][1] + x[1][0] + x[1][1], x[0][2] + x[0][3] + x[1][2] + x[1][3]};
  st_shared_b32(to + a * deep_gradient_row_bytes + b * 4, pack<T>(two[0], two[1]));
  float sum = two[0] + two[1];
  sum += __shfl_xor_sync(~0u, sum, 4);
  if (a % 2 == 0) st_shared_b16(to + (8 + a / 2) * deep_gradient_row_bytes + (8 + b) * 2, pack<T>(sum, 0));
  sum += __shfl_xor_sync(~0u, sum, 8);
  sum += __shfl_xor_sync(~0u, sum, 1);
  if (a % 4 == 0 && b % 2 == 0)
    st_shared_b16(to + (12 + a / 4) * deep_gradient_row_bytes + (12 + b / 2) * 2, pack<T>(sum, 0));
  sum += __shfl_xor_sync(~0u, sum, 16);
  sum += __shfl_xor_sync(~0u, sum, 2);
  if (lane == 0) st_shared_b16(to + 14 * deep_gradient_row_bytes + 14 * 2, pack<T>(sum, 0));
}

// A right operand for products over 16 rows and a warp's 32 columns, in four blocks of eight columns: of each row the
// thread has four neighbouring columns, one for each block. Its rows are 2c, 2c + 1, 2c + 8 and 2c + 9 (c = lane % 4): of
// levels coarser than 3 these are 8 of level 4, 4 of level 5, 2 of level 6, 1 of level 7, and none.
struct DeepOperand {
  DeepRow rows[2];  // the first of each two; the other one's unit row is eight further
  __device__ __forceinline__ void read(uint2 (&values)[4], int unit, int column, int width) const {
#pragma unroll
    for (int i = 0; i < 4; ++i) values[i] = read_deep<uint2>(rows[i / 2], unit, column, width, i % 2);
  }
};
template <class T>
__device__ __forceinline__ void multiply_deep(float (&sums)[4][4], const std::uint32_t (&a)[4], const uint2 (&b)[4],
                                              bool is_first = false) {
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    const unsigned which = j % 2 == 0 ? 0x5410 : 0x7632;  // lower or upper halves
    const auto both = [&](int i) {
      return j < 2 ? __byte_perm(b[i].x, b[i + 1].x, which) : __byte_perm(b[i].y, b[i + 1].y, which);
    };
    mma<T>(sums[j], a, both(0), both(2), is_first);
  }
}

// The two warpgroups with fine keys, the first one for level 3 and the other one for the coarser levels: gradients of the
// CTA's keys, and query sums. A warp has 32 columns. Each CTA passes through here once, and much of the time goes to
// fetching the code: both warpgroups and both products share it.
//
// Gradients of scores of `chunk` units at a time are in `memory`, shared memory that nothing else uses any more.
template <class T, int width, int chunk>
class DeepGradients {
 public:
  __device__ __forceinline__ DeepGradients(const BackwardParameters& parameters, const BackwardWork& cta_work,
                                           const Word& slot_word, std::uint32_t shared_memory)
      : p(parameters),
        work(cta_work),
        slot_number(slot_word),
        slot(deep_slot(p, slot_number)),
        memory(shared_memory),
        coarser(__shfl_sync(~0u, rematerialize(threadIdx.x) / warpgroup_threads - 1, 0)),
        warp(threadIdx.x % warpgroup_threads / 32),
        lane(threadIdx.x % 32),
        units(deep_units(p, work)),
        operand_column(32 * warp + lane / 4 % 2 * 16 + lane / 8 * 4),
        column(32 * warp + lane % 4 * 4),
        queries{{deep_query_row(p, work, operand_row()), deep_query_row(p, work, operand_row() + 8)}} {
    const DeepOperand key_rows = {{deep_key_row(p, work, operand_row()), deep_key_row(p, work, operand_row() + 8)}};
    key_rows.read(keys, work.key_tile, operand_column, p.width);
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int unit_row = 16 * coarser + 8 * h + lane / 4;
      levels[h] = deep_level(unit_row);
      rows[h] = unit_row - first_deep_row(16, levels[h]);
      const int in_tile = levels[h] >= 7 ? 1 : backward_queries >> levels[h];  // the even tile has the row of level 7
      offsets[h] = rows[h] / in_tile * (panels * size) + (first_deep_row(8, levels[h]) + rows[h] % in_tile) * columns;
    }
    query_sums = p.query_sums +
                 (static_cast<std::int64_t>(work.sequence) * p.query_tiles * panels + column / columns) * size +
                 first_sum_row(3) * columns + column % columns;
  }

  __device__ __forceinline__ void run() {
    const bool takes_part = 32 * warp < width && (coarser == 0 || p.levels > 4);
#pragma unroll 1
    for (int first = 0; first < units.count; first += chunk) {
      const int count = min(chunk, units.count - first);
      // All have done with the units before.
      if (first > 0) named_barrier_sync(BackwardBarrier::fine_warpgroups, fine_threads);
      gather(first, count);
      named_barrier_sync(BackwardBarrier::fine_warpgroups, fine_threads);
      if (takes_part) add_chunk(first, count);
    }
    if (threadIdx.x == first_fine_thread) release_slot(p, slot_number.load());
    if (takes_part) write_keys();
  }

 private:
  static constexpr int columns = width < 64 ? width : 64, panels = width / columns;
  static constexpr int size = query_sums_size(columns, true, true);
  static constexpr int units_together = 8;

  // The first of the unit's rows that the thread has in operands.
  __device__ __forceinline__ int operand_row() const { return 16 * coarser + lane % 4 * 2; }

  // Gradients of scores of units, from the slot to shared memory: each of the eight warps takes two at a time.
  __device__ __forceinline__ void gather(int first, int count) {
#pragma unroll 1
    for (int i = 4 * coarser + warp; i < count; i += 16) {
      float x[2][2][4];
#pragma unroll
      for (int k = 0; k < 2; ++k) read_deep_gradients(x[k], slot, work, units[first + min(i + 8 * k, count - 1)], lane);
#pragma unroll
      for (int k = 0; k < 2; ++k)
        if (i + 8 * k < count) sum_deep_gradients<T>(memory + (i + 8 * k) * deep_unit_bytes, x[k], p.levels, lane);
    }
  }

  // In a fixed order each warp has semaphores of its own, and acquires those of several units together: to release one is
  // to wait until all additions have come.
  __device__ __forceinline__ void add_chunk(int first, int count) {
    const bool ordered = p.semaphores != nullptr;
    const int together = ordered ? units_together : chunk;
#pragma unroll 1
    for (int i = 0; i < count; i += together) {
      const int end = min(i + together, count);
      const int own = units[first + min(i + lane, end - 1)];  // whose semaphore the lane waits for
      const std::int64_t index = static_cast<std::int64_t>(work.sequence) * (p.query_tiles / 2) + own;
      int* const semaphore = p.deep_semaphores + index * deep_semaphores_per_unit + 4 * coarser + warp;
      const bool waits = ordered && i + lane < end;
      if (waits) semaphore_wait(semaphore, semaphore_order(p, work, 2 * own));
      __syncwarp();
      add_units(first, i, end);
      if (!ordered) continue;
      __syncwarp();
      if (waits) {
        fence_acq_rel();
        semaphore_release(semaphore);
      }
    }
  }

  // Products of units first + begin to first + end.
  __device__ __forceinline__ void add_units(int first, int begin, int end) {
    constexpr int ahead = 4;
#pragma unroll 1
    for (int i = begin; i < end; i += ahead) {
      uint2 values[ahead][4];
#pragma unroll
      for (int k = 0; k < ahead; ++k)
        queries.read(values[k], units[first + min(i + k, end - 1)], operand_column, p.width);
#pragma unroll
      for (int k = 0; k < ahead; ++k) {
        if (i + k >= end) break;
        add_unit(units[first + i + k], memory + (i + k) * deep_unit_bytes + coarser * deep_matrix_bytes, values[k]);
      }
    }
  }
  __device__ __forceinline__ void add_unit(int unit, std::uint32_t gradients, const uint2 (&values)[4]) {
    std::uint32_t a[4];
    ldmatrix_x4(a, gradients + lane % 16 * deep_gradient_row_bytes + lane / 16 * 16);
    multiply_deep<T>(key_sums, a, values);
    ldmatrix_x4_trans(a, gradients + (lane / 16 * 8 + lane % 8) * deep_gradient_row_bytes + lane / 8 % 2 * 16);
    float sums[4][4];
    multiply_deep<T>(sums, a, keys, true);
    float* const to = query_sums + static_cast<std::int64_t>(2 * unit) * (panels * size);
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      if (levels[h] >= p.levels) continue;
#pragma unroll
      for (int e = 0; e < 2; ++e)
        red_add_f32x4(to + offsets[h] + 16 * e, sums[0][2 * h + e], sums[1][2 * h + e], sums[2][2 * h + e],
                      sums[3][2 * h + e]);
    }
  }

  __device__ __forceinline__ void write_keys() {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int row = work.key_tile * (backward_keys >> levels[h]) + rows[h];
      if (levels[h] >= p.levels || row >= level_rows(p.length, levels[h])) continue;
      const float factor = weight(p, work, levels[h]);
      T* const to = row_of<T>(p.grad_k[levels[h]], work, row) + column;
#pragma unroll
      for (int e = 0; e < 2; ++e)
        if (column + 16 * e < p.width)
          *reinterpret_cast<uint2*>(to + 16 * e) =
              make_uint2(pack<T>(factor * key_sums[0][2 * h + e], factor * key_sums[1][2 * h + e]),
                         pack<T>(factor * key_sums[2][2 * h + e], factor * key_sums[3][2 * h + e]));
    }
  }

  const BackwardParameters& p;
  const BackwardWork& work;
  const Word& slot_number;
  const float* const slot;
  const std::uint32_t memory;
  const int coarser;  // 0: level 3; 1: coarser levels
  const int warp;     // of its warpgroup
  const int lane;
  const DeepUnits units;
  // Column n of an operand's blocks is 16 · (n % 2) + 4 · (n / 2) on of the warp's. So a thread has, of a row of results,
  // four columns (`column` on) and the same 16 further, and what four lanes add fills 64 bytes: memory adds 32 at once, and
  // half of that would take it as long.
  const int operand_column;
  const int column;
  const DeepOperand queries;
  uint2 keys[4];
  float key_sums[4][4] = {};
  int levels[2], rows[2];  // of the results' rows r and r + 8
  int offsets[2];          // where they are added, from query_sums on
  float* query_sums;       // of the first tile, level 3, the thread's column
};

}  // namespace hkt::kernels::cuda::sm90
