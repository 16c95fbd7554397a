// SPDX-License-Identifier: Apache-2.0
// Counting a model's operations, and measuring the machine's.
#include "train/throughput.h"

#include <ATen/ATen.h>
#include <torch/cuda.h>

#include <algorithm>
#include <chrono>

#include "train/learner.h"

namespace hkt::train {
namespace {

double seconds_of_product(const at::Tensor& a, const at::Tensor& b, at::Device device) {
  const auto wait = [&] {
    if (device.is_cuda()) torch::cuda::synchronize();
  };
  auto out = at::mm(a, b);
  wait();
  const auto begin = std::chrono::steady_clock::now();
  at::mm_out(out, a, b);
  wait();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

double measured_peak(at::Device device, at::ScalarType type) {
  const std::int64_t size = device.is_cuda() ? 8192 : 768;
  const auto options = at::TensorOptions(device).dtype(type);
  // No random numbers, on whose generator the training depends.
  const auto a = at::full({size, size}, 0.5, options),
             b = at::arange(size * size, options.dtype(at::kFloat)).remainder_(17).div_(17).to(type).view({size, size});
  double best = seconds_of_product(a, b, device);
  constexpr int rounds = 4;
  for (int i = 0; i < rounds; ++i) best = std::min(best, seconds_of_product(b, a, device));
  return 2 * static_cast<double>(size * size * size) / best;
}

}  // namespace

double training_operations_per_token(const ModelConfig& model) {
  const auto width = static_cast<double>(model.width), length = static_cast<double>(model.max_length);
  const auto key_width = static_cast<double>(model.key_head_count() * model.head_width());
  double rows = 1, scores = 1;  // of all levels, relative to level 0
  for (std::int64_t level = 1; level < model.levels; ++level) {
    const double share = 1 / static_cast<double>(std::int64_t{1} << level);
    if (model.filter_on == FilterOn::input) rows += share;
    scores += share * share;
  }
  const double filters = model.filter == Filter::dense && model.levels > 1
                             ? width * width * static_cast<double>(model.kernel_size) * (rows - 1)
                             : 0;
  const double projections = rows * width * (width + key_width) + width * key_width + width * width + filters;
  const double feedforward = 2 * width * static_cast<double>(model.feedforward);
  const double attention = length / 2 * width * (scores + 1);
  const double head = width * static_cast<double>(model.vocab);
  constexpr double forward_and_backward = 3, operations = 2;
  return forward_and_backward * operations *
         (static_cast<double>(model.blocks) * (projections + feedforward + attention) + head);
}

Throughput::Throughput(const Config& config, at::Device device)
    : operations_per_token_(training_operations_per_token(config.model)),
      peak_(measured_peak(device, uses_bfloat16(config, device) ? at::kBFloat16 : at::kFloat)) {}

double Throughput::utilisation(double tokens_per_second) const {
  return peak_ > 0 ? operations_per_token_ * tokens_per_second / peak_ : 0;
}

}  // namespace hkt::train
