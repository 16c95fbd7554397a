// SPDX-License-Identifier: Apache-2.0
// Decoding: the few queries of a group of heads (DecodeHead in attention_blocks.h) against one chunk of their cached keys and
// values, and the merge of chunks.
//
// Rows are used where they lie: nothing is packed but the queries, because each key and value is read from memory once. A
// score is a sum over vectors of a row; an output row is a sum of rows of values, kept in registers. The order of the
// additions depends neither on how many queries there are nor on which of them share a pass over the keys.
#pragma once

#include "forward.h"

namespace hkt::kernels::cpu::HKT_CPU_TARGET {

template <class E>
using SumType = typename SumOf<E>::Type;

// Two vectors of a row. Those of bfloat16 are the even and the odd columns, which are the cheapest to widen: packed queries
// and sums over values have this order too, and `ordered` undoes it.
template <class Sum>
struct Pair {
  Vector<Sum> first, second;
};
template <class E>
inline constexpr int pair_numbers = 2 * lanes<SumType<E>>;

template <class E>
HKT_INLINE Pair<SumType<E>> read_pair(const E* p) {
  return {read_vector(p), read_vector(p + lanes<SumType<E>>)};
}
HKT_INLINE Pair<float> read_pair(const BFloat16* p) {
  using Numbers [[gnu::vector_size(HKT_VECTOR_BYTES), gnu::aligned(2), gnu::may_alias]] = std::uint16_t;
  const Bits32 both = bits_as<Bits32>(*reinterpret_cast<const Numbers*>(p));
  return {bits_as<Vector<float>>(both << 16), bits_as<Vector<float>>(both & 0xffff0000)};
}

// The first n numbers only, n below pair_numbers; the others are zero.
template <class E>
HKT_INLINE Pair<SumType<E>> read_pair(const E* p, int n) {
  E part[pair_numbers<E>] = {};
#if HKT_VECTOR_BYTES == 64 && defined(__AVX512BW__)
  for (int byte = 0; byte < static_cast<int>(sizeof(part)); byte += 64) {
    const int rest = max(0, min(64, n * static_cast<int>(sizeof(E)) - byte));
    const __mmask64 valid = rest == 64 ? ~__mmask64{0} : (__mmask64{1} << rest) - 1;
    _mm512_storeu_si512(reinterpret_cast<char*>(part) + byte,
                        _mm512_maskz_loadu_epi8(valid, reinterpret_cast<const char*>(p) + byte));
  }
#else
  for (int i = 0; i < n; ++i) part[i] = p[i];
#endif
  return read_pair(part);
}

// What was read with read_pair, in the order of columns.
template <class E>
HKT_INLINE Pair<SumType<E>> ordered(Pair<SumType<E>> pair) {
  using Sum = SumType<E>;
  if constexpr (std::is_same_v<E, BFloat16>)
    return {interleave_first<Sum>(pair.first, pair.second), interleave_second<Sum>(pair.first, pair.second)};
  else
    return pair;
}

// A row's pairs: `full` of them, and one of which only `rest` numbers are there.
template <class E>
struct Columns {
  int full;
  int rest;
  HKT_INLINE explicit Columns(int width) : full(width / pair_numbers<E>), rest(width % pair_numbers<E>) {}
  HKT_INLINE int pairs() const { return full + (rest > 0); }
  HKT_INLINE std::int64_t numbers() const { return static_cast<std::int64_t>(pairs()) * pair_numbers<E>; }
};

// The rows of a level that the queries of one head have, and an upper bound for every position.
HKT_INLINE int rows_at(const DecodeHead& head, int level) {
  return static_cast<int>(((head.position + head.queries - 1) >> level) - (head.position >> level)) + 1;
}
HKT_INLINE int most_rows_at(const DecodeHead& head, int level) {
  return level == 0 ? head.queries : ((head.queries - 1) >> level) + 2;
}

// The result of a chunk. Rows are those of the first head, then those of the second and so on.
template <class E>
struct Partial {
  using Sum = SumType<E>;
  Sum* out;  // not divided by `total`
  Sum* largest;
  Sum* total;

  Partial(Arena& arena, const DecodeHead& head) {
    const std::int64_t rows = static_cast<std::int64_t>(head.heads) * head.queries;
    out = arena.take<Sum>(rows * Columns<E>(head.value_width).numbers());
    largest = arena.take<Sum>(rows);
    total = arena.take<Sum>(rows);
  }
};

// A thread's memory for one chunk.
template <class E>
struct DecodeScratch {
  using Sum = SumType<E>;
  Sum* q[max_levels];       // times the level's weight
  Sum* scores[max_levels];  // level 0 becomes probabilities

  DecodeScratch(Arena& arena, const DecodeHead& head) {
    for (int level = 0; level < head.levels; ++level) {
      const std::int64_t rows = static_cast<std::int64_t>(head.heads) * most_rows_at(head, level);
      q[level] = arena.take<Sum>(rows * Columns<E>(head.width).numbers());
      scores[level] = arena.take<Sum>(rows * score_stride(decode_keys, level));
    }
  }
};

template <class E>
void pack_queries(const DecodeHead& head, int level, SumType<E>* out) {
  using Sum = SumType<E>;
  const Columns<E> columns(head.width);
  const Array& q = head.q[level];
  for (int h = 0; h < head.heads; ++h) {
    const double weight = static_cast<const Sum*>(head.weights)[h * head.levels + level];
    const Sum factor = static_cast<Sum>(weight * head.scale);
    for (int row = 0; row < rows_at(head, level); ++row)
      for (int pair = 0; pair < columns.pairs(); ++pair, out += pair_numbers<E>) {
        const E* from = static_cast<const E*>(q.data) + h * q.head_stride + row * q.row_stride + pair * pair_numbers<E>;
        Pair<Sum> numbers{};
        if (row < head.query_rows[level])
          numbers = pair < columns.full ? read_pair(from) : read_pair(from, columns.rest);
        store(out, numbers.first * factor);
        store(out + lanes<Sum>, numbers.second * factor);
      }
  }
}

// ⟨q, k⟩ of `QueryRows` rows of q, and of lanes / QueryRows keys: those from `key` on, of `count`. Beyond them the last is
// repeated.
template <int QueryRows, class E>
HKT_INLINE void multiply_keys(const E* k, std::int64_t stride, int key, int count, Columns<E> columns,
                              const SumType<E>* q, SumType<E>* out, int out_stride) {
  using Sum = SumType<E>;
  constexpr int keys = lanes<Sum> / QueryRows;
  constexpr int step = min(4, keys);  // keys whose addresses fit into registers
  const std::int64_t q_stride = columns.numbers();
  Vector<Sum> sums[lanes<Sum>];
#pragma GCC unroll 16
  for (int i = 0; i < lanes<Sum>; ++i) sums[i] = Vector<Sum>{};
#pragma GCC unroll 4
  for (int first = 0; first < keys; first += step) {
    const E* row[step];
#pragma GCC unroll 4
    for (int i = 0; i < step; ++i) row[i] = k + min(key + first + i, count - 1) * stride;
    const auto add = [&](int pair, auto read) __attribute__((always_inline)) {
#pragma GCC unroll 4
      for (int i = 0; i < step; ++i) {
        const Pair<Sum> numbers = read(row[i] + pair * pair_numbers<E>);
#pragma GCC unroll 4
        for (int r = 0; r < QueryRows; ++r) {
          const Sum* factor = q + r * q_stride + pair * pair_numbers<E>;
          Vector<Sum>& sum = sums[r * keys + first + i];
          sum += load(factor) * numbers.first;
          sum += load(factor + lanes<Sum>) * numbers.second;
        }
      }
    };
    for (int pair = 0; pair < columns.full; ++pair) add(pair, [](const E* p) { return read_pair(p); });
    if (columns.rest > 0) add(columns.full, [&](const E* p) { return read_pair(p, columns.rest); });
  }
  Sum results[lanes<Sum>];
  store(results, sums_of<Sum>(sums));
#pragma GCC unroll 4
  for (int r = 0; r < QueryRows; ++r)
    __builtin_memcpy(out + r * out_stride + key, results + r * keys, keys * sizeof(Sum));
}

template <int QueryRows, class E>
HKT_INLINE void multiply_vector_of_keys(const E* k, std::int64_t stride, int key, int count, Columns<E> columns,
                                        const SumType<E>* q, SumType<E>* out, int out_stride) {
  constexpr int keys = lanes<SumType<E>> / QueryRows;
  for (int first = 0; first < QueryRows * keys && key + first < count; first += keys)
    multiply_keys<QueryRows>(k, stride, key + first, count, columns, q, out, out_stride);
}

// Scores of `rows` packed queries and `count` keys, a vector of keys at a time for all queries.
template <class E>
void multiply_queries(const E* k, std::int64_t stride, int count, int width, const SumType<E>* q, int rows,
                      SumType<E>* out, int out_stride) {
  using Sum = SumType<E>;
  const Columns<E> columns(width);
  const auto at = [&](int row, int key, auto size) __attribute__((always_inline)) {
    multiply_vector_of_keys<decltype(size)::value>(k, stride, key, count, columns, q + row * columns.numbers(),
                                                   out + static_cast<std::int64_t>(row) * out_stride, out_stride);
  };
  for (int key = 0; key < count; key += lanes<Sum>) {
    int row = 0;
    if constexpr (lanes<Sum> >= 4)
      for (; row + 4 <= rows; row += 4) at(row, key, std::integral_constant<int, 4>{});
    for (; row + 2 <= rows; row += 2) at(row, key, std::integral_constant<int, 2>{});
    if (row < rows) at(row, key, std::integral_constant<int, 1>{});
  }
}

// Adds the next coarser level's scores, upsampled by two.
template <class E>
void add_coarse_scores(const DecodeHead& head, int level, int count, const DecodeScratch<E>& s) {
  using Sum = SumType<E>;
  const int rows = rows_at(head, level);
  const int coarse_rows = rows_at(head, level + 1);
  for (int h = 0; h < head.heads; ++h)
    for (int row = 0; row < rows; ++row) {
      const int coarse_row = static_cast<int>((((head.position >> level) + row) >> 1) - (head.position >> (level + 1)));
      Sum* fine = s.scores[level] + static_cast<std::int64_t>(h * rows + row) * score_stride(decode_keys, level);
      const Sum* coarse = s.scores[level + 1] + static_cast<std::int64_t>(h * coarse_rows + coarse_row) *
                                                    score_stride(decode_keys, level + 1);
      for (int key = 0; key < count; key += lanes<Sum>)
        store(fine + key, load(fine + key) + load_twice(coarse + key / 2));
    }
}

// Between the kept scores of a level, of which there is a row per head, and scratch.
template <class E>
HKT_INLINE SumType<E>* kept_scores(const DecodeHead& head, int level, int h, Block keys) {
  const Array& kept = head.coarse[level];
  return static_cast<SumType<E>*>(kept.data) + h * kept.head_stride + (keys.first >> level);
}
template <class E>
void read_kept_scores(const DecodeHead& head, int level, Block keys, SumType<E>* scores) {
  const std::int64_t bytes = level_rows(keys.rows, level) * sizeof(SumType<E>);
  for (int h = 0; h < head.heads; ++h)
    __builtin_memcpy(scores + h * score_stride(decode_keys, level), kept_scores<E>(head, level, h, keys), bytes);
}
template <class E>
void write_kept_scores(const DecodeHead& head, int level, Block keys, const SumType<E>* scores) {
  const std::int64_t bytes = level_rows(keys.rows, level) * sizeof(SumType<E>);
  for (int h = 0; h < head.heads; ++h)
    __builtin_memcpy(kept_scores<E>(head, level, h, keys), scores + h * score_stride(decode_keys, level), bytes);
}

// The scores of all levels, coarsest first, down to those of level 0 that include all others.
template <class E>
void decode_scores(const DecodeHead& head, Block keys, const DecodeScratch<E>& s) {
  if (head.kept_level < head.levels) read_kept_scores<E>(head, head.kept_level, keys, s.scores[head.kept_level]);
  for (int level = head.kept_level - 1; level >= 0; --level) {
    const Rows& k = head.k[level];
    const int count = level_rows(keys.rows, level);
    pack_queries<E>(head, level, s.q[level]);
    multiply_queries(static_cast<const E*>(k.data) + (keys.first >> level) * k.stride, k.stride, count, head.width,
                     s.q[level], head.heads * rows_at(head, level), s.scores[level], score_stride(decode_keys, level));
    if (level + 1 < head.levels) add_coarse_scores<E>(head, level, count, s);
    if (head.coarse[level].data) write_kept_scores<E>(head, level, keys, s.scores[level]);
  }
}

// Scores of a row become unnormalised probabilities e^(score − largest): `visible` of them, then zeros up to `count`.
template <class Sum>
HKT_INLINE void decode_softmax(Sum* scores, int visible, int count, Sum& row_largest, Sum& row_total) {
  constexpr int step = lanes<Sum>;
  const Sum largest = largest_score(scores, visible, Exp2<Sum>::no_score);
  Vector<Sum> total{};
  int key = 0;
  for (; key + step <= visible; key += step) {
    const Vector<Sum> p = exp2<Sum>((load(scores + key) - largest) * Sum(log2_e));
    total += p;
    store(scores + key, p);
  }
  for (; key < count; key += step) {
    const Vector<Sum> all = exp2<Sum>((load(scores + key) - largest) * Sum(log2_e));
    const Vector<Sum> p = first_lanes<Sum>(visible - key) ? all : Vector<Sum>{};
    total += p;
    store(scores + key, p);
  }
  row_largest = largest;
  row_total = sum<Sum>(total);
}

// out += p · v for `QueryRows` rows of p and `Pairs` pairs of columns.
template <int QueryRows, int Pairs, class E, class Read>
HKT_INLINE void add_values(const E* v, std::int64_t stride, int count, const SumType<E>* p, std::int64_t p_stride,
                           SumType<E>* out, std::int64_t out_stride, Read read) {
  using Sum = SumType<E>;
  Pair<Sum> sums[QueryRows][Pairs];
#pragma GCC unroll 4
  for (int r = 0; r < QueryRows; ++r) {
#pragma GCC unroll 4
    for (int i = 0; i < Pairs; ++i) {
      const Sum* from = out + r * out_stride + i * pair_numbers<E>;
      sums[r][i] = {load(from), load(from + lanes<Sum>)};
    }
  }
  for (int key = 0; key < count; ++key) {
#pragma GCC unroll 4
    for (int i = 0; i < Pairs; ++i) {
      const Pair<Sum> numbers = read(v + key * stride + i * pair_numbers<E>);
#pragma GCC unroll 4
      for (int r = 0; r < QueryRows; ++r) {
        const Vector<Sum> factor = splat(p[r * p_stride + key]);
        sums[r][i].first += factor * numbers.first;
        sums[r][i].second += factor * numbers.second;
      }
    }
  }
#pragma GCC unroll 4
  for (int r = 0; r < QueryRows; ++r) {
#pragma GCC unroll 4
    for (int i = 0; i < Pairs; ++i) {
      Sum* to = out + r * out_stride + i * pair_numbers<E>;
      store(to, sums[r][i].first);
      store(to + lanes<Sum>, sums[r][i].second);
    }
  }
}

template <int QueryRows, class E>
HKT_INLINE void add_value_rows(const E* v, std::int64_t stride, int count, Columns<E> columns, const SumType<E>* p,
                               std::int64_t p_stride, SumType<E>* out) {
  constexpr int most_pairs =
      HKT_VECTOR_BYTES == 64 ? (QueryRows == 1 ? 4 : 2) : max(1, 4 / QueryRows);  // what registers hold
  const std::int64_t out_stride = columns.numbers();
  const auto full = [](const E* from) { return read_pair(from); };
  int pair = 0;
  for (; pair + most_pairs <= columns.full; pair += most_pairs)
    add_values<QueryRows, most_pairs>(v + pair * pair_numbers<E>, stride, count, p, p_stride,
                                      out + pair * pair_numbers<E>, out_stride, full);
  if constexpr (most_pairs == 4)
    for (; pair + 2 <= columns.full; pair += 2)
      add_values<QueryRows, 2>(v + pair * pair_numbers<E>, stride, count, p, p_stride, out + pair * pair_numbers<E>,
                               out_stride, full);
  for (; pair < columns.full; ++pair)
    add_values<QueryRows, 1>(v + pair * pair_numbers<E>, stride, count, p, p_stride, out + pair * pair_numbers<E>,
                             out_stride, full);
  if (columns.rest > 0)
    add_values<QueryRows, 1>(v + pair * pair_numbers<E>, stride, count, p, p_stride, out + pair * pair_numbers<E>,
                             out_stride, [&](const E* from) { return read_pair(from, columns.rest); });
}

// Sums of values over the chunk for all rows, some keys at a time so that their values stay in the L1 cache.
template <class E>
void multiply_values(const E* v, std::int64_t stride, int count, int width, const SumType<E>* p, int rows,
                     SumType<E>* out) {
  using Sum = SumType<E>;
  constexpr int keys = 64;
  const Columns<E> columns(width);
  const std::int64_t p_stride = score_stride(decode_keys, 0);
  clear<Sum>(out, 0, rows * columns.numbers());
  for (int key = 0; key < count; key += keys) {
    const int some = min(keys, count - key);
    const E* from = v + key * stride;
    int row = 0;
    for (; row + 4 <= rows; row += 4)
      add_value_rows<4>(from, stride, some, columns, p + row * p_stride + key, p_stride, out + row * columns.numbers());
    for (; row + 2 <= rows; row += 2)
      add_value_rows<2>(from, stride, some, columns, p + row * p_stride + key, p_stride, out + row * columns.numbers());
    if (row < rows)
      add_value_rows<1>(from, stride, some, columns, p + row * p_stride + key, p_stride, out + row * columns.numbers());
  }
}

template <class E>
void decode_chunk(const DecodeHead& head, Block keys, void* partial, void* memory) {
  Arena arena(memory);
  const DecodeScratch<E> s(arena, head);
  Arena result_arena(partial);
  const Partial<E> result(result_arena, head);
  decode_scores<E>(head, keys, s);
  const int rows = head.heads * head.queries;
  for (int row = 0; row < rows; ++row) {
    const std::int64_t visible = head.position + row % head.queries + 1 - keys.first;
    decode_softmax(s.scores[0] + row * std::int64_t{score_stride(decode_keys, 0)},
                   static_cast<int>(max<std::int64_t>(0, min<std::int64_t>(keys.rows, visible))), keys.rows,
                   result.largest[row], result.total[row]);
  }
  multiply_values(static_cast<const E*>(head.v.data) + keys.first * head.v.stride, head.v.stride, keys.rows,
                  head.value_width, s.scores[0], rows, result.out);
}

// Merges a row of `count` partial results and writes it. A partial result has `stride` sums.
template <class E>
HKT_INLINE void merge_row(const SumType<E>* out, const SumType<E>* largest, const SumType<E>* total,
                          std::int64_t stride, std::int64_t count, int width, E* row_out, SumType<E>* row_lse) {
  using Sum = SumType<E>;
  const auto factor = [&](std::int64_t i, Sum most) {
    return exp2<Sum>(splat((largest[i * stride] - most) * Sum(log2_e)));
  };
  Sum most = largest[0];
  for (std::int64_t i = 1; i < count; ++i) most = max(most, largest[i * stride]);
  Vector<Sum> sums{};
  for (std::int64_t i = 0; i < count; ++i) sums += factor(i, most) * total[i * stride];
  write_vector(row_lse, 1, most + log<Sum>(sums));
  for (int column = 0; column < width; column += pair_numbers<E>) {
    Pair<Sum> merged{};
    for (std::int64_t i = 0; i < count; ++i) {
      const Sum* part = out + i * stride + column;
      const Vector<Sum> f = factor(i, most);
      merged = {merged.first + f * load(part), merged.second + f * load(part + lanes<Sum>)};
    }
    const Pair<Sum> result = ordered<E>({merged.first / sums, merged.second / sums});
    write_vector(row_out + column, width - column, result.first);
    if (width > column + lanes<Sum>)
      write_vector(row_out + column + lanes<Sum>, width - column - lanes<Sum>, result.second);
  }
}

template <class E>
void decode_merge(const DecodeHead& head, const void* partials, std::int64_t count) {
  using Sum = SumType<E>;
  Arena arena(const_cast<void*>(partials));
  const Partial<E> first(arena, head);
  const std::int64_t stride = arena.bytes() / static_cast<std::int64_t>(sizeof(Sum));
  const std::int64_t columns = Columns<E>(head.value_width).numbers();
  for (int row = 0; row < head.heads * head.queries; ++row) {
    const int h = row / head.queries;
    const int query = row % head.queries;
    E* out = static_cast<E*>(head.out.data) + h * head.out.head_stride + query * head.out.row_stride;
    Sum* lse = static_cast<Sum*>(head.lse) + h * head.lse_stride + query;
    merge_row(first.out + row * columns, first.largest + row, first.total + row, stride, count, head.value_width, out,
              lse);
  }
}

}  // namespace hkt::kernels::cpu::HKT_CPU_TARGET
