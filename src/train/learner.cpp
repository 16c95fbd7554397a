// Steps and evaluation, in full precision or under autocast.
#include "learner.h"

#include <ATen/ATen.h>
#include <torch/nn/functional/loss.h>

#include <vector>

#include "autocast.h"
#ifdef HKT_WITH_CUDA
#include "recorded_cuda.h"
#endif

namespace hkt::train {
namespace {

at::Tensor logits_of(Classifier& model, const data::Batch& batch, bool bfloat16) {
  const Autocast autocast(bfloat16, batch.tokens.device());
  return model->forward(batch.tokens, batch.lengths).to(at::kFloat);
}

data::Batch moved(const data::Batch& batch, at::Device device) {
  return {batch.tokens.to(device, true), batch.lengths.to(device, true), batch.labels.to(device, true),
          batch.valid_tokens};
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

#ifdef HKT_WITH_CUDA
struct Learner::RecordedStep {
  data::Batch batch;  // read and written by the recording
  at::Tensor result;
  RecordedCuda recorded;
};
#else
struct Learner::RecordedStep {};
#endif

Learner::Learner(const Config& config, at::Device device, Launches launches)
    : device_(device),
      bfloat16_(uses_bfloat16(config, device)),
      launches_(launches),
      model_(made_on(device, config.model)),
      optimizer_(*model_, config.train) {
  model_->train();
}

Learner::~Learner() = default;

at::Tensor Learner::step(const data::Batch& batch, double learning_rate) {
  model_->train();
  optimizer_.set_learning_rate(learning_rate);
#ifdef HKT_WITH_CUDA
  if (device_.is_cuda() && launches_ == Launches::recorded) {
    const std::pair shape(batch.tokens.size(0), batch.tokens.size(1));
    const auto [found, first_time] = recorded_.try_emplace(shape);
    if (!first_time) return replay_step(found->second, batch);
  }
#endif
  return launch_step(moved(batch, device_));
}

at::Tensor Learner::launch_step(const data::Batch& batch) {
  const auto logits = logits_of(model_, batch, bfloat16_);
  const auto loss = torch::nn::functional::cross_entropy(logits, batch.labels);
  loss.backward();
  const at::NoGradGuard no_grad;
  const auto correct = logits.argmax(1).eq(batch.labels).sum();
  return at::stack({loss.detach(), correct.to(at::kFloat), optimizer_.step()});
}

#ifdef HKT_WITH_CUDA
RecordedCuda* Learner::recorded_before() const { return first_recorded_ ? &first_recorded_->recorded : nullptr; }

at::Tensor Learner::replay_step(std::unique_ptr<RecordedStep>& step, const data::Batch& batch) {
  if (!step) {
    const auto place_for = [&](const at::Tensor& tensor) { return at::empty_like(tensor, device_); };
    const data::Batch inputs{place_for(batch.tokens), place_for(batch.lengths), place_for(batch.labels)};
    auto result = at::empty({3}, at::TensorOptions(device_));
    step.reset(
        new RecordedStep{inputs, result, RecordedCuda([&] { result.copy_(launch_step(inputs)); }, recorded_before())});
    if (!first_recorded_) first_recorded_ = step.get();
  }
  const auto put = [](const at::Tensor& into, const at::Tensor& from) {
    into.copy_(from.is_cpu() ? from.pin_memory() : from, true);
  };
  put(step->batch.tokens, batch.tokens);
  put(step->batch.lengths, batch.lengths);
  put(step->batch.labels, batch.labels);
  step->recorded.replay();
  return step->result.clone();
}
#endif

std::function<void()> Learner::attention_step(const data::Batch& batch) {
  const auto width = model_->embedding->weight.size(1);
  const auto features = at::randn({batch.tokens.size(0), batch.tokens.size(1), width}, at::TensorOptions(device_));
  auto step = [this, input = features.requires_grad_(), lengths = batch.lengths.to(device_)] {
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
  if (device_.is_cuda() && launches_ == Launches::recorded) {
    step();
    return [recorded = std::make_shared<RecordedCuda>(step, recorded_before()), step] { recorded->replay(); };
  }
#endif
  return step;
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
  constexpr std::int64_t most_at_once = 1024;  // whatever a model from elsewhere was trained with
  auto shape = data::shape_of(config);
  shape.batch = std::min(shape.batch, most_at_once);
  const auto order = data::evaluation_order(split, shape);
  data::BatchQueue queue(split, order, shape);
  Predictions result{at::empty({split.size(), config.model.classes}), at::empty({split.size()}, at::kLong), {}};
  for (const auto& sequences : order) {
    const auto batch = queue.next();
    if (!batch) break;
    const auto where = at::tensor(sequences, at::kLong);
    result.logits.index_copy_(0, where, logits_of(model, moved(*batch, device), uses_bfloat16(config, device)).cpu());
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
