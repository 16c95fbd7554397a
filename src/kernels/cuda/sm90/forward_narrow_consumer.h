// SPDX-License-Identifier: Apache-2.0
// Forward on Hopper, narrow (D <= 64): what the two kinds of consumers share. Each consumer warpgroup takes its half of item
// after item; a kind is a main loop over the tiles of keys of one half (forward_narrow_joined.h, forward_narrow_summed.h).
#pragma once

#include "sm90/forward_narrow_storage.h"

namespace hkt::kernels::cuda::sm90 {

// 64 query rows of a consumer, the even or the odd ones of its half.
template <int width>
struct RowBlock {
  float scores[64];  // of a tile of keys, then their exponentials
  float out[width / 2];
  SoftmaxState softmax;
};

// What a consumer keeps from item to item.
template <int width, int levels>
struct NarrowConsumer {
  using Storage = ForwardNarrowStorage<width, levels>;
  static constexpr int swizzle = Storage::row_bytes;

  const ForwardParameters& p;
  Storage& storage;
  const int index;  // 0 or 1
  // Matrix descriptors.
  const std::uint64_t even_queries, odd_queries;
  const std::uint64_t level1_queries, level2_queries;
  const std::uint64_t first_keys, first_values;  // of the first stage
  PipelineState<Storage::stages> pipeline;

  __device__ __forceinline__ NarrowConsumer(const ForwardParameters& p, Storage& storage, int index)
      : p(p),
        storage(storage),
        index(index),
        even_queries(matrix_descriptor<swizzle>(storage.q0[index][0].address())),
        odd_queries(even_queries + descriptor_offset(Storage::QueryBlock::bytes)),
        level1_queries(matrix_descriptor<swizzle>(storage.coarse_queries.level1[index].address())),
        level2_queries(matrix_descriptor<swizzle>(storage.coarse_queries.level2[index].address())),
        first_keys(matrix_descriptor<swizzle>(storage.keys[0].level0.address())),
        first_values(matrix_descriptor<swizzle>(storage.values[0].address())) {}

  // Of the current stage.
  __device__ __forceinline__ std::uint64_t keys() const {
    return first_keys + pipeline.stage * descriptor_offset(sizeof(typename Storage::KeyStage));
  }
  __device__ __forceinline__ std::uint64_t values() const {
    return first_values + pipeline.stage * descriptor_offset(sizeof(storage.values[0]));
  }
  __device__ __forceinline__ void wait_keys() { storage.full_keys[pipeline.stage].wait(pipeline.parity); }
  __device__ __forceinline__ void wait_values() { storage.full_values[pipeline.stage].wait(pipeline.parity); }

  // The thread's first row in its half, of the even rows. It has this one, the one 32 further, and the odd rows after both.
  static __device__ __forceinline__ int row_in_half() {
    const int place = threadIdx.x % 128 / 32 * 16 + threadIdx.x % 32 / 4;
    return 4 * (place % 32) + 2 * (place / 32);
  }

  // Gives back the `count` tiles of keys that only the other consumer needs. They must have come before: an earlier arrival
  // would count for the use before.
  __device__ __forceinline__ void skip_tiles(int count) {
#pragma unroll 1
    for (int j = 0; j < count; ++j) {
      wait_keys();
      storage.empty_keys[pipeline.stage].arrive_warp();
      wait_values();
      storage.empty_values[pipeline.stage].arrive_warp();
      pipeline.advance();
    }
  }
};

// Takes in a block's scores of a tile: see raise_reference.
template <int width>
__device__ __forceinline__ void raise_and_rescale(RowBlock<width>& rows, int threshold) {
  float factor[2];
  if (raise_reference(rows.scores, rows.softmax, threshold, factor)) rescale(rows.out, factor);
}

// Exponentials of a block of rows, and the wgmma with the values: two groups, of which the first is issued when half of the
// exponentials are done. low and high are for the probabilities.
template <class T, int width>
__device__ __forceinline__ void exponentiate_and_issue_pv(RowBlock<width>& rows, std::uint32_t (&low)[16],
                                                          std::uint32_t (&high)[16], std::uint64_t values) {
  constexpr int row_bytes = 2 * width;
  exponentiate<0, 8>(rows.scores, rows.softmax);
  pack_probabilities<T, 0>(rows.scores, low);
  fence_operand(rows.out);
  fence_operand(low);
  wgmma_fence();
  issue_pv<T, row_bytes>(rows.out, low, values);
  wgmma_commit();
  exponentiate<8, 16>(rows.scores, rows.softmax);
  pack_probabilities<T, 8>(rows.scores, high);
  fence_operand(high);
  wgmma_fence();
  issue_pv<T, row_bytes>(rows.out, high, values + descriptor_offset(64 * row_bytes));
  wgmma_commit();
}

// The last tile of a half, the only one with a mask. At first the even rows' scores and the coarse ones are ready.
template <class T, class Mainloop>
__device__ __forceinline__ void finish_half(Mainloop& loop, int tiles) {
  auto& consumer = loop.consumer;
  auto& storage = consumer.storage;
  auto &even = loop.even, &odd = loop.odd;
  const ForwardParameters& p = consumer.p;
  const int stage = consumer.pipeline.stage;
  const std::uint64_t keys = consumer.keys();
  const std::uint64_t values = consumer.values();
  const auto [item, first_row] = loop.half.read();
  const bool masked = needs_mask(p, item, first_row, tiles);
  const int first_key = (tiles - 1) * key_rows + 2 * (threadIdx.x % 4);
  const int row = first_row + consumer.row_in_half();

  loop.issue_odd(keys);
  consumer.wait_values();
  fence_operand(even.scores);
  if (masked) mask(even.scores, last_key(p, item, row) - first_key, last_key(p, item, row + 32) - first_key);
  raise_and_rescale(even, loop.threshold);
  exponentiate_and_issue_pv<T>(even, loop.low, loop.high, values);
  wgmma_wait<2>();
  fence_operand(odd.scores);
  if (Barrier::arrives_for_warp()) {
    storage.empty_keys[stage].arrive();
    storage.empty_queries[consumer.index].arrive();
  }
  loop.apply_weights_odd();
  if (masked) mask(odd.scores, last_key(p, item, row + 1) - first_key, last_key(p, item, row + 33) - first_key);
  raise_and_rescale(odd, loop.threshold);
  fence_operand(odd.scores);
  wgmma_wait<0>();
  fence_operand(even.out);
  fence_operand(odd.scores);
  exponentiate_and_issue_pv<T>(odd, loop.low, loop.high, values);
  wgmma_wait<0>();
  fence_operand(odd.out);
  storage.empty_values[stage].arrive_warp();
  consumer.pipeline.advance();
}

// A consumer warpgroup: its halves of all items of the CTA.
template <class T, int width, int levels, template <class, int, int> class Mainloop>
__device__ __forceinline__ void consume(const ForwardParameters& p, ForwardNarrowStorage<width, levels>& storage,
                                        int index) {
  NarrowConsumer<width, levels> consumer(p, storage, index);
  for (int parity = 0;; parity ^= 1) {
    storage.full_queries[index].wait(parity);
    const ItemHalfSlot& slot = Mainloop<T, width, levels>::half_slot(storage, index, parity);
    const int tiles = slot.tiles();
    if (tiles < 0) break;
    RowBlock<width> even, odd;
#pragma unroll
    for (int i = 0; i < width / 2; ++i) even.out[i] = odd.out[i] = 0;
    clear(even.softmax);
    clear(odd.softmax);
    if (tiles > 0)
      Mainloop<T, width, levels>(consumer, slot, even, odd).run(tiles);
    else
      storage.empty_queries[index].arrive_warp();
    consumer.skip_tiles(slot.skipped());
    const auto [item, first_row] = slot.read();
    const int row = first_row + consumer.row_in_half();
    store_output<T>(p, item, row, even.out, even.softmax);
    store_output<T>(p, item, row + 1, odd.out, odd.softmax);
  }
}

}  // namespace hkt::kernels::cuda::sm90
