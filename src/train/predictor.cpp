// SPDX-License-Identifier: Apache-2.0
// A trained classifier in use: texts become tokens, and batches of similar length.
#include "hkt/predictor.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <map>
#include <span>
#include <stdexcept>

#include "data/dataset.h"
#include "train/checkpoint.h"
#include "train/phases.h"

namespace hkt {

namespace {

// A text as tokens from one of its beginnings on, and to which prediction it belongs.
struct Input {
  std::vector<std::uint8_t> tokens;
  Prediction* answer;
  std::vector<double> probabilities = {};
};

// The tokens of a text, as many as any of its beginnings has; throws std::invalid_argument for a text that the model does not take.
std::vector<std::uint8_t> tokens_of(const std::string& text, const Config& config, std::int64_t phases, bool& cut) {
  auto tokens = data::encode(config.data.task, text);
  const auto longest = static_cast<std::size_t>(config.model.max_length);
  cut = tokens.size() > longest;
  if (cut && config.data.task == Task::listops) {
    throw std::invalid_argument("the expression has " + std::to_string(tokens.size()) + " tokens; this model takes " +
                                std::to_string(longest) + " at most.");
  }
  tokens.resize(std::min(tokens.size(), longest + static_cast<std::size_t>(phases - 1)));
  const int largest = *std::max_element(tokens.begin(), tokens.end());
  if (largest >= config.model.vocab) {
    throw std::invalid_argument("the text has the token " + std::to_string(largest) + "; this model takes 1 to " +
                                std::to_string(config.model.vocab - 1) + ".");
  }
  return tokens;
}

// One for each beginning, of which every one leaves a token, cut at the model's max_length.
void add_inputs(std::vector<Input>& inputs, const std::vector<std::uint8_t>& tokens, const Config& config,
                std::int64_t phases, Prediction& answer) {
  for (std::int64_t phase = 0; phase < phases; ++phase) {
    const auto begin = std::min<std::int64_t>(phase, std::ssize(tokens) - 1);
    const auto end = std::min<std::int64_t>(std::ssize(tokens), begin + config.model.max_length);
    inputs.push_back({{tokens.begin() + begin, tokens.begin() + end}, &answer});
  }
}

// The mean over a text's beginnings, in the order of the inputs.
void answer_from(const std::vector<Input>& inputs, const std::vector<std::string>& labels) {
  std::map<Prediction*, double> counts;
  for (const auto& input : inputs) {
    auto& all = input.answer->probabilities;
    all.resize(labels.size());
    for (std::size_t i = 0; i < all.size(); ++i) all[i] += input.probabilities[i];
    ++counts[input.answer];
  }
  for (const auto& [answer, count] : counts) {
    auto& all = answer->probabilities;
    for (auto& probability : all) probability /= count;
    const auto best = std::max_element(all.begin(), all.end());
    answer->label = labels[static_cast<std::size_t>(best - all.begin())];
    answer->probability = *best;
  }
}

// Sorted by length and cut where a batch, with its padding, would have too many tokens.
std::vector<std::span<Input>> batches_of(std::vector<Input>& inputs, std::size_t most_tokens) {
  std::stable_sort(inputs.begin(), inputs.end(),
                   [](const Input& a, const Input& b) { return a.tokens.size() < b.tokens.size(); });
  std::vector<std::span<Input>> batches;
  for (std::size_t begin = 0, end = 0; begin < inputs.size(); begin = end) {
    do ++end;
    while (end < inputs.size() && inputs[end].tokens.size() * (end + 1 - begin) <= most_tokens);
    batches.push_back(std::span(inputs).subspan(begin, end - begin));
  }
  return batches;
}

// [texts, classes], float64 on the CPU.
at::Tensor probabilities_of(std::span<const Input> batch, TransformerImpl& model, at::Device device) {
  const auto count = static_cast<std::int64_t>(batch.size());
  const auto longest = static_cast<std::int64_t>(batch.back().tokens.size());
  const auto tokens = at::zeros({count, longest}, at::kLong), lengths = at::empty({count}, at::kLong);
  for (std::int64_t i = 0; i < count; ++i) {
    const auto& row = batch[static_cast<std::size_t>(i)].tokens;
    std::copy(row.begin(), row.end(), tokens.mutable_data_ptr<std::int64_t>() + i * longest);
    lengths.mutable_data_ptr<std::int64_t>()[i] = std::ssize(row);
  }
  return at::softmax(model.forward(tokens.to(device), lengths.to(device)).to(at::kCPU, at::kDouble), 1).contiguous();
}

}  // namespace

struct Predictor::Trained {
  Config config;
  std::vector<std::string> labels;
  Transformer model;
  at::Device device;

  void answer(std::span<Input> batch) const;
  void answer_all(const std::vector<std::span<Input>>& batches) const;
};

void Predictor::Trained::answer(std::span<Input> batch) const {
  const at::NoGradGuard no_grad;  // of this thread
  const auto probabilities = probabilities_of(batch, *model, device);
  const auto* row = probabilities.const_data_ptr<double>();
  for (auto& input : batch) {
    input.probabilities.assign(row, row + labels.size());
    row += labels.size();
  }
}

// With several batches every thread computes whole ones: on short texts the threads would otherwise mostly wait for each
// other. Inside the loop torch's own operators use one thread. The longest texts come first, so that none ends late.
void Predictor::Trained::answer_all(const std::vector<std::span<Input>>& batches) const {
  std::atomic<std::size_t> taken = 0;
  const auto work = [&](std::int64_t, std::int64_t) {
    for (auto i = taken++; i < batches.size(); i = taken++) answer(batches[batches.size() - 1 - i]);
  };
  at::parallel_for(0, device.is_cpu() && batches.size() > 1 ? at::get_num_threads() : 1, 1, work);
}

Predictor::Predictor(const std::filesystem::path& folder, c10::Device device,
                     const std::function<void(const std::string&)>& warn) {
  auto trained = train::load_model({folder}, device, warn ? warn : [](const std::string&) {});
  const auto& config = trained.identity.config;
  if (config.model.kind == ModelKind::language) {
    throw std::invalid_argument(folder.string() + " contains a language model; hkt generate uses it.");
  }
  if (config.data.task == Task::scifar) data::encode(config.data.task, "");  // throws: images only
  trained_ = std::make_shared<Trained>(config, trained.identity.labels, trained.model, device);
}

const std::vector<std::string>& Predictor::labels() const { return trained_->labels; }
const Config& Predictor::config() const { return trained_->config; }

std::vector<Prediction> Predictor::predict(const std::vector<std::string>& texts, std::int64_t phases) const {
  if (phases < 1) throw std::invalid_argument("phases is " + std::to_string(phases) + "; it must be at least 1.");
  if (phases > 1) train::check_phases(trained_->config);
  std::vector<Prediction> answers(texts.size());
  std::vector<Input> inputs;
  for (std::size_t i = 0; i < texts.size(); ++i) {
    try {
      const auto tokens = tokens_of(texts[i], trained_->config, phases, answers[i].cut);
      add_inputs(inputs, tokens, trained_->config, phases, answers[i]);
    } catch (const std::invalid_argument& error) {
      answers[i] = {};
      answers[i].error = error.what();
    }
  }
  // On the CPU a batch whose activations stay in a core's cache; a GPU wants many tokens at once.
  constexpr std::size_t cpu_tokens = std::size_t{1} << 11, gpu_tokens = std::size_t{1} << 16;
  trained_->answer_all(batches_of(inputs, trained_->device.is_cpu() ? cpu_tokens : gpu_tokens));
  answer_from(inputs, trained_->labels);
  return answers;
}

}  // namespace hkt
