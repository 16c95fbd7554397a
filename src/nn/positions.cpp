// Sinusoids and rotations: the same angles, once as numbers to add and once as complex factors.
#include "positions.h"

#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>

#include <algorithm>
#include <vector>

namespace hkt::positions {
namespace {

constexpr double base = 10000;

// [length, ceil(width / 2)], in float64: at position 10⁵ float32 would know an angle to two digits.
at::Tensor angles(int64_t length, int64_t width, const at::Device& device) {
  const auto options = at::TensorOptions(at::kDouble).device(device);
  const auto exponents = at::arange(0, width, 2, options) / static_cast<double>(width);
  return at::arange(length, options).unsqueeze(1) * at::pow(base, -exponents);
}

// The cached table, or a new one. Never an inference tensor, because training may come after evaluation.
template <typename Make>
const at::Tensor& table(at::Tensor& cache, int64_t length, at::ScalarType type, const at::Device& device, Make make) {
  if (!cache.defined() || cache.size(0) < length || cache.scalar_type() != type || cache.device() != device) {
    const c10::InferenceMode normal(false);
    cache = make().to(type);
  }
  return cache;
}

}  // namespace

at::Tensor sinusoids(at::Tensor& cache, int64_t length, int64_t longest, int64_t width,
                     const at::TensorOptions& options) {
  const auto make = [&] {
    const auto angle = angles(std::max(length, longest), width, options.device());
    return at::stack({angle.sin(), angle.cos()}, 2).flatten(1).narrow(1, 0, width);
  };
  return table(cache, length, c10::typeMetaToScalarType(options.dtype()), options.device(), make).narrow(0, 0, length);
}

at::Tensor rotate(at::Tensor& cache, const at::Tensor& x, int64_t stride, int64_t longest) {
  const int64_t rows = x.size(1), width = x.size(-1);
  const int64_t length = rows == 0 ? 0 : (rows - 1) * stride + 1;
  const auto real_type = x.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  const auto make = [&] {
    const auto angle = angles(std::max(length, longest), width, x.device());
    return at::complex(angle.cos(), angle.sin());
  };
  const auto& turns = table(cache, length, c10::toComplexType(real_type), x.device(), make);

  std::vector<int64_t> shape(static_cast<std::size_t>(x.dim()), 1);
  shape[1] = rows;
  shape.back() = width / 2;
  const auto factors = turns.slice(0, 0, length, stride).view(shape);
  const auto pairs = at::view_as_complex(x.to(real_type).unflatten(-1, {width / 2, 2}));
  return at::view_as_real(pairs * factors).flatten(-2).to(x.scalar_type());
}

}  // namespace hkt::positions
