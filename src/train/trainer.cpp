// SPDX-License-Identifier: Apache-2.0
// The training loop.
#include "train/trainer.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Parallel.h>
#include <torch/utils.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <stdexcept>
#include <utility>

#include "files/quote.h"
#include "train/initial_weights.h"

namespace hkt::train {
namespace {

constexpr std::int64_t lines_per_epoch = 50;

double seconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

at::Generator generator_of(at::Device device) { return at::globalContext().defaultGenerator(device); }

// Makes torch's own operators and cuBLAS deterministic, too. cuBLAS reads the variable when it is first used.
void use_deterministic_algorithms(bool enabled) {
  if (enabled) ::setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8", 0);
  at::globalContext().setDeterministicAlgorithms(enabled, false);
}

void add(Tally& to, const Tally& from) {
  to.loss += from.loss;
  to.correct += from.correct;
  to.predictions += from.predictions;
}

}  // namespace

Trainer::Trainer(RunDirectory run, Identity identity, const TrainingData& data, at::Device device, Hooks hooks)
    : run_(std::move(run)),
      identity_(std::move(identity)),
      data_(data),
      device_(device),
      hooks_(std::move(hooks)),
      steps_per_epoch_(data.steps_per_epoch()),
      steps_(steps_per_epoch_ * settings().epochs),
      line_every_(std::max<std::int64_t>(1, steps_per_epoch_ / lines_per_epoch)) {}

Outcome Trainer::run() {
  restore();
  begin_metrics();
  bool stopped = false;
  try {
    while (!position_.finished && !stopped) stopped = !run_epoch();
  } catch (const MetricsError&) {
    if (position_.batch > 0) save();  // a lost metrics line must not cost the steps since the last checkpoint
    throw;
  }
  return {position_.finished, position_.step, position_.best_epoch, position_.best};
}

void Trainer::restore() {
  const Warn warn = [&](const std::string& text) {
    if (hooks_.warn) hooks_.warn(text);
  };
  auto state = load_state(run_, identity_, steps_per_epoch_, warn);
  use_deterministic_algorithms(settings().deterministic && device_.is_cuda());
  torch::manual_seed(static_cast<std::uint64_t>(settings().seed));
  learner_ = std::make_unique<Learner>(identity_.config, device_);
  learner_->set_class_weights(data_.class_weights());
  if (!state) {
    if (!settings().init.empty()) start_from({settings().init}, identity_, *learner_->model(), warn);
    return;
  }
  position_ = state->position;
  best_ = std::move(state->best);
  set_parameters(*learner_->model(), state->parameters);
  learner_->optimizer().restore(state->optimizer);
  generator_of(at::kCPU).set_state(state->generator);
  if (device_.is_cuda() && state->cuda_generator.defined()) generator_of(device_).set_state(state->cuda_generator);
  saved_step_ = position_.step;
  if (state->epochs != settings().epochs) {
    extended_from_ = state->epochs;
    position_.finished = false;
  }
  // model.safetensors may be missing (killed between writing the two files) or damaged; the state has the best weights.
  if (!best_.empty()) save_model(run_, identity_, best_);
}

void Trainer::begin_metrics() {
  metrics_ = std::make_unique<MetricsFile>(run_.metrics(), position_.metrics_bytes);
  if (settings().tensorboard) events_ = std::make_unique<EventFile>(run_.folder, position_.step);
  if (is_language()) throughput_ = Throughput(identity_.config, device_);
  if (extended_from_ > 0) {
    metrics_->add({{"event", "extend"}, {"step", position_.step}, {"steps", steps_}, {"epochs", settings().epochs}});
    save();
  }
  if (saved_step_ >= 0) return;
  nlohmann::ordered_json line = {
      {"event", "start"}, {"parameters", learner_->parameters()}, {"steps", steps_}, {"epochs", settings().epochs}};
  line.update(data_.description());
  line.update({{"device", device_.str()},
               {"precision", uses_bfloat16(identity_.config, device_) ? "bfloat16" : "float32"},
               {"threads", at::get_num_threads()}});
  metrics_->add(probed(std::move(line)));
  save();
}

bool Trainer::run_epoch() {
  const auto next_batch = data_.batches(position_.epoch, position_.batch);
  epoch_begin_ = Clock::now();
  tokens_ = 0;
  wait_seconds_ = 0;
  const double seconds_before = position_.seconds;
  while (true) {
    const auto requested = Clock::now();
    const auto batch = next_batch();
    wait_seconds_ += seconds_since(requested);
    if (!batch) break;
    train_step(*batch);
    position_.seconds = seconds_before + seconds_since(epoch_begin_);
    const bool stop = hooks_.stop && hooks_.stop();
    if (stop || seconds_since(last_save_) >= settings().checkpoint_seconds) save();
    if (stop) return false;
  }
  end_epoch();
  return true;
}

void Trainer::train_step(const data::Batch& batch) {
  pending_.push_back(learner_->step(batch, learning_rate(settings(), position_.step, steps_)));
  pending_sizes_.push_back(batch.labels.numel());
  tokens_ += batch.valid_tokens;
  ++position_.step;
  ++position_.batch;
  const bool line = position_.batch % line_every_ == 0 || position_.batch == steps_per_epoch_;
  // Reading a result synchronises with the GPU, so on CUDA it is done only once per metrics line.
  if (line || device_.is_cpu()) read_pending();
  if (line) write_step_line();
  if (hooks_.step && (line || device_.is_cpu())) {
    hooks_.step({position_.step, steps_, position_.epoch, settings().epochs, position_.epoch_tally, tokens_per_second(),
                 throughput_.utilisation(tokens_per_second())});
  }
}

double Trainer::tokens_per_second() const { return static_cast<double>(tokens_) / seconds_since(epoch_begin_); }

void Trainer::fail_not_finite(const std::string& what, std::int64_t step) {
  metrics_->add({{"event", "diverged"}, {"step", step}, {"what", what}});
  metrics_->flush();
  throw std::runtime_error("the " + what + " of step " + std::to_string(step) +
                           " is not finite; the last good checkpoint, of step " + std::to_string(saved_step_) +
                           ", is kept in " + run_.folder.string() + ".");
}

// Reads the results of the steps since the last call, oldest first.
void Trainer::read_pending() {
  if (pending_.empty()) return;
  const auto results = StepResult::wait_for(pending_);
  for (std::size_t i = 0; i < pending_.size(); ++i) {
    const auto& [loss, correct, gradient_norm] = results[i];
    last_gradient_norm_ = gradient_norm;
    if (!std::isfinite(loss) || !std::isfinite(gradient_norm)) {
      const auto step = position_.step - static_cast<std::int64_t>(pending_.size() - i) + 1;
      fail_not_finite(std::isfinite(loss) ? "gradient" : "loss", step);
    }
    const Tally tally{loss * static_cast<double>(pending_sizes_[i]), static_cast<std::int64_t>(correct),
                      pending_sizes_[i]};
    add(position_.epoch_tally, tally);
    add(position_.recent_tally, tally);
  }
  pending_.clear();
  pending_sizes_.clear();
}

void Trainer::write_step_line() {
  const auto& recent = position_.recent_tally;
  nlohmann::ordered_json line = {{"event", "step"},
                                 {"step", position_.step},
                                 {"epoch", position_.epoch},
                                 {"loss", recent.mean_loss()},
                                 {"accuracy", recent.accuracy()},
                                 {"learning_rate", learning_rate(settings(), position_.step - 1, steps_)},
                                 {"gradient_norm", last_gradient_norm_},
                                 {"tokens_per_second", tokens_per_second()}};
  if (is_language()) {
    line["bits_per_byte"] = recent.bits();
    line["utilisation"] = throughput_.utilisation(tokens_per_second());
  }
  write(line);
  position_.recent_tally = {};
}

void Trainer::write(const nlohmann::ordered_json& line) {
  metrics_->add(line);
  if (events_) events_->add(line);
}

// The level weights λ by block, head and level.
std::vector<std::vector<std::vector<double>>> Trainer::level_weights() {
  const at::NoGradGuard no_grad;
  std::vector<std::vector<std::vector<double>>> all;
  for (const auto& block : *learner_->model()->blocks) {
    const auto weights = block->as<Block>()->attention->weights().to(at::kCPU, at::kDouble).contiguous();
    auto& heads = all.emplace_back();
    for (std::int64_t head = 0; head < weights.size(0); ++head) {
      const auto* row = weights.const_data_ptr<double>() + head * weights.size(1);
      heads.emplace_back(row, row + weights.size(1));
    }
  }
  return all;
}

// Adds the probe's result and its duration to a metrics line.
nlohmann::ordered_json Trainer::probed(nlohmann::ordered_json line) {
  if (!hooks_.probe) return line;
  const auto begin = Clock::now();
  line["theory"] = hooks_.probe(*learner_->model());
  line["probe_seconds"] = seconds_since(begin);
  return line;
}

void Trainer::end_epoch() {
  const double wait_share = wait_seconds_ / std::max(seconds_since(epoch_begin_), 1e-9);
  const auto begin = Clock::now();
  const auto [validation, quality] = data_.validate(*learner_->model(), device_);
  if (!std::isfinite(validation.mean_loss())) fail_not_finite("validation loss", position_.step);
  const bool best = position_.best_epoch < 0 || data_.is_better(quality, position_.best);
  if (best) {
    position_.best_epoch = position_.epoch;
    position_.best = quality;
    best_ = copy_of_parameters(*learner_->model());
    save_model(run_, identity_, best_);
  }
  nlohmann::ordered_json line = {{"event", "epoch"},
                                 {"epoch", position_.epoch},
                                 {"step", position_.step},
                                 {"train_loss", position_.epoch_tally.mean_loss()},
                                 {"train_accuracy", position_.epoch_tally.accuracy()},
                                 {"validation_loss", validation.mean_loss()},
                                 {"validation_accuracy", validation.accuracy()}};
  if (is_language()) {
    line["train_bits_per_byte"] = position_.epoch_tally.bits();
    line["validation_bits_per_byte"] = validation.bits();
  }
  if (is_weighted()) line["validation_weighted_accuracy"] = quality.weighted_accuracy;
  line.update({{"best", best},
               {"level_weights", level_weights()},
               {"seconds", position_.seconds},
               {"data_wait_share", wait_share},
               {"validation_seconds", seconds_since(begin)}});
  write(probed(std::move(line)));
  if (hooks_.epoch) hooks_.epoch({position_.epoch, position_.epoch_tally, validation, quality, best});
  ++position_.epoch;
  position_.batch = 0;
  position_.epoch_tally = position_.recent_tally = {};
  position_.seconds = 0;
  const bool early = patience_is_over();
  position_.finished = early || position_.epoch == settings().epochs;
  if (position_.finished) {
    nlohmann::ordered_json end = {{"event", "end"},
                                  {"reason", early ? "patience" : "finished"},
                                  {"step", position_.step},
                                  {"best_epoch", position_.best_epoch},
                                  {"best_validation_accuracy", position_.best.accuracy},
                                  {"best_validation_loss", position_.best.loss}};
    if (is_weighted()) end["best_validation_weighted_accuracy"] = position_.best.weighted_accuracy;
    metrics_->add(end);
  }
  save();
}

bool Trainer::patience_is_over() const {
  return settings().patience > 0 && position_.epoch - 1 - position_.best_epoch >= settings().patience;
}

void Trainer::save() {
  read_pending();
  metrics_->flush();  // before the state, which records how many bytes of metrics there are
  position_.metrics_bytes = metrics_->bytes();
  State state{position_,
              settings().epochs,
              copy_of_parameters(*learner_->model()),
              learner_->optimizer().state(),
              best_,
              generator_of(at::kCPU).get_state(),
              {}};
  if (device_.is_cuda()) state.cuda_generator = generator_of(device_).get_state();
  save_state(run_, identity_, state);
  saved_step_ = position_.step;
  last_save_ = Clock::now();
}

}  // namespace hkt::train
