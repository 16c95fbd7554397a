// SPDX-License-Identifier: Apache-2.0
// Where the rows of one decoding call come from and go to. It is the same for every layer, so it is computed once, on the host,
// and sent to the device as one list of indices: what is launched does not depend on the positions.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "hkt/model_config.h"

namespace hkt::decoding {

// A call appends at most so many tokens to a sequence.
inline constexpr std::int64_t longest_call = 512;

// Sizes of the caches. Level l has rows for positions 0, 2^l, 2·2^l, …
struct Sizes {
  std::int64_t batch, capacity, take_back;
  const ModelConfig& model;

  std::int64_t cache_rows(std::int64_t level) const;  // of keys; one more lies behind them, for rows that are not kept
  // Recent rows of a level lie in a ring, row m at place m modulo its size. Behind the ring are a row of zeros, which stands for
  // rows before the sequence, and one for rows that are not kept.
  std::int64_t ring_rows(std::int64_t level) const;
  std::int64_t ring_places(std::int64_t level) const { return ring_rows(level) + 2; }
};

// Rows of one level that a call adds: for sequence b those of positions ends[b] − n … ends[b] − 1 that are multiples of 2^l.
// There is room for `rows` of them in each sequence; the rest belong nowhere.
struct LevelPlan {
  std::int64_t rows = 0;
  at::Tensor ring;     // [B · rows], where they are written in the ring
  at::Tensor cache;    // [B · rows · key heads], where their keys are written, row by row
  at::Tensor window;   // [B · rows · taps], the rows of the ring below that the filter reads; not for level 0
  at::Tensor queries;  // [B · query_rows], the rows of the ring of queries that attention reads
  std::int64_t query_rows = 0;
};

struct Plan {
  std::int64_t queries = 0;      // n
  std::int64_t levels = 0;       // levels with new rows
  std::vector<LevelPlan> level;  // of all levels; those without new rows only have queries
  at::Tensor indices;            // all that follows and those of the levels, in one list, of which they are views
  at::Tensor ends;               // [B]
  at::Tensor token_positions;    // [B · n], those of padding are 0
  at::Tensor row_positions;  // of all new rows, the levels of a sequence one after the other: the angles they rotate by
  at::Tensor convolution_window;  // [B · n · taps], in the ring of level 0
  std::int64_t start = -1;        // the position of the first token if it is the same in all sequences, else −1
};

// n tokens are appended, so that the sequences have the lengths `ends`. On the CPU, levels that get no row are left out; on CUDA
// the work and the places in `indices` are the same for all positions, so that a step can be a CUDA graph.
Plan make_plan(const Sizes& sizes, const std::vector<std::int64_t>& ends, std::int64_t n, at::Device device);

}  // namespace hkt::decoding
