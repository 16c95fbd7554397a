// SPDX-License-Identifier: Apache-2.0
// Packs inputs for the products (converted, contiguous, zero-padded), and writes sums back as elements.
#pragma once

#include "attention_blocks.h"
#include "element.h"
#include "product.h"

namespace hkt::kernels::cpu::HKT_CPU_TARGET {

// Divides a block of memory into 64-byte aligned pieces. Constructed with null it only counts the bytes.
class Arena {
 public:
  explicit Arena(void* memory) : begin_(static_cast<char*>(memory)) {}
  template <class T>
  T* take(std::int64_t count) {
    T* piece = reinterpret_cast<T*>(begin_ + used_);
    used_ += round_up(count * static_cast<std::int64_t>(sizeof(T)), 64);
    return piece;
  }
  std::int64_t bytes() const { return used_; }

 private:
  char* begin_;
  std::int64_t used_ = 0;
};

// One vector of words from `numbers` numbers at p.
template <class Math, class E>
HKT_INLINE Vector<typename Math::Word> read_words(const E* p, std::int64_t numbers) {
  if constexpr (Math::numbers_per_word == 1) {
    return read_vector(p, numbers);
  } else {
    using Word = typename Math::Word;
    if (numbers >= 2 * lanes<Word>) return load(reinterpret_cast<const Word*>(p));
    E part[2 * lanes<Word>] = {};
    for (std::int64_t i = 0; i < numbers; ++i) part[i] = p[i];
    return load(reinterpret_cast<const Word*>(part));
  }
}

// Rows as the left factor: words(width) words, `stride` apart. Writes full vectors, so `out` needs room for one more. The first
// `missing` rows are zeros and are not read.
template <class Math, class E>
void pack_left(const E* rows, std::int64_t row_stride, std::int64_t count, int width, typename Math::Word* out,
               std::int64_t stride, std::int64_t missing = 0) {
  using Word = typename Math::Word;
  constexpr int numbers = Math::numbers_per_word * lanes<Word>;
  for (std::int64_t row = 0; row < count; ++row)
    for (int first = 0; first < width; first += numbers)
      store(out + row * stride + first / Math::numbers_per_word,
            row < missing ? Vector<Word>{} : read_words<Math>(rows + row * row_stride + first, width - first));
}

// Rows as the right factor, `columns` (width rounded up to full vectors) words each. A word contains numbers_per_word rows. The
// first `missing` rows are zeros and are not read.
template <class Math, class E>
void pack_right(const E* rows, std::int64_t row_stride, std::int64_t count, int width, typename Math::Word* out,
                std::int64_t columns, std::int64_t missing = 0) {
  constexpr int step = Math::numbers_per_word;
  for (std::int64_t row = 0; row < count; row += step)
    for (std::int64_t first = 0; first < columns; first += lanes<typename Math::Word>) {
      const E* p = rows + row * row_stride + first;
      const std::int64_t numbers = max<std::int64_t>(0, width - first);
      typename Math::Word* to = out + row / step * columns + first;
      if constexpr (step == 1) {
        store(to, row < missing ? Vector<typename Math::Word>{} : read_vector(p, numbers));
      } else {
        const bool has_odd = row + 1 < count && row + 1 >= missing;
        const auto even = row < missing ? Bits32{} : bits_as<Bits32>(read_vector(p, numbers)) >> 16;
        const auto odd = has_odd ? bits_as<Bits32>(read_vector(p + row_stride, numbers)) : Bits32{};
        store(to, even | odd);
      }
    }
}

// One vector from each of up to `Rows` rows, which have `numbers` numbers left, as columns of a panel. With Rows == lanes they
// fill full vectors; with fewer the panel is `Rows` columns wide.
template <class Math, int Rows, bool FullVector, class E>
HKT_INLINE void pack_block(const E* rows, std::int64_t row_stride, std::int64_t count, std::int64_t numbers,
                           typename Math::Word* panel, std::int64_t stride) {
  using Word = typename Math::Word;
  constexpr int step = lanes<Word>;
  Vector<Word> block[Rows];
#pragma GCC unroll 16
  for (int i = 0; i < Rows; ++i)  // columns beyond the last row repeat it, and are not used
    block[i] = read_words<Math>(rows + min<std::int64_t>(i, count - 1) * row_stride,
                                FullVector ? step * Math::numbers_per_word : numbers);
  transpose<Word>(block);
  const std::int64_t valid = FullVector ? Rows : (words<Math>(numbers) * Rows + step - 1) / step;
  for (std::int64_t i = 0; i < valid; ++i) store(panel + i * (Rows == step ? stride : step), block[i]);
}

// Up to `Rows` rows, over their full width.
template <class Math, int Rows, class E>
HKT_INLINE void pack_columns(const E* rows, std::int64_t row_stride, std::int64_t count, int width,
                             typename Math::Word* panel, std::int64_t stride) {
  constexpr int step = lanes<typename Math::Word>;
  constexpr int numbers = step * Math::numbers_per_word;
  int first = 0;
  for (; first + numbers <= width; first += numbers, panel += step * stride)
    pack_block<Math, Rows, true>(rows + first, row_stride, count, numbers, panel, stride);
  if (first < width) pack_block<Math, Rows, false>(rows + first, row_stride, count, width - first, panel, stride);
}

// Rows as the columns of a right factor, in panels.
template <class Math, class E>
void pack_panels(const E* rows, std::int64_t row_stride, std::int64_t count, int width, Panels shape,
                 typename Math::Word* panel) {
  constexpr int step = lanes<typename Math::Word>;
  constexpr int quarter = max(1, step / 4);
  const std::int64_t depth = words<Math>(width);
  for (std::int64_t run = 0; run < count; run += shape.run, panel += shape.stride * depth) {
    const std::int64_t end = min(count, run + shape.run);
    const E* from = rows + run * row_stride;
    if (shape.stride == quarter)
      pack_columns<Math, quarter>(from, row_stride, end - run, width, panel, shape.stride);
    else if (shape.stride == step / 2)
      pack_columns<Math, step / 2>(from, row_stride, end - run, width, panel, shape.stride);
    else
      for (std::int64_t row = run; row < end; row += step)
        pack_columns<Math, step>(rows + row * row_stride, row_stride, end - row, width, panel + (row - run),
                                 shape.stride);
  }
}
template <class Math>
std::int64_t panel_words(std::int64_t count, int width, Panels shape) {
  return (count + shape.run - 1) / shape.run * shape.stride * words<Math>(width);
}
// With room behind the last panel, because it may be read and written as full vectors.
template <class Math>
typename Math::Word* take_panels(Arena& arena, std::int64_t count, int width, Panels shape) {
  return arena.take<typename Math::Word>(panel_words<Math>(count, width, shape) + lanes<typename Math::Word>);
}

template <class Sum>
HKT_INLINE void clear(Sum* p, std::int64_t from, std::int64_t to) {
  for (std::int64_t i = from; i < to; ++i) p[i] = 0;
}

// Whether rows can be used in place, as factors or for results: they have the type of the arithmetic, fill full vectors, come
// in pairs (see multiply_column), and span no more than the L1 cache, so that they do not exceed its associativity.
template <class T, class E>
HKT_INLINE bool usable_in_place(const Rows& rows, std::int64_t count, int width) {
  constexpr std::int64_t cache_bytes = 32768;
  return std::is_same_v<T, E> && width % lanes<T> == 0 && count % 2 == 0 &&
         count * rows.stride * static_cast<std::int64_t>(sizeof(E)) <= cache_bytes;
}

// out[row] = sums[row] · factor
template <class E, class Sum>
void write_rows(const Sum* sums, std::int64_t sum_stride, std::int64_t count, int width, Sum factor, E* out,
                std::int64_t out_stride) {
  for (std::int64_t row = 0; row < count; ++row)
    for (int first = 0; first < width; first += lanes<Sum>)
      write_vector(out + row * out_stride + first, width - first, load(sums + row * sum_stride + first) * factor);
}

}  // namespace hkt::kernels::cpu::HKT_CPU_TARGET
