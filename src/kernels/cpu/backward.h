// SPDX-License-Identifier: Apache-2.0
// Backward pass of one block of keys against the queries that see it: probabilities recomputed from lse, the gradient of the
// scores, its sums over 2 × 2 blocks for each coarser level, and the products that give dv, dk and dq.
#pragma once

#include "scores.h"

namespace hkt::kernels::cpu::HKT_CPU_TARGET {

inline constexpr int backward_rows = 192;  // queries of a block, about; see query_block_rows

// Rows packed as left and as right factor. If a word is one number both share memory; rows are used in place if possible.
template <class Math>
struct BothFactors {
  using Word = typename Math::Word;
  Word* left;
  Word* right;
  std::int64_t left_stride;
  std::int64_t right_stride;
  bool in_place;

  BothFactors() = default;
  template <class E>
  BothFactors(Arena& arena, const Rows& rows, const E*, std::int64_t count, std::int64_t missing, int width)
      : right_stride(round_up(width, lanes<Word>)),
        in_place(missing == 0 && usable_in_place<Word, E>(rows, count, width)) {
    right = arena.take<Word>((words<Math>(count) + 2) * right_stride);
    left_stride = Math::numbers_per_word == 1 ? right_stride : words<Math>(width);
    left = Math::numbers_per_word == 1 ? right : arena.take<Word>((count + 2) * left_stride + lanes<Word>);
    if (in_place) {
      left = right = static_cast<Word*>(rows.data);
      left_stride = right_stride = rows.stride;
    }
  }
  template <class E>
  void pack(const E* rows, std::int64_t row_stride, std::int64_t count, std::int64_t missing, int width) {
    if (in_place) return;
    pack_right<Math>(rows, row_stride, count, width, right, right_stride, missing);
    if constexpr (Math::numbers_per_word > 1)
      pack_left<Math>(rows, row_stride, count, width, left, left_stride, missing);
  }
  Left<Math> left_from(std::int64_t row) const { return {left + row * left_stride, left_stride, 1}; }
  Right<Math> right_from(std::int64_t row) const { return {right + words<Math>(row) * right_stride, right_stride}; }
};

// All keys and queries of a head are in one tile, so that every product is final.
inline bool is_one_tile(const Head& head) { return head.length <= key_columns && head.missing == 0; }

// Whether the product writes the gradient tensor directly, without sums in between.
template <class Sum, class E>
HKT_INLINE bool written_directly(const Head& head, const Rows& grad, std::int64_t rows, int width) {
  return is_one_tile(head) && usable_in_place<Sum, E>(grad, rows, width);
}

// Shared by all key blocks of a head: queries and the output's gradient, which they read, and dq, which they add to.
template <class Math, class E>
struct QuerySide {
  using Sum = typename Math::Sum;
  BothFactors<Math> q[max_levels];
  BothFactors<Math> grad_out;
  Sum* lse;    // in base 2
  Sum* delta;  // ⟨out, grad_out⟩ − grad_lse of each row
  Sum* dq[max_levels];
  std::int64_t columns;

  QuerySide(Arena& arena, const Head& head) : columns(round_up(head.width, lanes<Sum>)) {
    for (int level = 0; level < head.levels; ++level) {
      q[level] = BothFactors<Math>(arena, head.q[level], static_cast<E*>(nullptr), head.query_level_rows(level),
                                   head.missing >> level, head.width);
      dq[level] = arena.take<Sum>((head.query_level_rows(level) + 2) * columns);
    }
    grad_out = BothFactors<Math>(arena, head.grad_out, static_cast<E*>(nullptr), head.query_rows, head.missing,
                                 head.value_width);
    lse = arena.take<Sum>(head.query_rows + lanes<Sum>);
    delta = arena.take<Sum>(head.query_rows + lanes<Sum>);
  }
};

// A tile's gradient of the scores of one level, as left factor by rows (for dq) and by columns (for dk).
template <class Math>
struct GradientScores {
  using Word = typename Math::Word;
  ScoreBuffer<typename Math::Sum> sums;
  Word* rows;
  Word* columns;

  // The buffer of sums has `sum_rows` rows: all rows of the tile if words are sums, because it is then the factor itself.
  GradientScores() = default;
  GradientScores(Arena& arena, int tile_rows, int sum_rows, int widest, int level) {
    sums = take_scores<typename Math::Sum>(arena, sum_rows, widest, level);
    if constexpr (Math::numbers_per_word == 1) {
      rows = columns = sums.data;
    } else {
      const std::int64_t count = ((tile_rows >> level) + 4) * std::int64_t{sums.stride} / 2;
      rows = arena.take<Word>(count);
      columns = arena.take<Word>(count);
    }
  }
  Left<Math> by_rows() const { return {rows, sums.stride / Math::numbers_per_word, 1}; }
  Left<Math> by_columns() const { return {columns, 1, sums.stride}; }
};

// A thread's memory for one key block.
template <class Math>
struct BackwardScratch {
  using Word = typename Math::Word;
  using Sum = typename Math::Sum;
  Word* key_panels[max_levels];
  Word* value_panels;
  Word* keys[max_levels];  // as right factors
  Sum* dk[max_levels];
  Sum* dv;
  ScoreBuffer<Sum> scores[max_levels];  // coarse levels
  GradientScores<Math> probabilities;
  GradientScores<Math> gradient[max_levels];

  BackwardScratch(Arena& arena, const Head& head) {
    const int rows = largest_query_block(head, backward_rows);
    const int widest = widest_tile(head);
    const std::int64_t columns = round_up(head.width, lanes<Sum>);
    for (int level = 0; level < head.levels; ++level) {
      const int count = level_rows(widest, level);
      key_panels[level] = take_panels<Math>(arena, count, head.width, key_panel_shape<Math>(widest, level));
      keys[level] = arena.take<Word>((words<Math>(count) + 1) * columns);
      dk[level] = arena.take<Sum>((count + 2) * columns);
    }
    value_panels = take_panels<Math>(arena, widest, head.value_width, key_panel_shape<Math>(widest, 0));
    dv = arena.take<Sum>((widest + 2) * round_up(head.value_width, lanes<Sum>));
    const int kept = Math::numbers_per_word == 1 ? rows : strip_rows;
    probabilities = GradientScores<Math>(arena, rows, kept, widest, 0);
    gradient[0] = GradientScores<Math>(arena, rows, kept, widest, 0);
    for (int level = 1; level < head.levels; ++level) {
      scores[level] = take_scores<Sum>(arena, rows, widest, level);
      gradient[level] = GradientScores<Math>(arena, rows, rows, widest, level);
    }
  }
};

// Epilogue: probabilities 2^(weighted scores − lse).
template <class Sum, bool Coarser>
struct Probabilities {
  WeightedScores<Sum, Coarser> scores;
  const Sum* lse;
  HKT_INLINE Probabilities at(std::int64_t row, std::int64_t column) const {
    return {scores.at(row, column), lse + row};
  }
  template <int Rows, int Vectors>
  HKT_INLINE void operator()(Vector<Sum> (&sums)[Rows][Vectors]) const {
#pragma GCC unroll 16
    for (int r = 0; r < Rows; r += 2)
#pragma GCC unroll 16
      for (int v = 0; v < Vectors; ++v) {
        const Vector<Sum> base = scores.coarse_at(r, v);
        Sum* to = scores.out + r * scores.stride + v * lanes<Sum>;
        store(to, exp2<Sum>(sums[r][v] * scores.weight + (base - lse[r])));
        store(to + scores.stride, exp2<Sum>(sums[r + 1][v] * scores.weight + (base - lse[r + 1])));
      }
  }
};

// Epilogue: dS = P ⊙ (dP − delta).
template <class Sum>
struct ScoreGradient {
  Sum* out;
  std::int64_t stride;
  const Sum* probabilities;
  const Sum* delta;
  HKT_INLINE ScoreGradient at(std::int64_t row, std::int64_t column) const {
    return {out + row * stride + column, stride, probabilities + row * stride + column, delta + row};
  }
  template <int Rows, int Vectors>
  HKT_INLINE void operator()(Vector<Sum> (&sums)[Rows][Vectors]) const {
#pragma GCC unroll 16
    for (int r = 0; r < Rows; ++r)
#pragma GCC unroll 16
      for (int v = 0; v < Vectors; ++v) {
        const std::int64_t at = r * stride + v * lanes<Sum>;
        store(out + at, (sums[r][v] - delta[r]) * load(probabilities + at));
      }
  }
};

// Ranges for products over the causal triangle: for a key the queries from the diagonal on, for a query the keys up to it.
struct FromDiagonal {
  std::int64_t depth;
  int offset;
  int per_word;
  HKT_INLINE Steps operator()(int row, int) const { return {max(0, row - offset) / per_word, depth}; }
};
struct ToDiagonal {
  std::int64_t depth;
  int offset;
  int per_word;
  HKT_INLINE Steps operator()(int row, int rows) const {
    const int keys = row + rows + offset;
    return {0, keys <= 0 ? 0 : min<std::int64_t>(depth, (keys + per_word - 1) / per_word)};
  }
};

// Sums over 2 × 2 blocks: pairs of rows of `fine` (zero beyond its rows and columns) give rows of `coarse`, which are
// zero-padded as far as the next level reads.
template <class Sum>
HKT_INLINE void add_blocks(ScoreBuffer<Sum> fine, int row_pairs, int columns, Sum* coarse, int coarse_stride) {
  constexpr int step = 2 * lanes<Sum>;
  for (int row = 0; row < row_pairs; ++row) {
    const Sum* upper = fine.data + std::int64_t{2} * row * fine.stride;
    const Sum* lower = upper + fine.stride;
    Sum* out = coarse + std::int64_t{row} * coarse_stride;
    int column = 0;
    for (; column < columns; column += step)
      store(out + column / 2,
            add_neighbours<Sum>(load(upper + column) + load(lower + column),
                                load(upper + column + lanes<Sum>) + load(lower + column + lanes<Sum>)));
    if (column / 2 % step) store(out + column / 2, Vector<Sum>{});
  }
}

// Rounds `rows` rows of sums to bfloat16: by rows (unless null) and by columns, where a word pairs two rows.
template <class Math>
HKT_INLINE void narrow_rows(ScoreBuffer<typename Math::Sum> sums, int rows, int columns, typename Math::Word* by_rows,
                            typename Math::Word* by_columns) {
  using Sum = typename Math::Sum;
  for (int row = 0; row < rows; row += 2)
    for (int column = 0; column < columns; column += lanes<Sum>) {
      const Vector<Sum> upper = load(sums.data + std::int64_t{row} * sums.stride + column);
      const Vector<Sum> lower = load(sums.data + std::int64_t{row + 1} * sums.stride + column);
      const Vector<typename Math::Word> both = Math::narrow(upper, lower);
      store(by_columns + std::int64_t{row} / 2 * sums.stride + column, Math::interleave_halves(both));
      if (by_rows) {
        typename Math::Word* to = by_rows + std::int64_t{row} * sums.stride / 2 + column / 2;
        Math::store_halves(to, to + sums.stride / 2, both);
      }
    }
}

// Probabilities and score gradients of rows [row, row + rows): computed, masked, zero-padded to full 2 × 2 blocks.
template <class Math>
void gradient_strip_rows(const Head& head, const Tile& tile, int row, int rows, const Left<Math>* q,
                         Left<Math> grad_out, const typename Math::Sum* weights, const typename Math::Sum* lse,
                         const typename Math::Sum* delta, ScoreBuffer<typename Math::Sum> p,
                         ScoreBuffer<typename Math::Sum> ds, const BackwardScratch<Math>& s) {
  using Sum = typename Math::Sum;
  const int visible = tile.visible(0, row + rows);
  if (head.levels > 1) {
    const ScoreBuffer<Sum> above = s.scores[1];
    const Probabilities<Sum, true> epilogue{
        {p.data, p.stride, above.data + row / 2 * above.stride, above.stride, weights[0]}, lse + row};
    multiply_scores<Math>(tile, 0, row, rows, words<Math>(head.width), q[0], s.key_panels[0], epilogue);
  } else {
    const Probabilities<Sum, false> epilogue{{p.data, p.stride, nullptr, 0, weights[0]}, lse + row};
    multiply_scores<Math>(tile, 0, row, rows, words<Math>(head.width), q[0], s.key_panels[0], epilogue);
  }
  const std::int64_t padded = round_up(tile.columns, 2 * lanes<Sum>);
  for (int i = 0; i < rows; ++i) clear(p.data + std::int64_t{i} * p.stride, tile.visible(0, row + i + 1), padded);
  multiply_scores<Math>(tile, 0, row, rows, words<Math>(head.value_width), grad_out, s.value_panels,
                        ScoreGradient<Sum>{ds.data, ds.stride, p.data, delta + row});
  for (int i = 0; i < rows; ++i) clear(ds.data + std::int64_t{i} * ds.stride, visible, padded);
  if (rows % 2) {
    clear(p.data + std::int64_t{rows} * p.stride, 0, padded);
    clear(ds.data + std::int64_t{rows} * ds.stride, 0, padded);
  }
}

// All score gradients of a tile, at every level, in the forms the products need.
template <class Math>
void tile_gradient(const Head& head, const Tile& tile, const Left<Math>* q, Left<Math> grad_out,
                   const typename Math::Sum* weights, const typename Math::Sum* lse, const typename Math::Sum* delta,
                   const BackwardScratch<Math>& s) {
  using Sum = typename Math::Sum;
  constexpr bool narrow = Math::numbers_per_word > 1;
  coarse_scores<Math>(tile, head.levels, words<Math>(head.width), q, s.key_panels, weights, s.scores);
  for (int row = 0; row < tile.rows; row += strip_rows) {
    const int rows = min(strip_rows, tile.rows - row);
    const std::int64_t kept = narrow ? 0 : row;
    const int stride = s.gradient[0].sums.stride;
    const ScoreBuffer<Sum> p{s.probabilities.sums.data + kept * stride, stride};
    const ScoreBuffer<Sum> ds{s.gradient[0].sums.data + kept * stride, stride};
    gradient_strip_rows<Math>(head, tile, row, rows, q, grad_out, weights, lse, delta, p, ds, s);
    if (head.levels > 1) {
      const ScoreBuffer<Sum> coarse = s.gradient[1].sums;
      add_blocks<Sum>(ds, (rows + 1) / 2, tile.columns, coarse.data + row / 2 * coarse.stride, coarse.stride);
    }
    if constexpr (narrow) {
      const int pair = row / 2;
      narrow_rows<Math>(p, rows, tile.columns, nullptr, s.probabilities.columns + std::int64_t{pair} * stride);
      narrow_rows<Math>(ds, rows, tile.columns, s.gradient[0].rows + std::int64_t{pair} * stride,
                        s.gradient[0].columns + std::int64_t{pair} * stride);
    }
  }
  for (int level = 1; level < head.levels; ++level) {
    const ScoreBuffer<Sum> sums = s.gradient[level].sums;
    const int rows = tile.rows_at(level);
    if (rows % 2) clear(sums.data + std::int64_t{rows} * sums.stride, 0, sums.stride);
    if (level + 1 < head.levels) {
      const ScoreBuffer<Sum> coarse = s.gradient[level + 1].sums;
      add_blocks<Sum>(sums, (rows + 1) / 2, tile.columns_at(level), coarse.data, coarse.stride);
    }
    if constexpr (narrow)
      narrow_rows<Math>(sums, rows, tile.columns_at(level), s.gradient[level].rows, s.gradient[level].columns);
  }
}

// C[keys] += (left by columns)ᵀ · right, over the queries that see them.
template <class Math, class Epilogue>
HKT_INLINE void multiply_for_keys(const Tile& tile, int level, const GradientScores<Math>& left, Right<Math> right,
                                  std::int64_t columns, Epilogue epilogue) {
  const std::int64_t depth = words<Math>(tile.rows_at(level));
  const int keys = tile.columns_at(level);
  if (tile.diagonal)
    multiply_rows<Math>(keys, static_cast<int>(columns),
                        FromDiagonal{depth, tile.offset >> level, Math::numbers_per_word}, left.by_columns(), right,
                        epilogue);
  else
    multiply_rows<Math>(keys, static_cast<int>(columns), AllSteps{depth}, left.by_columns(), right, epilogue);
}

// C[queries] += left by rows · right, over the keys they see.
template <class Math, class Epilogue>
HKT_INLINE void multiply_for_queries(const Tile& tile, int level, const GradientScores<Math>& left, Right<Math> right,
                                     std::int64_t columns, Epilogue epilogue) {
  const std::int64_t depth = words<Math>(tile.columns_at(level));
  const int queries = tile.rows_at(level);
  if (tile.diagonal)
    multiply_rows<Math>(queries, static_cast<int>(columns),
                        ToDiagonal{depth, tile.offset >> level, Math::numbers_per_word}, left.by_rows(), right,
                        epilogue);
  else
    multiply_rows<Math>(queries, static_cast<int>(columns), AllSteps{depth}, left.by_rows(), right, epilogue);
}

// dv and dk of a tile: added to the block's sums or, for a head of one tile, written directly if possible.
template <class Math, class E>
HKT_INLINE void add_to_keys(const Head& head, const Tile& tile, int level, const GradientScores<Math>& left,
                            Right<Math> right, int width, const Rows& grad, typename Math::Sum weight, bool overwrite,
                            typename Math::Sum* sums) {
  using Sum = typename Math::Sum;
  const std::int64_t columns = round_up(width, lanes<Sum>);
  if constexpr (std::is_same_v<E, Sum>)
    if (written_directly<Sum, E>(head, grad, tile.columns_at(level), width))
      return multiply_for_keys<Math>(tile, level, left, right, columns,
                                     Scale<Sum, false>{static_cast<E*>(grad.data), grad.stride, &weight});
  multiply_for_keys<Math>(tile, level, left, right, columns, AddTo<Sum>{sums, columns, overwrite});
}

// dq of a tile: added to the head's sums or, for a head of one tile, written directly if possible, together with its
// contribution to the gradient of the weights.
template <class Math, class E>
HKT_INLINE void add_to_queries(const Head& head, const Tile& tile, int level, std::int64_t first,
                               const GradientScores<Math>& left, Right<Math> right, bool overwrite,
                               const QuerySide<Math, E>& shared, double* weight_sums) {
  using Sum = typename Math::Sum;
  const Rows& grad = head.grad_q[level];
  if constexpr (std::is_same_v<E, Sum>)
    if (written_directly<Sum, E>(head, grad, tile.rows_at(level), head.width)) {
      const Right<Math> q = shared.q[level].right_from(0);
      Sum total[lanes<Sum>] = {};
      multiply_for_queries<Math>(
          tile, level, left, right, head.width,
          ScaleAndDot<Sum>{static_cast<E*>(grad.data), grad.stride, static_cast<Sum>(head.weights[level]), q.data,
                           q.depth_stride, total});
      weight_sums[level] = sum<Sum>(load(total));
      return;
    }
  multiply_for_queries<Math>(
      tile, level, left, right, shared.columns,
      AddTo<Sum>{shared.dq[level] + (first >> level) * shared.columns, shared.columns, overwrite});
}

// The output of a finished query block, unless add_to_queries has written it already: weighted dq, and its contribution to
// the gradient of the weights.
template <class Math, class E>
void write_queries(const Head& head, Block queries, const QuerySide<Math, E>& shared, double* weight_sums) {
  using Sum = typename Math::Sum;
  for (int level = 0; level < head.levels; ++level) {
    const std::int64_t first = queries.first >> level;
    const std::int64_t rows = level_rows(queries.rows, level);
    if (written_directly<Sum, E>(head, head.grad_q[level], rows, head.width)) continue;
    const std::int64_t missing = max<std::int64_t>(0, head.missing - queries.first) >> level;
    const Sum* dq = shared.dq[level] + first * shared.columns;
    const E* q = static_cast<const E*>(head.q[level].data) + first * head.q[level].stride;
    Vector<Sum> total{};
    for (std::int64_t row = missing; row < rows; ++row)
      for (int i = 0; i < head.width; i += lanes<Sum>)
        total += load(dq + row * shared.columns + i) * read_vector(q + row * head.q[level].stride + i, head.width - i);
    weight_sums[level] = sum<Sum>(total);
    write_rows(dq + missing * shared.columns, shared.columns, rows - missing, head.width,
               static_cast<Sum>(head.weights[level]),
               static_cast<E*>(head.grad_q[level].data) + (first + missing) * head.grad_q[level].stride,
               head.grad_q[level].stride);
  }
}

// The dot product of two rows, as a vector of partial sums.
template <class E>
HKT_INLINE auto dot(const E* a, const E* b, int width) {
  using Sum = typename SumOf<E>::Type;
  Vector<Sum> total{};
  for (int i = 0; i < width; i += lanes<Sum>) total += read_vector(a + i, width - i) * read_vector(b + i, width - i);
  return total;
}

template <class Math, class E>
void prepare_backward(const Head& head, int piece, void* memory) {
  using Sum = typename Math::Sum;
  Arena arena(memory);
  QuerySide<Math, E> shared(arena, head);
  if (piece < head.levels) {
    const std::int64_t rows = head.query_level_rows(piece);
    shared.q[piece].pack(static_cast<const E*>(head.q[piece].data), head.q[piece].stride, rows, head.missing >> piece,
                         head.width);
    if (head.causal && !is_one_tile(head)) clear(shared.dq[piece], 0, rows * shared.columns);
    return;
  }
  const E* grad_out = static_cast<const E*>(head.grad_out.data);
  const E* out = static_cast<const E*>(head.out.data);
  shared.grad_out.pack(grad_out, head.grad_out.stride, head.query_rows, head.missing, head.value_width);
  const Sum* lse = static_cast<const Sum*>(head.lse);
  const Sum* grad_lse = static_cast<const Sum*>(head.grad_lse);
  // Probabilities of missing rows are zero, or too small to matter.
  for (std::int64_t row = 0; row < head.missing; ++row) shared.lse[row] = -Exp2<Sum>::no_score, shared.delta[row] = 0;
  for (std::int64_t first = head.missing; first < head.query_rows; first += lanes<Sum>) {
    const std::int64_t rows = min<std::int64_t>(lanes<Sum>, head.query_rows - first);
    Vector<Sum> totals[lanes<Sum>];
    for (int r = 0; r < lanes<Sum>; ++r) {  // rows beyond the last repeat it
      const std::int64_t row = first + min<std::int64_t>(r, rows - 1);
      totals[r] = dot(out + row * head.out.stride, grad_out + row * head.grad_out.stride, head.value_width);
    }
    const Vector<Sum> delta = sums_of<Sum>(totals);
    store(shared.delta + first, grad_lse ? delta - read_vector(grad_lse + first, rows) : delta);
    store(shared.lse + first, read_vector(lse + first, rows) * Sum(log2_e));
  }
}

// Packs the key block. Under the causal mask a product may skip rows, so sums start at zero; otherwise, and in a head of
// one tile, the first product overwrites them all.
template <class Math, class E>
void prepare_keys(const Head& head, Block keys, const BackwardScratch<Math>& s) {
  using Sum = typename Math::Sum;
  const std::int64_t columns = round_up(head.width, lanes<Sum>);
  const std::int64_t value_columns = round_up(head.value_width, lanes<Sum>);
  for (int level = 0; level < head.levels; ++level) {
    const int rows = level_rows(keys.rows, level);
    const E* k = static_cast<const E*>(head.k[level].data) + (keys.first >> level) * head.k[level].stride;
    pack_panels<Math>(k, head.k[level].stride, rows, head.width, key_panel_shape<Math>(widest_tile(head), level),
                      s.key_panels[level]);
    if (!usable_in_place<typename Math::Word, E>(head.k[level], rows, head.width))
      pack_right<Math>(k, head.k[level].stride, rows, head.width, s.keys[level], columns);
    if (head.causal && !is_one_tile(head)) clear(s.dk[level], 0, rows * columns);
  }
  pack_panels<Math>(static_cast<const E*>(head.v.data) + keys.first * head.v.stride, head.v.stride, keys.rows,
                    head.value_width, key_panel_shape<Math>(widest_tile(head), 0), s.value_panels);
  if (head.causal && !is_one_tile(head)) clear(s.dv, 0, keys.rows * value_columns);
}

// The keys of a block as right factor, in place or packed.
template <class Math, class E>
HKT_INLINE Right<Math> key_rows(const Head& head, Block keys, int level, const BackwardScratch<Math>& s) {
  const Rows& k = head.k[level];
  const int rows = level_rows(keys.rows, level);
  if constexpr (std::is_same_v<typename Math::Word, E>)
    if (usable_in_place<E, E>(k, rows, head.width))
      return {static_cast<const E*>(k.data) + (keys.first >> level) * k.stride, k.stride};
  return {s.keys[level], round_up(head.width, lanes<typename Math::Word>)};
}

// Writes the gradients that add_to_keys has not written directly.
template <class Math, class E>
void write_keys(const Head& head, Block keys, const BackwardScratch<Math>& s) {
  using Sum = typename Math::Sum;
  for (int level = 0; level < head.levels; ++level) {
    const Rows& out = head.grad_k[level];
    const int rows = level_rows(keys.rows, level);
    if (written_directly<Sum, E>(head, out, rows, head.width)) continue;
    write_rows(s.dk[level], round_up(head.width, lanes<Sum>), rows, head.width, static_cast<Sum>(head.weights[level]),
               static_cast<E*>(out.data) + (keys.first >> level) * out.stride, out.stride);
  }
  if (written_directly<Sum, E>(head, head.grad_v, keys.rows, head.value_width)) return;
  write_rows(s.dv, round_up(head.value_width, lanes<Sum>), keys.rows, head.value_width, Sum(1),
             static_cast<E*>(head.grad_v.data) + keys.first * head.grad_v.stride, head.grad_v.stride);
}

template <class Math, class E>
void compute_backward(const Head& head, Block keys, void* memory, void* scratch, Semaphore& semaphore,
                      double* weight_sums) {
  using Sum = typename Math::Sum;
  Arena shared_arena(memory);
  const QuerySide<Math, E> shared(shared_arena, head);
  Arena arena(scratch);
  const BackwardScratch<Math> s(arena, head);
  prepare_keys<Math, E>(head, keys, s);
  Sum weights[max_levels];
  for (int level = 0; level < head.levels; ++level) weights[level] = static_cast<Sum>(head.weights[level] * log2_e);

  const int block_rows = query_block_rows(head.query_rows, head.levels, backward_rows);
  const int blocks = static_cast<int>((head.query_rows + block_rows - 1) / block_rows);
  const std::int64_t before =
      head.causal ? max<std::int64_t>(0, keys.first - head.query_base) : 0;  // rows that see no key
  for (int block = static_cast<int>(before / block_rows); block < blocks; ++block) {
    const std::int64_t first = std::int64_t{block} * block_rows;
    const std::int64_t position = head.query_base + first;
    const int rows = static_cast<int>(min<std::int64_t>(block_rows, head.query_rows - first));
    const std::int64_t seen =
        head.causal ? position + rows : head.length;  // the block's queries see the keys before this
    const int columns = static_cast<int>(min<std::int64_t>(keys.rows, seen - keys.first));
    const Tile tile{rows, columns, widest_tile(head), static_cast<int>(position - keys.first),
                    head.causal && position < keys.first + columns};
    Left<Math> q[max_levels];
    for (int level = 0; level < head.levels; ++level) q[level] = shared.q[level].left_from(first >> level);

    tile_gradient<Math>(head, tile, q, shared.grad_out.left_from(first), weights, shared.lse + first,
                        shared.delta + first, s);
    const bool all_rows = !head.causal || is_one_tile(head);  // products skip no rows
    add_to_keys<Math, E>(head, tile, 0, s.probabilities, shared.grad_out.right_from(first), head.value_width,
                         head.grad_v, 1, all_rows && block == 0, s.dv);
    for (int level = 0; level < head.levels; ++level)
      add_to_keys<Math, E>(head, tile, level, s.gradient[level], shared.q[level].right_from(first >> level), head.width,
                           head.grad_k[level], static_cast<Sum>(head.weights[level]), all_rows && block == 0,
                           s.dk[level]);
    double* block_sums = weight_sums + std::int64_t{block} * head.levels;
    semaphore.wait(block);
    for (int level = 0; level < head.levels; ++level)
      add_to_queries<Math, E>(head, tile, level, first, s.gradient[level], key_rows<Math, E>(head, keys, level, s),
                              all_rows && keys.first == 0, shared, block_sums);
    if (keys.first + columns == seen) write_queries<Math, E>(head, {first, rows}, shared, block_sums);
    semaphore.release(block);
  }
  write_keys<Math, E>(head, keys, s);
}

}  // namespace hkt::kernels::cpu::HKT_CPU_TARGET
