// SPDX-License-Identifier: Apache-2.0
// What a CTA of the backward pass has: how its warps share the work, what lies where in shared memory, the sums that stay in
// registers, and products of what lies there.
#pragma once

#include <type_traits>

#include "common/head_groups.h"
#include "sm80/fragment_sums.h"
#include "sm80/plan.h"
#include "sm80/tile.h"

namespace hkt::kernels::cuda::sm80 {

// Float32 sums: of grad_q of each level, [batch, heads, rows (sum_rows), padded width]; of grad_k of the coarse levels, where they are
// not kept in registers, [CTA, warp, block of columns]; halves of the rows of grad_k of a level whose rows are twice
// as long as a tile of keys, [batch, heads, tile, padded width].
struct Sums {
  float* queries[max_levels];
  float *coarse_keys, *half_rows;
};

// lse and delta of the queries, as backward_preprocess makes them: `count` rows of each head, from position `first` on.
struct RowData {
  const float *lse, *delta;
  std::int64_t first, count;
};

// How the warps of a CTA with n keys share its products.
template <int width, int n>
struct Share {
  static constexpr int queries = backward_tile::queries;
  // Scores, and the same keys for grad_k of levels 0 and 1 and grad_v.
  static constexpr int warps = backward_tile::threads<width, n> / 32;
  static constexpr int key_warps = n / 32, query_warps = warps / key_warps, warp_queries = queries / query_warps;
  static constexpr int blocks = warp_queries / 8, column_blocks = width / query_warps / 8;
  // grad_k beyond level 1: tiles of 16 × 4 keys.
  static constexpr int quad_tiles = n / 64, quad_blocks = width / (warps / quad_tiles) / 8;
  // grad_q of level 0, of level 1 (two tiles of 16 × 2 queries), beyond (one of 16 × 4; narrow heads leave warps idle).
  // Wide heads have no registers for level 0 at once and take two passes.
  static constexpr int query_columns = 2 * width / warps < 16 ? 16 : 2 * width / warps,
                       query_passes = width > 128 ? 2 : 1, query_blocks = query_columns / 8 / query_passes;
  static constexpr int along = width / query_columns, query_tiles = queries / (warps / along) / 16;
  static constexpr int pair_parts = warps / 2, pair_blocks = width / 8 / pair_parts;
  static constexpr int query_quad_blocks = width / 8 / warps < 1 ? 1 : width / 8 / warps;

  __device__ static __forceinline__ int warp() { return threadIdx.x / 32; }
  __device__ static __forceinline__ int key_warp() { return warp() % key_warps; }
  __device__ static __forceinline__ int query_warp() { return warp() / key_warps; }
  // A thread's first key and query of the tile; + parity and 16 · half, + 8 · block and 0 or 1.
  __device__ static __forceinline__ int key() { return 32 * key_warp() + 2 * (threadIdx.x % 32 / 4); }
  __device__ static __forceinline__ int query() { return query_warp() * warp_queries + 2 * (threadIdx.x % 4); }
};

// The sum over all steps of a coarse level's products, in registers,
template <int blocks, bool parked>
struct CoarseSum {
  float sums[1][blocks][4] = {};

  __device__ __forceinline__ void begin(float*, int) {}
  // products(sums, fresh): adds a step's, or sets them if they are `fresh`.
  template <class Products>
  __device__ __forceinline__ void add(bool, const Products& products) {
    products(sums, std::false_type{});
  }
  __device__ __forceinline__ void read(float (&to)[1][blocks][4], bool) const {
#pragma unroll
    for (int b = 0; b < blocks; ++b)
#pragma unroll
      for (int i = 0; i < 4; ++i) to[0][b][i] = sums[0][b][i];
  }
};
// or in the workspace, where only this thread adds to its numbers; in the first step it stores them.
template <int blocks>
struct CoarseSum<blocks, true> {
  float* fragments;

  __device__ __forceinline__ void begin(float* all, int warp) { fragments = all + warp * blocks * fragment_floats; }
  template <class Products>
  __device__ __forceinline__ void add(bool is_first, const Products& products) {
    float sums[1][blocks][4];
    products(sums, std::true_type{});
#pragma unroll
    for (int b = 0; b < blocks; ++b) {
      float* const to = fragments + b * fragment_floats;
      if (is_first)
        store_fragment(to, threadIdx.x % 32, sums[0][b]);
      else
        add_fragment(to, threadIdx.x % 32, sums[0][b]);
    }
  }
  // any: there was a step.
  __device__ __forceinline__ void read(float (&to)[1][blocks][4], bool any) const {
#pragma unroll
    for (int b = 0; b < blocks; ++b) {
      if (any) {
        read_added(to[0][b], fragments + b * fragment_floats, threadIdx.x % 32);
      } else {
#pragma unroll
        for (int i = 0; i < 4; ++i) to[0][b][i] = 0;
      }
    }
  }
};

// The products that a thread sums over all steps.
template <int width, int n, int max_level_count>
struct KeyGradients {
  using S = Share<width, n>;
  float values[2][S::column_blocks][4] = {}, keys[2][S::column_blocks][4] = {};
  CoarseSum<S::column_blocks, backward_tile::parks_coarse_keys<width, n, max_level_count>> pairs;
  CoarseSum<S::quad_blocks, backward_tile::parks_coarse_keys<width, n, max_level_count>> quads[max_level_count - 2];

  // `parked`: of this CTA.
  __device__ __forceinline__ KeyGradients(float* parked) {
    pairs.begin(parked, S::warp());
#pragma unroll
    for (int i = 0; i < max_level_count - 2; ++i) quads[i].begin(parked + (n / 2 + i * (n / 4)) * width, S::warp());
  }
};

// For how many of the width / 16 steps of the products of level 0 a warp keeps its part of the keys and of the values in
// registers: as many as are free. fixed: the number of levels if it is known.
template <int width, int n, int fixed>
struct Kept {
  static constexpr bool any = fixed == 3 && width <= 128 && !backward_tile::parks_coarse_keys<width, n, 3>;
  static constexpr int keys = !any ? 0 : width == 128 ? 7 : width / 16;
  static constexpr int values = !any || width == 128 ? 0 : width == 64 ? 3 : 2;
};

// What does not change for a CTA: its place, and what lies where in shared memory.
template <int width, int n>
struct Block {
  static constexpr int queries = backward_tile::queries;
  Place place;
  Window window;
  std::int64_t sequence;
  int length, levels;        // of the problem
  QueryTiles query_tiles;    // of the head
  int first_tile, end_tile;  // of queries that see the keys; none if these are padding
  bool causal;
  bool descends;  // goes through the tiles from the last one on, which all CTAs of the head have
  const float* weights;
  float unit, fine_weight, pair_weight;  // of the scores, in base 2; of levels 0 and 1, times the unit

  std::uint32_t base;
  backward_tile::Layout layout;
  Swizzled<width> k, v;
  Swizzled<queries> p, ds;
  Swizzled<queries / 2> pairs;
  Swizzled<queries / 4> quads;

  __device__ Block(const AttentionForward& problem, int level_count, const HeadGroups& groups, bool ordered,
                   std::uint32_t memory)
      : length(static_cast<int>(problem.length)),
        levels(level_count),
        query_tiles(sm80::query_tiles(problem)),
        causal(problem.causal),
        descends(ordered && problem.causal),
        unit(static_cast<float>(problem.scale) * log2_e),
        base(memory),
        layout(backward_tile::layout_of<width, n>(level_count)),
        k{base},
        v{base + layout.values},
        p{base + layout.probabilities},
        ds{base + layout.gradients},
        pairs{base + layout.pairs},
        quads{base + layout.quads} {
    const int key_tiles = (length + n - 1) / n;
    const unsigned group_blocks = static_cast<unsigned>(groups.size) * key_tiles, last = groups.count - 1;
    const unsigned group = min(blockIdx.x / group_blocks, last), first_head = group * groups.size;
    const unsigned heads = group < last ? groups.size : gridDim.x / key_tiles - first_head;
    const unsigned rest = blockIdx.x - group * group_blocks;
    sequence = first_head + rest % heads;
    const std::int64_t batch = sequence / problem.heads;
    window = window_of(problem, batch);
    place = place_of(problem, static_cast<int>(rest / heads) * n, batch, sequence % problem.heads, window.length);
    first_tile = (causal ? max(window.first, place.first) : window.first) / queries;
    const int end = (min(window.end, window.length) + queries - 1) / queries;
    end_tile = place.first < place.length ? max(first_tile, end) : first_tile;
    weights = static_cast<const float*>(problem.weights) + place.head * levels;
    fine_weight = weights[0] * unit;
    pair_weight = levels > 1 ? weights[1] * unit : 0;
  }
  __device__ __forceinline__ int steps() const { return end_tile - first_tile; }
  __device__ __forceinline__ int tile(int step) const { return descends ? end_tile - 1 - step : first_tile + step; }
  // The number of a tile among those of all heads.
  __device__ __forceinline__ std::int64_t tile_of_all(int tile) const {
    return sequence * query_tiles.count + tile - query_tiles.first;
  }
  // Of a stage: queries, grad_out, lse and delta.
  __device__ __forceinline__ Swizzled<width> q(int stage) const {
    return {base + layout.stages + stage * layout.stage_bytes};
  }
  __device__ __forceinline__ Swizzled<width> grad_out(int stage) const {
    return q(stage).from_row(level_base(queries, levels));
  }
  __device__ __forceinline__ std::uint32_t row_data(int stage, int array) const {
    return base + layout.row_data + (2 * stage + array) * queries * 4;
  }
};

// sums[m][n] += left · right, or = if they are `fresh`: load_left(step, m, fragment), load_right(step, n, fragments).
template <class T, int steps, bool fresh, int rows, int blocks, class LoadLeft, class LoadRight>
__device__ __forceinline__ void add_outer(float (&sums)[rows][blocks][4], const LoadLeft& load_left,
                                          const LoadRight& load_right) {
#pragma unroll
  for (int step = 0; step < steps; ++step) {
    std::uint32_t a[rows][4];
#pragma unroll
    for (int m = 0; m < rows; ++m) load_left(step, m, a[m]);
#pragma unroll
    for (int n = 0; n < blocks; n += 2) {
      std::uint32_t b[4];
      load_right(step, n, b);
#pragma unroll
      for (int m = 0; m < rows; ++m) {
        mma<T>(sums[m][n], a[m], b[0], b[1], fresh && step == 0);
        if constexpr (blocks > 1) mma<T>(sums[m][n + 1], a[m], b[2], b[3], fresh && step == 0);
      }
    }
  }
}
// Its operands. Left: rows of [own][inner] as they lie, or of [inner][own] transposed, from row or column `first` on.
template <int width>
__device__ __forceinline__ auto straight(Swizzled<width> array, int first) {
  const Lane<width> lane(array, first + left_row(), left_vector());
  return [lane](int step, int m, std::uint32_t (&a)[4]) { ldmatrix_x4(a, lane.at(16 * m, 2 * step)); };
}
template <int width>
__device__ __forceinline__ auto transposed(Swizzled<width> array, int first) {
  const Lane<width> lane(array, 8 * (threadIdx.x % 32 / 16) + right_row(), first / 8 + threadIdx.x / 8 % 2);
  return [lane](int step, int m, std::uint32_t (&a)[4]) { ldmatrix_x4_trans(a, lane.at(16 * step, 2 * m)); };
}
// Right: [inner][columns], part `part` of its columns in parts of `blocks` blocks; level `level` of a tile, whose rows are
// repeated 2^coarser times.
template <int blocks, int width>
__device__ __forceinline__ auto inner(Swizzled<width> array, int part, int base = 0) {
  const Lane<width> lane(array, base + 8 * right_vector() + right_row(),
                         part * blocks + (blocks > 1 ? right_block() : 0));
  return [lane](int step, int n, std::uint32_t (&b)[4]) { ldmatrix_x4_trans(b, lane.at(16 * step, n)); };
}
template <int blocks, int width>
__device__ __forceinline__ auto repeated(Swizzled<width> array, int part, int base, int coarser) {
  const int vector = part * blocks + (blocks > 1 ? right_block() : 0);
  return [=](int step, int n, std::uint32_t (&b)[4]) {
    const int row = (16 * step + 8 * right_vector() + right_row()) >> coarser;
    ldmatrix_x4_trans(b, array.at(base + row, vector + n));
  };
}

}  // namespace hkt::kernels::cuda::sm80
