// SPDX-License-Identifier: Apache-2.0
// Full training steps: the classifier with standard attention, with HKT, and a standard one made of torch's own modules.
#include <ATen/ATen.h>
#include <torch/cuda.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>
#include <torch/nn/utils/clip_grad.h>
#include <torch/optim/adamw.h>

#include <chrono>
#include <memory>

#include "data/batches.h"
#include "data/dataset.h"
#include "harness.h"
#include "hkt/modules.h"
#include "train/autocast.h"
#include "train/learner.h"

namespace hkt::bench {
namespace {

// The baseline that a user of torch would write: scaled_dot_product_attention, torch::optim::AdamW, clip_grad_norm_. C++ only
// makes it faster than Python would.
class EagerBlock : public torch::nn::Module {
 public:
  explicit EagerBlock(const ModelConfig& config)
      : first_norm_(torch::nn::LayerNormOptions({config.width})),
        second_norm_(torch::nn::LayerNormOptions({config.width})),
        projections_(torch::nn::LinearOptions(config.width, 3 * config.width).bias(false)),
        output_(torch::nn::LinearOptions(config.width, config.width).bias(false)),
        expand_(config.width, config.feedforward),
        contract_(config.feedforward, config.width),
        heads_(config.heads),
        dropout_(config.dropout) {
    register_module("first_norm", first_norm_);
    register_module("second_norm", second_norm_);
    register_module("projections", projections_);
    register_module("output", output_);
    register_module("expand", expand_);
    register_module("contract", contract_);
  }

  at::Tensor forward(const at::Tensor& input, const at::Tensor& mask) {
    const auto batch = input.size(0), length = input.size(1), width = input.size(2);
    const auto qkv = projections_(first_norm_(input)).view({batch, length, 3, heads_, width / heads_}).unbind(2);
    const auto head = [&](int which) { return qkv[which].transpose(1, 2); };
    const auto attended = at::scaled_dot_product_attention(
        head(0), head(1), head(2), mask.defined() ? std::optional<at::Tensor>(mask) : std::nullopt);
    const auto x = input + at::dropout(output_(attended.transpose(1, 2).flatten(2)), dropout_, is_training());
    return x + at::dropout(contract_(at::gelu(expand_(second_norm_(x)))), dropout_, is_training());
  }

 private:
  torch::nn::LayerNorm first_norm_, second_norm_;
  torch::nn::Linear projections_, output_, expand_, contract_;
  std::int64_t heads_;
  double dropout_;
};

class EagerClassifier : public torch::nn::Module {
 public:
  explicit EagerClassifier(const Config& config)
      : config_(config.model),
        embedding_(config.model.vocab, config.model.width),
        norm_(torch::nn::LayerNormOptions({config.model.width})),
        head_(config.model.width, config.model.classes),
        positions_(register_buffer("positions", at::randn({config.model.max_length, config.model.width}))) {
    register_module("embedding", embedding_);
    for (std::int64_t i = 0; i < config_.blocks; ++i) {
      blocks_.push_back(register_module("block" + std::to_string(i), std::make_shared<EagerBlock>(config_)));
    }
    register_module("norm", norm_);
    register_module("head", head_);
    optimizer_ = std::make_unique<torch::optim::AdamW>(parameters(), config.train.learning_rate);
  }

  void step(const data::Batch& batch, bool bfloat16 = false) {
    const auto length = batch.tokens.size(1);
    const auto valid = at::arange(length, batch.lengths.options()).unsqueeze(0).lt(batch.lengths.unsqueeze(1));
    const bool padded = batch.valid_tokens < batch.tokens.numel();
    const auto mask = padded ? valid.unsqueeze(1).unsqueeze(1) : at::Tensor();
    at::Tensor logits;
    {
      const train::Autocast autocast(bfloat16, batch.tokens.device());
      logits = logits_of(batch, valid, mask);
    }
    torch::nn::functional::cross_entropy(logits.to(at::kFloat), batch.labels).backward();
    torch::nn::utils::clip_grad_norm_(parameters(), 1);
    optimizer_->step();
    optimizer_->zero_grad();
  }

 private:
  at::Tensor logits_of(const data::Batch& batch, const at::Tensor& valid, const at::Tensor& mask) {
    const auto length = batch.tokens.size(1);
    auto x = at::dropout(embedding_(batch.tokens) + positions_.narrow(0, 0, length), config_.dropout, true);
    for (auto& block : blocks_) x = block->forward(x, mask);
    const auto shares = valid.to(x.scalar_type()) / batch.lengths.unsqueeze(1);
    return head_(at::bmm(shares.unsqueeze(1), norm_(x)).squeeze(1));
  }

  ModelConfig config_;
  torch::nn::Embedding embedding_;
  std::vector<std::shared_ptr<EagerBlock>> blocks_;
  torch::nn::LayerNorm norm_;
  torch::nn::Linear head_;
  at::Tensor positions_;
  std::unique_ptr<torch::optim::AdamW> optimizer_;
};

// Makes torch's scaled_dot_product_attention use cuDNN only, until it is destroyed.
class OnlyCudnn {
 public:
  OnlyCudnn() { use_others(false); }
  ~OnlyCudnn() { use_others(true); }
  OnlyCudnn(const OnlyCudnn&) = delete;
  OnlyCudnn& operator=(const OnlyCudnn&) = delete;

 private:
  static void use_others(bool wanted) {
    at::globalContext().setSDPUseFlash(wanted);
    at::globalContext().setSDPUseMemEfficient(wanted);
    at::globalContext().setSDPUseMath(wanted);
  }
};

struct Case {
  std::string name;
  Config config;
  std::vector<data::Batch> batches;
  double wait_share;  // share of the time spent waiting for batches that the background thread had not prepared yet
};

double wait_share(const data::Split& split, const data::Order& order, const data::Shape& shape, const Config& config) {
  using Clock = std::chrono::steady_clock;
  train::Learner learner(config, at::kCPU);
  data::BatchQueue queue(split, order, shape);
  const auto begin = Clock::now();
  Clock::duration waited{};
  while (true) {
    const auto start = Clock::now();
    const auto batch = queue.next();
    waited += Clock::now() - start;
    if (!batch) break;
    learner.step(*batch, 0);
  }
  return std::chrono::duration<double>(waited) / std::chrono::duration<double>(Clock::now() - begin);
}

Case make_case(const std::string& name, const Config& config, const data::Split& split, std::size_t count) {
  const auto shape = train::batch_shape(config);
  auto order = data::training_order(split, shape, 0, 0);
  order.resize(std::min(order.size(), count));
  Case made{name, config, {}, wait_share(split, order, shape, config)};
  for (const auto& sequences : order) made.batches.push_back(data::make_batch(split, sequences, shape));
  return made;
}

Case listops(std::size_t batches) {
  Config config;
  config.model.vocab = 16;
  config.model.max_length = 512;
  config.data.train_samples = 8000;
  config.data.validation_samples = config.data.test_samples = 10;
  return make_case("ListOps by length, batch 64", config, data::load(config.data).train, batches);
}

Config bytes_config(std::int64_t length, std::int64_t batch) {
  Config config;
  config.model.max_length = length;
  config.model.classes = 2;
  config.train.batch = batch;
  return config;
}

// `count` sequences of random bytes, all of one length.
data::Split random_bytes(std::int64_t length, std::int64_t count) {
  data::Sequences sequences;
  const auto tokens = at::randint(1, 256, {count, length}, at::kByte);
  for (std::int64_t i = 0; i < count; ++i) {
    sequences.add({tokens.const_data_ptr<std::uint8_t>() + i * length, static_cast<std::size_t>(length)}, i % 2);
  }
  return data::Split(data::part_of(std::move(sequences)));
}

Case long_texts(std::int64_t length, std::int64_t batch, std::size_t batches) {
  const auto split = random_bytes(length, batch * static_cast<std::int64_t>(batches));
  return make_case("bytes, T = " + std::to_string(length) + ", batch " + std::to_string(batch),
                   bytes_config(length, batch), split, batches);
}

}  // namespace

Table training_steps(bool quick) {
  Table table(
      "a training step, float32, d = 128, 4 heads, 2 blocks",
      {"data", "model", "step ms", "tokens/s", "to standard", "to torch's own parts", "waiting for data", "peak MiB"});
  std::vector<Case> cases;
  cases.push_back(listops(quick ? 8 : 24));
  cases.push_back(long_texts(1024, 8, 2));
  for (const auto& [name, config, batches, waiting] : cases) {
    auto standard_config = config;
    standard_config.model.levels = 1;
    train::Learner standard(standard_config, at::kCPU), hkt(config, at::kCPU);
    EagerClassifier eager(standard_config);
    const auto over = [&batches = batches](auto step) {
      return [&batches, step] {
        for (const auto& batch : batches) step(batch);
      };
    };
    constexpr double rate = 5e-4;
    const std::vector<Candidate> candidates = {
        {"torch's own parts", over([&](const data::Batch& batch) { eager.step(batch); })},
        {"standard", over([&](const data::Batch& batch) { standard.step(batch, rate); })},
        {"HKT, L = 3", over([&](const data::Batch& batch) { hkt.step(batch, rate); })}};
    const Timings timings(candidates, quick ? 3 : 9);
    std::int64_t tokens = 0;
    for (const auto& batch : batches) tokens += batch.valid_tokens;
    for (const auto& candidate : candidates) {
      const double seconds = timings.seconds(candidate.name);
      constexpr double mebibyte = 1 << 20;
      table.add({name, candidate.name, number(seconds * 1e3 / static_cast<double>(batches.size()), 2),
                 number(static_cast<double>(tokens) / seconds, 0), number(timings.ratio(candidate.name, "standard"), 2),
                 number(timings.ratio(candidate.name, "torch's own parts"), 2),
                 candidate.name == "HKT, L = 3" ? number(100 * waiting, 1) + " %" : "–",
                 number(static_cast<double>(peak_bytes(candidate.work)) / mebibyte, 0)});
    }
  }
  return table;
}

Table cuda_training_steps(bool quick) {
  Table table(
      "a training step on CUDA, bf16 autocast, d = 128, 4 heads, 2 blocks; standard attention by our own kernel, and "
      "by cuDNN's in a model of torch's own parts",
      {"data", "model", "step ms", "tokens/s", "to standard", "to torch's own parts"});
  const OnlyCudnn only_cudnn;
  for (const auto& [length, batch] : {std::pair<std::int64_t, std::int64_t>{1024, 64}, {4096, 16}}) {
    const auto config = bytes_config(length, batch);
    auto standard_config = config;
    standard_config.model.levels = 1;
    const auto shape = train::batch_shape(config);
    const auto split = random_bytes(length, batch);
    const auto sequences = data::training_order(split, shape, 0, 0).front();
    const auto on_cpu = data::make_batch(split, sequences, shape);
    const data::Batch made{on_cpu.tokens.to(at::kCUDA), on_cpu.lengths.to(at::kCUDA), on_cpu.labels.to(at::kCUDA),
                           on_cpu.valid_tokens};
    train::Learner standard(standard_config, at::Device(at::kCUDA, 0)), hkt(config, at::Device(at::kCUDA, 0));
    EagerClassifier eager(standard_config);
    eager.to(at::kCUDA);
    constexpr double rate = 5e-4;
    const std::vector<Candidate> candidates = {{"torch's own parts", [&] { eager.step(made, true); }},
                                               {"standard", [&] { standard.step(made, rate); }},
                                               {"HKT, L = 3", [&] { hkt.step(made, rate); }}};
    const Timings timings(candidates, quick ? 5 : 15, [] { torch::cuda::synchronize(); });
    for (const auto& candidate : candidates) {
      const double seconds = timings.seconds(candidate.name);
      table.add({"bytes, T = " + std::to_string(length) + ", batch " + std::to_string(batch), candidate.name,
                 number(seconds * 1e3, 2), number(static_cast<double>(made.valid_tokens) / seconds, 0),
                 number(timings.ratio(candidate.name, "standard"), 3),
                 number(timings.ratio(candidate.name, "torch's own parts"), 3)});
    }
  }
  return table;
}

}  // namespace hkt::bench
