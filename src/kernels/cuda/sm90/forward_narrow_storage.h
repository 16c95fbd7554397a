// SPDX-License-Identifier: Apache-2.0
// Forward on Hopper, narrow (D <= 64): shared memory, and what the query warp tells the consumers through it.
//
// An item's 256 query rows are two halves of 128; each of the two consumer warpgroups has one.
#pragma once

#include "sm90/forward_deep.h"

namespace hkt::kernels::cuda::sm90 {

// Which half of an item a consumer has. With a causal mask the second half sees one tile of keys more; the consumers
// alternate, so that neither has more to do than the other. The one that is done first goes on with the next item.
__device__ __forceinline__ int consumer_half(const ForwardParameters& p, const Item& item, int consumer) {
  return p.causal ? consumer ^ item.ping_pong : consumer;
}

// Tiles of keys that an item needs: those of the half that needs more.
__device__ __forceinline__ int item_key_tiles(const ForwardParameters& p, const Item& item) {
  return max(key_tiles(p, item, item.tile * 256), key_tiles(p, item, item.tile * 256 + 128));
}

// A consumer's half of an item: 128 query rows. Of the item only length, head and batch are known.
struct ItemHalf {
  Item item;
  int first_row;
};
struct ItemHalfWork {
  int tiles;              // of keys that its rows see; negative: there are no more items
  int skipped;            // tiles of keys that only the other half sees
  float coefficients[3];  // what scores of levels 0, 1 and 2 are multiplied by
};

// A half in shared memory. It takes several dependent divisions to find an item; a consumer that did so itself would keep the
// tensor cores waiting. Consumers read what they need anew each time, rather than keep it in registers.
class ItemHalfSlot {
 public:
  __device__ __forceinline__ void write(const ItemHalf& half, const ItemHalfWork& work) {
    const std::uint32_t to = shared_address(this);
    st_shared_b32x4(to, half.first_row, half.item.length, half.item.head, half.item.batch);
    st_shared_b32x2(to + tiles_offset, work.tiles, work.skipped);
    st_shared_f32x2(to + coefficients_offset, work.coefficients[0], work.coefficients[1]);
    st_shared_f32(to + coefficients_offset + 8, work.coefficients[2]);
  }
  __device__ __forceinline__ ItemHalf read() const {
    const uint4 words = ld_shared_b32x4(shared_address(this));
    ItemHalf half{};
    half.first_row = static_cast<int>(words.x);
    half.item.length = static_cast<int>(words.y);
    half.item.head = static_cast<int>(words.z);
    half.item.batch = static_cast<int>(words.w);
    return half;
  }
  // All threads of the warp must call these two.
  __device__ __forceinline__ int tiles() const {
    return warp_uniform(static_cast<int>(ld_shared_b32(shared_address(this) + tiles_offset)));
  }
  __device__ __forceinline__ int skipped() const {
    return warp_uniform(static_cast<int>(ld_shared_b32(shared_address(this) + tiles_offset + 4)));
  }
  __device__ __forceinline__ float coefficient(int level) const {
    return ld_shared_f32(shared_address(this) + coefficients_offset + level * 4);
  }

 private:
  static constexpr int tiles_offset = 16;
  static constexpr int coefficients_offset = 24;
  alignas(16) std::uint32_t words_[12];
};

// `width` is 32 or 64; narrower rows are filled up with zeros. With fewer levels some of it is left unused. Of pairs of
// barriers `full` says that something has been written and `empty` that it has been read.
template <int width, int levels>
struct ForwardNarrowStorage {
  static constexpr bool coarse = levels > 1;
  static constexpr bool deep = levels > 3;
  // Which of the two kinds of consumers the kernel has: see forward_narrow_joined.h and forward_narrow_summed.h.
  static constexpr bool summed = width == 64 && coarse;
  static constexpr int stages = 3;
  static constexpr int row_bytes = 2 * width;                                 // of tiles, which are swizzled by as much
  static constexpr int level2_places = summed ? key_rows / 2 : key_rows / 4;  // summed: each row lies twice

  static constexpr int threads = (1 + consumers) * warpgroup_threads;
  static constexpr int producer_registers = 24;
  static constexpr int consumer_registers = 240;
  static_assert(warpgroup_threads * (producer_registers + consumers * consumer_registers) <= sm_registers);

  using QueryBlock = Tile<64 * row_bytes>;  // the rows of one wgmma
  struct CoarseQueries {
    QueryBlock level1[consumers];
    QueryBlock level2[consumers];
  };
  struct KeyStage {
    Tile<key_rows * row_bytes> level0;
    Tile<key_rows / 2 * row_bytes> level1;
    Tile<level2_places * row_bytes> level2;
    // From the stage's begin, in bytes.
    static constexpr int level1_offset = decltype(level0)::bytes;
    static constexpr int level2_offset = level1_offset + decltype(level1)::bytes;
  };

  alignas(1024) QueryBlock q0[consumers][2];  // each consumer's even and odd rows
  CoarseQueries coarse_queries;
  KeyStage keys[stages];
  Tile<key_rows * row_bytes> values[stages];
  Tile<deep_warp_bytes> deep_sums[consumers * 4];  // of a tile of keys, for each warp

  Barrier full_queries[consumers], empty_queries[consumers];
  Barrier full_keys[stages], empty_keys[stages];
  Barrier full_values[stages], empty_values[stages];
  ItemHalfSlot halves[consumers][2];  // for each consumer a double buffer, read and written with its queries

  static_assert(sizeof(KeyStage) % 1024 == 0 && sizeof(QueryBlock) % 1024 == 0);  // swizzles
};

// Of the threads of a consumer: the sums of levels from 3 on are made.
enum class NarrowBarrier : std::uint8_t { deep_sums_consumer_0 = 1, deep_sums_consumer_1 };
__device__ __forceinline__ NarrowBarrier deep_sums_barrier(int consumer) {
  return static_cast<NarrowBarrier>(static_cast<int>(NarrowBarrier::deep_sums_consumer_0) + consumer);
}

}  // namespace hkt::kernels::cuda::sm90
