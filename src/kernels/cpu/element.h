// SPDX-License-Identifier: Apache-2.0
// The element types of inputs and outputs: loads widen to a vector of sums, stores round to nearest, ties to even.
#pragma once

#include "vector.h"

namespace hkt::kernels::cpu::HKT_CPU_TARGET {

struct BFloat16 {
  std::uint16_t bits;
};
struct Float16 {
  std::uint16_t bits;
};

using Bits32 = Vector<std::uint32_t>;
using Bits16 [[gnu::vector_size(HKT_VECTOR_BYTES / 2), gnu::aligned(2), gnu::may_alias]] = std::uint16_t;

template <class E>
HKT_INLINE Bits32 load_bits16(const E* p) {
  return __builtin_convertvector(*reinterpret_cast<const Bits16*>(p), Bits32);
}
template <class E>
HKT_INLINE void store_bits16(E* p, Bits32 bits) {
  *reinterpret_cast<Bits16*>(p) = __builtin_convertvector(bits, Bits16);
}

HKT_INLINE Vector<float> read_vector(const float* p) { return load(p); }
HKT_INLINE Vector<double> read_vector(const double* p) { return load(p); }
HKT_INLINE Vector<float> read_vector(const BFloat16* p) { return bits_as<Vector<float>>(load_bits16(p) << 16); }
HKT_INLINE Vector<float> read_vector(const Float16* p) {
  const Bits32 half = load_bits16(p);
  const Bits32 magnitude = (half & 0x7fff) << 13;
  // Times 2^112: adjusts the exponent bias and normalises float16's subnormals. Infinities and NaNs keep an exponent of ones.
  const Bits32 finite = bits_as<Bits32>(bits_as<Vector<float>>(magnitude) * 0x1p112f);
  const Bits32 value = magnitude >= 0x0f800000 ? (magnitude | 0x7f800000) : finite;
  return bits_as<Vector<float>>(value | (half & 0x8000) << 16);
}

HKT_INLINE void write_vector(float* p, Vector<float> v) { store(p, v); }
HKT_INLINE void write_vector(double* p, Vector<double> v) { store(p, v); }
HKT_INLINE void write_vector(BFloat16* p, Vector<float> v) {
  const Bits32 bits = bits_as<Bits32>(v);
  const Bits32 rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
  store_bits16(p, (bits & 0x7fffffff) > 0x7f800000 ? (bits >> 16 | 0x40) : rounded);
}
HKT_INLINE void write_vector(Float16* p, Vector<float> v) {
  const Bits32 bits = bits_as<Bits32>(v);
  const Bits32 magnitude = bits & 0x7fffffff;
  const Bits32 normal = (magnitude - 0x38000000 + 0x0fff + ((magnitude >> 13) & 1)) >> 13;
  // Adding 1/2 leaves a float16 subnormal in the low bits, rounded by the addition.
  const Bits32 subnormal = bits_as<Bits32>(bits_as<Vector<float>>(magnitude) + 0.5f) - 0x3f000000;
  Bits32 half = magnitude < 0x38800000 ? subnormal : normal;
  half = magnitude >= 0x477ff000 ? Bits32{} + 0x7c00 : half;
  half = magnitude > 0x7f800000 ? Bits32{} + 0x7e00 : half;
  store_bits16(p, half | (bits & 0x80000000) >> 16);
}

// The type in which sums over an element type are computed.
template <class E>
struct SumOf {
  using Type = float;
};
template <>
struct SumOf<double> {
  using Type = double;
};

// The first n numbers only: other lanes are read as zero, and not written.
template <class E>
HKT_INLINE auto read_vector(const E* p, std::int64_t n) {
  constexpr int count = lanes<typename SumOf<E>::Type>;
  if (n >= count) return read_vector(p);
  E part[count] = {};
  for (std::int64_t i = 0; i < n; ++i) part[i] = p[i];
  return read_vector(part);
}
template <class E>
HKT_INLINE void write_vector(E* p, std::int64_t n, Vector<typename SumOf<E>::Type> v) {
  constexpr int count = lanes<typename SumOf<E>::Type>;
  if (n >= count) return write_vector(p, v);
  E part[count];
  write_vector(part, v);
  for (std::int64_t i = 0; i < n; ++i) p[i] = part[i];
}

}  // namespace hkt::kernels::cpu::HKT_CPU_TARGET
