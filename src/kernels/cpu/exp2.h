// Powers of two for the softmax: 2^x = 2^n · p(x − n), n the nearest integer, p a polynomial on [−1/2, 1/2].
#pragma once

#include "vector.h"

namespace hkt::kernels::cpu::HKT_CPU_TARGET {

template <class T>
struct Exp2;

// Minimax coefficients of degree 5: relative error 7.5e-8, 2.1e-7 with float32 rounding.
template <>
struct Exp2<float> {
  static constexpr float lowest = -126.0f;
  static constexpr float round_shift = 12582912.0f;  // 1.5 · 2^23: adding it leaves the nearest integer in the low bits
  static constexpr int mantissa_bits = 23;
  static constexpr float coefficients[] = {1.0000001f,  0.69314694f,  0.2402212f,
                                           0.05550713f, 0.009675541f, 0.0013276471f};
};

// Taylor coefficients ln(2)^k / k! up to degree 13: truncation error 4e-18.
template <>
struct Exp2<double> {
  static constexpr double lowest = -1022.0;
  static constexpr double round_shift = 6755399441055744.0;  // 1.5 · 2^52
  static constexpr int mantissa_bits = 52;
  static constexpr int terms = 14;
  struct Series {
    double term[terms];
    constexpr Series() : term{} {
      double t = 1;
      for (int k = 0; k < terms; ++k) {
        term[k] = t;
        t *= 0.693147180559945309417232 / (k + 1);
      }
    }
    constexpr double operator[](int k) const { return term[k]; }
  };
  static constexpr Series coefficients{};
};

template <class T>
HKT_INLINE constexpr int exp2_terms() {
  if constexpr (sizeof(T) == 8)
    return Exp2<double>::terms;
  else
    return sizeof(Exp2<T>::coefficients) / sizeof(T);
}

// For x ≤ 0; below `lowest` the result is a number too small to matter.
template <class T>
HKT_INLINE Vector<T> exp2(Vector<T> x) {
  using E = Exp2<T>;
  x = larger<T>(x, splat(E::lowest));
  const Vector<T> shifted = x + E::round_shift;
  const Vector<T> fraction = x - (shifted - E::round_shift);
  constexpr int terms = exp2_terms<T>();
  Vector<T> p = splat(E::coefficients[terms - 1]);
#pragma GCC unroll 16
  for (int k = terms - 2; k >= 0; --k) p = p * fraction + E::coefficients[k];
  return bits_as<Vector<T>>(bits_as<Mask<T>>(p) + (bits_as<Mask<T>>(shifted) << E::mantissa_bits));
}

}  // namespace hkt::kernels::cpu::HKT_CPU_TARGET
