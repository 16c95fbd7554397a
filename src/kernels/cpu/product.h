// SPDX-License-Identifier: Apache-2.0
// Matrix products on register tiles: C[rows × columns] from A[rows × depth] and B[depth × columns], with a fused epilogue
// (weights, exponentials, adding to C). All multiply-adds of the kernels happen here.
#pragma once

#include "vector.h"

#ifdef __AVX512BF16__
#include <immintrin.h>
#endif

namespace hkt::kernels::cpu::HKT_CPU_TARGET {

// The arithmetic of a product. A word is the operand of one multiply-add, from A or from a lane of B: a number, or for
// bfloat16 the pair of numbers that one instruction multiplies and adds.
template <class T>
struct Plain {
  using Number = T;
  using Word = T;
  using Sum = T;
  static constexpr int numbers_per_word = 1;
  static HKT_INLINE Vector<Sum> multiply_add(Word a, Vector<Word> b, Vector<Sum> c) { return c + splat(a) * b; }
};

#ifdef __AVX512BF16__
struct BFloat16Pairs {
  using Number = std::uint16_t;
  using Word = std::uint32_t;
  using Sum = float;
  static constexpr int numbers_per_word = 2;
  static HKT_INLINE Vector<Sum> multiply_add(Word a, Vector<Word> b, Vector<Sum> c) {
    return bits_as<Vector<Sum>>(
        _mm512_dpbf16_ps(bits_as<__m512>(c), bits_as<__m512bh>(splat(a)), bits_as<__m512bh>(b)));
  }
  // Rounds to nearest: the numbers of `first`, then those of `second`.
  static HKT_INLINE Vector<Word> narrow(Vector<Sum> first, Vector<Sum> second) {
    return bits_as<Vector<Word>>(_mm512_cvtne2ps_pbh(bits_as<__m512>(second), bits_as<__m512>(first)));
  }
  // For the two vectors in the result of narrow(): words that pair their lanes, and each stored separately.
  static HKT_INLINE Vector<Word> interleave_halves(Vector<Word> both) {
    const auto numbers = bits_as<Vector<Number>>(both);
    return bits_as<Vector<Word>>(
        interleave_with_second_half(numbers, std::make_integer_sequence<int, lanes<Number>>{}));
  }
  static HKT_INLINE void store_halves(Word* first, Word* second, Vector<Word> both) {
    using Half = typename VectorTypes<Word>::Half;
    *reinterpret_cast<Half*>(first) = __builtin_shufflevector(both, both, 0, 1, 2, 3, 4, 5, 6, 7);
    *reinterpret_cast<Half*>(second) = __builtin_shufflevector(both, both, 8, 9, 10, 11, 12, 13, 14, 15);
  }

 private:
  template <int... I>
  static HKT_INLINE Vector<Number> interleave_with_second_half(Vector<Number> v, std::integer_sequence<int, I...>) {
    return __builtin_shufflevector(v, v, (I / 2 + (I % 2) * lanes<Number> / 2)...);
  }
};
#endif

// The number of words for n numbers.
template <class Math>
HKT_INLINE constexpr std::int64_t words(std::int64_t n) {
  return (n + Math::numbers_per_word - 1) / Math::numbers_per_word;
}
HKT_INLINE constexpr std::int64_t round_up(std::int64_t n, std::int64_t multiple) {
  return (n + multiple - 1) / multiple * multiple;
}

// Register tiles: up to `max_vectors` vectors wide, with as many rows as fit into the registers.
inline constexpr int max_vectors = HKT_VECTOR_BYTES == 64 ? 4 : 2;
template <int Vectors>
inline constexpr int tile_rows = max_vectors == 4 ? (Vectors > 2 ? 6 : 12) : (Vectors > 1 ? 6 : 12);
template <class Math>
inline constexpr int panel_width = max_vectors * lanes<typename Math::Sum>;

template <class Math>
struct Left {  // A[row][step] is data[row · row_stride + step · depth_stride]
  const typename Math::Word* data;
  std::int64_t row_stride;
  std::int64_t depth_stride;
};
template <class Math>
struct Right {  // row `step` of B begins at data[step · depth_stride]
  const typename Math::Word* data;
  std::int64_t depth_stride;
};

// Out of line on purpose: when it is inlined, GCC spills the accumulators. Its arguments are six scalars in registers and a
// reference: a struct passed by value would be stored field by field and then loaded as vectors, which defeats store
// forwarding and stalls the load.
template <class Math, int Rows, int Vectors, class Epilogue>
[[gnu::noinline]] void multiply_tile(std::int64_t depth, const typename Math::Word* a, std::int64_t a_row_stride,
                                     std::int64_t a_depth_stride, const typename Math::Word* b,
                                     std::int64_t b_depth_stride, const Epilogue& epilogue) {
  using Sum = typename Math::Sum;
  Vector<Sum> sums[Rows][Vectors];
#pragma GCC unroll 16
  for (int r = 0; r < Rows; ++r)
#pragma GCC unroll 16
    for (int v = 0; v < Vectors; ++v) sums[r][v] = Vector<Sum>{};
  for (std::int64_t step = 0; step < depth; ++step) {
    Vector<typename Math::Word> row[Vectors];
#pragma GCC unroll 16
    for (int v = 0; v < Vectors; ++v) row[v] = load(b + v * lanes<Sum>);
#pragma GCC unroll 16
    for (int r = 0; r < Rows; ++r) {
      const typename Math::Word left = a[r * a_row_stride];
#pragma GCC unroll 16
      for (int v = 0; v < Vectors; ++v) sums[r][v] = Math::multiply_add(left, row[v], sums[r][v]);
    }
    a += a_depth_stride;
    b += b_depth_stride;
  }
  epilogue.template operator()<Rows, Vectors>(sums);
}

inline constexpr int fewer_rows(int rows) { return rows > 8 ? 8 : rows > 4 ? 4 : 2; }

// The range of depth that rows [row, row + rows) need: all of it, or the part on one side of a diagonal.
struct Steps {
  std::int64_t first;
  std::int64_t last;
};
struct AllSteps {
  std::int64_t depth;
  HKT_INLINE Steps operator()(int, int) const { return {0, depth}; }
};

// A column of tiles, tallest first. Rows come in pairs: an odd last row is computed with a second one, in the padding.
template <class Math, int Rows, int Vectors, class Range, class Epilogue>
HKT_INLINE void multiply_column(int row, int rows, Range range, Left<Math> a, Right<Math> b, Epilogue epilogue) {
  for (; row + Rows <= rows + (Rows == 2); row += Rows) {
    const Steps steps = range(row, Rows);
    if (steps.first >= steps.last) continue;
    // Every other tile goes backwards through the depth, so that it begins with what the previous one left in the cache.
    const bool forwards = row / Rows % 2 == 0;
    const std::int64_t start = forwards ? steps.first : steps.last - 1;
    const std::int64_t direction = forwards ? 1 : -1;
    multiply_tile<Math, Rows, Vectors>(steps.last - steps.first, a.data + row * a.row_stride + start * a.depth_stride,
                                       a.row_stride, direction * a.depth_stride, b.data + start * b.depth_stride,
                                       direction * b.depth_stride, epilogue.at(row, 0));
  }
  if constexpr (Rows > 2) multiply_column<Math, fewer_rows(Rows), Vectors>(row, rows, range, a, b, epilogue);
}

template <class Math, class Range, class Epilogue>
HKT_INLINE void multiply_columns(int vectors, int rows, Range range, Left<Math> a, Right<Math> b, Epilogue epilogue) {
  if constexpr (max_vectors == 4) {
    if (vectors == 4) return multiply_column<Math, tile_rows<4>, 4>(0, rows, range, a, b, epilogue);
    if (vectors == 3) return multiply_column<Math, tile_rows<3>, 3>(0, rows, range, a, b, epilogue);
  }
  if (vectors == 2) return multiply_column<Math, tile_rows<2>, 2>(0, rows, range, a, b, epilogue);
  multiply_column<Math, tile_rows<1>, 1>(0, rows, range, a, b, epilogue);
}

// B packed in panels: for each run of `run` columns an array [depth][stride]. The stride is the run rounded up to full
// vectors, or to a half or a quarter of one; the remaining lanes then compute with the data that follows, and their results
// are not used. A run never crosses a tile of keys, which at coarse levels has fewer columns than a register tile.
struct Panels {
  int run;
  int stride;
};
template <class Math>
HKT_INLINE constexpr Panels panels_of(int tile_columns) {
  constexpr int lane_count = lanes<typename Math::Sum>;
  const int run =
      max(1, min(panel_width<Math>, tile_columns));  // without columns there are no panels, but a size of one
  for (int part = max(1, lane_count / 4); part < lane_count; part *= 2)
    if (run <= part) return {run, part};
  return {run, static_cast<int>(round_up(run, lane_count))};
}

template <class Math, class Epilogue>
HKT_INLINE void multiply_panels(int rows, int columns, std::int64_t depth, Left<Math> a,
                                const typename Math::Word* panels, Panels shape, Epilogue epilogue) {
  constexpr int lane_count = lanes<typename Math::Sum>;
  for (int column = 0; column < columns; column += shape.run) {
    const int vectors = (min(shape.run, columns - column) + lane_count - 1) / lane_count;
    multiply_columns<Math>(vectors, rows, AllSteps{depth}, a, Right<Math>{panels, shape.stride},
                           epilogue.at(0, column));
    panels += shape.stride * depth;
  }
}

// B as rows of `columns` numbers (a multiple of the lanes), depth_stride words apart.
template <class Math, class Range, class Epilogue>
HKT_INLINE void multiply_rows(int rows, int columns, Range range, Left<Math> a, Right<Math> b, Epilogue epilogue) {
  constexpr int width = panel_width<Math>;
  constexpr int lane_count = lanes<typename Math::Sum>;
  for (int column = 0; column < columns; column += width)
    multiply_columns<Math>(min(width, columns - column) / lane_count, rows, range, a,
                           Right<Math>{b.data + column, b.depth_stride}, epilogue.at(0, column));
}

// Epilogue: C += A·B, or C = A·B to overwrite C.
template <class Sum>
struct AddTo {
  Sum* out;
  std::int64_t stride;
  bool overwrite;
  HKT_INLINE AddTo at(std::int64_t row, std::int64_t column) const {
    return {out + row * stride + column, stride, overwrite};
  }
  template <int Rows, int Vectors>
  HKT_INLINE void operator()(Vector<Sum> (&sums)[Rows][Vectors]) const {
    if (overwrite)
      each<false>(sums);
    else
      each<true>(sums);
  }

 private:
  template <bool Add, int Rows, int Vectors>
  HKT_INLINE void each(Vector<Sum> (&sums)[Rows][Vectors]) const {
#pragma GCC unroll 16
    for (int r = 0; r < Rows; ++r)
#pragma GCC unroll 16
      for (int v = 0; v < Vectors; ++v) {
        Sum* to = out + r * stride + v * lanes<Sum>;
        if constexpr (Add) sums[r][v] += load(to);
        store(to, sums[r][v]);
      }
  }
};

// Epilogue: C = C · factor[row] + A·B.
template <class Sum>
struct RescaleAndAdd {
  Sum* out;
  std::int64_t stride;
  const Sum* factor;
  HKT_INLINE RescaleAndAdd at(std::int64_t row, std::int64_t column) const {
    return {out + row * stride + column, stride, factor + row};
  }
  template <int Rows, int Vectors>
  HKT_INLINE void operator()(Vector<Sum> (&sums)[Rows][Vectors]) const {
#pragma GCC unroll 16
    for (int r = 0; r < Rows; ++r)
#pragma GCC unroll 16
      for (int v = 0; v < Vectors; ++v) {
        Sum* to = out + r * stride + v * lanes<Sum>;
        store(to, load(to) * factor[r] + sums[r][v]);
      }
  }
};

// Epilogue: C = A·B · factor, one factor for each row or one for all.
template <class Sum, bool PerRow>
struct Scale {
  Sum* out;
  std::int64_t stride;
  const Sum* factor;
  HKT_INLINE Scale at(std::int64_t row, std::int64_t column) const {
    return {out + row * stride + column, stride, PerRow ? factor + row : factor};
  }
  template <int Rows, int Vectors>
  HKT_INLINE void operator()(Vector<Sum> (&sums)[Rows][Vectors]) const {
#pragma GCC unroll 16
    for (int r = 0; r < Rows; ++r)
#pragma GCC unroll 16
      for (int v = 0; v < Vectors; ++v) store(out + r * stride + v * lanes<Sum>, sums[r][v] * factor[PerRow ? r : 0]);
  }
};

// Epilogue: C = A·B · factor, and Σ A·B ⊙ other into `total`, a vector of sums.
template <class Sum>
struct ScaleAndDot {
  Sum* out;
  std::int64_t stride;
  Sum factor;
  const Sum* other;
  std::int64_t other_stride;
  Sum* total;
  HKT_INLINE ScaleAndDot at(std::int64_t row, std::int64_t column) const {
    return {out + row * stride + column, stride, factor, other + row * other_stride + column, other_stride, total};
  }
  template <int Rows, int Vectors>
  HKT_INLINE void operator()(Vector<Sum> (&sums)[Rows][Vectors]) const {
    Vector<Sum> even{}, odd{};
#pragma GCC unroll 16
    for (int r = 0; r < Rows; r += 2)
#pragma GCC unroll 16
      for (int v = 0; v < Vectors; ++v) {
        const int column = v * lanes<Sum>;
        even += sums[r][v] * load(other + r * other_stride + column);
        odd += sums[r + 1][v] * load(other + (r + 1) * other_stride + column);
        store(out + r * stride + column, sums[r][v] * factor);
        store(out + (r + 1) * stride + column, sums[r + 1][v] * factor);
      }
    store(total, load(total) + (even + odd));
  }
};

}  // namespace hkt::kernels::cpu::HKT_CPU_TARGET
