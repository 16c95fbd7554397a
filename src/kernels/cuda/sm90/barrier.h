// SPDX-License-Identifier: Apache-2.0
// What the warps of a Hopper CTA wait for: mbarriers in shared memory, pipeline stages, named barriers; and shared memory
// itself, as typed storage.
#pragma once

#include <cstdint>

namespace hkt::kernels::cuda::sm90 {

// A kernel's storage (ForwardNarrowStorage, BackwardWideStorage and so on) is a struct of Tiles, Barriers and the like. They
// are only ever asked for their addresses, which are 32 bits wide, as instructions take them, so `this` holds the address
// within shared memory and not a generic one: that spares conversions, and the registers for them. Hence members are private
// and nothing is dereferenced.
template <class Member>
__device__ __forceinline__ std::uint32_t shared_address(const Member* member) {
  return static_cast<std::uint32_t>(reinterpret_cast<std::uintptr_t>(member));
}

// Bytes that TMA, wgmma and cp.async read and write.
template <int size>
class Tile {
 public:
  static constexpr int bytes = size;
  __device__ __forceinline__ std::uint32_t address() const { return shared_address(this); }

 private:
  std::uint8_t data_[size];
};

// A number.
class Word {
 public:
  __device__ __forceinline__ void store(int value) {
    asm volatile("st.shared.b32 [%0], %1;" ::"r"(shared_address(this)), "r"(value) : "memory");
  }
  __device__ __forceinline__ int load() const {
    int value;
    asm volatile("ld.shared.b32 %0, [%1];" : "=r"(value) : "r"(shared_address(this)) : "memory");
    return value;
  }

 private:
  int value_;
};

// An mbarrier: a phase ends when all arrivals have come, and all bytes that TMA loads still owe.
class Barrier {
 public:
  __device__ __forceinline__ std::uint32_t address() const { return shared_address(this); }
  __device__ __forceinline__ void init(int arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(address()), "r"(arrivals) : "memory");
  }
  // For arrive_warp.
  __device__ __forceinline__ void init_warps(int warps) { init(every_lane_arrives ? 32 * warps : warps); }
  __device__ __forceinline__ void arrive() {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(address()) : "memory");
  }
  // Arrives, and adds to the bytes that are owed.
  __device__ __forceinline__ void arrive_expect(int bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(address()), "r"(bytes) : "memory");
  }
  // A warp arrives through its first lane. All lanes must have come as far.
  __device__ __forceinline__ void arrive_warp() {
    // Computed before the branch: inside it the compiler adds a vote to bring the address into a uniform register.
    std::uint32_t barrier = address();
    asm volatile("" : "+r"(barrier));
    if (arrives_for_warp()) asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
  }
  // Until the phase of this parity has ended.
  __device__ __forceinline__ void wait(int parity) {
    asm volatile(
        "{\n.reg .pred done;\nAGAIN:\nmbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n@done bra DONE;\n"
        "bra AGAIN;\nDONE:\n}\n" ::"r"(address()),
        "r"(parity)
        : "memory");
  }
  // Whether this lane arrives for its warp. In a build to be checked for races (-DHKT_RACECHECK) every lane does:
  // compute-sanitizer does not see that the others have come as far, because __syncwarp compiles to nothing where they
  // surely have.
  static __device__ __forceinline__ bool arrives_for_warp() { return every_lane_arrives || threadIdx.x % 32 == 0; }

 private:
#ifdef HKT_RACECHECK
  static constexpr bool every_lane_arrives = true;
#else
  static constexpr bool every_lane_arrives = false;
#endif
  std::uint64_t state_;
};
static_assert(sizeof(Barrier) == 8);

// The stage of a circular buffer of `stages`, and the parity of its barriers. Who reads a stage waits for `parity` of its full
// barrier; who writes it waits for `parity ^ 1` of its empty one, which on a new barrier returns at once.
template <int stages>
struct PipelineState {
  int stage = 0;
  int parity = 0;
  __device__ __forceinline__ void advance() {
    if (++stage == stages) {
      stage = 0;
      parity ^= 1;
    }
  }
};

// A CTA's dynamic shared memory as its storage, which begins at a multiple of 1,024, as the swizzles of TMA and wgmma need. A
// launch asks for so many bytes:
template <class Storage>
inline constexpr int shared_storage_bytes = static_cast<int>(sizeof(Storage)) + 1024;
template <class Storage>
__device__ __forceinline__ Storage& shared_storage() {
  extern __shared__ std::uint8_t memory[];
  const std::uint32_t begin = (static_cast<std::uint32_t>(__cvta_generic_to_shared(memory)) + 1023) & ~1023u;
  return *reinterpret_cast<Storage*>(static_cast<std::uintptr_t>(begin));
}

// Named barriers (bar.sync): of a CTA's 16, __syncthreads has number 0; kernels have enums of the others. `threads` take
// part, those that wait and those that only arrive.
template <class Name>
__device__ __forceinline__ void named_barrier_sync(Name barrier, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(static_cast<int>(barrier)), "r"(threads) : "memory");
}
template <class Name>
__device__ __forceinline__ void named_barrier_arrive(Name barrier, int threads) {
  asm volatile("bar.arrive %0, %1;" ::"r"(static_cast<int>(barrier)), "r"(threads) : "memory");
}

}  // namespace hkt::kernels::cuda::sm90
