// SPDX-License-Identifier: Apache-2.0
// HKT attention on CUDA: the plan, which family of kernels takes a problem, and its launch.
#include "kernels/attention.h"

#include <stdexcept>

#include "families.h"

namespace hkt::kernels::cuda {
namespace {

constexpr const char* unknown_family = "hkt: no such family of CUDA kernels for this pass";

// Whether queries of a sequence are so many that tiles of them are better than splitting the keys. With many sequences tiles
// lead from about 20 rows of a key head on, with a single long one from hundreds; but bits must not depend on their number.
bool has_many_queries(const AttentionExtend& problem) {
  return problem.queries >= 16 && problem.queries * (problem.heads / problem.key_heads) >= 64;
}

template <class Problem>
Plan first_that_can_run(const Problem& problem, const Device& device) {
  if (sm90::can_run(problem, device)) return {Family::sm90, sm90::workspace_bytes(problem, device)};
  if (sm80::can_run(problem, device)) return {Family::sm80, sm80::workspace_bytes(problem, device)};
  return {Family::plain, plain::workspace_bytes(problem, device)};  // which takes every problem
}

}  // namespace

std::string_view built_for() { return "8.0 (Ampere), 9.0 (Hopper) and later ones"; }

Plan plan(const AttentionForward& problem, const Device& device) { return first_that_can_run(problem, device); }
Plan plan(const AttentionBackward& problem, const Device& device) { return first_that_can_run(problem, device); }
Plan plan(const AttentionExtend& problem, const Device& device) {
  if (has_many_queries(problem)) {
    if (sm90::can_run(problem, device)) return {Family::sm90, sm90::workspace_bytes(problem, device)};
    if (sm80::can_run(problem, device)) return {Family::sm80, sm80::workspace_bytes(problem, device)};
  }
  if (decode::can_run(problem, device)) return {Family::decode, decode::workspace_bytes(problem, device)};
  return {Family::plain, plain::workspace_bytes(problem, device)};
}

void attention_forward(const AttentionForward& problem, const Device& device, const Plan& plan, void* workspace) {
  switch (plan.family) {
    case Family::sm90:
      return sm90::forward(problem, device, workspace);
    case Family::sm80:
      return sm80::forward(problem, device, workspace);
    case Family::plain:
      return plain::forward(problem, device, workspace);
    case Family::decode:
      break;
  }
  throw std::runtime_error(unknown_family);
}

void attention_backward(const AttentionBackward& problem, const Device& device, const Plan& plan, void* workspace) {
  switch (plan.family) {
    case Family::sm90:
      return sm90::backward(problem, device, workspace);
    case Family::sm80:
      return sm80::backward(problem, device, workspace);
    case Family::plain:
      return plain::backward(problem, device, workspace);
    case Family::decode:
      break;
  }
  throw std::runtime_error(unknown_family);
}

void attention_extend(const AttentionExtend& problem, const Device& device, const Plan& plan, void* workspace) {
  switch (plan.family) {
    case Family::decode:
      return decode::extend(problem, device, workspace);
    case Family::plain:
      return plain::extend(problem, device, workspace);
    case Family::sm90:
      return sm90::extend(problem, device, workspace);
    case Family::sm80:
      return sm80::extend(problem, device, workspace);
  }
  throw std::runtime_error(unknown_family);
}

}  // namespace hkt::kernels::cuda
