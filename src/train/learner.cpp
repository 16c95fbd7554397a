// SPDX-License-Identifier: Apache-2.0
// Training steps and evaluation, in float32 or under autocast to bfloat16.
#include "train/learner.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <torch/nn/functional/loss.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <vector>

#include "train/autocast.h"
#ifdef HKT_WITH_CUDA
#include "nn/graphed_step_cuda.h"
#endif

namespace hkt::train {
namespace {

Transformer create_on(at::Device device, const ModelConfig& config) {
  auto model = create_model(config);
  model->to(device);
  return model;
}

// The mean over the batch. Torch's own weighted mean divides by the sum of the batch's weights, so that a rare class would
// not count more in a batch of nothing else, and parts of a batch would not add up to it.
at::Tensor weighted_loss(const at::Tensor& logits, const at::Tensor& labels, const at::Tensor& weights) {
  const auto options = torch::nn::functional::CrossEntropyFuncOptions().weight(weights).reduction(torch::kSum);
  return torch::nn::functional::cross_entropy(logits, labels, options) / static_cast<double>(labels.numel());
}

}  // namespace

// Windows of a stream have no padding, but for the last ones in an evaluation, which nothing before them sees.
at::Tensor logits_of(TransformerImpl& model, const data::Batch& batch, bool bfloat16) {
  const Autocast autocast(bfloat16, batch.tokens.device());
  const bool padded = model.config().kind == ModelKind::classifier;
  return model.forward(batch.tokens, padded ? std::optional(batch.lengths) : std::nullopt).to(at::kFloat);
}

data::Batch on_device(const data::Batch& batch, at::Device device) {
  return {batch.tokens.to(device, true), batch.lengths.to(device, true), batch.labels.to(device, true),
          batch.valid_tokens};
}

data::Shape batch_shape(const Config& config) {
  return {config.train.batch, config.model.max_length, config.train.padding == Padding::full, config.train.bucket};
}

StepResult::StepResult(const at::Tensor& mean_loss, const at::Tensor& correct, const at::Tensor& gradient_norm)
    : numbers_(at::stack({mean_loss, correct.to(at::kFloat), gradient_norm})) {}

StepResult StepResult::clone() const {
  StepResult copy;
  copy.numbers_ = numbers_.clone();
  return copy;
}

void StepResult::copy_from(const StepResult& other) { numbers_.copy_(other.numbers_); }

StepResult::Values StepResult::wait() const { return wait_for({*this}).front(); }

std::vector<StepResult::Values> StepResult::wait_for(const std::vector<StepResult>& results) {
  std::vector<at::Tensor> rows;
  for (const auto& result : results) rows.push_back(result.numbers_);
  const auto numbers = at::stack(rows).to(at::kCPU, at::kDouble);
  std::vector<Values> values;
  for (std::int64_t i = 0; i < numbers.size(0); ++i) {
    const auto* row = numbers.const_data_ptr<double>() + i * numbers.size(1);
    values.push_back({row[0], row[1], row[2]});
  }
  return values;
}

bool uses_bfloat16(const Config& config, at::Device device) {
  if (config.train.precision == Precision::automatic) return device.is_cuda();
  return config.train.precision == Precision::bfloat16;
}

#ifdef HKT_WITH_CUDA
struct Learner::ShapeGraph {
  data::Batch batch;  // the graph's static inputs
  StepResult result;
  GraphedStep graph;
};
#else
struct Learner::ShapeGraph {};
#endif

Learner::Learner(const Config& config, at::Device device, CudaGraphs graphs)
    : device_(device),
      bfloat16_(uses_bfloat16(config, device)),
      accumulate_(config.train.accumulate),
      graphs_used_(graphs),
      model_(create_on(device, config.model)),
      optimizer_(*model_, config.train) {
  model_->train();
}

Learner::~Learner() = default;

void Learner::set_class_weights(const at::Tensor& weights) {
  class_weights_ = weights.defined() ? weights.to(device_, at::kFloat) : weights;
}

StepResult Learner::step(const data::Batch& batch, double learning_rate) {
  model_->train();
  optimizer_.set_learning_rate(learning_rate);
#ifdef HKT_WITH_CUDA
  if (device_.is_cuda() && graphs_used_ == CudaGraphs::on) {
    const std::pair shape(batch.tokens.size(0), batch.tokens.size(1));
    const auto [found, first_time] = graphs_.try_emplace(shape);
    if (!first_time) return replay_step(found->second, batch);
  }
#endif
  return launch_step(on_device(batch, device_));
}

std::pair<at::Tensor, at::Tensor> Learner::backward(const data::Batch& batch, double share) {
  const auto logits = logits_of(*model_, batch, bfloat16_).flatten(0, -2);
  const auto labels = batch.labels.flatten();
  auto loss = class_weights_.defined() ? weighted_loss(logits, labels, class_weights_)
                                       : torch::nn::functional::cross_entropy(logits, labels);
  if (share < 1) loss = loss * share;
  loss.backward();
  const at::NoGradGuard no_grad;
  return {loss.detach(), logits.argmax(1).eq(labels).sum()};
}

StepResult Learner::launch_step(const data::Batch& batch) {
  if (accumulate_ == 1) {
    const auto [loss, correct] = backward(batch, 1);
    return {loss, correct, optimizer_.step()};
  }
  const std::int64_t size = batch.tokens.size(0), part = (size + accumulate_ - 1) / accumulate_;
  at::Tensor loss, correct;
  for (std::int64_t begin = 0; begin < size; begin += part) {
    const auto rows = std::min(part, size - begin);
    const auto own = [&](const at::Tensor& all) { return all.narrow(0, begin, rows); };
    const auto share = static_cast<double>(rows) / static_cast<double>(size);
    const auto [own_loss, own_correct] = backward({own(batch.tokens), own(batch.lengths), own(batch.labels)}, share);
    loss = loss.defined() ? loss + own_loss : own_loss;
    correct = correct.defined() ? correct + own_correct : own_correct;
  }
  return {loss, correct, optimizer_.step()};
}

#ifdef HKT_WITH_CUDA
GraphedStep* Learner::shared_memory_graph() const { return first_graph_ ? &first_graph_->graph : nullptr; }

StepResult Learner::replay_step(std::unique_ptr<ShapeGraph>& step, const data::Batch& batch) {
  if (!step) {
    const auto buffer_like = [&](const at::Tensor& tensor) { return at::empty_like(tensor, device_); };
    const data::Batch inputs{buffer_like(batch.tokens), buffer_like(batch.lengths), buffer_like(batch.labels)};
    const auto zero = at::zeros({}, at::TensorOptions(device_));
    StepResult result(zero, zero, zero);
    step.reset(new ShapeGraph{inputs, result,
                              GraphedStep([&] { result.copy_from(launch_step(inputs)); }, shared_memory_graph())});
    if (!first_graph_) first_graph_ = step.get();
  }
  const auto copy = [](const at::Tensor& into, const at::Tensor& from) {
    into.copy_(from.is_cpu() ? from.pin_memory() : from, true);
  };
  copy(step->batch.tokens, batch.tokens);
  copy(step->batch.lengths, batch.lengths);
  copy(step->batch.labels, batch.labels);
  step->graph.replay();
  return step->result.clone();
}
#endif

std::function<void()> Learner::attention_step(const data::Batch& batch) {
  const auto width = model_->embedding->weight.size(1);
  const auto features = at::randn({batch.tokens.size(0), batch.tokens.size(1), width}, at::TensorOptions(device_));
  const bool padded = model_->config().kind == ModelKind::classifier;
  const auto lengths = padded ? std::optional(batch.lengths.to(device_)) : std::nullopt;
  auto step = [this, input = features.requires_grad_(), lengths] {
    at::Tensor output;
    {
      const Autocast autocast(bfloat16_, device_);
      output = model_->blocks[0]->as<Block>()->attention->forward(input, lengths);
    }
    output.backward(at::ones_like(output));
    input.mutable_grad().reset();
    for (auto& parameter : model_->parameters()) parameter.mutable_grad().reset();
  };
#ifdef HKT_WITH_CUDA
  if (device_.is_cuda() && graphs_used_ == CudaGraphs::on) {
    step();
    return [graph = std::make_shared<GraphedStep>(step, shared_memory_graph()), step] { graph->replay(); };
  }
#endif
  return step;
}

std::int64_t Learner::parameters() const {
  std::int64_t count = 0;
  for (const auto& parameter : model_->parameters()) count += parameter.numel();
  return count;
}

namespace {

// Batches of so few tokens that their activations stay in the cache of a core.
data::Order in_parts(const data::Order& order, const data::Split& split, const data::Shape& shape) {
  constexpr std::int64_t most_tokens = 2048;
  data::Order parts;
  for (const auto& batch : order) {
    std::int64_t longest = shape.full ? shape.max_length : 1;
    for (const auto sequence : batch) longest = std::max(longest, std::ssize(split.tokens(sequence)));
    const auto count = std::max<std::int64_t>(1, most_tokens / std::min(longest, shape.max_length));
    for (std::int64_t begin = 0; begin < std::ssize(batch); begin += count)
      parts.emplace_back(batch.begin() + begin, batch.begin() + std::min(begin + count, std::ssize(batch)));
  }
  return parts;
}

// The logits and labels of every sequence of a batch, at their places.
void put(Predictions& result, const at::Tensor& logits, const at::Tensor& labels,
         const std::vector<std::int64_t>& sequences) {
  const auto where = at::tensor(sequences, at::kLong);
  result.logits.index_copy_(0, where, logits);
  result.labels.index_copy_(0, where, labels);
}

// On the CPU, as the Predictor does it: every thread computes whole batches, the longest first, so that none waits for the other.
void evaluate_by_thread(Predictions& result, TransformerImpl& model, const data::Split& split, const data::Order& order,
                        const data::Shape& shape, const Watch& watch) {
  std::atomic<std::size_t> taken = 0;
  std::mutex mutex;
  const auto work = [&](std::int64_t, std::int64_t) {
    const at::NoGradGuard no_grad;  // of this thread
    for (auto i = taken++; i < order.size(); i = taken++) {
      const auto& sequences = order[order.size() - 1 - i];
      const auto batch = data::make_batch(split, sequences, shape);
      const auto logits = logits_of(model, batch, false);
      const std::scoped_lock lock(mutex);
      put(result, logits, batch.labels, sequences);
      result.tally.predictions += std::ssize(sequences);
      if (watch) watch(result.tally.predictions, split.size());
    }
  };
  at::parallel_for(0, at::get_num_threads(), 1, work);
}

// One batch after the other, prepared by a thread while the device computes.
void evaluate_in_turn(Predictions& result, TransformerImpl& model, const data::Split& split, const data::Order& order,
                      const data::Shape& shape, const Config& config, at::Device device, const Watch& watch) {
  data::BatchQueue queue(split, order, shape);
  for (const auto& sequences : order) {
    const auto batch = queue.next();
    if (!batch) break;
    const auto logits = logits_of(model, on_device(*batch, device), uses_bfloat16(config, device)).cpu();
    put(result, logits, batch->labels, sequences);
    result.tally.predictions += std::ssize(sequences);
    if (watch) watch(result.tally.predictions, split.size());
  }
}

}  // namespace

Predictions evaluate(TransformerImpl& model, const data::Split& split, const Config& config, at::Device device,
                     const Watch& watch, std::int64_t skip) {
  const at::NoGradGuard no_grad;
  const bool was_training = model.is_training();
  model.eval();
  constexpr std::int64_t largest_batch = 1024;  // limits memory, whatever train.batch is
  auto shape = batch_shape(config);
  shape.batch = std::min(shape.batch, largest_batch);
  shape.skip = skip;
  const auto order = data::evaluation_order(split, shape);
  Predictions result{at::empty({split.size(), config.model.classes}), at::empty({split.size()}, at::kLong), {}};
  if (device.is_cpu() && !uses_bfloat16(config, device)) {
    evaluate_by_thread(result, model, split, in_parts(order, split, shape), shape, watch);
  } else {
    evaluate_in_turn(result, model, split, order, shape, config, device, watch);
  }
  if (split.size() > 0) {
    result.tally.loss =
        torch::nn::functional::cross_entropy(result.logits.to(at::kDouble), result.labels,
                                             torch::nn::functional::CrossEntropyFuncOptions().reduction(torch::kSum))
            .item<double>();
    result.tally.correct = result.logits.argmax(1).eq(result.labels).sum().item<std::int64_t>();
  }
  model.train(was_training);
  return result;
}

}  // namespace hkt::train
