// SPDX-License-Identifier: Apache-2.0
// Scores of one tile, coarsest level first: each level is computed at its own resolution and added to the next coarser one,
// upsampled by two. Weights include log2(e), so that probabilities are powers of two.
#pragma once

#include "exponential.h"
#include "pack.h"

namespace hkt::kernels::cpu::HKT_CPU_TARGET {

inline constexpr double log2_e = 1.44269504088896340735992;
inline constexpr double ln_2 = 0.693147180559945309417232;
inline constexpr int key_columns = 256;  // most keys of a tile; a multiple of 2^level for every level
inline constexpr int strip_rows = 12;    // rows that are processed together, so that they stay in the L1 cache

// The keys of a head's widest tile. Buffers are laid out for this width, so that those of a short head are compact.
HKT_INLINE int widest_tile(const Head& head) { return static_cast<int>(min<std::int64_t>(key_columns, head.length)); }

// A block of queries against a block of keys, both starting at multiples of 2^level for the coarsest level.
struct Tile {
  int rows;
  int columns;
  int widest;     // the columns of its head's widest tile
  int offset;     // first query − first key
  bool diagonal;  // the causal mask hides a part of it

  HKT_INLINE int rows_at(int level) const { return level_rows(rows, level); }
  HKT_INLINE int columns_at(int level) const { return level_rows(columns, level); }
  // The number of columns visible to the rows before `row`, at a level's resolution.
  HKT_INLINE int visible(int level, int row) const {
    return diagonal ? max(0, min(columns_at(level), row + (offset >> level))) : columns_at(level);
  }
};

template <class Sum>
struct ScoreBuffer {
  Sum* data;
  int stride;
};
// Room for pairs of full vectors, plus an offset so that rows do not map to the same cache sets.
HKT_INLINE int score_stride(int widest, int level) {
  return static_cast<int>(round_up(level_rows(widest, level), 32)) + 16;
}
template <class Sum>
ScoreBuffer<Sum> take_scores(Arena& arena, int rows, int widest, int level) {
  const int stride = score_stride(widest, level);
  return {arena.take<Sum>(static_cast<std::int64_t>((rows >> level) + 2 + strip_rows) * stride), stride};
}

// The rows of a head's largest query block, about `most`.
HKT_INLINE int largest_query_block(const Head& head, int most) {
  return static_cast<int>(min<std::int64_t>(cpu::largest_query_block(head.levels, most), head.query_rows));
}

// Epilogue: weighted sums plus the coarser level's scores. A row pair shares a coarse row.
template <class Sum, bool Coarser>
struct WeightedScores {
  Sum* out;
  std::int64_t stride;
  const Sum* coarse;
  std::int64_t coarse_stride;
  Sum weight;
  HKT_INLINE WeightedScores at(std::int64_t row, std::int64_t column) const {
    return {out + row * stride + column, stride, Coarser ? coarse + row / 2 * coarse_stride + column / 2 : coarse,
            coarse_stride, weight};
  }
  HKT_INLINE Vector<Sum> coarse_at(int row, int v) const {
    if constexpr (Coarser) return load_twice(coarse + row / 2 * coarse_stride + v * (lanes<Sum> / 2));
    return Vector<Sum>{};
  }
  template <int Rows, int Vectors>
  HKT_INLINE void operator()(Vector<Sum> (&sums)[Rows][Vectors]) const {
#pragma GCC unroll 16
    for (int r = 0; r < Rows; r += 2)
#pragma GCC unroll 16
      for (int v = 0; v < Vectors; ++v) {
        const Vector<Sum> base = coarse_at(r, v);
        store(out + r * stride + v * lanes<Sum>, sums[r][v] * weight + base);
        store(out + (r + 1) * stride + v * lanes<Sum>, sums[r + 1][v] * weight + base);
      }
  }
};

template <class Math>
HKT_INLINE Panels key_panel_shape(int widest, int level) {
  return panels_of<Math>(level_rows(widest, level));
}

// Rows [row, row + rows) of a level's scores, passed to `epilogue`; columns that are visible to none of them are skipped.
template <class Math, class Epilogue>
HKT_INLINE void multiply_scores(const Tile& tile, int level, int row, int rows, std::int64_t depth, Left<Math> q,
                                const typename Math::Word* panels, Epilogue epilogue) {
  multiply_panels<Math>(rows, tile.visible(level, row + rows), depth,
                        Left<Math>{q.data + row * q.row_stride, q.row_stride, 1}, panels,
                        key_panel_shape<Math>(tile.widest, level), epilogue);
}

// The scores of all levels but the finest. q[l] begins at the tile's first query, panels[l] at its first key.
template <class Math>
void coarse_scores(const Tile& tile, int levels, std::int64_t depth, const Left<Math>* q,
                   const typename Math::Word* const* panels, const typename Math::Sum* weights,
                   const ScoreBuffer<typename Math::Sum>* scores) {
  using Sum = typename Math::Sum;
  for (int level = levels - 1; level > 0; --level) {
    const ScoreBuffer<Sum> out = scores[level];
    const int rows = tile.rows_at(level);
    const int step = tile.diagonal ? strip_rows : rows;
    for (int row = 0; row < rows; row += step) {
      const int count = min(step, rows - row);
      if (level == levels - 1) {
        const WeightedScores<Sum, false> epilogue{out.data, out.stride, nullptr, 0, weights[level]};
        multiply_scores<Math>(tile, level, row, count, depth, q[level], panels[level], epilogue.at(row, 0));
      } else {
        const ScoreBuffer<Sum> above = scores[level + 1];
        const WeightedScores<Sum, true> epilogue{out.data, out.stride, above.data, above.stride, weights[level]};
        multiply_scores<Math>(tile, level, row, count, depth, q[level], panels[level], epilogue.at(row, 0));
      }
    }
  }
}

}  // namespace hkt::kernels::cpu::HKT_CPU_TARGET
