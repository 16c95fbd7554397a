// SPDX-License-Identifier: Apache-2.0
// Sinusoidal and rotary positions: the same angles, as sines and cosines to add and as complex factors to multiply with.
#include "positions.h"

#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>

#include <vector>

#ifdef HKT_WITH_CUDA
#include "ops/rotary_cuda.h"
#endif

namespace hkt::positions {
namespace {

constexpr double base = 10000;

// [length, ceil(width / 2)], in float64: at position 10⁵ a float32 angle has two correct decimals.
at::Tensor angles(int64_t length, int64_t width, const at::Device& device) {
  const auto options = at::TensorOptions(at::kDouble).device(device);
  const auto exponents = at::arange(0, width, 2, options) / static_cast<double>(width);
  return at::arange(length, options).unsqueeze(1) * at::pow(base, -exponents);
}

// The newest tensor of the table with at least `length` rows, this type and this device, or a new one computed by `make`.
// Never an inference tensor, because training may follow evaluation.
template <typename Make>
at::Tensor rows_of(Table& table, int64_t length, at::ScalarType type, const at::Device& device, Make make) {
  const std::lock_guard lock(table.mutex);
  for (auto version = table.versions.rbegin(); version != table.versions.rend(); ++version) {
    if (version->size(0) >= length && version->scalar_type() == type && version->device() == device) return *version;
  }
  constexpr int64_t least = 256;
  int64_t rows = least;
  while (rows < length) rows *= 2;
  const c10::InferenceMode normal(false);
  return table.versions.emplace_back(make(rows).to(type));
}

}  // namespace

at::Tensor sinusoids(Table& table, int64_t length, int64_t width, const at::TensorOptions& options) {
  const auto make = [&](int64_t rows) {
    const auto angle = angles(rows, width, options.device());
    return at::stack({angle.sin(), angle.cos()}, 2).flatten(1).narrow(1, 0, width);
  };
  return rows_of(table, length, c10::typeMetaToScalarType(options.dtype()), options.device(), make)
      .narrow(0, 0, length);
}

namespace {

at::ScalarType real_type_of(at::ScalarType type) { return type == at::kDouble ? at::kDouble : at::kFloat; }

at::Tensor factors(Table& table, int64_t length, int64_t width, at::ScalarType type, const at::Device& device) {
  const auto make = [&](int64_t rows) {
    const auto angle = angles(rows, width, device);
    return at::complex(angle.cos(), angle.sin());
  };
  return rows_of(table, length, c10::toComplexType(real_type_of(type)), device, make);
}

}  // namespace

at::Tensor rotated(const at::Tensor& x, const at::Tensor& rotations) {
  const int64_t width = x.size(-1);
  const auto pairs = at::view_as_complex(x.to(real_type_of(x.scalar_type())).unflatten(-1, {width / 2, 2}));
  return at::view_as_real(pairs * rotations).flatten(-2).to(x.scalar_type());
}

std::vector<at::Tensor> rotate(Table& table, const at::Tensor& x, int64_t stride, at::IntArrayRef parts) {
  const int64_t rows = x.size(1), width = x.size(-1);
  const int64_t length = rows == 0 ? 0 : (rows - 1) * stride + 1;
  const auto own = factors(table, length, width, x.scalar_type(), x.device()).slice(0, 0, length, stride);
#ifdef HKT_WITH_CUDA
  if (ops::rotary_cuda_takes(x)) return ops::rotary_cuda(x, own, parts);
#endif
  auto cut = rotated(x, own.unsqueeze(1)).split_with_sizes(parts, 2);
  for (auto& part : cut) part = part.transpose(1, 2);
  return cut;
}

at::Tensor all_rotations(Table& table, int64_t end, int64_t width, at::ScalarType type, const at::Device& device) {
  return factors(table, end, width, type, device);
}

at::Tensor rotations(Table& table, const at::Tensor& position, int64_t end, int64_t width, at::ScalarType type) {
  return factors(table, end, width, type, position.device()).index_select(0, position).unsqueeze(1);
}

}  // namespace hkt::positions
