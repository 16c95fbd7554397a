// One machine vector of numbers, written with GCC's vector extensions so that one source serves every instruction set.
// Included once per instruction set: HKT_CPU_TARGET names its namespace, HKT_VECTOR_BYTES its vector size.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <utility>

#define HKT_INLINE __attribute__((always_inline)) inline

namespace hkt::kernels::cpu::HKT_CPU_TARGET {

// std::min and std::max could be emitted out of line with this file's instructions and then be used by others.
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

// The integer as wide as a number: masks and bit patterns.
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

template <class T>
HKT_INLINE Vector<T> larger(Vector<T> a, Vector<T> b) {
  return a > b ? a : b;
}

// Halves combined until one lane is left: a fixed order, so the same bits each time.
template <class T, class Combine>
HKT_INLINE T reduce(Vector<T> v, Combine combine) {
  T x[lanes<T>];
  store(x, v);
#pragma GCC unroll 4
  for (int width = lanes<T> / 2; width > 0; width /= 2)
#pragma GCC unroll 16
    for (int i = 0; i < width; ++i) x[i] = combine(x[i], x[i + width]);
  return x[0];
}
template <class T>
HKT_INLINE T sum(Vector<T> v) {
  return reduce<T>(v, [](T a, T b) { return a + b; });
}
template <class T>
HKT_INLINE T largest(Vector<T> v) {
  return reduce<T>(v, [](T a, T b) { return a > b ? a : b; });
}

// Half a vector at p, every number twice.
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

// Rows become columns: interleaving the first half of the rows with the second, log2(lanes) times.
template <class T>
HKT_INLINE void transpose(Vector<T> (&rows)[lanes<T>]) {
#pragma GCC unroll 4
  for (int stage = 1; stage < lanes<T>; stage *= 2) {
    Vector<T> next[lanes<T>];
#pragma GCC unroll 16
    for (int i = 0; i < lanes<T> / 2; ++i) {
      next[2 * i] = interleave_first<T>(rows[i], rows[i + lanes<T> / 2]);
      next[2 * i + 1] = interleave_second<T>(rows[i], rows[i + lanes<T> / 2]);
    }
#pragma GCC unroll 16
    for (int i = 0; i < lanes<T>; ++i) rows[i] = next[i];
  }
}

}  // namespace hkt::kernels::cpu::HKT_CPU_TARGET
