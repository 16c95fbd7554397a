// SPDX-License-Identifier: Apache-2.0
// Forward on Hopper: which problems it takes, and what the host prepares.
#include <algorithm>

#include "common/element.h"
#include "common/launch.h"
#include "common/problem.h"
#include "families.h"
#include "sm90/forward.h"
#include "sm90/tensor_map.h"

namespace hkt::kernels::cuda::sm90 {
namespace {

constexpr std::int64_t max_items = 1 << 30;
constexpr std::int64_t cached_bytes = 24 << 20;  // of keys and values that stay in the L2 cache

// Tiles lie at multiples of their size.
std::int64_t first_tile(const AttentionForward& problem) { return problem.start / query_tile_rows(problem.width); }
std::int64_t tile_count(const AttentionForward& problem) {
  return ceil_divide<std::int64_t>(problem.start + problem.queries, query_tile_rows(problem.width)) -
         first_tile(problem);
}
// At the ends of caches queries begin anywhere: as many tiles as if they began with the last row of one.
std::int64_t tile_count(const AttentionExtend& problem) {
  return ceil_divide<std::int64_t>(problem.queries - 1, query_tile_rows(problem.width)) + 1;
}

template <class Problem>
std::int64_t item_count(const Problem& problem) {
  return tile_count(problem) * problem.batch * problem.heads;
}

// The persistent grid: a CTA for each SM, or for each item if these are fewer.
template <class Problem>
int cta_count(const Problem& problem, const Device& device) {
  return static_cast<int>(std::min<std::int64_t>(item_count(problem), device.sm_count));
}

bool can_map_all(const AttentionForward& problem) {
  bool all = can_map(problem.element, problem.v) && can_map(problem.element, problem.out);
  for (int level = 0; level < problem.levels; ++level)
    all = all && can_map(problem.element, problem.q[level]) && can_map(problem.element, problem.k[level]);
  return all;
}

std::int64_t query_row_count(const AttentionForward& problem, int level) {
  return query_rows(problem.start, problem.queries, level);
}
std::int64_t query_row_count(const AttentionExtend& problem, int level) { return problem.query_rows[level]; }

// Rows step · i + first of the queries of a level, 32 to a box. Where there is none, row 0 stands for it: only rows after the
// last query read it.
template <class Problem>
CUtensorMap query_map(const Problem& problem, int level, int step, int first) {
  const std::int64_t rows = query_row_count(problem, level);
  if (first >= rows) first = 0;
  Array array = problem.q[level];
  array.data = static_cast<std::uint16_t*>(array.data) + first * array.row_stride;
  return tensor_map(problem.element, array, problem.width,
                    std::max<std::int64_t>(1, ceil_divide(rows - first, std::int64_t(step))), problem.heads,
                    problem.batch, std::min(padded_width(problem.width), 64), 32, step);
}

CUtensorMap key_map(const AttentionForward& problem, const Array& array) {
  return tensor_map(problem.element, array, problem.width, problem.length, problem.key_heads, problem.batch,
                    std::min(padded_width(problem.width), 64), 128);
}

// Sequences of a group of work: whole groups of heads that share keys. Without a causal mask they are taken one after another
// anyway.
int group_size(const AttentionForward& problem) {
  const std::int64_t sequences = problem.batch * problem.heads;
  const std::int64_t rows = (problem.levels > 1 ? 3 : 2) * problem.length;  // of keys and values, about
  const std::int64_t sharing = problem.heads / problem.key_heads;
  const std::int64_t fitting = cached_bytes / (rows * problem.width * 2);
  if (!problem.causal || sequences <= 2 * fitting) return static_cast<int>(sequences);
  return static_cast<int>(ceil_divide(std::max<std::int64_t>(1, fitting), sharing) * sharing);
}

template <class Problem>
ForwardParameters make_parameters(const Problem& problem) {
  ForwardParameters p{};
  for (int x = 0; x < 4; ++x) p.q0[x] = query_map(problem, 0, 4, x);
  p.k0 = key_map(problem, problem.k[0]);
  p.v = key_map(problem, problem.v);
  if (problem.levels > 1) {
    for (int s = 0; s < 2; ++s) p.q1[s] = query_map(problem, 1, 2, s);
    p.k1 = problem.k[1];
    p.rows1 = static_cast<int>(level_rows(problem.length, 1));
    // Two levels are three with a third that has no rows and weight 0.
    const int last = std::min(problem.levels - 1, 2);
    p.q2 = query_map(problem, last, 1, 0);
    p.k2 = problem.k[last];
    p.rows2 = last == 2 ? static_cast<int>(level_rows(problem.length, 2)) : 0;
  }
  for (int level = 3; level < problem.levels; ++level) {
    p.deep_q[level - 3] = problem.q[level];
    p.deep_q_rows[level - 3] = static_cast<int>(query_row_count(problem, level));
    p.deep_k[level - 3] = problem.k[level];
  }
  p.values = problem.v;
  p.out = problem.out;
  p.weights = static_cast<const float*>(problem.weights);
  p.lengths = problem.lengths;
  p.lse = static_cast<float*>(problem.lse);
  p.scale = static_cast<float>(problem.scale) * log2_e;
  p.levels = problem.levels;
  p.width = problem.width;
  p.heads = static_cast<int>(problem.heads);
  p.heads_per_key_head = static_cast<int>(problem.heads / problem.key_heads);
  p.length = static_cast<int>(problem.length);
  p.start = static_cast<int>(problem.start);
  p.queries = static_cast<int>(problem.queries);
  p.causal = problem.causal;
  p.first_tile = static_cast<int>(first_tile(problem));  // unless at the ends
  p.tiles = static_cast<int>(tile_count(problem));
  p.sequences = static_cast<int>(problem.batch * problem.heads);
  p.group = group_size(problem);
  return p;
}

template <class T, int levels>
void launch_width(const ForwardParameters& parameters, int ctas, void* stream) {
  switch (padded_width(parameters.width)) {
    case 32:
      return launch_forward_narrow<T, 32, levels>(parameters, ctas, stream);
    case 64:
      return launch_forward_narrow<T, 64, levels>(parameters, ctas, stream);
    default:
      return launch_forward_wide<T, levels>(parameters, ctas, stream);
  }
}

template <class T>
void launch_forward(const ForwardParameters& parameters, int ctas, void* stream) {
  if (parameters.levels == 1)
    launch_width<T, 1>(parameters, ctas, stream);
  else if (parameters.levels <= 3)
    launch_width<T, 3>(parameters, ctas, stream);
  else
    launch_width<T, max_levels>(parameters, ctas, stream);
}

}  // namespace

bool can_run(const AttentionForward& problem, const Device& device) {
  return device.capability == 90 && (problem.element == Element::bfloat16 || problem.element == Element::float16) &&
         problem.levels >= 1 && problem.levels <= max_levels && problem.width == problem.value_width &&
         problem.width >= 8 && problem.width <= 128 && problem.width % 8 == 0 && problem.queries > 0 &&
         problem.queries <= max_items && problem.length > 0 && problem.length <= max_items && problem.batch > 0 &&
         problem.heads > 0 && problem.batch <= max_items / problem.heads && item_count(problem) <= max_items &&
         can_map_all(problem);
}

bool can_run(const AttentionExtend& problem, const Device& device) {
  const AttentionForward& forward = problem;
  return can_run(forward, device) && problem.coarse[1].data == nullptr;
}

namespace {

// A slot for each 128 queries that a CTA works on at a time: see forward_deep.h.
template <class Problem>
std::int64_t slot_bytes(const Problem& problem, const Device& device) {
  if (problem.levels <= 3) return 0;
  const std::int64_t slots = cta_count(problem, device) * (query_tile_rows(problem.width) / 128);
  return slots * ceil_divide<std::int64_t>(problem.length, 128) * deep_tile_bytes;
}

void launch_forward(Element element, const ForwardParameters& parameters, int ctas, const Device& device) {
  if (element == Element::bfloat16)
    launch_forward<bfloat16>(parameters, ctas, device.stream);
  else
    launch_forward<float16>(parameters, ctas, device.stream);
}

}  // namespace

std::int64_t workspace_bytes(const AttentionForward& problem, const Device& device) {
  return slot_bytes(problem, device);
}
std::int64_t workspace_bytes(const AttentionExtend& problem, const Device& device) {
  return slot_bytes(problem, device);
}

void forward(const AttentionForward& problem, const Device& device, void* workspace) {
  ForwardParameters parameters = make_parameters(problem);
  parameters.deep_sums = static_cast<float*>(workspace);
  launch_forward(problem.element, parameters, cta_count(problem, device), device);
}

void extend(const AttentionExtend& problem, const Device& device, void* workspace) {
  ForwardParameters parameters = make_parameters(problem);
  parameters.at_ends = true;
  parameters.lengths = problem.ends;
  parameters.causal = true;
  parameters.deep_sums = static_cast<float*>(workspace);
  launch_forward(problem.element, parameters, cta_count(problem, device), device);
}

}  // namespace hkt::kernels::cuda::sm90
