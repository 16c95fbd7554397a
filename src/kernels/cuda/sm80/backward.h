// The backward pass on Ampere's tensor cores. A block keeps a tile of keys and walks over the queries in steps of 64, its
// warps side by side. The scores are transposed (keys are rows), so that each thread holds whole 2 × 2 cells of level 1 of
// the scores' gradient. Gradients of the queries are added up in float32 in the workspace; finish_kernel brings them home.
#pragma once

#include <type_traits>

#include "../backward_common.h"
#include "plan.h"
#include "tile.h"

namespace hkt::kernels::cuda::sm80 {

// Float32 sums: of grad_q of each level, [batch, heads, rows, padded width]; of grad_k of the coarse levels, where they are
// not kept in registers, [block, warp, block of columns]; halves of the rows of grad_k of a level whose rows are twice
// as long as a tile of keys, [batch, heads, tile, padded width].
struct Sums {
  float* queries[max_levels];
  float *coarse_keys, *half_rows;
};

// The order in which blocks add to the sums of a tile of queries, so that equal inputs give equal bits: counters[tile] of
// them have. `wraps`: blocks begin at different tiles and meet each tile one after the other; all of a head must run at
// once. Otherwise the order is that of the blocks, or for causal attention the reverse one, in which they arrive.
struct Turns {
  int* counters = nullptr;  // [batch, heads, tiles of queries]; null: in no order
  bool wraps = false;
};

// How the warps of a block with n keys share its products.
template <int width, int n>
struct Share {
  static constexpr int queries = backward_tile::queries;
  // Scores, and the same keys for grad_k of levels 0 and 1 and grad_v.
  static constexpr int warps = backward_tile::threads<width, n> / 32;
  static constexpr int key_warps = n / 32, query_warps = warps / key_warps, warp_queries = queries / query_warps;
  static constexpr int blocks = warp_queries / 8, column_blocks = width / query_warps / 8;
  // grad_k beyond level 1: tiles of 16 × 4 keys.
  static constexpr int quad_tiles = n / 64, quad_blocks = width / (warps / quad_tiles) / 8;
  // grad_q of level 0, of level 1 (two tiles of 16 × 2 queries), beyond (one of 16 × 4; narrow heads leave warps idle).
  static constexpr int query_columns = 2 * width / warps < 16 ? 16 : 2 * width / warps,
                       query_blocks = query_columns / 8;
  static constexpr int along = width / query_columns, query_tiles = queries / (warps / along) / 16;
  static constexpr int pair_parts = warps / 2, pair_blocks = width / 8 / pair_parts;
  static constexpr int query_quad_blocks = width / 8 / warps < 1 ? 1 : width / 8 / warps;

  __device__ static __forceinline__ int warp() { return threadIdx.x / 32; }
  __device__ static __forceinline__ int key_warp() { return warp() % key_warps; }
  __device__ static __forceinline__ int query_warp() { return warp() / key_warps; }
  // A thread's first key and query of the tile; + parity and 16 · half, + 8 · block and 0 or 1.
  __device__ static __forceinline__ int key() { return 32 * key_warp() + 2 * (threadIdx.x % 32 / 4); }
  __device__ static __forceinline__ int query() { return query_warp() * warp_queries + 2 * (threadIdx.x % 4); }
};

// The sum over all steps of a coarse level's products, in registers,
template <int blocks, bool parked>
struct CoarseSum {
  float sums[1][blocks][4] = {};

  __device__ __forceinline__ void begin(float*, int) {}
  // products(sums, fresh): adds a step's, or sets them if they are `fresh`.
  template <class Products>
  __device__ __forceinline__ void add(const Products& products) {
    products(sums, std::false_type{});
  }
  __device__ __forceinline__ void read(float (&to)[1][blocks][4]) const {
#pragma unroll
    for (int b = 0; b < blocks; ++b)
#pragma unroll
      for (int i = 0; i < 4; ++i) to[0][b][i] = sums[0][b][i];
  }
};
// or in the workspace, where only this thread adds to its numbers.
template <int blocks>
struct CoarseSum<blocks, true> {
  float* fragments;

  __device__ __forceinline__ void begin(float* all, int warp) { fragments = all + warp * blocks * fragment_floats; }
  template <class Products>
  __device__ __forceinline__ void add(const Products& products) {
    float sums[1][blocks][4];
    products(sums, std::true_type{});
#pragma unroll
    for (int b = 0; b < blocks; ++b) add_fragment(fragments + b * fragment_floats, threadIdx.x % 32, sums[0][b]);
  }
  __device__ __forceinline__ void read(float (&to)[1][blocks][4]) const {
#pragma unroll
    for (int b = 0; b < blocks; ++b) read_added(to[0][b], fragments + b * fragment_floats, threadIdx.x % 32);
  }
};

// The products that a thread sums over all steps.
template <int width, int n, int max_level_count>
struct KeyGradients {
  using S = Share<width, n>;
  float values[2][S::column_blocks][4] = {}, keys[2][S::column_blocks][4] = {};
  CoarseSum<S::column_blocks, backward_tile::parks_coarse_keys<width, n>> pairs;
  CoarseSum<S::quad_blocks, backward_tile::parks_coarse_keys<width, n>> quads[max_level_count - 2];

  // `parked`: of this block.
  __device__ __forceinline__ KeyGradients(float* parked) {
    pairs.begin(parked, S::warp());
    quads[0].begin(parked + n / 2 * width, S::warp());
  }
};

// For how many of the width / 16 steps of the products of level 0 a warp keeps its part of the keys and of the values in
// registers: as many as are free. fixed: the number of levels if it is known.
template <int width, int n, int fixed>
struct Kept {
  static constexpr bool any = fixed == 3 && !backward_tile::parks_coarse_keys<width, n>;
  static constexpr int keys = !any ? 0 : width == 128 ? 7 : width / 16;
  static constexpr int values = !any || width == 128 ? 0 : width == 64 ? 3 : 2;
};

// What does not change for a block: its place, and what lies where in shared memory.
template <int width, int n>
struct Block {
  static constexpr int queries = backward_tile::queries;
  Place place;
  std::int64_t sequence;
  int length, levels;            // of the problem
  int first_tile, tiles, steps;  // of valid queries
  int active;                    // key tiles that have valid keys
  bool causal;
  const float* weights;
  float unit, fine_weight, pair_weight;  // of the scores, in base 2; of levels 0 and 1, times the unit

  std::uint32_t base;
  backward_tile::Layout layout;
  Swizzled<width> k, v;
  Swizzled<queries> p, ds;
  Swizzled<queries / 2> pairs;
  Swizzled<queries / 4> quads;

  __device__ Block(const AttentionForward& problem, int level_count, const Turns& turns, std::uint32_t memory)
      : length(static_cast<int>(problem.length)),
        levels(level_count),
        causal(problem.causal),
        unit(static_cast<float>(problem.scale) * log2_e),
        base(memory),
        layout(backward_tile::layout_of<width, n>(level_count)),
        k{base},
        v{base + layout.values},
        p{base + layout.probabilities},
        ds{base + layout.gradients},
        pairs{base + layout.pairs},
        quads{base + layout.quads} {
    const int key_tiles = (length + n - 1) / n;
    int index = blockIdx.x % key_tiles;
    if (turns.counters && causal) index = key_tiles - 1 - index;
    sequence = blockIdx.x / key_tiles;
    const std::int64_t batch = sequence / problem.heads;
    place = {index * n, sequence % problem.heads, batch, valid_length(problem, batch)};
    tiles = (place.length + queries - 1) / queries;
    active = (place.length + n - 1) / n;
    first_tile = causal || turns.wraps ? place.first / queries : 0;
    steps = place.first >= place.length ? 0 : causal ? tiles - first_tile : tiles;
    weights = static_cast<const float*>(problem.weights) + place.head * levels;
    fine_weight = weights[0] * unit;
    pair_weight = levels > 1 ? weights[1] * unit : 0;
  }
  __device__ __forceinline__ int tile(int step) const {
    const int tile = first_tile + step;
    return tile < tiles ? tile : tile - tiles;
  }
  // How many blocks add to a tile before this one.
  __device__ __forceinline__ int rank(int tile, const Turns& turns) const {
    const int own = place.first / n;
    if (!causal && !turns.wraps) return own;
    const int distance = tile * queries / n - own;
    return distance < 0 ? distance + active : distance;
  }
  // Of a stage: queries, grad_out, lse and delta.
  __device__ __forceinline__ Swizzled<width> q(int stage) const {
    return {base + layout.stages + stage * layout.stage_bytes};
  }
  __device__ __forceinline__ Swizzled<width> grad_out(int stage) const {
    return q(stage).from_row(level_base(queries, levels));
  }
  __device__ __forceinline__ std::uint32_t row_data(int stage, int array) const {
    return base + layout.row_data + (2 * stage + array) * queries * 4;
  }
};

// sums[m][n] += left · right, or = if they are `fresh`: load_left(step, m, fragment), load_right(step, n, fragments).
template <class T, int steps, bool fresh, int rows, int blocks, class LoadLeft, class LoadRight>
__device__ __forceinline__ void add_outer(float (&sums)[rows][blocks][4], const LoadLeft& load_left,
                                          const LoadRight& load_right) {
#pragma unroll
  for (int step = 0; step < steps; ++step) {
    std::uint32_t a[rows][4];
#pragma unroll
    for (int m = 0; m < rows; ++m) load_left(step, m, a[m]);
#pragma unroll
    for (int n = 0; n < blocks; n += 2) {
      std::uint32_t b[4];
      load_right(step, n, b);
#pragma unroll
      for (int m = 0; m < rows; ++m) {
        multiply<T>(sums[m][n], a[m], b[0], b[1], fresh && step == 0);
        if constexpr (blocks > 1) multiply<T>(sums[m][n + 1], a[m], b[2], b[3], fresh && step == 0);
      }
    }
  }
}
// Its operands. Left: rows of [own][inner] as they lie, or of [inner][own] turned, from row or column `first` on.
template <int width>
__device__ __forceinline__ auto straight(Swizzled<width> array, int first) {
  const Lane<width> lane(array, first + left_row(), left_chunk());
  return [lane](int step, int m, std::uint32_t (&a)[4]) { load_matrices(a, lane.at(16 * m, 2 * step)); };
}
template <int width>
__device__ __forceinline__ auto turned(Swizzled<width> array, int first) {
  const Lane<width> lane(array, 8 * (threadIdx.x % 32 / 16) + right_row(), first / 8 + threadIdx.x / 8 % 2);
  return [lane](int step, int m, std::uint32_t (&a)[4]) { load_transposed(a, lane.at(16 * step, 2 * m)); };
}
// Right: [inner][columns], part `part` of its columns in parts of `blocks` blocks; level `level` of a tile, whose rows are
// repeated 2^coarser times.
template <int blocks, int width>
__device__ __forceinline__ auto inner(Swizzled<width> array, int part, int base = 0) {
  const Lane<width> lane(array, base + 8 * right_chunk() + right_row(),
                         part * blocks + (blocks > 1 ? right_block() : 0));
  return [lane](int step, int n, std::uint32_t (&b)[4]) { load_transposed(b, lane.at(16 * step, n)); };
}
template <int blocks, int width>
__device__ __forceinline__ auto repeated(Swizzled<width> array, int part, int base, int coarser) {
  const int chunk = part * blocks + (blocks > 1 ? right_block() : 0);
  return [=](int step, int n, std::uint32_t (&b)[4]) {
    const int row = (16 * step + 8 * right_chunk() + right_row()) >> coarser;
    load_transposed(b, array.at(base + row, chunk + n));
  };
}

// Scores of the levels beyond 1 for one step, by their weights, to shared memory as [key quad][query quad]: tiles of 16 × 16
// a warp. In a row the quads that a thread needs follow each other: quad 2b + h of a warp's part is at place h · blocks + b.
template <class T, int fixed, int width, int n>
__device__ __forceinline__ void write_quad_scores(const Block<width, n>& block, int stage) {
  using namespace backward_tile;
  using S = Share<width, n>;
  if (block.levels <= 2 || S::warp() >= n / 64) return;
  const int lane = threadIdx.x % 32, row = 16 * S::warp();
  float total[2][4] = {};
  for_levels<fixed>(2, block.levels, [&](int level) {
    const int key = (row + left_row()) >> (level - 2), query = (8 * right_block() + right_row()) >> (level - 2);
    float sums[2][4];
    small_scores<T, width, 2>(sums, Lane<width>(block.k, level_base(n, level) + key, left_chunk()),
                              {Lane<width>(block.q(stage), level_base(queries, level) + query, right_chunk())});
    const float weight = block.weights[level] * block.unit;
#pragma unroll
    for (int i = 0; i < 8; ++i) total[i / 4][i % 4] += weight * sums[i / 4][i % 4];
  });
#pragma unroll
  for (int b = 0; b < 2; ++b)
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int quad = 8 * b + 2 * (lane % 4), part = quad / (2 * S::blocks), of_part = quad % (2 * S::blocks);
      const int place = 2 * S::blocks * part + i % 2 * S::blocks + of_part / 2;
      store_float(block.base + block.layout.quad_scores + ((row + lane / 4 + 8 * (i / 2)) * quad_pitch + place) * 4,
                  total[b][i]);
    }
}

// Scores of level 1 for a warp's part of the tile, in the order in which its fragments of level 0 need them (coarse_of).
template <class T, int width, int n>
struct PairScores {
  using S = Share<width, n>;
  static constexpr int blocks = S::blocks / 2;  // of 8 query pairs
  static_assert(blocks <= 2);
  Lane<width> left, right;
  float sums[blocks][4];
  std::uint32_t b[4];

  __device__ __forceinline__ PairScores(const Block<width, n>& block, int stage)
      : left(block.k, level_base(n, 1) + 16 * S::key_warp() + left_row(), left_chunk()),
        right(block.q(stage),
              level_base(backward_tile::queries, 1) + S::query_warp() * (S::warp_queries / 2) +
                  (blocks > 1 ? 8 * right_block() : 0) + permuted(right_row()),
              blocks > 1 ? right_chunk() : threadIdx.x % 32 / 8) {}
  // Step k of the products. One load of the right operand serves two blocks, or two steps of one.
  __device__ __forceinline__ void operator()(int k) {
    std::uint32_t a[4];
    load_matrices(a, left.at(0, 2 * k));
    if (blocks > 1 || k % 2 == 0) load_matrices(b, right.at(0, 2 * k));
    if constexpr (blocks > 1) {
      multiply<T>(sums[0], a, b[0], b[1], k == 0);
      multiply<T>(sums[1], a, b[2], b[3], k == 0);
    } else {
      multiply<T>(sums[0], a, b[k % 2 * 2], b[k % 2 * 2 + 1], k == 0);
    }
  }
};

// products[parity] += (or = if `fresh`) left(keys) · right(queries)ᵀ of level 0 for a warp's part of the tile.
template <class T, bool fresh, int width, int n, class Left, class Also = Nothing>
__device__ __forceinline__ void tile_products(float (&products)[2][Share<width, n>::blocks][4], const Left& left,
                                              Swizzled<width> right, const Also& also = {}) {
  using S = Share<width, n>;
  fine_scores<T, fresh, width>(
      products, left,
      Lane<width>(right, S::query_warp() * S::warp_queries + 8 * right_block() + right_row(), right_chunk()), also);
}

// Where a thread stores its pairs of neighbouring queries of [key][query].
template <int width, int n>
__device__ __forceinline__ Lane<64> store_lane(Swizzled<64> array, int parity) {
  using S = Share<width, n>;
  Lane<64> lane(array, S::key() + parity, S::query_warp() * S::blocks);
  lane.first += 4 * (threadIdx.x % 4);
  return lane;
}

// -infinity where the key is none or comes after the query.
template <int width, int n>
__device__ __forceinline__ void mask_scores(float (&scores)[2][Share<width, n>::blocks][4],
                                            const Block<width, n>& block, int query) {
  using S = Share<width, n>;
#pragma unroll
  for (int parity = 0; parity < 2; ++parity)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int key = block.place.first + S::key() + parity + 16 * half;
      int first = block.causal ? key - query : 0;  // query of the tile that sees the key
      if (key >= block.place.length) first = backward_tile::queries;
      first -= S::query();
#pragma unroll
      for (int b = 0; b < S::blocks; ++b)
#pragma unroll
        for (int i = 0; i < 2; ++i)
          if (8 * b + i < first) scores[parity][b][2 * half + i] = -INFINITY;
    }
}

// The probabilities of a step, also to shared memory. meanwhile(): done while the products are on their way.
template <class T, int width, int n, class Keys, class Meanwhile>
__device__ __forceinline__ void take_probabilities(float (&scores)[2][Share<width, n>::blocks][4],
                                                   const Block<width, n>& block, const Keys& keys, int stage, int query,
                                                   const Meanwhile& meanwhile) {
  using namespace backward_tile;
  using S = Share<width, n>;
  PairScores<T, width, n> pairs(block, stage);
  tile_products<T, true, width, n>(scores, keys, block.q(stage), [&](int k) {
    if (block.levels > 1) pairs(k);
  });
  meanwhile();
  const float weight = block.fine_weight;
  float quads[2][S::blocks] = {};
  if (block.levels > 2) {
#pragma unroll
    for (int half = 0; half < 2; ++half)
      load_row(
          quads[half],
          block.base + block.layout.quad_scores +
              ((S::key() / 4 + 4 * half) * quad_pitch + (2 * S::query_warp() + threadIdx.x % 4 / 2) * S::blocks) * 4);
  }
#pragma unroll
  for (int b = 0; b < S::blocks; ++b) {
    const float2 lse = load_floats(block.row_data(stage, 0) + (S::query() + 8 * b) * 4);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float coarse = quads[half][b];
      if (block.levels > 1) coarse = fmaf(coarse_of(pairs.sums, b, half), block.pair_weight, coarse);
#pragma unroll
      for (int parity = 0; parity < 2; ++parity) {
        float* pair = &scores[parity][b][2 * half];
        pair[0] = fmaf(pair[0], weight, coarse - lse.x);
        pair[1] = fmaf(pair[1], weight, coarse - lse.y);
      }
    }
  }
  if (block.place.first + n > block.place.length || (block.causal && block.place.first + n > query))
    mask_scores(scores, block, query);
#pragma unroll
  for (int parity = 0; parity < 2; ++parity) {
    const Lane<queries> to = store_lane<width, n>(block.p, parity);
#pragma unroll
    for (int b = 0; b < S::blocks; ++b)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        float* pair = &scores[parity][b][2 * half];
        pair[0] = exp2_fast(pair[0]);
        pair[1] = exp2_fast(pair[1]);
        store_4(to.at(16 * half, b), pack<T>(pair[0], pair[1]));
      }
  }
}

// Sums of the scores' gradient over 2 × 2 (the thread's own) and 4 × 4 to shared memory.
template <class T, int width, int n>
__device__ __forceinline__ void write_pooled(const float (&cells)[Share<width, n>::blocks][2],
                                             const Block<width, n>& block) {
  using S = Share<width, n>;
  const int lane = threadIdx.x % 32;
  if (block.levels > 1) {
#pragma unroll
    for (int b = 0; b < S::blocks; ++b)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int column = S::query() / 2 + 4 * b;
        store_2(block.pairs.at(S::key() / 2 + 8 * half, column / 8) + 2 * (column % 8), pack<T>(cells[b][half], 0));
      }
  }
  if (block.levels > 2) {
    // Neighbours in both directions have the rest of a quad's cells; each takes the sum for half of the quads.
    const bool lower = lane / 4 % 2, right = lane % 2;
    float columns[S::blocks];
#pragma unroll
    for (int b = 0; b < S::blocks; ++b)
      columns[b] = (lower ? cells[b][1] : cells[b][0]) + __shfl_xor_sync(~0u, lower ? cells[b][0] : cells[b][1], 4);
#pragma unroll
    for (int b = 0; b < S::blocks; b += 2) {
      const float sum =
          (right ? columns[b + 1] : columns[b]) + __shfl_xor_sync(~0u, right ? columns[b] : columns[b + 1], 1);
      const int column = S::query_warp() * (S::warp_queries / 4) + 2 * (b + right) + lane % 4 / 2;
      store_2(block.quads.at(8 * S::key_warp() + lane / 8 + 4 * lower, column / 8) + 2 * (column % 8), pack<T>(sum, 0));
    }
  }
}

// The gradient of the scores of a step to shared memory.
template <class T, int width, int n, class Values>
__device__ __forceinline__ void take_gradients(const float (&probabilities)[2][Share<width, n>::blocks][4],
                                               const Block<width, n>& block, const Values& values, int stage) {
  using S = Share<width, n>;
  float grads[2][S::blocks][4];  // of the probabilities, less delta
#pragma unroll
  for (int b = 0; b < S::blocks; ++b) {
    const float2 delta = load_floats(block.row_data(stage, 1) + (S::query() + 8 * b) * 4);
#pragma unroll
    for (int parity = 0; parity < 2; ++parity)
#pragma unroll
      for (int i = 0; i < 4; ++i) grads[parity][b][i] = -(i % 2 ? delta.y : delta.x);
  }
  tile_products<T, false, width, n>(grads, values, block.grad_out(stage));
  float cells[S::blocks][2] = {};
#pragma unroll
  for (int parity = 0; parity < 2; ++parity) {
    const Lane<64> to = store_lane<width, n>(block.ds, parity);
#pragma unroll
    for (int b = 0; b < S::blocks; ++b)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const float x = probabilities[parity][b][2 * half] * grads[parity][b][2 * half];
        const float y = probabilities[parity][b][2 * half + 1] * grads[parity][b][2 * half + 1];
        cells[b][half] += x + y;
        store_4(to.at(16 * half, b), pack<T>(x, y));
      }
  }
  write_pooled<T>(cells, block);
}

// Adds a step's part of grad_v and grad_k.
template <class T, int width, int n, int max_level_count>
__device__ __forceinline__ void add_key_gradients(KeyGradients<width, n, max_level_count>& sums,
                                                  const Block<width, n>& block, int stage) {
  using namespace backward_tile;
  using S = Share<width, n>;
  constexpr int blocks = S::column_blocks;
  const Swizzled<width> q = block.q(stage);
  const int first = 32 * S::key_warp(), part = S::query_warp();
  add_outer<T, queries / 16, false>(sums.values, straight(block.p, first), inner<blocks>(block.grad_out(stage), part));
  add_outer<T, queries / 16, false>(sums.keys, straight(block.ds, first), inner<blocks>(q, part));
  if (block.levels > 1)
    sums.pairs.add([&](auto& to, auto fresh) {
      add_outer<T, queries / 32, fresh>(to, straight(block.pairs, first / 2),
                                        inner<blocks>(q, part, level_base(queries, 1)));
    });
#pragma unroll
  for (int level = 2; level < max_level_count; ++level)
    if (level < block.levels)
      sums.quads[level - 2].add([&](auto& to, auto fresh) {
        add_outer<T, 1, fresh>(
            to, straight(block.quads, 16 * (S::warp() % S::quad_tiles)),
            repeated<S::quad_blocks>(q, S::warp() / S::quad_tiles, level_base(queries, level), level - 2));
      });
}

// Where the sums of a level up to last_fragment_level have a tile of queries.
template <int width, int n>
__device__ __forceinline__ float* fragments_of(const Block<width, n>& block, const Sums& sums, int level, int query) {
  constexpr int queries = backward_tile::queries;
  const std::int64_t tile = block.sequence * ((block.length + queries - 1) / queries) + query / queries;
  return sums.queries[level] + tile * ((queries >> level) * width);
}
// Adds fragments to such a tile, from block `first` of 16 rows and column block `column` on.
template <int width, int rows, int blocks>
__device__ __forceinline__ void add_fragments(float* tile, int first, int column,
                                              const float (&sums)[rows][blocks][4]) {
  float* to = tile + (first * (width / 8) + column) * fragment_floats;
#pragma unroll
  for (int m = 0; m < rows; ++m)
#pragma unroll
    for (int b = 0; b < blocks; ++b)
      add_fragment(to + (m * (width / 8) + b) * fragment_floats, threadIdx.x % 32, sums[m][b]);
}

// Sums over groups of 2, 4, 8 or 16 neighbouring rows of a 16-row fragment, in the first row of each.
template <int blocks>
__device__ __forceinline__ void sum_neighbours(float (&sums)[1][blocks][4], int group) {
  for (int lanes = 4; lanes <= 16 && lanes < 4 * group; lanes *= 2)
#pragma unroll
    for (int n = 0; n < blocks; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i) sums[0][n][i] += __shfl_xor_sync(~0u, sums[0][n][i], lanes);
  if (group > 8) {
#pragma unroll
    for (int n = 0; n < blocks; ++n)
#pragma unroll
      for (int i = 0; i < 2; ++i) sums[0][n][i] += sums[0][n][i + 2];
  }
}

// Adds a step's part of grad_q of a level beyond 1.
template <class T, int width, int n>
__device__ __forceinline__ void add_quad_gradients(const Block<width, n>& block, int query, int level,
                                                   const Sums& to_sums) {
  using S = Share<width, n>;
  constexpr int blocks = S::query_quad_blocks;
  if (S::warp() * blocks * 8 >= width) return;
  float sums[1][blocks][4];
  add_outer<T, n / 64, true>(sums, turned(block.quads, 0),
                             repeated<blocks>(block.k, S::warp(), level_base(n, level), level - 2));
  const int column = S::warp() * blocks;
  if (level <= last_fragment_level) {
    add_fragments<width>(fragments_of(block, to_sums, level, query), 0, column, sums);
    return;
  }
  const int stored = min(level, 6), group = 1 << (stored - 2);  // quads in one row of the sums
  const int first = query >> stored, rows = level_length(block.length, stored);
  sum_neighbours(sums, group);
  float* to = to_sums.queries[level] + (block.sequence * rows + first) * width + 8 * column + 2 * (threadIdx.x % 4);
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int quad = threadIdx.x % 32 / 4 + 8 * half;
    if (quad % group || first + quad / group >= rows) continue;
#pragma unroll
    for (int b = 0; b < blocks; ++b)
      add_pair(to + quad / group * width + 8 * b, sums[0][b][2 * half], sums[0][b][2 * half + 1]);
  }
}

// Adds a step's part of grad_q, in its turn: wait() returns when it has come.
template <class T, int fixed, int width, int n, class Wait>
__device__ __forceinline__ void add_query_gradients(const Block<width, n>& block, int query, const Sums& to,
                                                    const Wait& wait) {
  using S = Share<width, n>;
  {
    float sums[S::query_tiles][S::query_blocks][4];
    const int part = S::warp() % S::along, first = S::query_tiles * (S::warp() / S::along);
    add_outer<T, n / 16, true>(sums, turned(block.ds, 16 * first), inner<S::query_blocks>(block.k, part));
    wait();
    add_fragments<width>(fragments_of(block, to, 0, query), first, part * S::query_blocks, sums);
  }
  if (block.levels > 1) {
    float sums[1][S::pair_blocks][4];
    const int part = S::warp() % S::pair_parts, first = S::warp() / S::pair_parts;
    add_outer<T, n / 32, true>(sums, turned(block.pairs, 16 * first),
                               inner<S::pair_blocks>(block.k, part, level_base(n, 1)));
    add_fragments<width>(fragments_of(block, to, 1, query), first, part * S::pair_blocks, sums);
  }
  for_levels<fixed>(2, block.levels, [&](int level) { add_quad_gradients<T>(block, query, level, to); });
}

// Writes a fine gradient of the keys.
template <class T, int width, int n>
__device__ __forceinline__ void write_fine(const Array& to, const Block<width, n>& block,
                                           const float (&sums)[2][Share<width, n>::column_blocks][4], float factor,
                                           int out_width) {
  using S = Share<width, n>;
  T* result = rows_of<T>(to, block.place);
#pragma unroll
  for (int m = 0; m < 2; ++m)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const std::int64_t row = block.place.first + 32 * S::key_warp() + 16 * m + 8 * half + threadIdx.x % 32 / 4;
      if (row >= block.length) continue;
#pragma unroll
      for (int b = 0; b < S::column_blocks; ++b) {
        const int column = (S::query_warp() * S::column_blocks + b) * 8 + 2 * (threadIdx.x % 4);
        if (column < out_width)
          *reinterpret_cast<std::uint32_t*>(result + row * to.row_stride + column) =
              pack<T>(sums[m][b][2 * half] * factor, sums[m][b][2 * half + 1] * factor);
      }
    }
}

// Writes a coarse one by way of shared memory: a row is the sum of `group` rows of the fragments, added up in order. Of a row
// longer than the tile this is but a half, for join_kernel.
template <class T, int width, int n, int blocks, bool parked>
__device__ __forceinline__ void write_coarse(const AttentionBackward& problem, const Block<width, n>& block, int level,
                                             const CoarseSum<blocks, parked>& all, int first_row, int part, int group,
                                             float (*scratch)[width], float* half_rows) {
  const int lane = threadIdx.x % 32;
  float sums[1][blocks][4];
  all.read(sums);
  __syncthreads();
#pragma unroll
  for (int b = 0; b < blocks; ++b)
#pragma unroll
    for (int i = 0; i < 4; ++i)
      scratch[first_row + lane / 4 + 8 * (i / 2)][(part * blocks + b) * 8 + 2 * (lane % 4) + i % 2] = sums[0][b][i];
  __syncthreads();
  const auto sum_of = [&](int from, int count, int column) {
    float2 sum = {0, 0};
    for (int j = from; j < from + count; ++j) sum.x += scratch[j][column], sum.y += scratch[j][column + 1];
    return sum;
  };
  if (n >> level == 0) {
    const std::int64_t tile = block.sequence * ((block.length + n - 1) / n) + block.place.first / n;
    const int column = 2 * threadIdx.x;
    if (column < width) *reinterpret_cast<float2*>(half_rows + tile * width + column) = sum_of(0, n / 4, column);
    return;
  }
  const Array& to = problem.grad_k[level];
  T* result = rows_of<T>(to, block.place);
  const int first = block.place.first >> level, count = min(n >> level, level_length(block.length, level) - first);
  const float factor = block.weights[level] * static_cast<float>(problem.scale);
  for (int i = threadIdx.x; i < count * (width / 2); i += backward_tile::threads<width, n>) {
    const int row = i / (width / 2), column = i % (width / 2) * 2;
    if (column >= problem.width) continue;
    const float2 sum = sum_of(row * group, group, column);
    *reinterpret_cast<std::uint32_t*>(result + static_cast<std::int64_t>(first + row) * to.row_stride + column) =
        pack<T>(sum.x * factor, sum.y * factor);
  }
}

// grad_k of the last level where its rows are twice as long as a tile of keys: a block for each row.
template <class T, int width>
__global__ void join_kernel(const __grid_constant__ AttentionBackward problem, const float* half_rows, int tiles) {
  const int rows = (tiles + 1) / 2, level = problem.levels - 1, column = 2 * threadIdx.x;
  const std::int64_t sequence = blockIdx.x / rows, row = blockIdx.x % rows;
  const Place place{0, sequence % problem.heads, sequence / problem.heads, 0};
  if (column >= problem.width) return;
  float x = 0, y = 0;
  for (std::int64_t tile = 2 * row; tile < min(2 * row + 2, std::int64_t(tiles)); ++tile) {
    const float* half = half_rows + (sequence * tiles + tile) * width + column;
    x += half[0], y += half[1];
  }
  const float factor = static_cast<const float*>(problem.weights)[place.head * problem.levels + level] *
                       static_cast<float>(problem.scale);
  const Array& to = problem.grad_k[level];
  *reinterpret_cast<std::uint32_t*>(rows_of<T>(to, place) + row * to.row_stride + column) =
      pack<T>(x * factor, y * factor);
}

// n: keys of a tile. fixed: the number of levels, or 0 if it is known only here; then there are up to max_level_count.
template <class T, int width, int n, int max_level_count, int fixed>
__global__ void __launch_bounds__(backward_tile::threads<width, n>, backward_tile::side_by_side<width, n>)
    backward_kernel(const __grid_constant__ AttentionBackward problem, const float* lse, const float* delta,
                    const __grid_constant__ Sums all_sums, const Turns turns) {
  using namespace backward_tile;
  using S = Share<width, n>;
  constexpr int thread_count = threads<width, n>;
  extern __shared__ __align__(1024) unsigned char memory[];
  const Block<width, n> block(problem, fixed ? fixed : problem.levels, turns,
                              static_cast<std::uint32_t>(__cvta_generic_to_shared(memory)));
  const int levels = block.levels, length = block.length;
  Source<T>* sources = reinterpret_cast<Source<T>*>(memory + block.layout.sources);  // of q and grad_out
  const std::int64_t padded = (length + 127) / 128 * 128;
  const auto copy_queries = [&](int tile, int stage) {
    const int query = tile * queries;
    copy_levels<T, width, thread_count, fixed>(block.q(stage), sources, query, length, levels, queries, problem.width);
    copy_rows<T, width, thread_count>(block.grad_out(stage), 0, sources[levels], query, length, queries,
                                      problem.value_width);
    if (threadIdx.x < 2 * queries / 4) {
      const int array = threadIdx.x / (queries / 4), four = threadIdx.x % (queries / 4);
      copy_16(block.row_data(stage, array) + 16 * four,
              (array ? delta : lse) + block.sequence * padded + query + 4 * four, true);
    }
    commit_copies();
  };
  if (block.steps > 0) {
    find_sources(sources, problem.k, problem.v, levels, block.place);
    __syncthreads();
    copy_levels<T, width, thread_count, fixed>(block.k, sources, block.place.first, length, levels, n, problem.width);
    copy_rows<T, width, thread_count>(block.v, 0, sources[levels], block.place.first, length, n, problem.value_width);
    __syncthreads();
    find_sources(sources, problem.q, problem.grad_out, levels, block.place);
    __syncthreads();
    copy_queries(block.tile(0), 0);
    wait_copies<0>();
    __syncthreads();
    write_quad_scores<T, fixed>(block, 0);
  }
  const KeptRows<width, Kept<width, n, fixed>::keys> keys(block.k, 32 * S::key_warp());
  const KeptRows<width, Kept<width, n, fixed>::values> values(block.v, 32 * S::key_warp());

  KeyGradients<width, n, max_level_count> sums(all_sums.coarse_keys +
                                               blockIdx.x * std::int64_t(parked_floats<width, n>));
  int* const counters = turns.counters ? turns.counters + block.sequence * ((length + queries - 1) / queries) : nullptr;
  for (int step = 0; step < block.steps; ++step) {
    const int stage = step % 2, tile = block.tile(step);
    __syncthreads();
    {
      float probabilities[2][S::blocks][4];
      take_probabilities<T>(probabilities, block, keys, stage, tile * queries, [&] {
        if (step + 1 < block.steps) copy_queries(block.tile(step + 1), stage ^ 1);
      });
      take_gradients<T>(probabilities, block, values, stage);
    }
    if (counters) __threadfence();  // what was added in the last step, before the next block is told
    wait_copies<0>();
    __syncthreads();
    if (counters && step > 0 && threadIdx.x == 0) atomicAdd(counters + block.tile(step - 1), 1);
    if (step + 1 < block.steps) write_quad_scores<T, fixed>(block, stage ^ 1);
    add_key_gradients<T>(sums, block, stage);
    add_query_gradients<T, fixed>(block, tile * queries, all_sums, [&] {
      if (!counters) return;
      if (threadIdx.x == 0)
        while (*static_cast<volatile int*>(counters + tile) != block.rank(tile, turns)) __nanosleep(32);
      __syncthreads();
      __threadfence();
    });
  }
  if (counters && block.steps > 0) {
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) atomicAdd(counters + block.tile(block.steps - 1), 1);
  }

  const float factor = block.weights[0] * static_cast<float>(problem.scale);
  write_fine<T>(problem.grad_v, block, sums.values, 1, problem.value_width);
  write_fine<T>(problem.grad_k[0], block, sums.keys, factor, problem.width);
  float (*scratch)[width] = reinterpret_cast<float (*)[width]>(memory);  // over k and v
  if (levels > 1)
    write_coarse<T>(problem, block, 1, sums.pairs, 16 * S::key_warp(), S::query_warp(), 1, scratch, all_sums.half_rows);
#pragma unroll
  for (int level = 2; level < max_level_count; ++level)
    if (level < levels)
      write_coarse<T>(problem, block, level, sums.quads[level - 2], 16 * (S::warp() % S::quad_tiles),
                      S::warp() / S::quad_tiles, 1 << (level - 2), scratch, all_sums.half_rows);
}

// grad_q of one level from its sums, and its part of the weights' gradient: 64 rows a block.
template <class T, int width>
__global__ void __launch_bounds__(256)
    finish_kernel(const __grid_constant__ AttentionBackward problem, const float* sums, float* partials, int level,
                  std::int64_t parts, std::int64_t level_parts) {
  __shared__ float dots[8];
  const int length = static_cast<int>(problem.length);
  const std::int64_t rows = level_length(length, level);
  const bool in_fragments = level <= last_fragment_level;
  const int of_sums = level < 7 ? 1 : 2;  // rows of them in one of the level
  const std::int64_t sum_row_count = level_length(length, level < 7 ? level : 6);
  constexpr int queries = backward_tile::queries;
  const std::int64_t tile_rows = (length + queries - 1) / queries * (queries >> level);
  const std::int64_t sequence = blockIdx.x / level_parts, part = blockIdx.x % level_parts;
  const Place place{0, sequence % problem.heads, sequence / problem.heads, 0};
  const T* q = rows_of<const T>(problem.q[level], place);
  const Array& to = problem.grad_q[level];
  T* result = rows_of<T>(to, place);
  const float scale = static_cast<float>(problem.scale);
  const float factor = static_cast<const float*>(problem.weights)[place.head * problem.levels + level] * scale;
  float dot = 0;
  for (int i = threadIdx.x; i < 64 * (width / 8); i += 256) {
    const std::int64_t row = part * 64 + i / (width / 8);
    const int chunk = i % (width / 8);
    if (row >= rows || 8 * chunk >= problem.width) continue;
    float2 u[4];
    if (in_fragments) {
      const float* from = sums + ((sequence * tile_rows + row) / 16 * (width / 8) + chunk) * fragment_floats;
      const int lane = row % 8 * 4, half = row % 16 / 8;
#pragma unroll
      for (int j = 0; j < 4; ++j)
        u[j] = {from[place_in_fragment(lane + j, 2 * half)], from[place_in_fragment(lane + j, 2 * half + 1)]};
    } else {
      const float* from = sums + (sequence * sum_row_count + of_sums * row) * width + 8 * chunk;
      const bool two = of_sums == 2 && 2 * row + 1 < sum_row_count;
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        u[j] = {from[2 * j], from[2 * j + 1]};
        if (two) u[j].x += from[width + 2 * j], u[j].y += from[width + 2 * j + 1];
      }
    }
    const uint4 eight = *reinterpret_cast<const uint4*>(q + row * problem.q[level].row_stride + 8 * chunk);
    const std::uint32_t pairs[4] = {eight.x, eight.y, eight.z, eight.w};
    std::uint32_t packed[4];
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const float2 x = unpack<T>(pairs[j]);
      dot += u[j].x * x.x + u[j].y * x.y;
      packed[j] = pack<T>(u[j].x * factor, u[j].y * factor);
    }
    *reinterpret_cast<uint4*>(result + row * to.row_stride + 8 * chunk) = {packed[0], packed[1], packed[2], packed[3]};
  }
  for (int offset = 16; offset > 0; offset /= 2) dot += __shfl_xor_sync(~0u, dot, offset);
  if (threadIdx.x % 32 == 0) dots[threadIdx.x / 32] = dot;
  __syncthreads();
  if (threadIdx.x != 0) return;
  float total = 0;
  for (const float value : dots) total += value;
  partials[(sequence * parts + part) * problem.levels + level] = total * scale;
}

// The kernel for a tile of n keys.
template <class T, int width, int n, int max_level_count>
void start_tiles(const AttentionBackward& problem, const Device& device, const Workspace& w, float* base) {
  using namespace backward_tile;
  Sums sums{};
  for (int level = 0; level < problem.levels; ++level) sums.queries[level] = base + w.sums[level];
  sums.coarse_keys = base + w.coarse_keys;
  sums.half_rows = base + w.half_rows;
  const std::int64_t key_tiles = ceil_divide<std::int64_t>(problem.length, n);
  const dim3 blocks(static_cast<unsigned>(problem.batch * problem.heads * key_tiles));
  Turns turns;
  if (device.deterministic) {
    turns.counters = reinterpret_cast<int*>(base + w.turns);
    turns.wraps = !problem.causal && key_tiles <= device.multiprocessors;
  }
  const auto kernel = max_level_count == 3 && problem.levels == 3 ? backward_kernel<T, width, n, 3, 3>
                                                                  : backward_kernel<T, width, n, max_level_count, 0>;
  launch(kernel, blocks, threads<width, n>, layout_of<width, n>(problem.levels).end, device.stream, problem,
         base + w.lse, base + w.delta, sums, turns);
  if (n >> (problem.levels - 1) == 0)
    launch(join_kernel<T, width>, dim3(static_cast<unsigned>(problem.batch * problem.heads * ((key_tiles + 1) / 2))),
           width / 2, 0, device.stream, problem, base + w.half_rows, static_cast<int>(key_tiles));
}

template <class T, int width, int max_level_count>
void start_backward(const AttentionBackward& problem, const Device& device, void* workspace) {
  using namespace backward_tile;
  float* base = static_cast<float*>(workspace);
  const Workspace w = workspace_of(problem, width, device.shared_bytes);
  const auto stream = static_cast<cudaStream_t>(device.stream);
  check(cudaMemsetAsync(base + w.sums[0], 0, (w.end - w.sums[0]) * sizeof(float), stream), "clearing the workspace");
  row_data(problem, device, base + w.lse, base + w.delta);
  if (keys_for<width>(problem.levels, device.shared_bytes) == 64)
    start_tiles<T, width, 64, max_level_count>(problem, device, w, base);
  else if constexpr (!parks_coarse_keys<width, 128> || max_level_count == 3)
    start_tiles<T, width, 128, max_level_count>(problem, device, w, base);
  for (int level = 0; level < problem.levels; ++level) {
    const std::int64_t rows = ceil_divide<std::int64_t>(problem.length, std::int64_t(1) << level);
    const std::int64_t parts = ceil_divide<std::int64_t>(rows, 64);
    launch(finish_kernel<T, width>, dim3(static_cast<unsigned>(problem.batch * problem.heads * parts)), 256, 0,
           device.stream, problem, base + w.sums[level], base + w.partials, level, w.parts, parts);
  }
  sum_weight_gradient(problem, device, base + w.partials, static_cast<int>(w.parts));
}

}  // namespace hkt::kernels::cuda::sm80
