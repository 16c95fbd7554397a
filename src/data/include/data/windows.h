// SPDX-License-Identifier: Apache-2.0
// Windows of a stream: at random places for training, and one after the other for evaluation.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "data/prefetch.h"
#include "data/stream.h"

namespace hkt::data {

// Where a window begins, uniform from 0 to places - 1: decided by the other three alone, the same on every machine.
std::int64_t window_place(std::int64_t places, std::uint64_t seed, std::int64_t step, std::int64_t index);

// The batch of a training step: `batch` windows of length + 1 tokens, of which the first `length` are the tokens and the
// last `length` the labels. Throws std::invalid_argument for a stream that is shorter than a window.
Batch make_windows(const Stream& stream, std::int64_t length, std::int64_t batch, std::uint64_t seed,
                   std::int64_t step);

// The batches of steps first to end - 1, prefetched by a thread.
class WindowQueue {
 public:
  // Throws as make_windows does.
  WindowQueue(const Stream& stream, std::int64_t length, std::int64_t batch, std::uint64_t seed, std::int64_t first,
              std::int64_t end);

  std::optional<Batch> next() { return batches_.next(); }  // nothing after the last

 private:
  Prefetch batches_;
};

// Windows of a stream that do not overlap, drawn by the seed: at most `count`, of `length` tokens each, [length]; one that is
// shorter if the whole stream is.
std::vector<at::Tensor> drawn_windows(const Stream& stream, std::int64_t length, std::int64_t count,
                                      std::uint64_t seed);

// A window for evaluation: tokens begin to begin + length - 1 are its inputs, and the predictions at inputs scored_from to
// length - 1 count. Input i predicts token begin + i + 1.
struct ScoredWindow {
  std::int64_t begin, scored_from, length;
};

// Windows of at most `length` inputs, of which each begins half a window after the last: together they score every token
// of the stream but its first once. In all but the first window a prediction sees more than half of `length`.
std::vector<ScoredWindow> scored_windows(std::int64_t tokens, std::int64_t length);

// Some of these as a batch: tokens and labels [B, length], zeros after the end of a shorter window.
Batch make_windows(const Stream& stream, std::span<const ScoredWindow> windows, std::int64_t length);

}  // namespace hkt::data
