// SPDX-License-Identifier: Apache-2.0
// exp2 and log for the softmax. 2^x = 2^n · p(x − n), n the nearest integer, p a polynomial on [−1/2, 1/2].
#pragma once

#include "vector.h"

namespace hkt::kernels::cpu::HKT_CPU_TARGET {

template <class T>
struct Exp2;

// Minimax coefficients of degree 5: relative error 7.5e-8, 2.1e-7 with float32 rounding.
template <>
struct Exp2<float> {
  static constexpr float lowest = -126.0f;
  static constexpr float no_score = -1e38f;  // below every score, and still finite when a score is subtracted from it
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

// The nearest integer n and value · 2^n, which are single instructions of AVX-512.
#if HKT_VECTOR_BYTES == 64 && defined(__AVX512F__)
template <class T>
HKT_INLINE Vector<T> nearest_integer(Vector<T> x) {
  constexpr int to_nearest = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
  if constexpr (sizeof(T) == 4)
    return bits_as<Vector<T>>(_mm512_maskz_roundscale_ps(all_lanes, bits_as<__m512>(x), to_nearest));
  else
    return bits_as<Vector<T>>(_mm512_maskz_roundscale_pd(all_lanes, bits_as<__m512d>(x), to_nearest));
}
template <class T>
HKT_INLINE Vector<T> times_power_of_two(Vector<T> value, Vector<T> n) {
  if constexpr (sizeof(T) == 4)
    return bits_as<Vector<T>>(_mm512_maskz_scalef_ps(all_lanes, bits_as<__m512>(value), bits_as<__m512>(n)));
  else
    return bits_as<Vector<T>>(_mm512_maskz_scalef_pd(all_lanes, bits_as<__m512d>(value), bits_as<__m512d>(n)));
}
#endif

template <class T>
HKT_INLINE Vector<T> exp2_of_fraction(Vector<T> fraction) {
  using E = Exp2<T>;
  constexpr int terms = sizeof(E::coefficients) / sizeof(T);
  Vector<T> p = splat(E::coefficients[terms - 1]);
#pragma GCC unroll 16
  for (int k = terms - 2; k >= 0; --k) p = p * fraction + E::coefficients[k];
  return p;
}

// For x ≤ 0. Results below 2^lowest are too small to matter and may be inaccurate.
template <class T>
HKT_INLINE Vector<T> exp2(Vector<T> x) {
#if HKT_VECTOR_BYTES == 64 && defined(__AVX512F__)
  const Vector<T> n = nearest_integer<T>(x);
  return times_power_of_two<T>(exp2_of_fraction<T>(x - n), n);
#else
  using E = Exp2<T>;
  x = larger<T>(x, splat(E::lowest));
  const Vector<T> shifted = x + E::round_shift;
  const Vector<T> p = exp2_of_fraction<T>(x - (shifted - E::round_shift));
  // Unsigned, because lanes beyond the last key contain arbitrary values and may overflow.
  using Bits = Vector<std::make_unsigned_t<BitsOf<T>>>;
  return bits_as<Vector<T>>(bits_as<Bits>(p) + (bits_as<Bits>(shifted) << E::mantissa_bits));
#endif
}

// The natural logarithm of positive normal numbers: x = 2^n · m with m in [0.7, 1.4], log m = 2 artanh((m − 1) / (m + 1)).
template <class T>
HKT_INLINE Vector<T> log(Vector<T> x) {
  constexpr int terms = sizeof(T) == 8 ? 11 : 5;  // the next term is below the rounding error, for |s| ≤ 0.172
  constexpr int shift = Exp2<T>::mantissa_bits;
  const Mask<T> bits = bits_as<Mask<T>>(x);
  const Mask<T> root_half = bits_as<Mask<T>>(splat(T(0.70710678118654752)));
  const Mask<T> n = (bits - root_half) >> shift;
  const Vector<T> m = bits_as<Vector<T>>(bits - (n << shift));
  const Vector<T> s = (m - T(1)) / (m + T(1));
  const Vector<T> square = s * s;
  Vector<T> series = splat(T(2) / (2 * terms + 1));
#pragma GCC unroll 16
  for (int k = terms - 1; k >= 0; --k) series = series * square + T(2) / (2 * k + 1);
  return __builtin_convertvector(n, Vector<T>) * T(0.693147180559945309417232) + s * series;
}

}  // namespace hkt::kernels::cpu::HKT_CPU_TARGET
