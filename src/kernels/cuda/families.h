// SPDX-License-Identifier: Apache-2.0
// The families of CUDA kernels. attention.cpp plans with can_run and workspace_bytes and launches with forward, backward and
// extend. decode extends only; plain takes every problem and is not asked.
#pragma once

#include "kernels/attention.h"

namespace hkt::kernels::cuda {

// fp16 and bf16 on Hopper (wgmma, TMA): equal widths, multiples of 8 up to 128; addresses and strides that TMA takes.
namespace sm90 {
bool can_run(const AttentionForward& problem, const Device& device);
bool can_run(const AttentionBackward& problem, const Device& device);
std::int64_t workspace_bytes(const AttentionForward& problem, const Device& device);
std::int64_t workspace_bytes(const AttentionBackward& problem, const Device& device);
void forward(const AttentionForward& problem, const Device& device, void* workspace);
void backward(const AttentionBackward& problem, const Device& device, void* workspace);
// Many queries against caches; no kept coarse scores.
bool can_run(const AttentionExtend& problem, const Device& device);
std::int64_t workspace_bytes(const AttentionExtend& problem, const Device& device);
void extend(const AttentionExtend& problem, const Device& device, void* workspace);
}  // namespace sm90

// fp16 and bf16 on Ampere and later (mma.sync): widths that are multiples of 8, aligned rows, as far as a tile fits in
// shared memory.
namespace sm80 {
bool can_run(const AttentionForward& problem, const Device& device);
bool can_run(const AttentionBackward& problem, const Device& device);
std::int64_t workspace_bytes(const AttentionForward& problem, const Device& device);
std::int64_t workspace_bytes(const AttentionBackward& problem, const Device& device);
void forward(const AttentionForward& problem, const Device& device, void* workspace);
void backward(const AttentionBackward& problem, const Device& device, void* workspace);
// Many queries against caches; no kept coarse scores.
bool can_run(const AttentionExtend& problem, const Device& device);
std::int64_t workspace_bytes(const AttentionExtend& problem, const Device& device);
void extend(const AttentionExtend& problem, const Device& device, void* workspace);
}  // namespace sm80

// Cached keys: fp16 and bf16 on Ampere and later (mma.sync), widths that are multiples of 8, aligned rows.
namespace decode {
bool can_run(const AttentionExtend& problem, const Device& device);
std::int64_t workspace_bytes(const AttentionExtend& problem, const Device& device);
void extend(const AttentionExtend& problem, const Device& device, void* workspace);
}  // namespace decode

// Every problem, without tensor cores, in the arithmetic of the elements (float32 for fp16 and bf16).
namespace plain {
std::int64_t workspace_bytes(const AttentionForward& problem, const Device& device);
std::int64_t workspace_bytes(const AttentionBackward& problem, const Device& device);
std::int64_t workspace_bytes(const AttentionExtend& problem, const Device& device);
void forward(const AttentionForward& problem, const Device& device, void* workspace);
void backward(const AttentionBackward& problem, const Device& device, void* workspace);
void extend(const AttentionExtend& problem, const Device& device, void* workspace);
}  // namespace plain

}  // namespace hkt::kernels::cuda
