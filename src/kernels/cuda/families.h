// SPDX-License-Identifier: Apache-2.0
// The families of CUDA kernels, and which problems each can take. attention.cpp chooses among them.
#pragma once

#include "kernels/attention.h"

namespace hkt::kernels::cuda {

// Any element type, shape and stride, in the arithmetic of the elements (float32 for the small types).
namespace plain {
std::int64_t workspace_bytes(const AttentionBackward& problem);
void forward(const AttentionForward& problem, const Device& device);
void backward(const AttentionBackward& problem, const Device& device, void* workspace);
}  // namespace plain

// fp16 and bf16 on tensor cores, Ampere and later: aligned rows, widths that are multiples of 8 up to 128, as shared memory allows.
namespace sm80 {
bool can_run(const AttentionForward& problem, const Device& device);
bool can_run(const AttentionBackward& problem, const Device& device);
std::int64_t workspace_bytes(const AttentionBackward& problem, const Device& device);
void forward(const AttentionForward& problem, const Device& device);
void backward(const AttentionBackward& problem, const Device& device, void* workspace);
}  // namespace sm80

// bf16 and fp16 on Hopper: equal widths up to 128, addresses and strides that its copy engine can take.
namespace sm90 {
bool can_run_forward(const AttentionForward& problem, const Device& device);
std::int64_t workspace_bytes(const AttentionForward& problem, const Device& device);
void forward(const AttentionForward& problem, const Device& device, void* workspace);
bool can_run_backward(const AttentionBackward& problem, const Device& device);
std::int64_t workspace_bytes(const AttentionBackward& problem, const Device& device);
void backward(const AttentionBackward& problem, const Device& device, void* workspace);
}  // namespace sm90

}  // namespace hkt::kernels::cuda
