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

std::int64_t item_count(const AttentionForward& problem) {
  return ceil_divide<std::int64_t>(problem.length, query_rows(problem.width)) * problem.batch * problem.heads;
}

// The persistent grid: a CTA for each SM, or for each item if these are fewer.
int cta_count(const AttentionForward& problem, const Device& device) {
  return static_cast<int>(std::min<std::int64_t>(item_count(problem), device.sm_count));
}

bool can_map_all(const AttentionForward& problem) {
  bool all = can_map(problem.element, problem.v) && can_map(problem.element, problem.out);
  for (int level = 0; level < problem.levels; ++level)
    all = all && can_map(problem.element, problem.q[level]) && can_map(problem.element, problem.k[level]);
  return all;
}

// Every step-th row of an array that has `rows`, from `first` on, 32 to a box.
CUtensorMap query_map(const AttentionForward& problem, Array array, std::int64_t rows, int first, int step) {
  array.data = static_cast<std::uint16_t*>(array.data) + first * array.row_stride;
  return tensor_map(problem.element, array, problem.width, ceil_divide<std::int64_t>(rows - first, step), problem.heads,
                    problem.batch, std::min(padded_width(problem.width), 64), 32, step);
}

CUtensorMap key_map(const AttentionForward& problem, const Array& array) {
  return tensor_map(problem.element, array, problem.width, problem.length, problem.heads, problem.batch,
                    std::min(padded_width(problem.width), 64), 128);
}

// Sequences of a group of work. Without a causal mask they are taken one after another anyway.
int group_size(const AttentionForward& problem) {
  const std::int64_t sequences = problem.batch * problem.heads;
  const std::int64_t rows = (problem.levels > 1 ? 3 : 2) * problem.length;  // of keys and values, about
  const std::int64_t fitting = cached_bytes / (rows * problem.width * 2);
  if (!problem.causal || sequences <= 2 * fitting) return static_cast<int>(sequences);
  return static_cast<int>(std::max<std::int64_t>(1, fitting));
}

ForwardParameters make_parameters(const AttentionForward& problem) {
  ForwardParameters p{};
  for (int x = 0; x < 4; ++x) p.q0[x] = query_map(problem, problem.q[0], problem.length, x, 4);
  p.k0 = key_map(problem, problem.k[0]);
  p.v = key_map(problem, problem.v);
  if (problem.levels > 1) {
    const std::int64_t rows1 = level_rows(problem.length, 1);
    for (int s = 0; s < 2; ++s) p.q1[s] = query_map(problem, problem.q[1], rows1, s, 2);
    p.k1 = problem.k[1];
    p.rows1 = static_cast<int>(rows1);
    // Two levels are three with a third that has no keys and weight 0; its queries may be any.
    const int last = std::min(problem.levels - 1, 2);
    p.q2 = query_map(problem, problem.q[last], level_rows(problem.length, last), 0, 1);
    p.k2 = problem.k[last];
    p.rows2 = last == 2 ? static_cast<int>(level_rows(problem.length, 2)) : 0;
  }
  for (int level = 3; level < problem.levels; ++level) {
    p.deep_q[level - 3] = problem.q[level];
    p.deep_k[level - 3] = problem.k[level];
  }
  p.out = problem.out;
  p.weights = static_cast<const float*>(problem.weights);
  p.lengths = problem.lengths;
  p.lse = static_cast<float*>(problem.lse);
  p.scale = static_cast<float>(problem.scale) * log2_e;
  p.levels = problem.levels;
  p.width = problem.width;
  p.heads = static_cast<int>(problem.heads);
  p.length = static_cast<int>(problem.length);
  p.causal = problem.causal;
  p.tiles = ceil_divide(p.length, query_rows(problem.width));
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
  // Four rows are needed for the four maps of the queries to have some.
  return device.capability == 90 && (problem.element == Element::bfloat16 || problem.element == Element::float16) &&
         problem.levels >= 1 && problem.levels <= max_levels && problem.width == problem.value_width &&
         problem.width >= 8 && problem.width <= 128 && problem.width % 8 == 0 && problem.length >= 4 &&
         problem.length <= max_items && problem.batch > 0 && problem.heads > 0 &&
         problem.batch <= max_items / problem.heads && item_count(problem) <= max_items && can_map_all(problem);
}

// A slot for each 128 queries that a CTA works on at a time: see forward_deep.h.
std::int64_t workspace_bytes(const AttentionForward& problem, const Device& device) {
  if (problem.levels <= 3) return 0;
  const std::int64_t slots = cta_count(problem, device) * (query_rows(problem.width) / 128);
  return slots * ceil_divide<std::int64_t>(problem.length, 128) * deep_tile_bytes;
}

void forward(const AttentionForward& problem, const Device& device, void* workspace) {
  ForwardParameters parameters = make_parameters(problem);
  parameters.deep_sums = static_cast<float*>(workspace);
  const int ctas = cta_count(problem, device);
  if (problem.element == Element::bfloat16)
    launch_forward<bfloat16>(parameters, ctas, device.stream);
  else
    launch_forward<float16>(parameters, ctas, device.stream);
}

}  // namespace hkt::kernels::cuda::sm90
