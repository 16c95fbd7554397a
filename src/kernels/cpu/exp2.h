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
  static constexpr float no_score = -1e38f;  // below every score, and still finite when a score is taken from it
  static constexpr float round_shift = 12582912.0f;  // 1.5 · 2^23: adding it leaves the nearest integer in the low bits
  static constexpr int mantissa_bits = 23;
  static constexpr float coefficients[] = {1.0000001f,  0.69314694f,  0.2402212f,
                                           0.05550713f, 0.009675541f, 0.0013276471f};
};

// Taylor coefficients ln(2)^k / k! up to degree 13: truncation error 4e-18.
template <>
struct Exp2<double> {
  static constexpr double lowest = -1022.0;
  static constexpr double no_score = -1e307;
  static constexpr double round_shift = 6755399441055744.0;  // 1.5 · 2^52
  static constexpr int mantissa_bits = 52;
  static constexpr double coefficients[] = {
      1.0,
      0.69314718055994530942,
      0.24022650695910071233,
      0.055504108664821579953,
      0.0096181291076284771620,
      0.0013333558146428443423,
      0.00015403530393381609955,
      1.5252733804059840281e-05,
      1.3215486790144309488e-06,
      1.0178086009239699728e-07,
      7.0549116208011233299e-09,
      4.4455382718708114977e-10,
      2.5678435993488205141e-11,
      1.3691488853904128880e-12,
  };
};

// For x ≤ 0; below `lowest` the result is a number too small to matter.
template <class T>
HKT_INLINE Vector<T> exp2(Vector<T> x) {
  using E = Exp2<T>;
  x = larger<T>(x, splat(E::lowest));
  const Vector<T> shifted = x + E::round_shift;
  const Vector<T> fraction = x - (shifted - E::round_shift);
  constexpr int terms = sizeof(E::coefficients) / sizeof(T);
  Vector<T> p = splat(E::coefficients[terms - 1]);
#pragma GCC unroll 16
  for (int k = terms - 2; k >= 0; --k) p = p * fraction + E::coefficients[k];
  return bits_as<Vector<T>>(bits_as<Mask<T>>(p) + (bits_as<Mask<T>>(shifted) << E::mantissa_bits));
}

}  // namespace hkt::kernels::cpu::HKT_CPU_TARGET
