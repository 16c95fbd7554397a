// SPDX-License-Identifier: Apache-2.0
// The language model whole, 12 blocks of width 512: its training step on a GPU, and generating one token after another.
#include <ATen/ATen.h>
#include <torch/cuda.h>
#include <torch/utils.h>

#include "graph.h"
#include "harness.h"
#include "hkt/decoding.h"
#include "language_config.h"
#include "train/learner.h"

namespace hkt::bench {
namespace {

// What the preset `lm` makes of this size.
Config large_model(std::int64_t levels, std::int64_t length) {
  return language_config({.heads = 8, .width = 512, .blocks = 12, .feedforward = 2048}, levels, length);
}

std::string name_of(std::int64_t levels) {
  return levels == 1 ? "standard, L = 1" : "HKT, L = " + std::to_string(levels);
}

// One model and a state that has read `prompt` tokens.
class Generation {
 public:
  Generation(std::int64_t levels, std::int64_t prompt, std::int64_t capacity, const at::TensorOptions& options)
      : model_(large_model(levels, capacity).model), token_(at::full({1}, 'a', options.dtype(at::kLong))) {
    model_->to(options.device(), options.dtype().toScalarType());
    model_->eval();
    state_ = std::make_unique<DecodingState>(model_, 1, capacity);
    state_->prefill(at::randint(1, 256, {1, prompt}, options.dtype(at::kLong)));
  }
  void step(std::int64_t count) {
    for (std::int64_t i = 0; i < count; ++i) state_->step(token_);
  }

 private:
  LanguageModel model_;
  at::Tensor token_;
  std::unique_ptr<DecodingState> state_;
};

Table generation_table(const std::string& title, const at::TensorOptions& options, std::int64_t prompt, int rounds) {
  constexpr std::int64_t period = 16;  // of the work of five levels
  Table table(title, {"after tokens", "model", "ms a token", "tokens/s", "to L = 1"});
  std::vector<std::unique_ptr<Generation>> generations;
  std::vector<Candidate> candidates;
  for (const std::int64_t levels : {1, 3, 5}) {
    generations.push_back(std::make_unique<Generation>(levels, prompt, 2 * prompt, options));
    candidates.push_back({name_of(levels), [&own = *generations.back()] { own.step(period); }});
  }
  const Timings timings(candidates, rounds, [&] { wait_for(options.device()); });
  for (const auto& candidate : candidates) {
    const double seconds = timings.seconds(candidate.name) / period;
    table.add({std::to_string(prompt), candidate.name, number(seconds * 1e3, 3), number(1 / seconds, 0),
               number(timings.ratio(candidate.name, name_of(1)), 3)});
  }
  return table;
}

}  // namespace

Table generation_steps(bool quick) {
  return generation_table("Generating, CPU, float32: 12 blocks, width 512, one sequence, every token's whole model",
                          at::TensorOptions(at::kFloat), quick ? 512 : 4096, quick ? 2 : 7);
}

Table cuda_generation_steps(bool quick) {
  return generation_table("Generating, CUDA, bf16: 12 blocks, width 512, one sequence, a CUDA graph for each token",
                          at::TensorOptions(at::kBFloat16).device(at::kCUDA), 4096, quick ? 3 : 11);
}

Table cuda_language_training_steps(bool quick) {
  Table table("a training step of the language model on CUDA, bf16 autocast: 12 blocks, width 512, T = 4096, batch 8",
              {"model", "parameters", "step ms", "tokens/s", "to standard"});
  const at::Device device(at::kCUDA, 0);
  const std::vector<std::int64_t> levels = {1, 3, 5};
  std::vector<std::unique_ptr<train::Learner>> learners;
  std::vector<Candidate> candidates;
  const auto config = large_model(1, 4096);
  const auto tokens = at::randint(1, 256, {config.train.batch, config.model.max_length + 1},
                                  at::TensorOptions(device).dtype(at::kLong));
  const data::Batch batch{tokens.narrow(1, 0, config.model.max_length).contiguous(),
                          at::full({config.train.batch}, config.model.max_length, tokens.options()),
                          tokens.narrow(1, 1, config.model.max_length).contiguous(),
                          config.train.batch * config.model.max_length};
  for (const auto count : levels) {
    learners.push_back(std::make_unique<train::Learner>(large_model(count, config.model.max_length), device));
    candidates.push_back({name_of(count), [&batch, &own = *learners.back()] { own.step(batch, 1e-4); }});
  }
  const Timings timings(candidates, quick ? 3 : 11, [] { torch::cuda::synchronize(); });
  for (std::size_t i = 0; i < levels.size(); ++i) {
    const double seconds = timings.seconds(candidates[i].name);
    table.add({candidates[i].name, std::to_string(learners[i]->parameters()), number(seconds * 1e3, 2),
               number(static_cast<double>(batch.valid_tokens) / seconds, 0),
               number(timings.ratio(candidates[i].name, name_of(1)), 3)});
  }
  return table;
}

}  // namespace hkt::bench
