// SPDX-License-Identifier: Apache-2.0
// Neighbouring elements that a thread reads and writes at once, and computes with in float32.
#pragma once

#include <cstdint>
#include <stdexcept>

#include "common/element.h"
#include "kernels/attention.h"

namespace hkt::kernels::cuda {

inline constexpr int packet_bytes = 16;

template <class T, int count>
struct alignas(sizeof(T) * count) Packet {
  T numbers[count];

  static __device__ __forceinline__ Packet rounded(const float (&from)[count]) {
    Packet packet;
#pragma unroll
    for (int i = 0; i < count; ++i) packet.numbers[i] = static_cast<T>(from[i]);
    return packet;
  }
  __device__ __forceinline__ float operator[](int i) const { return static_cast<float>(numbers[i]); }
};

template <int count, class T>
__device__ __forceinline__ Packet<T, count> load_packet(const T* from) {
  return *reinterpret_cast<const Packet<T, count>*>(from);
}
template <class T, int count>
__device__ __forceinline__ void store_packet(T* to, const float (&numbers)[count]) {
  *reinterpret_cast<Packet<T, count>*>(to) = Packet<T, count>::rounded(numbers);
}

inline bool is_packet_aligned(const void* pointer) {
  return reinterpret_cast<std::uintptr_t>(pointer) % packet_bytes == 0;
}

// Calls function.operator()<T, count>() with the element's type and the elements of a whole packet, or with one where the arrays
// do not allow whole ones.
template <class Function>
void with_packets(Element element, bool whole, const Function& function) {
  const auto with_type = [&]<class T>() {
    if (whole)
      function.template operator()<T, packet_bytes / static_cast<int>(sizeof(T))>();
    else
      function.template operator()<T, 1>();
  };
  switch (element) {
    case Element::float32:
      return with_type.template operator()<float>();
    case Element::bfloat16:
      return with_type.template operator()<bfloat16>();
    case Element::float16:
      return with_type.template operator()<float16>();
    case Element::float64:
      break;
  }
  throw std::runtime_error("hkt: no kernel for float64");
}
inline int packet_elements(Element element) { return packet_bytes / (element == Element::float32 ? 4 : 2); }

}  // namespace hkt::kernels::cuda
