// Timing training steps by turns, so that a noisy machine disturbs all models alike.
#include "step_time.h"

#include <torch/cuda.h>

#include <algorithm>
#include <chrono>
#include <memory>

#include "data/batches.h"
#include "learner.h"

namespace hkt::train {
namespace {

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

double timed_step(Learner& learner, const data::Batch& batch, at::Device device) {
  using Clock = std::chrono::steady_clock;
  const auto begin = Clock::now();
  learner.step(batch, 0);
  if (device.is_cuda()) torch::cuda::synchronize();
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

}  // namespace

std::vector<StepTime> step_times(const std::vector<Config>& configs, const data::Split& split, at::Device device,
                                 int batches) {
  const auto& first = configs.front();
  const data::Shape shape{first.train.batch, first.model.max_length, first.train.padding};
  const auto order = data::training_order(split, shape, 0, 0);
  std::vector<std::unique_ptr<Learner>> learners;
  for (const auto& config : configs) learners.push_back(std::make_unique<Learner>(config, device));
  std::vector<std::vector<double>> seconds(configs.size());
  constexpr int warm_up = 2;
  for (int i = -warm_up; i < batches; ++i) {
    const auto& sequences = order[static_cast<std::size_t>(i + warm_up) % order.size()];
    const auto batch = data::make_batch(split, sequences, shape);
    for (std::size_t model = 0; model < configs.size(); ++model) {
      const double time = timed_step(*learners[model], batch, device);
      if (i >= 0) seconds[model].push_back(time);
    }
  }
  std::vector<StepTime> result;
  for (const auto& own : seconds) {
    std::vector<double> ratios;
    for (std::size_t i = 0; i < own.size(); ++i) ratios.push_back(own[i] / seconds.front()[i]);
    result.push_back({median(own), median(ratios)});
  }
  return result;
}

}  // namespace hkt::train
