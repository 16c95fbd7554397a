// SPDX-License-Identifier: Apache-2.0
// AdamW with torch's fused kernels.
#include "train/optimizer.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numbers>
#include <stdexcept>

namespace hkt::train {
namespace {

constexpr double beta1 = 0.9, epsilon = 1e-8;

bool is_matrix(const std::string& name, const at::Tensor& parameter) {
  return parameter.dim() >= 2 && !name.ends_with("alpha");
}

}  // namespace

double learning_rate(const TrainConfig& config, std::int64_t step, std::int64_t steps) {
  const double warm = std::max(1.0, std::ceil(config.warmup * static_cast<double>(steps)));
  const double now = static_cast<double>(step) + 1;
  if (now <= warm) return config.learning_rate * now / warm;
  const double share = std::min(1.0, (now - warm) / std::max(1.0, static_cast<double>(steps) - warm));
  const double cosine = 0.5 * (1 + std::cos(std::numbers::pi * share));
  return config.learning_rate * (config.final_rate + (1 - config.final_rate) * cosine);
}

Optimizer::Optimizer(const torch::nn::Module& module, const TrainConfig& config) : config_(config) {
  matrices_.weight_decay = config.weight_decay;
  const auto device = module.parameters().front().device();
  learning_rate_ = at::zeros({}, at::TensorOptions(device).dtype(device.is_cpu() ? at::kDouble : at::kFloat));
  for (const auto& parameter : module.named_parameters()) {
    if (!parameter.value().requires_grad()) continue;
    add(is_matrix(parameter.key(), parameter.value()) ? matrices_ : others_, parameter.key(), parameter.value());
  }
}

void Optimizer::add(Group& group, const std::string& name, const at::Tensor& parameter) {
  group.names.push_back(name);
  group.parameters.push_back(parameter);
  group.means.push_back(at::zeros_like(parameter));
  group.squares.push_back(at::zeros_like(parameter));
  group.steps.push_back(at::zeros({}, parameter.options().dtype(at::kFloat)));
}

void Optimizer::set_learning_rate(double rate) { learning_rate_.fill_(rate); }

at::Tensor Optimizer::step() {
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> gradients;
  for (const auto* group : {&matrices_, &others_}) {
    for (const auto& parameter : group->parameters) {
      gradients.push_back(parameter.grad().defined() ? parameter.grad() : at::zeros_like(parameter));
    }
  }
  const auto norm = at::linalg_vector_norm(at::stack(at::_foreach_norm(gradients)), 2);
  if (config_.gradient_norm > 0) {
    constexpr double tiny = 1e-6;
    at::_foreach_mul_(gradients, (config_.gradient_norm / (norm + tiny)).clamp_max_(1));
  }
  auto next = gradients.begin();
  for (auto* group : {&matrices_, &others_}) {
    if (group->parameters.empty()) continue;
    const std::vector<at::Tensor> own(next, next + static_cast<std::ptrdiff_t>(group->parameters.size()));
    next += static_cast<std::ptrdiff_t>(group->parameters.size());
    at::_foreach_add_(group->steps, 1);
    at::_fused_adamw_(group->parameters, own, group->means, group->squares, {}, group->steps, learning_rate_, beta1,
                      config_.beta2, group->weight_decay, epsilon, false, false);
    for (auto& parameter : group->parameters) parameter.mutable_grad().reset();
  }
  return norm;
}

NamedTensors Optimizer::state() const {
  NamedTensors tensors;
  for (const auto* group : {&matrices_, &others_}) {
    for (std::size_t i = 0; i < group->names.size(); ++i) {
      tensors.emplace_back("mean." + group->names[i], group->means[i]);
      tensors.emplace_back("square." + group->names[i], group->squares[i]);
      tensors.emplace_back("steps." + group->names[i], group->steps[i]);
    }
  }
  return tensors;
}

void Optimizer::restore(const NamedTensors& state) {
  const std::map<std::string, at::Tensor> stored(state.begin(), state.end());
  for (const auto& [name, tensor] : this->state()) {
    const auto found = stored.find(name);
    if (found == stored.end() || found->second.sizes() != tensor.sizes()) {
      throw std::runtime_error("the optimiser state \"" + name + "\" is missing or has another shape.");
    }
    at::Tensor(tensor).copy_(found->second);
  }
}

}  // namespace hkt::train
