// SPDX-License-Identifier: Apache-2.0
// Scores of one tile, coarsest level first: each level is computed at its own resolution and starts from the level above,
// upsampled by two. Weights carry log2(e), so scores are exponents of two.
#pragma once

#include "exponential.h"
#include "pack.h"

namespace hkt::kernels::cpu::HKT_CPU_TARGET {

inline constexpr double log2_e = 1.44269504088896340735992;
inline constexpr double ln_2 = 0.693147180559945309417232;
inline constexpr int key_columns = 256;  // keys of a tile at most; a multiple of every coarse step
inline constexpr int strip_rows = 12;    // rows that are finished together while in the first-level cache

HKT_INLINE constexpr int at_level(int count, int level) { return (count + (1 << level) - 1) >> level; }

// The keys of a head's widest tile: a short head's memory is laid out for no more than it has, close together.
HKT_INLINE int widest_tile(const Head& head) { return static_cast<int>(min<std::int64_t>(key_columns, head.length)); }

// A block of queries against a block of keys, both starting at multiples of the coarsest step.
struct Tile {
  int rows;
  int columns;
  int widest;     // the columns of its head's widest tile
  int offset;     // first query − first key
  bool diagonal;  // the causal mask cuts through it

  HKT_INLINE int rows_at(int level) const { return at_level(rows, level); }
  HKT_INLINE int columns_at(int level) const { return at_level(columns, level); }
  // How many columns rows before `row` can see, at a level's resolution.
  HKT_INLINE int visible(int level, int row) const {
    return diagonal ? max(0, min(columns_at(level), row + (offset >> level))) : columns_at(level);
  }
};

template <class Sum>
struct ScoreBuffer {
  Sum* data;
  int stride;
};
// Room for whole vector pairs, and a shift between rows so that they do not fall into the same cache sets.
HKT_INLINE int score_stride(int widest, int level) {
  return static_cast<int>(round_up(at_level(widest, level), 32)) + 16;
}
template <class Sum>
ScoreBuffer<Sum> take_scores(Arena& arena, int rows, int widest, int level) {
  const int stride = score_stride(widest, level);
  return {arena.take<Sum>(static_cast<std::int64_t>((rows >> level) + 2 + strip_rows) * stride), stride};
}

// The rows of a head's largest query block, of `most` or so.
HKT_INLINE int largest_query_block(const Head& head, int most) {
  return static_cast<int>(min<std::int64_t>(cpu::largest_query_block(head.levels, most), head.length));
}

// Finish: weighted sums plus the coarser level's scores. A row pair shares a coarse row.
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
  return panels_of<Math>(at_level(widest, level));
}

// Rows [row, row + rows) of a level's scores, which `finish` receives; columns that none of them can see are left out.
template <class Math, class Finish>
HKT_INLINE void multiply_scores(const Tile& tile, int level, int row, int rows, std::int64_t depth, Left<Math> q,
                                const typename Math::Word* panels, Finish finish) {
  multiply_panels<Math>(rows, tile.visible(level, row + rows), depth,
                        Left<Math>{q.data + row * q.row_stride, q.row_stride, 1}, panels,
                        key_panel_shape<Math>(tile.widest, level), finish);
}

// All levels but the finest. q[l] begins at the tile's first query, panels[l] at its first key.
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
        const WeightedScores<Sum, false> finish{out.data, out.stride, nullptr, 0, weights[level]};
        multiply_scores<Math>(tile, level, row, count, depth, q[level], panels[level], finish.at(row, 0));
      } else {
        const ScoreBuffer<Sum> above = scores[level + 1];
        const WeightedScores<Sum, true> finish{out.data, out.stride, above.data, above.stride, weights[level]};
        multiply_scores<Math>(tile, level, row, count, depth, q[level], panels[level], finish.at(row, 0));
      }
    }
  }
}

}  // namespace hkt::kernels::cpu::HKT_CPU_TARGET
