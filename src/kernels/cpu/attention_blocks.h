// SPDX-License-Identifier: Apache-2.0
// The interface between the schedule (attention.cpp, built for any machine) and the block kernels, built once for each
// instruction set: a table of functions per instruction set and element type.
#pragma once

#include "kernels/attention.h"

namespace hkt::kernels::cpu {

// The rows of one head of one sequence; the stride counts elements.
struct Rows {
  void* data = nullptr;
  std::int64_t stride = 0;
};

// One head of one sequence. It has valid rows only: the schedule handles padding. Query rows are counted from `query_base` on, a
// position at which coarse rows of all levels begin. The first `missing` of them lie before the first query: they have no data
// and are not written.
struct Head {
  int levels = 1;
  int width = 0;
  int value_width = 0;
  bool causal = false;
  std::int64_t length = 0;  // keys; under the causal mask those that some query sees
  std::int64_t query_base = 0;
  std::int64_t query_rows = 0;
  std::int64_t missing = 0;
  double weights[max_levels] = {};  // λ_l · scale
  Rows q[max_levels];
  Rows k[max_levels];
  Rows v;
  Rows out;
  void* lse = nullptr;
  const void* grad_lse = nullptr;
  Rows grad_out;
  Rows grad_q[max_levels];
  Rows grad_k[max_levels];
  Rows grad_v;

  std::int64_t level_rows(int level) const { return kernels::level_rows(length, level); }
  std::int64_t query_level_rows(int level) const { return kernels::level_rows(query_rows, level); }
};

struct Block {
  std::int64_t first = 0;
  int rows = 0;
};

// The caller provides the memory. `shared` belongs to a head and is filled by `prepare` before its blocks are computed, in
// levels + 1 independent pieces: one per level and one for the rest. `scratch` belongs to a thread.
struct ForwardBlocks {
  int block_rows;  // query rows of a block, about; see query_block_rows
  std::int64_t (*shared_bytes)(const Head&);
  std::int64_t (*scratch_bytes)(const Head&);
  void (*prepare)(const Head&, int piece, void* shared);
  void (*compute)(const Head&, Block queries, const void* shared, void* scratch);
};

// A backward block is a block of keys against all query blocks that see it. dq of a query block is summed in `shared`, over
// key blocks in ascending order so that the result is deterministic: wait(query_block) returns when all key blocks before
// this one have added theirs and called release(query_block).
struct Semaphore {
  virtual void wait(int query_block) = 0;
  virtual void release(int query_block) = 0;

 protected:
  ~Semaphore() = default;
};

struct BackwardBlocks {
  int query_rows;  // query rows of a block, about; see query_block_rows
  int key_rows;    // of every key block but the last
  std::int64_t (*shared_bytes)(const Head&);
  std::int64_t (*scratch_bytes)(const Head&);
  void (*prepare)(const Head&, int piece, void* shared);
  // weight_sums[query_block · levels + l] receives Σ (∂/∂S(l) · k(l)) ⊙ q(l) when a query block is finished.
  void (*compute)(const Head&, Block keys, void* shared, void* scratch, Semaphore& semaphore, double* weight_sums);
};

// One key head of one sequence, with the queries of all heads that share it: those at positions `position` and up. Arrays
// begin at the first of these heads and at the first of these queries; batch_stride is not used.
struct DecodeHead {
  int levels = 1;
  int width = 0;
  int value_width = 0;
  int heads = 0;
  int queries = 0;
  std::int64_t position = 0;
  const void* weights = nullptr;  // [heads, levels]
  double scale = 1;
  Array q[max_levels];
  std::int64_t query_rows[max_levels] = {};  // of q; what lies beyond counts as zeros
  Rows k[max_levels];
  Rows v;
  Array out;
  void* lse = nullptr;
  std::int64_t lse_stride = 0;  // from head to head
  Array coarse[max_levels];     // kept scores, null without
  int kept_level = 0;  // from this level on they are read, below it computed and written; `levels`: none is read
};

inline constexpr int decode_keys = 512;  // of a chunk; a multiple of 2^level for every level

// The keys of a head are divided into chunks of decode_keys, and merged in ascending order.
struct DecodeBlocks {
  std::int64_t (*scratch_bytes)(const DecodeHead&);  // of a thread
  std::int64_t (*partial_bytes)(const DecodeHead&);  // of the result of a chunk
  void (*compute)(const DecodeHead&, Block keys, void* partial, void* scratch);
  void (*merge)(const DecodeHead&, const void* partials, std::int64_t count);  // writes out and lse
};

struct Blocks {
  ForwardBlocks forward;
  BackwardBlocks backward;
  DecodeBlocks decode;
};

// Query blocks start at multiples of this many rows from query_base on, so that no pair of rows of any level is split between two blocks.
constexpr int block_granularity(int levels, int most) {
  const int coarse_pair = 1 << levels;
  const int strips = coarse_pair <= 4 ? 12 : 3 * coarse_pair;  // also a multiple of 12, for the 6- and 12-row tiles
  return strips <= most ? strips : coarse_pair;
}
// The rows of every query block but the last: as even as the granularity allows, near `most`.
constexpr int query_block_rows(std::int64_t length, int levels, int most) {
  const int step = block_granularity(levels, most);
  const std::int64_t blocks = (length + most / 2) / most > 1 ? (length + most / 2) / most : 1;
  const std::int64_t rows = (length + blocks - 1) / blocks;
  return static_cast<int>((rows + step - 1) / step * step);
}
// The upper bound of query_block_rows over all lengths: a single block has up to 1.5 · most rows.
constexpr int largest_query_block(int levels, int most) {
  const int step = block_granularity(levels, most);
  return (most + most / 2 + step - 1) / step * step;
}

namespace portable {
Blocks blocks(Element element);
}
namespace avx2 {
Blocks blocks(Element element);
}
namespace avx512 {
Blocks blocks(Element element);
}
namespace avx512_bf16 {
Blocks blocks();  // bfloat16 only
}

Blocks choose_blocks(InstructionSet set, Element element);

}  // namespace hkt::kernels::cpu
