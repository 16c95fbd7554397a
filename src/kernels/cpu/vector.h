// SPDX-License-Identifier: Apache-2.0
// A SIMD vector of numbers, in GCC's vector extensions so that one source serves every instruction set.
// Included once per instruction set: HKT_CPU_TARGET names its namespace, HKT_VECTOR_BYTES its vector size.
#pragma once

#include <bit>
#include <cstdint>
#include <type_traits>
#include <utility>

#ifdef __SSE2__
#include <immintrin.h>
#endif

#define HKT_INLINE __attribute__((always_inline)) inline

namespace hkt::kernels::cpu::HKT_CPU_TARGET {

// Not std::min and std::max: an out-of-line copy with this file's instructions could be linked into code for other machines.
template <class T>
HKT_INLINE constexpr T min(T a, T b) {
  return b < a ? b : a;
}
template <class T>
HKT_INLINE constexpr T max(T a, T b) {
  return a < b ? b : a;
}

template <class T>
struct VectorTypes {
  using Whole [[gnu::vector_size(HKT_VECTOR_BYTES)]] = T;
  using Unaligned [[gnu::vector_size(HKT_VECTOR_BYTES), gnu::aligned(sizeof(T)), gnu::may_alias]] = T;
  using Half [[gnu::vector_size(HKT_VECTOR_BYTES / 2), gnu::aligned(sizeof(T)), gnu::may_alias]] = T;
};

template <class T>
using Vector = typename VectorTypes<T>::Whole;
template <class T>
inline constexpr int lanes = HKT_VECTOR_BYTES / sizeof(T);

// The integer type as wide as T, for masks and bit patterns.
template <class T>
using BitsOf = std::conditional_t<sizeof(T) == 8, std::int64_t, std::int32_t>;
template <class T>
using Mask = Vector<BitsOf<T>>;

template <class T>
HKT_INLINE Vector<T> load(const T* p) {
  return *reinterpret_cast<const typename VectorTypes<T>::Unaligned*>(p);
}
template <class T>
HKT_INLINE void store(T* p, Vector<T> v) {
  *reinterpret_cast<typename VectorTypes<T>::Unaligned*>(p) = v;
}
template <class T>
HKT_INLINE Vector<T> splat(T x) {
  return x - Vector<T>{};
}
template <class To, class From>
HKT_INLINE To bits_as(From v) {
  static_assert(sizeof(To) == sizeof(From));
  return reinterpret_cast<To>(v);
}

template <class T, int... I>
HKT_INLINE Vector<BitsOf<T>> count_lanes(std::integer_sequence<int, I...>) {
  return Vector<BitsOf<T>>{I...};
}
// Lanes 0 .. n-1 set.
template <class T>
HKT_INLINE Mask<T> first_lanes(int n) {
  return count_lanes<T>(std::make_integer_sequence<int, lanes<T>>{}) < BitsOf<T>(n);
}

// Instructions that GCC does not generate from vector expressions. Masked, because GCC 12 warns about the unmasked ones.
inline constexpr int all_lanes = -1;
template <class T>
HKT_INLINE Vector<T> larger(Vector<T> a, Vector<T> b) {
#if HKT_VECTOR_BYTES == 64 && defined(__AVX512F__)
  if constexpr (sizeof(T) == 4)
    return bits_as<Vector<T>>(_mm512_maskz_max_ps(all_lanes, bits_as<__m512>(a), bits_as<__m512>(b)));
  else
    return bits_as<Vector<T>>(_mm512_maskz_max_pd(all_lanes, bits_as<__m512d>(a), bits_as<__m512d>(b)));
#elif HKT_VECTOR_BYTES == 32 && defined(__AVX__)
  if constexpr (sizeof(T) == 4)
    return bits_as<Vector<T>>(_mm256_max_ps(bits_as<__m256>(a), bits_as<__m256>(b)));
  else
    return bits_as<Vector<T>>(_mm256_max_pd(bits_as<__m256d>(a), bits_as<__m256d>(b)));
#elif HKT_VECTOR_BYTES == 16 && defined(__SSE2__)
  if constexpr (sizeof(T) == 4)
    return bits_as<Vector<T>>(_mm_max_ps(bits_as<__m128>(a), bits_as<__m128>(b)));
  else
    return bits_as<Vector<T>>(_mm_max_pd(bits_as<__m128d>(a), bits_as<__m128d>(b)));
#else
  return a > b ? a : b;
#endif
}

// Halves are combined until one lane is left: a fixed order, so results are bit-identical.
template <class T, int Lanes, class V, class Combine, int... I>
HKT_INLINE T reduce(V v, Combine combine, std::integer_sequence<int, I...>) {
  if constexpr (Lanes == 1) {
    return v[0];
  } else {
    const auto low = __builtin_shufflevector(v, v, I...);
    const auto high = __builtin_shufflevector(v, v, (I + Lanes / 2)...);
    return reduce<T, Lanes / 2>(combine(low, high), combine, std::make_integer_sequence<int, max(1, Lanes / 4)>{});
  }
}
template <class T>
HKT_INLINE T sum(Vector<T> v) {
  return reduce<T, lanes<T>>(v, [](auto a, auto b) { return a + b; }, std::make_integer_sequence<int, lanes<T> / 2>{});
}
template <class T>
HKT_INLINE T largest(Vector<T> v) {
  return reduce<T, lanes<T>>(
      v, [](auto a, auto b) { return a > b ? a : b; }, std::make_integer_sequence<int, lanes<T> / 2>{});
}

// Half a vector at p, every number repeated.
template <class T, int... I>
HKT_INLINE Vector<T> load_twice(const T* p, std::integer_sequence<int, I...>) {
  using Half = typename VectorTypes<T>::Half;
  const Half h = *reinterpret_cast<const Half*>(p);
  return __builtin_shufflevector(h, h, (I / 2)...);
}
template <class T>
HKT_INLINE Vector<T> load_twice(const T* p) {
  return load_twice(p, std::make_integer_sequence<int, lanes<T>>{});
}

// Sums of neighbouring lanes of a and then of b.
template <class T, int... I>
HKT_INLINE Vector<T> add_neighbours(Vector<T> a, Vector<T> b, std::integer_sequence<int, I...>) {
  return __builtin_shufflevector(a, b, (2 * I)...) + __builtin_shufflevector(a, b, (2 * I + 1)...);
}
template <class T>
HKT_INLINE Vector<T> add_neighbours(Vector<T> a, Vector<T> b) {
  return add_neighbours<T>(a, b, std::make_integer_sequence<int, lanes<T>>{});
}

// a0 b0 a1 b1 ...: the first half of both, or the second.
template <class T, int Offset, int... I>
HKT_INLINE Vector<T> interleave(Vector<T> a, Vector<T> b, std::integer_sequence<int, I...>) {
  return __builtin_shufflevector(a, b, (Offset + I / 2 + (I % 2) * lanes<T>)...);
}
template <class T>
HKT_INLINE Vector<T> interleave_first(Vector<T> a, Vector<T> b) {
  return interleave<T, 0>(a, b, std::make_integer_sequence<int, lanes<T>>{});
}
template <class T>
HKT_INLINE Vector<T> interleave_second(Vector<T> a, Vector<T> b) {
  return interleave<T, lanes<T> / 2>(a, b, std::make_integer_sequence<int, lanes<T>>{});
}

// Rows become columns, one after the other, by interleaving the first half of the rows with the second log2(Rows) times.
template <class T, int Rows>
HKT_INLINE void transpose(Vector<T> (&rows)[Rows]) {
#pragma GCC unroll 4
  for (int stage = 1; stage < Rows; stage *= 2) {
    Vector<T> next[Rows];
#pragma GCC unroll 16
    for (int i = 0; i < Rows / 2; ++i) {
      next[2 * i] = interleave_first<T>(rows[i], rows[i + Rows / 2]);
      next[2 * i + 1] = interleave_second<T>(rows[i], rows[i + Rows / 2]);
    }
#pragma GCC unroll 16
    for (int i = 0; i < Rows; ++i) rows[i] = next[i];
  }
}

// The sum of each of `lanes` vectors.
template <class T, int Count>
HKT_INLINE Vector<T> sums_of(Vector<T> (&vectors)[Count]) {
  if constexpr (Count == 1) {
    return vectors[0];
  } else {
    Vector<T> half[Count / 2];
#pragma GCC unroll 16
    for (int i = 0; i < Count / 2; ++i) half[i] = add_neighbours<T>(vectors[2 * i], vectors[2 * i + 1]);
    return sums_of<T>(half);
  }
}

}  // namespace hkt::kernels::cpu::HKT_CPU_TARGET
