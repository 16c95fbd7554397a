// Steps and evaluation, in full precision or under autocast.
#include "learner.h"

#include <ATen/ATen.h>
#include <torch/nn/functional/loss.h>

#include <vector>

#include "autocast.h"

namespace hkt::train {
namespace {

at::Tensor logits_of(Classifier& model, const data::Batch& batch, bool bfloat16, at::Device device) {
  const Autocast autocast(bfloat16, device);
  return model->forward(batch.tokens.to(device, true), batch.lengths.to(device, true)).to(at::kFloat);
}

Classifier made_on(at::Device device, const ModelConfig& config) {
  Classifier model(config);
  model->to(device);
  return model;
}

}  // namespace

bool uses_bfloat16(const Config& config, at::Device device) {
  if (config.train.precision == Precision::automatic) return device.is_cuda();
  return config.train.precision == Precision::bfloat16;
}

Learner::Learner(const Config& config, at::Device device)
    : device_(device),
      bfloat16_(uses_bfloat16(config, device)),
      model_(made_on(device, config.model)),
      optimizer_(*model_, config.train) {
  model_->train();
}

StepResult Learner::step(const data::Batch& batch, double learning_rate) {
  model_->train();
  const auto labels = batch.labels.to(device_, true);
  const auto logits = logits_of(model_, batch, bfloat16_, device_);
  const auto loss = torch::nn::functional::cross_entropy(logits, labels);
  loss.backward();
  const at::NoGradGuard no_grad;
  return {loss.detach(), logits.argmax(1).eq(labels).sum(), optimizer_.step(learning_rate)};
}

Learner::AttentionInput Learner::attention_input(const data::Batch& batch) const {
  const auto width = model_->embedding->weight.size(1);
  const auto options = at::TensorOptions(device_).dtype(at::kFloat);
  return {at::randn({batch.tokens.size(0), batch.tokens.size(1), width}, options).requires_grad_(),
          batch.lengths.to(device_)};
}

void Learner::attention_step(const AttentionInput& input) {
  at::Tensor output;
  {
    const Autocast autocast(bfloat16_, device_);
    output = model_->blocks[0]->as<Block>()->attention->forward(input.features, input.lengths);
  }
  output.backward(at::ones_like(output));
  for (auto& parameter : model_->parameters()) parameter.mutable_grad().reset();
}

std::int64_t Learner::parameters() const {
  std::int64_t count = 0;
  for (const auto& parameter : model_->parameters()) count += parameter.numel();
  return count;
}

Predictions evaluate(Classifier& model, const data::Split& split, const Config& config, at::Device device,
                     const Watch& watch) {
  const at::NoGradGuard no_grad;
  const bool was_training = model->is_training();
  model->eval();
  const auto shape = data::shape_of(config);
  const auto order = data::evaluation_order(split, shape);
  data::BatchQueue queue(split, order, shape);
  Predictions result{at::empty({split.size(), config.model.classes}), at::empty({split.size()}, at::kLong), {}};
  for (const auto& sequences : order) {
    const auto batch = queue.next();
    if (!batch) break;
    const auto where = at::tensor(sequences, at::kLong);
    result.logits.index_copy_(0, where, logits_of(model, *batch, uses_bfloat16(config, device), device).cpu());
    result.labels.index_copy_(0, where, batch->labels);
    result.tally.sequences += where.size(0);
    if (watch) watch(result.tally.sequences, split.size());
  }
  if (split.size() > 0) {
    result.tally.loss =
        torch::nn::functional::cross_entropy(result.logits.to(at::kDouble), result.labels,
                                             torch::nn::functional::CrossEntropyFuncOptions().reduction(torch::kSum))
            .item<double>();
    result.tally.correct = result.logits.argmax(1).eq(result.labels).sum().item<std::int64_t>();
  }
  model->train(was_training);
  return result;
}

}  // namespace hkt::train
