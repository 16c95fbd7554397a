// SPDX-License-Identifier: Apache-2.0
// From tensors to the kernels of decoding_rows.h. Called by the modules alone, which own the caches.
#include "ops/decoding_rows_cuda.h"

#include <ATen/ATen.h>
#include <c10/cuda/CUDAGuard.h>

#include "attention_problem.h"
#include "device_cuda.h"
#include "kernels/decoding_rows.h"

namespace hkt::ops {
namespace {

kernels::cuda::Ring ring_of(const at::Tensor& ring, std::int64_t batch) {
  TORCH_INTERNAL_ASSERT(ring.is_contiguous() && ring.size(0) % batch == 0);
  const auto places = ring.size(0) / batch;
  return {ring.data_ptr(), places - 2, places};
}

}  // namespace

at::Tensor new_rows_cuda(const at::Tensor& x_any, const at::Tensor& ends, const std::vector<at::Tensor>& rings,
                         const std::vector<at::Tensor>& filters) {
  const c10::cuda::CUDAGuard on_device(x_any.device());
  const auto x = x_any.contiguous();
  const auto levels = std::ssize(rings) + 1;
  auto rows = at::empty({x.size(0), levels, x.size(1)}, x.options());
  kernels::cuda::NewRows problem;
  problem.element = element_of(x.scalar_type());
  problem.batch = x.size(0);
  problem.levels = static_cast<int>(levels);
  problem.channels = static_cast<int>(x.size(1));
  problem.taps = static_cast<int>(filters.empty() ? 0 : filters.front().size(0));
  problem.ends = ends.const_data_ptr<std::int64_t>();
  problem.x = x.const_data_ptr();
  for (std::size_t l = 0; l < rings.size(); ++l) {
    TORCH_INTERNAL_ASSERT(filters[l].is_contiguous() && filters[l].scalar_type() == x.scalar_type());
    problem.inputs[l] = ring_of(rings[l], problem.batch);
    problem.filters[l] = filters[l].const_data_ptr();
  }
  problem.rows = rows.data_ptr();
  kernels::cuda::new_rows(problem, current_device());
  return rows;
}

at::Tensor place_rows_cuda(const at::Tensor& rows_any, const at::Tensor& values_any, const at::Tensor& ends,
                           const at::Tensor& rotations, const DecodingCaches& caches) {
  const c10::cuda::CUDAGuard on_device(rows_any.device());
  const auto rows = rows_any.contiguous(), values = values_any.contiguous();
  const auto batch = rows.size(0), levels = rows.size(1), key_heads = caches.v.size(1), width = caches.v.size(3);
  const auto heads = rows.size(2) / width - key_heads;
  auto q = at::empty({levels, batch, heads, 1, width}, rows.options());
  kernels::cuda::PlacedRows problem;
  problem.element = element_of(rows.scalar_type());
  problem.batch = batch;
  problem.levels = static_cast<int>(levels);
  problem.heads = static_cast<int>(heads);
  problem.key_heads = static_cast<int>(key_heads);
  problem.width = static_cast<int>(width);
  problem.ends = ends.const_data_ptr<std::int64_t>();
  problem.rows = rows.const_data_ptr();
  problem.values = values.const_data_ptr();
  if (rotations.defined()) {
    TORCH_INTERNAL_ASSERT(rotations.is_contiguous() && rotations.size(1) == width / 2);
    problem.rotations = rotations.const_data_ptr();
  }
  for (std::size_t l = 0; l < caches.k.size(); ++l) {
    TORCH_INTERNAL_ASSERT(caches.k[l].is_contiguous());
    problem.k[l] = caches.k[l].data_ptr();
    problem.k_rows[l] = caches.k[l].size(2);
    if (l > 0) problem.queries[l] = ring_of(caches.queries[l - 1], batch);
  }
  problem.v = caches.v.data_ptr();
  problem.q = q.data_ptr();
  kernels::cuda::place_rows(problem, current_device());
  return q;
}

}  // namespace hkt::ops
