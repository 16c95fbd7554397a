// SPDX-License-Identifier: Apache-2.0
// Forward pass of one block of queries against all keys of its head: scores, online softmax, values.
#pragma once

#include "scores.h"

namespace hkt::kernels::cpu::HKT_CPU_TARGET {

inline constexpr int forward_rows = 192;  // queries of a block, about; see query_block_rows

// A head's keys packed in panels and its values in rows (used in place if possible), read by every query block.
template <class Math, class E>
struct KeySide {
  using Word = typename Math::Word;
  Word* panels[max_levels];
  Word* values;
  std::int64_t value_stride;
  bool values_in_place;

  KeySide(Arena& arena, const Head& head)
      : value_stride(round_up(head.value_width, lanes<Word>)),
        values_in_place(usable_in_place<Word, E>(head.v, head.length, head.value_width)) {
    for (int level = 0; level < head.levels; ++level)
      panels[level] =
          take_panels<Math>(arena, head.level_rows(level), head.width, key_panel_shape<Math>(widest_tile(head), level));
    values = arena.take<Word>(words<Math>(head.length) * value_stride);
    if (!values_in_place) return;
    values = static_cast<Word*>(head.v.data);
    value_stride = head.v.stride;
  }
};

// A thread's memory for one query block.
template <class Math>
struct ForwardScratch {
  using Word = typename Math::Word;
  using Sum = typename Math::Sum;
  Word* q[max_levels];
  ScoreBuffer<Sum> scores[max_levels];  // level 0 has one strip only
  Word* probabilities;                  // of a strip; they overwrite its scores if words are sums
  Sum* out;
  Sum* row_largest;
  Sum* row_sums;  // a vector per row
  Sum* rescale;

  int probability_stride;

  ForwardScratch(Arena& arena, const Head& head) {
    const int rows = largest_query_block(head, forward_rows);
    const int widest = widest_tile(head);
    for (int level = 0; level < head.levels; ++level)
      q[level] = arena.take<Word>(((rows >> level) + 2) * words<Math>(head.width) + lanes<Word>);
    scores[0] = take_scores<Sum>(arena, strip_rows, widest, 0);
    probability_stride = scores[0].stride / Math::numbers_per_word;
    for (int level = 1; level < head.levels; ++level) scores[level] = take_scores<Sum>(arena, rows, widest, level);
    probabilities = Math::numbers_per_word == 1 ? reinterpret_cast<Word*>(scores[0].data)
                                                : arena.take<Word>(strip_rows * probability_stride);
    out = arena.take<Sum>((rows + 2) * round_up(head.value_width, lanes<Sum>));
    row_largest = arena.take<Sum>(rows + lanes<Sum>);
    row_sums = arena.take<Sum>(rows * lanes<Sum>);
    rescale = arena.take<Sum>(strip_rows + lanes<Sum>);
  }
};

template <class Sum>
HKT_INLINE Sum largest_score(const Sum* scores, int count, Sum largest_so_far) {
  constexpr int step = lanes<Sum>;
  Vector<Sum> best[4];
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) best[i] = splat(largest_so_far);
  int column = 0;
  for (; column + 4 * step <= count; column += 4 * step)
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) best[i] = larger<Sum>(best[i], load(scores + column + i * step));
  for (; column < count; column += step) {
    const Vector<Sum> s = load(scores + column);
    best[0] = larger<Sum>(best[0], column + step <= count ? s : first_lanes<Sum>(count - column) ? s : best[0]);
  }
  return largest<Sum>(larger<Sum>(larger<Sum>(best[0], best[1]), larger<Sum>(best[2], best[3])));
}

template <class Math>
HKT_INLINE void store_probabilities(typename Math::Word* out, int column, Vector<typename Math::Sum> p) {
  if constexpr (Math::numbers_per_word == 1)
    store(out + column, p);
  else
    write_vector(reinterpret_cast<BFloat16*>(out) + column, p);
}
template <class Math>
HKT_INLINE void store_probabilities(typename Math::Word* out, int column, Vector<typename Math::Sum> first,
                                    Vector<typename Math::Sum> second) {
  if constexpr (Math::numbers_per_word == 1) {
    store(out + column, first);
    store(out + column + lanes<typename Math::Sum>, second);
  } else {
    store(out + column / 2, Math::narrow(first, second));
  }
}

// Unnormalised probabilities 2^(score − largest): the first `count` columns, then zeros up to `padded`. Returns their sums.
template <class Math>
HKT_INLINE Vector<typename Math::Sum> exponentials(const typename Math::Sum* scores, int count, int padded,
                                                   typename Math::Sum largest, typename Math::Word* out) {
  using Sum = typename Math::Sum;
  constexpr int step = lanes<Sum>;
  Vector<Sum> total[2] = {Vector<Sum>{}, Vector<Sum>{}};
  int column = 0;
  for (; column + 2 * step <= count; column += 2 * step) {
    const Vector<Sum> first = exp2<Sum>(load(scores + column) - largest);
    const Vector<Sum> second = exp2<Sum>(load(scores + column + step) - largest);
    total[0] += first;
    total[1] += second;
    store_probabilities<Math>(out, column, first, second);
  }
  for (; column < padded; column += step) {
    const Vector<Sum> all = exp2<Sum>(load(scores + column) - largest);
    const Vector<Sum> p = first_lanes<Sum>(count - column) ? all : Vector<Sum>{};
    total[0] += p;
    store_probabilities<Math>(out, column, p);
  }
  return total[0] + total[1];
}

// One step of the online softmax for a strip: new row maxima, factors that rescale earlier sums, probabilities, sums.
template <class Math>
void softmax_strip(const Tile& tile, int row, int rows, int padded, const ForwardScratch<Math>& s) {
  using Sum = typename Math::Sum;
  const int stride = s.scores[0].stride;
  for (int i = 0; i < rows; ++i) {
    Sum& largest = s.row_largest[row + i];
    const Sum now = largest_score(s.scores[0].data + i * stride, tile.visible(0, row + i + 1), largest);
    s.rescale[i] = largest - now;
    largest = now;
  }
  for (int i = 0; i < rows; i += lanes<Sum>) store(s.rescale + i, exp2<Sum>(load(s.rescale + i)));
  for (int i = 0; i < rows; ++i) {
    Sum* sums = s.row_sums + (row + i) * lanes<Sum>;
    const Vector<Sum> added = exponentials<Math>(s.scores[0].data + i * stride, tile.visible(0, row + i + 1), padded,
                                                 s.row_largest[row + i], s.probabilities + i * s.probability_stride);
    store(sums, load(sums) * s.rescale[i] + added);
  }
}

// Queries are read in place if they are words already, come in pairs (see multiply_column), are all there, and their stride does
// not map too many rows to the same cache sets.
template <class Math, class E>
HKT_INLINE Left<Math> query_rows(const Rows& q, std::int64_t first, std::int64_t rows, std::int64_t missing, int width,
                                 typename Math::Word* packed) {
  const E* data = static_cast<const E*>(q.data) + first * q.stride;
  if constexpr (std::is_same_v<E, typename Math::Word>)
    if (rows % 2 == 0 && missing == 0 && q.stride * static_cast<std::int64_t>(sizeof(E)) <= 1024)
      return {data, q.stride, 1};
  const std::int64_t stride = words<Math>(width);
  pack_left<Math>(data, q.stride, rows, width, packed, stride, missing);
  return {packed, stride, 1};
}

// Rows of a block that lie before the first query.
HKT_INLINE int missing_rows(const Head& head, Block queries) {
  return static_cast<int>(max<std::int64_t>(0, head.missing - queries.first));
}

// Where the rows of a block's output are summed: in scratch, or in the output itself if one tile holds all their keys.
template <class Sum>
struct OutputRows {
  Sum* data;
  std::int64_t stride;
  bool one_tile;  // the only tile: rows are normalised at once
};

template <class Math>
void forward_tile(const Head& head, const Tile& tile, const Left<Math>* q, const typename Math::Word* const* panels,
                  Right<Math> values, const typename Math::Sum* weights, OutputRows<typename Math::Sum> out,
                  const ForwardScratch<Math>& s) {
  using Sum = typename Math::Sum;
  const int value_columns = static_cast<int>(round_up(head.value_width, lanes<Sum>));
  const std::int64_t depth = words<Math>(head.width);
  coarse_scores<Math>(tile, head.levels, depth, q, panels, weights, s.scores);
  const ScoreBuffer<Sum> strip = s.scores[0];
  for (int row = 0; row < tile.rows; row += strip_rows) {
    const int rows = min(strip_rows, tile.rows - row);
    const int visible = tile.visible(0, row + rows);
    if (visible == 0) continue;
    if (head.levels > 1) {
      const ScoreBuffer<Sum> above = s.scores[1];
      const WeightedScores<Sum, true> epilogue{strip.data, strip.stride, above.data + row / 2 * above.stride,
                                               above.stride, weights[0]};
      multiply_scores<Math>(tile, 0, row, rows, depth, q[0], panels[0], epilogue);
    } else {
      const WeightedScores<Sum, false> epilogue{strip.data, strip.stride, nullptr, 0, weights[0]};
      multiply_scores<Math>(tile, 0, row, rows, depth, q[0], panels[0], epilogue);
    }
    softmax_strip<Math>(tile, row, rows, visible, s);
    const Left<Math> p{s.probabilities, s.probability_stride, 1};
    const AllSteps steps{words<Math>(visible)};
    Sum* rows_out = out.data + row * out.stride;
    if (out.one_tile) {
      for (int i = 0; i < rows; ++i) s.rescale[i] = 1 / sum<Sum>(load(s.row_sums + (row + i) * lanes<Sum>));
      multiply_rows<Math>(rows, value_columns, steps, p, values, Scale<Sum, true>{rows_out, out.stride, s.rescale});
    } else {
      multiply_rows<Math>(rows, value_columns, steps, p, values, RescaleAndAdd<Sum>{rows_out, out.stride, s.rescale});
    }
  }
}

template <class Math, class E>
void write_output(const Head& head, Block queries, OutputRows<typename Math::Sum> sums, const ForwardScratch<Math>& s) {
  using Sum = typename Math::Sum;
  constexpr int step = lanes<Sum>;
  E* out = static_cast<E*>(head.out.data) + queries.first * head.out.stride;
  Sum* lse = static_cast<Sum*>(head.lse) + queries.first;
  for (int row = missing_rows(head, queries); row < queries.rows; row += step) {
    const int rows = min(step, queries.rows - row);
    Sum totals[step] = {};
    for (int i = 0; i < rows; ++i) totals[i] = sum<Sum>(load(s.row_sums + (row + i) * step));
    write_vector(lse + row, rows, load(s.row_largest + row) * Sum(ln_2) + log<Sum>(load(totals)));
    if (static_cast<void*>(sums.data) == out) continue;
    for (int i = 0; i < rows; ++i)
      write_rows(sums.data + (row + i) * sums.stride, sums.stride, 1, head.value_width,
                 sums.one_tile ? Sum(1) : 1 / totals[i], out + (row + i) * head.out.stride, head.out.stride);
  }
}

template <class Math, class E>
OutputRows<typename Math::Sum> start_output(const Head& head, Block queries, bool one_tile,
                                            const ForwardScratch<Math>& s) {
  using Sum = typename Math::Sum;
  const std::int64_t value_columns = round_up(head.value_width, lanes<Sum>);
  for (int row = 0; row < queries.rows; ++row) {
    s.row_largest[row] = Exp2<Sum>::no_score;
    store(s.row_sums + row * lanes<Sum>, Vector<Sum>{});
  }
  if constexpr (std::is_same_v<E, Sum>)
    if (one_tile && head.value_width == value_columns && queries.rows % 2 == 0 && missing_rows(head, queries) == 0)
      return {static_cast<E*>(head.out.data) + queries.first * head.out.stride, head.out.stride, true};
  if (!one_tile) clear(s.out, 0, queries.rows * value_columns);
  return {s.out, value_columns, one_tile};
}

template <class Math, class E>
void prepare_forward(const Head& head, int piece, void* shared) {
  Arena arena(shared);
  const KeySide<Math, E> keys(arena, head);
  if (piece < head.levels)
    pack_panels<Math>(static_cast<const E*>(head.k[piece].data), head.k[piece].stride, head.level_rows(piece),
                      head.width, key_panel_shape<Math>(widest_tile(head), piece), keys.panels[piece]);
  else if (!keys.values_in_place)
    pack_right<Math>(static_cast<const E*>(head.v.data), head.v.stride, head.length, head.value_width, keys.values,
                     keys.value_stride);
}

template <class Math, class E>
void compute_forward(const Head& head, Block queries, const void* shared, void* memory) {
  using Word = typename Math::Word;
  using Sum = typename Math::Sum;
  Arena shared_arena(const_cast<void*>(shared));
  const KeySide<Math, E> keys(shared_arena, head);
  Arena arena(memory);
  const ForwardScratch<Math> s(arena, head);

  Left<Math> q[max_levels];
  Sum weights[max_levels];
  for (int level = 0; level < head.levels; ++level) {
    const std::int64_t first = queries.first >> level;
    const std::int64_t rows = min(head.query_level_rows(level) - first, std::int64_t{level_rows(queries.rows, level)});
    q[level] =
        query_rows<Math, E>(head.q[level], first, rows, missing_rows(head, queries) >> level, head.width, s.q[level]);
    weights[level] = static_cast<Sum>(head.weights[level] * log2_e);
  }
  const std::int64_t position = head.query_base + queries.first;
  const std::int64_t end = head.causal ? min(head.length, position + queries.rows) : head.length;
  const auto out = start_output<Math, E>(head, queries, end <= key_columns, s);
  for (std::int64_t first = 0; first < end; first += key_columns) {
    const int columns = static_cast<int>(min<std::int64_t>(key_columns, end - first));
    const Tile tile{queries.rows, columns, widest_tile(head), static_cast<int>(position - first),
                    head.causal && position < first + columns};
    const Word* panels[max_levels];
    for (int level = 0; level < head.levels; ++level)
      panels[level] =
          keys.panels[level] + panel_words<Math>(first >> level, head.width, key_panel_shape<Math>(tile.widest, level));
    const Right<Math> values{keys.values + words<Math>(first) * keys.value_stride, keys.value_stride};
    forward_tile<Math>(head, tile, q, panels, values, weights, out, s);
  }
  write_output<Math, E>(head, queries, out, s);
}

}  // namespace hkt::kernels::cpu::HKT_CPU_TARGET
