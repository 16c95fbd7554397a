// SPDX-License-Identifier: Apache-2.0
// HKT attention on CUDA: which family of kernels takes a problem.
#include "kernels/attention.h"

#include "families.h"

namespace hkt::kernels::cuda {

std::string_view built_for() { return "8.0 (Ampere), 9.0 (Hopper) and later ones"; }

std::int64_t workspace_bytes(const AttentionForward& problem, const Device& device) {
  return sm90::can_run_forward(problem, device) ? sm90::workspace_bytes(problem, device) : 0;
}

std::int64_t workspace_bytes(const AttentionBackward& problem, const Device& device) {
  if (sm90::can_run_backward(problem, device)) return sm90::workspace_bytes(problem, device);
  if (sm80::can_run(problem, device)) return sm80::workspace_bytes(problem, device);
  return plain::workspace_bytes(problem);
}

void attention_forward(const AttentionForward& problem, const Device& device, void* workspace) {
  if (sm90::can_run_forward(problem, device)) return sm90::forward(problem, device, workspace);
  if (sm80::can_run(problem, device)) return sm80::forward(problem, device);
  plain::forward(problem, device);
}

void attention_backward(const AttentionBackward& problem, const Device& device, void* workspace) {
  if (sm90::can_run_backward(problem, device)) return sm90::backward(problem, device, workspace);
  if (sm80::can_run(problem, device)) return sm80::backward(problem, device, workspace);
  plain::backward(problem, device, workspace);
}

}  // namespace hkt::kernels::cuda
