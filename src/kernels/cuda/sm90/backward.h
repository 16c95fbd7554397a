// Backward on Hopper, what its kernels share: parameters, the order of work, tiles of scores and of their gradients.
//
// A block has 128 keys of a head and goes through tiles of 64 queries. Scores are transposed: keys are rows of
// accumulators, queries are columns. In an accumulator of 64 x N a thread owns rows r and r + 8 of its warp's 16, and
// columns 2c, 2c + 1 of each block of eight (r = lane / 4, c = lane % 4):
// element 4j + 2h + e is row r + 8h, column 8j + 2c + e.
//
// Both are permuted as they are loaded, by maps that see every second or fourth row, so that coarse values belong to
// the thread that owns the fine ones:
// queries   place 16a + y holds row 4y + a; of level 1, place 16b + y holds row 2y + b; level 2 is in natural order.
//           Columns y of the blocks of all levels are then the same four rows, their two pairs, and the quad.
// keys      place 16s + 8h + r (s is the warp, of the block's eight) holds row 32(s / 2) + 4r + 2(s % 2) + h; of
//           level 1, place 8s + r holds row 16(s / 2) + 2r + s % 2; level 2 is in natural order, and its row
//           8(s / 2) + r belongs to both places 8s + r of a pair of warps. So rows r and r + 8 of an accumulator are
//           a pair of keys.
// Sums of 2 x 2 gradients of scores are then sums in a thread. Those of 4 x 4 are made in the thread over queries, and
// over keys by products, whose inner dimension meets each key of level 2 twice.
#pragma once

#include "../launch.h"
#include "deep.h"
#include "hkt/kernels.h"
#include "hopper.h"

namespace hkt::kernels::cuda::sm90 {

inline constexpr int backward_keys = 128;
inline constexpr int backward_queries = 64;

// Sums for the gradients of a tile of queries, of `width` columns: those of level 0, then of levels 1 and 2, and in
// natural order those of coarser ones.
constexpr int query_sums_size(int width, bool coarse, bool deep = false) {
  return (deep ? 64 + 32 + 16 + first_deep_row(8, max_levels) : coarse ? 64 + 32 + 16 : 64) * width;
}
// Sums for the gradients of the keys of levels 1 and 2 of a tile, of 64 columns.
inline constexpr int key_sums_size = (64 + 32) * 64;

struct BackwardParameters {
  CUtensorMap q0[4], grad_out[4], k0[4], v[4];  // one for each remainder of a row's number
  CUtensorMap q1[2], k1[2];
  CUtensorMap q2, k2;
  const float* lse;    // [batch, heads, 64 · query_tiles], base 2; +infinity for padding
  const float* delta;  // likewise
  float* query_sums;   // [batch, heads, query_tiles, panels of 64 columns], in the order of accumulators
  float* key_sums;     // [batch, heads, key_tiles, panels]; width 128 only
  int* turns;          // [batch, heads, query_tiles, 2], whose turn it is to add to query_sums; null: everybody's
  const float* weights;
  const std::int64_t* lengths;
  Array grad_k[max_levels];
  Array grad_v;
  float scale;
  int batch;
  int heads;
  int length;
  int width;
  int levels;
  int query_tiles;
  int key_tiles;
  int group;   // heads that are worked on side by side, each tile of keys in all of them before the next tile
  int groups;  // the last one has all heads that are left
  bool causal;
  bool rotate;      // blocks begin at different tiles of queries
  bool last_first;  // the last keys' blocks start first

  Array deep_q[max_levels - 3];  // levels from 3 on
  Array deep_k[max_levels - 3];
  float* deep_sums;  // a slot for each running block: see backward_deep.h
  int* deep_taken;   // whether a block has the slot
  int* deep_turns;   // [batch, heads, key_tiles, 4]: as `turns`, for sums of levels from 3 on, 128 queries, 32 columns
  int deep_slots;    // how many there are
};

// ---- the work of a block ----

struct BackwardWork {
  int batch;
  int head;
  int sequence;  // batch and head
  int length;    // valid rows
  int key_tile;
  int first;     // tile of queries
  int steps;     // and how many there are; 0 if the keys are padding
  int rotation;  // where to start among them: blocks should not add to the same sums at the same time
  int active;    // tiles of keys that are not padding

  __device__ __forceinline__ int query_tile(int step) const {
    const int turned = step + rotation;
    return first + (turned >= steps ? turned - steps : turned);
  }
  // Keys after the sequence's end are among them.
  __device__ __forceinline__ bool has_padding() const { return (key_tile + 1) * backward_keys > length; }
};

// Steps are made a multiple of `multiple`; the parameters have tiles of queries enough for 2.
template <int multiple>
__device__ __forceinline__ BackwardWork backward_work(const BackwardParameters& p, unsigned block) {
  BackwardWork work;
  const unsigned group_blocks = static_cast<unsigned>(p.group) * p.key_tiles;
  const unsigned last = p.groups - 1;
  const unsigned group = min(block / group_blocks, last);
  const unsigned rest = block - group * group_blocks;
  const unsigned first_sequence = group * p.group;
  const unsigned size = group < last ? p.group : static_cast<unsigned>(p.batch) * p.heads - first_sequence;
  work.key_tile = static_cast<int>(rest / size);
  if (p.last_first) work.key_tile = p.key_tiles - 1 - work.key_tile;
  work.sequence = static_cast<int>(first_sequence + rest % size);
  work.batch = work.sequence / p.heads;
  work.head = work.sequence % p.heads;
  work.length = p.length;
  if (p.lengths != nullptr) {
    const std::int64_t length = p.lengths[work.batch];
    work.length = length < 0 ? 0 : length < p.length ? static_cast<int>(length) : p.length;
  }
  constexpr int rows = backward_queries * multiple;
  const int tiles = (work.length + rows - 1) / rows * multiple;
  work.first = p.causal ? work.key_tile * (backward_keys / backward_queries) : 0;
  work.steps = work.key_tile * backward_keys < work.length ? tiles - work.first : 0;
  work.rotation = p.rotate && work.steps > 0 ? 2 * work.key_tile % work.steps : 0;
  work.active = (work.length + backward_keys - 1) / backward_keys;
  return work;
}

__device__ __forceinline__ float weight(const BackwardParameters& p, const BackwardWork& work, int level) {
  return level < p.levels ? p.scale * p.weights[static_cast<std::int64_t>(work.head) * p.levels + level] : 0;
}

__device__ __forceinline__ int level_rows(const BackwardParameters& p, int level) {
  return (p.length + (1 << level) - 1) >> level;
}

template <class T>
__device__ __forceinline__ T* row_of(const Array& array, const BackwardWork& work, int row) {
  return static_cast<T*>(array.data) + work.batch * array.batch_stride + work.head * array.head_stride +
         row * array.row_stride;
}

// The level-2 arrays of a problem of two levels do not exist: their maps are read outside, where everything is zero.
__device__ __forceinline__ int level_2_batch(const BackwardParameters& p, const BackwardWork& work) {
  return p.levels > 2 ? work.batch : p.batch;
}

// A place in a ring of stages, and the parity of its barriers.
template <int stages>
struct BackwardRing {
  int stage = 0;
  int parity = 0;
  __device__ __forceinline__ void advance() {
    if (++stage == stages) {
      stage = 0;
      parity ^= 1;
    }
  }
};

// ---- loads, by a warp: each lane starts at most one copy of a box ----
// Tiles are in panels of 64 columns (or of 32, if there are no more), rows of row_bytes.

template <int row_bytes, int panels>
__device__ __forceinline__ void load_keys(std::uint32_t to, const CUtensorMap (&maps)[4], std::uint32_t barrier,
                                          const BackwardWork& work, int lane) {
  const int eight = lane % 16;  // places 8 · eight on: rows r = 0 .. 7
  const int row = work.key_tile * (backward_keys / 4) + eight / 4 * 8;
  if (lane < 16 * panels)
    load_tile(to + lane * 8 * row_bytes, maps[eight % 4], barrier, lane / 16 * 64, row, work.head, work.batch);
}

template <int row_bytes, int panels>
__device__ __forceinline__ void load_coarse_keys(std::uint32_t k1, std::uint32_t k2, const BackwardParameters& p,
                                                 std::uint32_t barrier, const BackwardWork& work, int lane) {
  const int row = work.key_tile * (backward_keys / 4);
  const int panel = lane - 8 * panels;  // of level 2
  if (panel < 0)
    load_tile(k1 + lane * 8 * row_bytes, p.k1[lane % 2], barrier, lane / 8 * 64, row + lane % 8 / 2 * 8, work.head,
              work.batch);
  else if (panel < panels)
    load_tile(k2 + panel * 32 * row_bytes, p.k2, barrier, panel * 64, row, work.head, level_2_batch(p, work));
}

template <int row_bytes, int panels>
__device__ __forceinline__ void load_queries(std::uint32_t to, const CUtensorMap (&maps)[4], std::uint32_t barrier,
                                             const BackwardWork& work, int tile, int lane) {
  if (lane < 4 * panels)
    load_tile(to + lane * 16 * row_bytes, maps[lane % 4], barrier, lane / 4 * 64, tile * (backward_queries / 4),
              work.head, work.batch);
}

template <int row_bytes, int panels>
__device__ __forceinline__ void load_coarse_queries(std::uint32_t q1, std::uint32_t q2, const BackwardParameters& p,
                                                    std::uint32_t barrier, const BackwardWork& work, int tile,
                                                    int lane) {
  const int row = tile * (backward_queries / 4);
  const int panel = lane - 2 * panels;  // of level 2
  if (panel < 0)
    load_tile(q1 + lane * 16 * row_bytes, p.q1[lane % 2], barrier, lane / 2 * 64, row, work.head, work.batch);
  else if (panel < panels)
    load_tile(q2 + panel * 16 * row_bytes, p.q2, barrier, panel * 64, row, work.head, level_2_batch(p, work));
}

// Says how many bytes will come, before any lane starts a copy.
__device__ __forceinline__ void expect_bytes(std::uint32_t barrier, int bytes, int lane) {
  if (lane == 0) barrier_expect(barrier, bytes);
  __syncwarp();
}

// ---- shared memory ----

__device__ __forceinline__ void load_4(float* to, std::uint32_t from) {
  asm volatile("ld.shared.v4.f32 {%0,%1,%2,%3}, [%4];"
               : "=f"(to[0]), "=f"(to[1]), "=f"(to[2]), "=f"(to[3])
               : "r"(from)
               : "memory");
}
__device__ __forceinline__ void load_2(float* to, std::uint32_t from) {
  asm volatile("ld.shared.v2.f32 {%0,%1}, [%2];" : "=f"(to[0]), "=f"(to[1]) : "r"(from) : "memory");
}
__device__ __forceinline__ void store_4(std::uint32_t to, float a, float b, float c, float d) {
  asm volatile("st.shared.v4.f32 [%0], {%1,%2,%3,%4};" ::"r"(to), "f"(a), "f"(b), "f"(c), "f"(d) : "memory");
}
// Blocks of 8 x 8 elements; lane 8i + r has the address of row r of block i.
__device__ __forceinline__ void store_blocks(std::uint32_t to, std::uint32_t a, std::uint32_t b, std::uint32_t c,
                                             std::uint32_t d) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1,%2,%3,%4};" ::"r"(to), "r"(a), "r"(b), "r"(c), "r"(d)
               : "memory");
}
__device__ __forceinline__ void store_blocks(std::uint32_t to, std::uint32_t a, std::uint32_t b) {
  asm volatile("stmatrix.sync.aligned.m8n8.x2.shared.b16 [%0], {%1,%2};" ::"r"(to), "r"(a), "r"(b) : "memory");
}
__device__ __forceinline__ void load_blocks(std::uint32_t* to, std::uint32_t from) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(from)
               : "memory");
}
// Computed anew each time: keeping all of these addresses in registers would be dearer.
__device__ __forceinline__ std::uint32_t flip(std::uint32_t address, std::uint32_t bits) {
  std::uint32_t result;
  asm volatile("xor.b32 %0, %1, %2;" : "=r"(result) : "r"(address), "r"(bits));
  return result;
}

// What is computed from the result is computed anew each time.
__device__ __forceinline__ int again(int value) {
  int result;
  asm volatile("mov.b32 %0, %1;" : "=r"(result) : "r"(value));
  return result;
}

// The accumulator of a transposed product or of one over queries, as it lies in shared or global memory.
template <int count>
__device__ __forceinline__ void store_sums(std::uint32_t to, int threads, const float (&sums)[count]) {
#pragma unroll
  for (int i = 0; i < count / 4; ++i)
    store_4(to + i * threads * 16, sums[4 * i], sums[4 * i + 1], sums[4 * i + 2], sums[4 * i + 3]);
}

// The same, added to what lies in global memory.
template <int count>
__device__ __forceinline__ void add_registers(float* to, int threads, const float (&sums)[count]) {
#pragma unroll
  for (int i = 0; i < count / 4; ++i)
    asm volatile("red.relaxed.gpu.global.add.v4.f32 [%0], {%1,%2,%3,%4};" ::"l"(to + i * threads * 4), "f"(sums[4 * i]),
                 "f"(sums[4 * i + 1]), "f"(sums[4 * i + 2]), "f"(sums[4 * i + 3])
                 : "memory");
}

// ---- products ----

// Nothing is known of these any more: a product that starts from zero will write them.
template <int count>
__device__ __forceinline__ void release(float (&values)[count]) {
#pragma unroll
  for (int i = 0; i < count; ++i) asm volatile("" : "=f"(values[i]));
}

// The same operand, with another distance between groups of eight rows.
__device__ __forceinline__ std::uint64_t with_stride(std::uint64_t operand, std::uint32_t bytes) {
  return (operand & ~(0x3fffull << 32)) | (std::uint64_t(bytes >> 4) << 32);
}

// Level-2 keys of a warp as left operand of products over `columns` of their columns: eight rows from `from` on, the
// first of row_bytes. Rows r and r + 8 of the operand are the same key, so it is made of half as many registers: two
// for 16 columns.
template <int row_bytes, int columns>
__device__ __forceinline__ void load_level_2_keys(std::uint32_t (&fragment)[columns / 8], std::uint32_t from,
                                                  int lane) {
  const int row = lane % 8;
  const int swizzle = row_bytes == 128 ? row : row / 2;
#pragma unroll
  for (int i = 0; i < columns / 32; ++i)
    load_blocks(fragment + 4 * i, from + row * row_bytes + ((4 * i + lane / 8) ^ swizzle) * 16);
}

// Scores of level-2 keys and the 16 queries at `q`, over the columns of one panel.
template <class T, int count>
__device__ __forceinline__ void start_level_2(float (&scores)[8], const std::uint32_t (&fragment)[count],
                                              std::uint64_t q, bool accumulate) {
#pragma unroll
  for (int i = 0; i < count / 2; ++i) {
    const std::uint32_t a[4] = {fragment[2 * i], fragment[2 * i], fragment[2 * i + 1], fragment[2 * i + 1]};
    Product<T, 16>::run(scores, a, q + 2 * i, accumulate || i > 0);
  }
}

// keys · queries^T over `width` columns, in panels of 64 columns.
template <class T, int width, int key_panel, int query_panel, int count>
__device__ __forceinline__ void start_product(float (&scores)[count], std::uint64_t keys, std::uint64_t queries) {
#pragma unroll
  for (int i = 0; i < width / 16; ++i)
    Product<T, count * 2>::run(scores, keys + i / 4 * (key_panel / 16) + i % 4 * 2,
                               queries + i / 4 * (query_panel / 16) + i % 4 * 2, i > 0);
}

// sums += matrix · queries, the matrix in registers, 64 queries in rows of row_bytes.
template <class T, int row_bytes, int count>
__device__ __forceinline__ void start_sum(float (&sums)[count], const std::uint32_t (&matrix)[16],
                                          std::uint64_t queries) {
#pragma unroll
  for (int i = 0; i < 4; ++i) Product<T, count * 2, false, true>::run(sums, matrix + 4 * i, queries + i * row_bytes, 1);
}

// ---- coarse scores, from the warpgroup that makes them to those that need them ----
// Of each warp of keys (8 level-1 rows): for each lane its four values of even level-1 queries, then those of the odd
// ones.
inline constexpr int coarse_scores_bytes = 8 * 1024;

// `deep`, if there is one, has what coarser levels add to the thread's scores of level 2.
__device__ __forceinline__ void store_coarse_scores(std::uint32_t to, const float (&level1)[16],
                                                    const float (&level2)[8], float c1, float c2,
                                                    const float* deep = nullptr) {
#pragma unroll
  for (int h = 0; h < 2; ++h) {
#pragma unroll
    for (int b = 0; b < 2; ++b) {
      float x[4];
#pragma unroll
      for (int v = 0; v < 2; ++v) {
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          const float score = level2[4 * v + 2 * h + e];
          x[2 * v + e] =
              fmaf(c1, level1[4 * (2 * b + v) + 2 * h + e], deep != nullptr ? fmaf(c2, score, deep[v]) : c2 * score);
        }
      }
      store_4(to + h * 1024 + b * 512, x[0], x[1], x[2], x[3]);
    }
  }
}

// ---- a tile of 64 keys and 64 queries in a warpgroup ----
// Block j = 2a + v of columns: the thread's query is 32v + 8c + 4e + a, and its data of queries are at 8v + 4e + a.

__device__ __forceinline__ void load_rows(float (&values)[16], std::uint32_t from) {  // from its query 8c on
#pragma unroll
  for (int v = 0; v < 2; ++v) {
#pragma unroll
    for (int e = 0; e < 2; ++e) load_4(values + 8 * v + 4 * e, from + (32 * v + 4 * e) * 4);
  }
}

// What is added to the score: coarse - lse.
__device__ __forceinline__ void add_coarse_scores(float (&shift)[16], std::uint32_t from) {
  float coarse[8];
  load_4(coarse, from);
  load_4(coarse + 4, from + 512);
#pragma unroll
  for (int i = 0; i < 16; ++i) {
    const int v = i / 8, e = i / 4 % 2, a = i % 4;
    shift[i] = coarse[4 * (a / 2) + 2 * v + e] - shift[i];
  }
}

// Which queries see a thread's two keys: those from `first` on, counted from the thread's first query.
struct Sight {
  int first[2];
};

__device__ __forceinline__ Sight sight(const BackwardWork& work, bool causal, int key, int first_query) {
  Sight result;
#pragma unroll
  for (int h = 0; h < 2; ++h) result.first[h] = (key + h >= work.length ? 1 << 30 : causal ? key + h : 0) - first_query;
  return result;
}

// Probabilities from the scores of level 0, in place and packed.
template <class T, bool masked>
__device__ __forceinline__ void probabilities(float (&scores)[32], std::uint32_t (&packed)[16],
                                              const float (&shift)[16], float c0, const Sight& sight) {
#pragma unroll
  for (int j = 0; j < 8; ++j) {
    const int a = j / 2, v = j % 2;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        float& x = scores[4 * j + 2 * h + e];
        x = fmaf(x, c0, shift[8 * v + 4 * e + a]);
        if (masked && 32 * v + 4 * e + a < sight.first[h]) x = -INFINITY;
        x = exp2_fast(x);
      }
      packed[2 * j + h] = pack<T>(scores[4 * j + 2 * h], scores[4 * j + 2 * h + 1]);
    }
  }
}

// Where a lane stores gradients of scores: rows of 64 queries (128 bytes), of pairs of keys and 32 pairs of queries
// (64 bytes), of pairs of keys and 16 quads of queries (32 bytes).
struct GradientPlaces {
  std::uint32_t fine;
  std::uint32_t level1;
  std::uint32_t level2;
};

__device__ __forceinline__ GradientPlaces gradient_places(std::uint32_t fine, std::uint32_t level1,
                                                          std::uint32_t level2, int warp, int lane) {
  const int row = lane % 8, block = lane / 8;
  GradientPlaces places;
  places.fine = fine + (16 * warp + 8 * (block % 2) + row) * 128 + ((block / 2) ^ row) * 16;
  places.level1 = level1 + (8 * warp + row) * 64 + (block ^ (row / 2)) * 16;
  places.level2 = level2 + (8 * warp + row) * 32 + ((block % 2) ^ (row / 4)) * 16;
  return places;
}

// Gradients of a thread's scores, packed: of each, and sums of key pairs and query pairs, and query quads.
struct Gradients {
  std::uint32_t fine[16];
  std::uint32_t pairs[4], quads[2];
};

// Each made by gradient(index of the accumulator's element, index of the query's data).
template <class T, bool coarse, class Gradient>
__device__ __forceinline__ void make_gradients(Gradients& result, const Gradient& gradient) {
#pragma unroll
  for (int v = 0; v < 2; ++v) {
    float quad[2];
#pragma unroll
    for (int b = 0; b < 2; ++b) {
      float pair[2];
#pragma unroll
      for (int a = 2 * b; a < 2 * b + 2; ++a) {
        const int j = 2 * a + v;
        float x[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) x[i] = gradient(4 * j + i, 8 * v + 4 * (i % 2) + a);
        result.fine[2 * j] = pack<T>(x[0], x[1]);
        result.fine[2 * j + 1] = pack<T>(x[2], x[3]);
#pragma unroll
        for (int e = 0; e < 2; ++e) pair[e] = a % 2 == 0 ? x[e] + x[2 + e] : pair[e] + (x[e] + x[2 + e]);
      }
      if constexpr (coarse) result.pairs[2 * b + v] = pack<T>(pair[0], pair[1]);
#pragma unroll
      for (int e = 0; e < 2; ++e) quad[e] = b == 0 ? pair[e] : quad[e] + pair[e];
    }
    if constexpr (coarse) result.quads[v] = pack<T>(quad[0], quad[1]);
  }
}

__device__ __forceinline__ void store_fine_gradients(const Gradients& gradients, const GradientPlaces& places) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {  // 16 queries; the same four registers are an operand of the product for keys
    const std::uint32_t* four = gradients.fine + 4 * i;
    store_blocks(flip(places.fine, i * 32), four[0], four[1], four[2], four[3]);
  }
}
__device__ __forceinline__ void store_coarse_gradients(const Gradients& gradients, const GradientPlaces& places) {
  const std::uint32_t (&pairs)[4] = gradients.pairs;
  store_blocks(places.level1, pairs[0], pairs[1], pairs[2], pairs[3]);
  store_blocks(places.level2, gradients.quads[0], gradients.quads[1]);
}

// ---- results ----

// Half h of an accumulator's rows to the array's row; the thread has columns 2c, 2c + 1 of each eight.
template <class T, int count>
__device__ __forceinline__ void write_row(T* row, const float (&sums)[count], int h, int c, int width, float factor) {
#pragma unroll
  for (int j = 0; j < count / 4; ++j)
    if (8 * j < width)
      *reinterpret_cast<std::uint32_t*>(row + 8 * j + 2 * c) =
          pack<T>(factor * sums[4 * j + 2 * h], factor * sums[4 * j + 2 * h + 1]);
}

// As write_row, 16 bytes at a time: the four lanes of a row exchange what they have of four blocks of eight columns, so
// that each has one of them. Nothing is written from column `width` on.
template <class T, int count>
__device__ __forceinline__ void write_chunks(T* row, const float (&sums)[count], int h, int c, int width,
                                             float factor) {
#pragma unroll
  for (int j = 0; j < count / 4; j += 4) {
    std::uint32_t x[4];
#pragma unroll
    for (int k = 0; k < 4; ++k)
      x[k] = pack<T>(factor * sums[4 * (j + k) + 2 * h], factor * sums[4 * (j + k) + 2 * h + 1]);
#pragma unroll
    for (int bit = 1; bit < 4; bit *= 2) {
      const bool upper = (c & bit) != 0;
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        if ((k & bit) != 0) continue;
        const std::uint32_t other = __shfl_xor_sync(~0u, upper ? x[k] : x[k + bit], bit);
        (upper ? x[k] : x[k + bit]) = other;
      }
    }
    if (8 * (j + c) < width) *reinterpret_cast<uint4*>(row + 8 * (j + c)) = make_uint4(x[0], x[1], x[2], x[3]);
  }
}

// Zeros for the rows of the block's keys.
template <class T>
__device__ __forceinline__ void clear_rows(const Array& array, const BackwardParameters& p, const BackwardWork& work,
                                           int level) {
  const int chunks = p.width / 8;
  const int first = work.key_tile * (backward_keys >> level);
  const int rows = min(backward_keys >> level, level_rows(p, level) - first);
  for (int i = threadIdx.x; i < rows * chunks; i += blockDim.x)
    *reinterpret_cast<uint4*>(row_of<T>(array, work, first + i / chunks) + i % chunks * 8) = make_uint4(0, 0, 0, 0);
}

// ---- sums in a fixed order: the blocks of a head add to a tile of queries by turns ----
// The order is that in which they come if they start together, so that none has to wait: with a causal mask the last
// keys that see the tile are first, and every block waits for blocks that were started before it; with rotation the
// blocks that began there are first, which needs all blocks of a head to run side by side; else the first keys.

__device__ __forceinline__ int turn(const BackwardParameters& p, const BackwardWork& work, int tile) {
  const int before = tile / (backward_keys / backward_queries) - work.key_tile;
  if (p.causal) return before;
  if (p.rotate) return before < 0 ? before + work.active : before;
  return work.key_tile;
}

__device__ __forceinline__ int* turn_of(const BackwardParameters& p, const BackwardWork& work, int tile, int which) {
  return p.turns + 2 * (static_cast<std::int64_t>(work.sequence) * p.query_tiles + tile) + which;
}
// Between the copy engine's additions and the turns. Without `.global` it would also wait, as a fence of all memory for
// the whole GPU does.
__device__ __forceinline__ void fence_async_global() { asm volatile("fence.proxy.async.global;" ::: "memory"); }

__device__ __forceinline__ void wait_turn(const int* turn, int mine) {
  int now;
  do {
    asm volatile("ld.acquire.gpu.global.s32 %0, [%1];" : "=r"(now) : "l"(turn) : "memory");
  } while (now != mine);
  fence_async_global();
}
// All additions are complete and known to the calling thread.
__device__ __forceinline__ void pass_turn(int* turn) {
  fence_async_global();
  asm volatile("red.release.gpu.global.add.s32 [%0], 1;" ::"l"(turn) : "memory");
}

// Around what one thread adds to sums of a tile of queries.
__device__ __forceinline__ void begin_turn(const BackwardParameters& p, const BackwardWork& work, int tile) {
  if (p.turns != nullptr) wait_turn(turn_of(p, work, tile, 0), turn(p, work, tile));
}
__device__ __forceinline__ void end_turn(const BackwardParameters& p, const BackwardWork& work, int tile) {
  if (p.turns == nullptr) return;
  wait_stores();
  pass_turn(turn_of(p, work, tile, 0));
}

// Until at most `pending` groups of stores still have to be read from shared memory.
template <int pending>
__device__ __forceinline__ void wait_stores_read_but() {
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(pending) : "memory");
}

// ---- starts; each .cu file has some of the kernels ----

template <class T, int width, bool coarse, bool deep>
void start_backward_narrow(const BackwardParameters& parameters, const Device& device);
template <class T, bool coarse, bool deep>
void start_backward_wide(const BackwardParameters& parameters, const Device& device);

}  // namespace hkt::kernels::cuda::sm90
