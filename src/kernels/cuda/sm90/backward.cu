// SPDX-License-Identifier: Apache-2.0
// Backward on Hopper: which problems it takes, its workspace, and the order of its kernels.
#include <algorithm>

#include "common/backward_preprocess.h"
#include "common/head_groups.h"
#include "families.h"
#include "sm90/backward.h"
#include "sm90/tensor_map.h"

namespace hkt::kernels::cuda::sm90 {
namespace {

constexpr std::int64_t largest_count = (std::int64_t{1} << 31) - 1;

// How a problem is cut into tiles.
struct Tiling {
  int columns;  // of a panel
  int panels;
  std::int64_t sequences;
  std::int64_t query_tiles;
  std::int64_t key_tiles;
  bool coarse;
  bool deep;
};

Tiling tiling(const AttentionBackward& problem) {
  Tiling t;
  t.columns = problem.width <= 32 ? 32 : 64;
  t.panels = problem.width <= 64 ? 1 : 2;
  t.sequences = problem.batch * problem.heads;
  t.query_tiles = padded_queries(problem) / backward_queries;
  t.key_tiles = padded_length(problem.length) / backward_keys;
  t.coarse = problem.levels > 1;
  t.deep = problem.levels > 3;
  return t;
}

// Some kernels need slots: see backward_semaphores.h.
bool has_second_pass(const Tiling& t) { return t.coarse && t.panels == 2; }
std::int64_t slot_count(const Tiling& t, const Device& device) {
  if (!t.deep && !has_second_pass(t)) return 0;
  return std::min<std::int64_t>(device.sm_count, t.sequences * t.key_tiles);
}

// Where things lie in the workspace, in bytes. From `zeros` on it must be zero at the start.
struct WorkspaceLayout {
  std::int64_t lse, delta, partials, coarse_gradients, deep_sums, query_sums, semaphores, slots_taken, deep_semaphores,
      zeros, end;
};

WorkspaceLayout workspace_layout(const AttentionBackward& problem, const Device& device) {
  const Tiling t = tiling(problem);
  std::int64_t end = 0;
  const auto place = [&end](std::int64_t words) {
    const std::int64_t start = end;
    end += ceil_divide<std::int64_t>(words * 4, 256) * 256;
    return start;
  };
  WorkspaceLayout layout;
  layout.lse = place(t.sequences * padded_queries(problem));
  layout.delta = place(t.sequences * padded_queries(problem));
  layout.partials = place(t.sequences * t.query_tiles * t.panels * problem.levels);
  layout.coarse_gradients =
      place(has_second_pass(t) ? slot_count(t, device) * t.query_tiles * (coarse_gradients_bytes / 4) : 0);
  layout.deep_sums = place(t.deep ? slot_count(t, device) * t.query_tiles * deep_tile_size : 0);
  layout.query_sums = place(t.sequences * t.query_tiles * t.panels * query_sums_size(t.columns, t.coarse, t.deep));
  layout.zeros = layout.query_sums;
  layout.semaphores = place(device.deterministic ? t.sequences * t.query_tiles * semaphores_per_query_tile : 0);
  layout.slots_taken = place(slot_count(t, device));
  layout.deep_semaphores =
      place(t.deep && device.deterministic ? t.sequences * (t.query_tiles / 2) * deep_semaphores_per_unit : 0);
  layout.end = end;
  return layout;
}

// Those rows of an array, in boxes of so many.
CUtensorMap part_map(const AttentionBackward& problem, Array array, const RemainderRows& part, std::int64_t heads,
                     int box_rows, int step) {
  array.data = static_cast<std::uint16_t*>(array.data) + part.row * array.row_stride;
  return tensor_map(problem.element, array, problem.width, part.count, heads, problem.batch, tiling(problem).columns,
                    box_rows, step);
}

// Keys of a level whose position has the remainder. If there are none, others are as good: whatever is loaded for positions
// after the last one is multiplied by probabilities of 0.
CUtensorMap key_map(const AttentionBackward& problem, const Array& array, int level, int box_rows, int step,
                    int remainder) {
  const RemainderRows part = remainder_rows(0, level_rows(problem.length, level), step, remainder);
  return part_map(problem, array, part, problem.key_heads, box_rows, step);
}

// Queries of a level, or gradients of the output, and the map's shift: numbers are counted from the first tile of queries.
CUtensorMap query_map(const AttentionBackward& problem, const Array& array, int level, int step, int remainder,
                      int& shift) {
  const std::int64_t first = (problem.start >> level) - (first_tile_row(problem) >> level);
  const RemainderRows part = remainder_rows(first, query_rows(problem.start, problem.queries, level), step, remainder);
  shift = part.shift;
  return part_map(problem, array, part, problem.heads, 16, step);
}

void make_maps(const AttentionBackward& problem, BackwardParameters& p) {
  for (int x = 0; x < 4; ++x) {
    p.q0[x] = query_map(problem, problem.q[0], 0, 4, x, p.shift0[x]);
    p.grad_out[x] = query_map(problem, problem.grad_out, 0, 4, x, p.shift0[x]);
    p.k0[x] = key_map(problem, problem.k[0], 0, 8, 4, x);
    p.v[x] = key_map(problem, problem.v, 0, 8, 4, x);
  }
  if (problem.levels == 1) return;
  for (int x = 0; x < 2; ++x) {
    p.q1[x] = query_map(problem, problem.q[1], 1, 2, x, p.shift1[x]);
    p.k1[x] = key_map(problem, problem.k[1], 1, 8, 2, x);
  }
  const int last = std::min(problem.levels - 1, 2);  // if that is not 2, its maps are only read outside of the array
  p.q2 = query_map(problem, problem.q[last], last, 1, 0, p.shift2);
  p.k2 = key_map(problem, problem.k[last], last, 32, 1, 0);
}

template <class T, bool coarse, bool deep>
void launch_backward(const BackwardParameters& parameters, const Device& device) {
  if (parameters.width <= 32)
    launch_backward_narrow<T, 32, coarse, deep>(parameters, device);
  else if (parameters.width <= 64)
    launch_backward_narrow<T, 64, coarse, deep>(parameters, device);
  else
    launch_backward_wide<T, coarse, deep>(parameters, device);
}

template <class T>
void launch_backward(const BackwardParameters& parameters, const Device& device) {
  if (parameters.levels > 3)
    launch_backward<T, true, true>(parameters, device);
  else if (parameters.levels > 1)
    launch_backward<T, true, false>(parameters, device);
  else
    launch_backward<T, false, false>(parameters, device);
}

// The order of CTAs: see head_groups.h and semaphore_order.
void order_ctas(BackwardParameters& p, const AttentionBackward& problem, const Device& device, const Tiling& t) {
  p.last_first = device.deterministic && problem.causal;
  p.rotate = !device.deterministic && !problem.causal;
  const HeadGroups groups = p.last_first           ? HeadGroups{1, static_cast<int>(t.sequences)}
                            : device.deterministic ? ordered_head_groups(problem, 16, device.sm_count)
                                                   : head_groups(problem, t.key_tiles, device.sm_count);
  p.group = groups.size;
  p.groups = groups.count;
}

BackwardParameters make_parameters(const AttentionBackward& problem, const Device& device, const Tiling& t,
                                   const WorkspaceLayout& layout, char* memory) {
  BackwardParameters p = {};
  make_maps(problem, p);
  p.lse = reinterpret_cast<const float*>(memory + layout.lse);
  p.delta = reinterpret_cast<const float*>(memory + layout.delta);
  p.query_sums = reinterpret_cast<float*>(memory + layout.query_sums);
  p.coarse_gradients = reinterpret_cast<std::uint8_t*>(memory + layout.coarse_gradients);
  p.semaphores = device.deterministic ? reinterpret_cast<int*>(memory + layout.semaphores) : nullptr;
  p.deep_sums = reinterpret_cast<float*>(memory + layout.deep_sums);
  p.slots_taken = reinterpret_cast<int*>(memory + layout.slots_taken);
  p.deep_semaphores = reinterpret_cast<int*>(memory + layout.deep_semaphores);
  p.slots = static_cast<int>(slot_count(t, device));
  p.weights = static_cast<const float*>(problem.weights);
  p.lengths = problem.lengths;
  for (int level = 0; level < problem.levels; ++level) p.grad_k[level] = problem.grad_k[level];
  for (int level = 3; level < problem.levels; ++level) {
    p.deep_q[level - 3] = problem.q[level];
    p.deep_k[level - 3] = problem.k[level];
  }
  p.grad_v = problem.grad_v;
  p.scale = static_cast<float>(problem.scale);
  p.batch = static_cast<int>(problem.batch);
  p.heads = static_cast<int>(problem.heads);
  p.heads_per_key_head = static_cast<int>(problem.heads / problem.key_heads);
  p.length = static_cast<int>(problem.length);
  p.start = static_cast<int>(problem.start);
  p.end = static_cast<int>(problem.start + problem.queries);
  p.first_row = static_cast<int>(first_tile_row(problem));
  p.width = problem.width;
  p.levels = problem.levels;
  p.query_tiles = static_cast<int>(t.query_tiles);
  p.key_tiles = static_cast<int>(t.key_tiles);
  p.causal = problem.causal;
  order_ctas(p, problem, device, t);
  return p;
}

bool can_map_all(const AttentionBackward& problem) {
  const auto can = [&](const Array& array) { return can_map(problem.element, array); };
  bool all = can(problem.v) && can(problem.out) && can(problem.grad_out) && can(problem.grad_v);
  for (int level = 0; level < problem.levels; ++level)
    all = all && can(problem.q[level]) && can(problem.k[level]) && can(problem.grad_q[level]) &&
          can(problem.grad_k[level]);
  return all;
}

}  // namespace

bool can_run(const AttentionBackward& problem, const Device& device) {
  if (device.capability != 90 || (problem.element != Element::bfloat16 && problem.element != Element::float16))
    return false;
  if (problem.levels < 1 || problem.levels > max_levels) return false;
  if (problem.width != problem.value_width) return false;
  if (problem.width < 8 || problem.width > 128 || problem.width % 8 != 0) return false;
  if (problem.batch < 1 || problem.heads < 1 || problem.queries < 1 || problem.length > 1 << 29) return false;
  if (problem.batch > largest_count || problem.heads > largest_count) return false;
  const Tiling t = tiling(problem);
  return t.sequences <= largest_count / std::max(t.query_tiles * t.panels, t.key_tiles) && can_map_all(problem);
}

std::int64_t workspace_bytes(const AttentionBackward& problem, const Device& device) {
  return workspace_layout(problem, device).end;
}

void backward(const AttentionBackward& problem, const Device& device, void* workspace) {
  const Tiling t = tiling(problem);
  const WorkspaceLayout layout = workspace_layout(problem, device);
  char* const memory = static_cast<char*>(workspace);
  const BackwardParameters p = make_parameters(problem, device, t, layout, memory);
  backward_preprocess(problem, device, reinterpret_cast<float*>(memory + layout.lse),
                      reinterpret_cast<float*>(memory + layout.delta));
  check(cudaMemsetAsync(memory + layout.zeros, 0, static_cast<std::size_t>(layout.end - layout.zeros),
                        static_cast<cudaStream_t>(device.stream)),
        "clearing the workspace");
  if (problem.element == Element::bfloat16)
    launch_backward<bfloat16>(p, device);
  else
    launch_backward<float16>(p, device);

  float* const partials = reinterpret_cast<float*>(memory + layout.partials);
  finish_queries(problem, device, {p.query_sums, t.columns, t.panels, p.query_tiles}, partials);
  sum_weight_gradient(problem, device, partials, static_cast<int>(t.query_tiles * t.panels));
}

}  // namespace hkt::kernels::cuda::sm90
