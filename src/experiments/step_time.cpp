// SPDX-License-Identifier: Apache-2.0
// Timing training steps interleaved, so that a noisy machine disturbs all models alike.
#include "experiments/step_time.h"

#include <torch/cuda.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <memory>

#include "data/batches.h"
#include "data/windows.h"
#include "train/learner.h"

namespace hkt::experiments {
namespace {

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// On a GPU the mean of several repeats: a single one is over before the clocks have settled.
double seconds_of(at::Device device, const std::function<void()>& work) {
  const int repeats = device.is_cuda() ? 8 : 1;
  using Clock = std::chrono::steady_clock;
  const auto wait = [&] {
    if (device.is_cuda()) torch::cuda::synchronize(device.index());
  };
  wait();
  const auto begin = Clock::now();
  for (int i = 0; i < repeats; ++i) work();
  wait();
  return std::chrono::duration<double>(Clock::now() - begin).count() / repeats;
}

struct Timings {
  std::vector<double> step, attention;
};

double median_ratio(const std::vector<double>& own, const std::vector<double>& first) {
  std::vector<double> ratios;
  for (std::size_t i = 0; i < own.size(); ++i) ratios.push_back(own[i] / first[i]);
  return median(ratios);
}

struct Batches {
  std::function<data::Batch(std::size_t)> at;  // the batch of a step
  std::size_t timed;
};

Batches batches_of(const TaskData& data, const Config& config) {
  if (const auto* streams = std::get_if<data::Streams>(&data)) {
    constexpr std::size_t alike = 10;
    return {[=](std::size_t step) {
              return data::make_windows(streams->train, config.model.max_length, config.train.batch, 0,
                                        static_cast<std::int64_t>(step));
            },
            alike};
  }
  constexpr std::size_t of_different_lengths = 30;
  const auto& split = std::get<data::Dataset>(data).train;
  const auto shape = train::batch_shape(config);
  return {[&split, shape, order = data::training_order(split, shape, 0, 0)](std::size_t step) {
            return data::make_batch(split, order[step % order.size()], shape);
          },
          of_different_lengths};
}

// Batches differ in length, and the medians of two models may be of different batches: seconds follow from the ratio.
std::vector<StepTime> summarised(const std::vector<Timings>& timings) {
  const auto& base = timings.front();
  const double step = median(base.step), attention = median(base.attention);
  std::vector<StepTime> result;
  for (const auto& own : timings) {
    const double ratio = median_ratio(own.step, base.step);
    const double attention_ratio = median_ratio(own.attention, base.attention);
    result.push_back({ratio, step * ratio, attention_ratio, attention * attention_ratio});
  }
  return result;
}

}  // namespace

std::vector<StepTime> step_times(const std::vector<Config>& configs, const TaskData& data, at::Device device) {
  const auto batches = batches_of(data, configs.front());
  std::vector<std::unique_ptr<train::Learner>> learners;
  for (const auto& config : configs) learners.push_back(std::make_unique<train::Learner>(config, device));
  std::vector<Timings> timings(configs.size());
  constexpr std::size_t warm_up = 2;
  for (std::size_t number = 0; number < warm_up + batches.timed; ++number) {
    const auto batch = batches.at(number);
    // The order is rotated with each batch, because the first model finds the device cold.
    for (std::size_t place = 0; place < configs.size(); ++place) {
      const auto model = (place + number) % configs.size();
      auto& learner = *learners[model];
      // On a GPU the second step of a shape is captured as a graph; only replays are timed, as they dominate training.
      for (int before = 0; before < (device.is_cuda() ? 2 : 0); ++before) learner.step(batch, 0);
      const double step = seconds_of(device, [&] { learner.step(batch, 0); });
      const double attention = seconds_of(device, learner.attention_step(batch));
      if (number < warm_up) continue;
      timings[model].step.push_back(step);
      timings[model].attention.push_back(attention);
    }
  }
  return summarised(timings);
}

}  // namespace hkt::experiments
