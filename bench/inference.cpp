// SPDX-License-Identifier: Apache-2.0
// Using a trained model on the CPU, as `hkt predict` and `hkt eval` do, beside the same weights in torch's own operators.
#include <ATen/ATen.h>
#include <torch/utils.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <numeric>
#include <stdexcept>

#include "concatenated.h"
#include "data/dataset.h"
#include "data/windows.h"
#include "harness.h"
#include "hkt/predictor.h"
#include "language_config.h"
#include "train/checkpoint.h"
#include "train/language_score.h"

namespace hkt::bench {
namespace {

// A model as a user of torch would write it, with the weights of one of ours: linear, layer_norm, gelu, embedding, and
// scaled_dot_product_attention, of several levels on concatenated features, which is the fastest that torch alone has for them.
// In Python it would be slower.
class Eager {
 public:
  explicit Eager(const TransformerImpl& model) : config_(model.config()) {
    for (const auto& parameter : model.named_parameters()) parameters_[parameter.key()] = parameter.value().detach();
  }

  // [B, classes], or [B, T, vocab]. `lengths` undefined: no padding.
  at::Tensor logits(const at::Tensor& tokens, const at::Tensor& lengths) const {
    const auto length = tokens.size(1);
    auto x = at::embedding(at("embedding.weight"), tokens);
    if (config_.positions == Positions::learned) x = x + at("positions").narrow(0, 0, length);
    const auto valid = lengths.defined() ? at::arange(length).unsqueeze(0).lt(lengths.unsqueeze(1)) : at::Tensor();
    const auto mask =
        lengths.defined() ? at::zeros(valid.sizes()).masked_fill_(valid.logical_not(), -INFINITY) : at::Tensor();
    for (std::int64_t block = 0; block < config_.blocks; ++block)
      x = through_block(x, "blocks." + std::to_string(block) + ".", mask);
    x = norm(x, "norm");
    if (config_.kind == ModelKind::language) return linear(x, "head");
    if (!lengths.defined()) return linear(x.mean(1), "head");
    const auto shares = valid.to(at::kFloat) / lengths.unsqueeze(1);
    return linear(at::bmm(shares.unsqueeze(1), x).squeeze(1), "head");
  }

 private:
  const at::Tensor& at(const std::string& name) const { return parameters_.at(name); }
  at::Tensor linear(const at::Tensor& x, const std::string& name) const {
    const auto bias = parameters_.find(name + ".bias");
    return at::linear(x, at(name + ".weight"), bias == parameters_.end() ? at::Tensor() : bias->second);
  }
  at::Tensor norm(const at::Tensor& x, const std::string& name) const {
    return at::layer_norm(x, {x.size(2)}, at(name + ".weight"), at(name + ".bias"));
  }

  at::Tensor through_block(const at::Tensor& input, const std::string& name, const at::Tensor& mask) const {
    const auto x = input + attended(norm(input, name + "attention_norm"), name + "attention.", mask);
    return x + linear(at::gelu(linear(norm(x, name + "feedforward_norm"), name + "expand")), name + "contract");
  }

  at::Tensor heads(const at::Tensor& x) const { return x.unflatten(2, {config_.heads, -1}).transpose(1, 2); }

  at::Tensor attended(const at::Tensor& x, const std::string& name, const at::Tensor& mask) const {
    std::vector<at::Tensor> q, k;
    auto rows = x;
    for (std::int64_t level = 0; level < config_.levels; ++level) {
      if (level > 0) rows = downsampled(rows, at(name + "filters." + std::to_string(level) + ".weight"));
      auto both = at::linear(rows, at(name + "query_key.weight")).unflatten(2, {2 * config_.heads, -1});
      if (config_.positions == Positions::rotary) both = rotated(both, std::int64_t{1} << level);
      const auto parts = both.transpose(1, 2).chunk(2, 1);
      q.push_back(parts[0]);
      k.push_back(parts[1]);
    }
    const auto v = heads(at::linear(x, at(name + "value.weight")));
    const auto broadcast = mask.defined() ? std::optional(mask.unsqueeze(1).unsqueeze(1)) : std::nullopt;
    const bool causal = config_.mask == Mask::causal;
    const auto out = config_.levels == 1
                         ? at::scaled_dot_product_attention(q[0], k[0], v, broadcast, 0, causal)
                         : testing::concatenated(q, k, v, at(name + "alpha").softmax(1), causal, broadcast);
    return at::linear(out.transpose(1, 2).flatten(2), at(name + "output.weight"));
  }

  // Row m is Σ_r x[2m − r] · weight[r]. The rows before the first are zero.
  static at::Tensor downsampled(const at::Tensor& x, const at::Tensor& weight) {
    const auto taps = weight.size(0), rows = (x.size(1) + 1) / 2;
    const auto padded = at::constant_pad_nd(x, {0, 0, taps - 1, 1});
    at::Tensor sum;
    for (std::int64_t tap = 0; tap < taps; ++tap) {
      const auto begin = taps - 1 - tap;
      const auto taken = padded.slice(1, begin, begin + 2 * rows - 1, 2);
      const auto part = weight.dim() == 3 ? at::matmul(taken, weight[tap]) : taken * weight[tap];
      sum = tap == 0 ? part : sum + part;
    }
    return sum;
  }

  // Pairs of neighbouring features by the angle of position m · stride, [B, T, heads, D]; the angles are computed once.
  at::Tensor rotated(const at::Tensor& x, std::int64_t stride) const {
    auto& [cosines, sines] = angles_[{x.size(1), stride}];
    if (!cosines.defined()) {
      const auto width = x.size(3);
      const auto rate = at::pow(10000, at::arange(0, width, 2, at::kDouble) / static_cast<double>(width));
      const auto angle = (at::arange(x.size(1), at::kDouble) * stride).unsqueeze(1) / rate;
      cosines = angle.cos().to(at::kFloat).unsqueeze(1);
      sines = angle.sin().to(at::kFloat).unsqueeze(1);
    }
    const auto pairs = x.unflatten(3, {-1, 2});
    const auto even = pairs.select(4, 0), odd = pairs.select(4, 1);
    return at::stack({even * cosines - odd * sines, even * sines + odd * cosines}, 4).flatten(3);
  }

  ModelConfig config_;
  std::map<std::string, at::Tensor> parameters_;
  mutable std::map<std::pair<std::int64_t, std::int64_t>, std::pair<at::Tensor, at::Tensor>> angles_;
};

// The probabilities of all texts in batches of similar length, which have at most so many tokens, padding included.
at::Tensor eager_predict(const Eager& model, const std::vector<std::string>& texts, std::size_t most_tokens) {
  const at::NoGradGuard no_grad;
  std::vector<std::size_t> order(texts.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](auto a, auto b) { return texts[a].size() < texts[b].size(); });
  std::vector<at::Tensor> answers;
  for (std::size_t begin = 0, end = 0; begin < order.size(); begin = end) {
    do ++end;
    while (end < order.size() && texts[order[end]].size() * (end + 1 - begin) <= most_tokens);
    const auto count = static_cast<std::int64_t>(end - begin), longest = std::ssize(texts[order[end - 1]]);
    const auto tokens = at::zeros({count, longest}, at::kLong), lengths = at::empty({count}, at::kLong);
    for (std::int64_t i = 0; i < count; ++i) {
      const auto& text = texts[order[begin + static_cast<std::size_t>(i)]];
      std::transform(text.begin(), text.end(), tokens.mutable_data_ptr<std::int64_t>() + i * longest,
                     [](char c) { return static_cast<unsigned char>(c); });
      lengths.mutable_data_ptr<std::int64_t>()[i] = std::ssize(text);
    }
    const bool padded = texts[order[begin]].size() < texts[order[end - 1]].size();
    answers.push_back(model.logits(tokens, padded ? lengths : at::Tensor()).softmax(1));
  }
  auto sorted = at::cat(answers);
  const std::vector<std::int64_t> places(order.begin(), order.end());
  return at::empty_like(sorted).index_copy_(0, at::tensor(places, at::kLong), sorted);
}

// Sums of losses and of correct predictions over batches that the program's own data code made.
std::pair<double, std::int64_t> eager_evaluate(const Eager& model, const std::vector<data::Batch>& batches,
                                               bool padded) {
  const at::NoGradGuard no_grad;
  double loss = 0;
  std::int64_t correct = 0;
  for (const auto& batch : batches) {
    const auto logits = model.logits(batch.tokens, padded ? batch.lengths : at::Tensor()).flatten(0, -2);
    const auto labels = batch.labels.flatten();
    loss += at::cross_entropy_loss(logits, labels, {}, at::Reduction::Sum).item<double>();
    correct += logits.argmax(1).eq(labels).sum().item<std::int64_t>();
  }
  return {loss, correct};
}

void expect_same(const at::Tensor& ours, const at::Tensor& theirs, const std::string& what) {
  if (at::allclose(ours.to(at::kDouble), theirs.to(at::kDouble), 1e-3, 1e-4)) return;
  throw std::logic_error("hkt_bench: " + what + " and its copy in torch's own operators give different answers.");
}

Config classifier(std::int64_t levels) {
  Config config;
  config.data.task = Task::text;
  config.model.levels = levels;
  config.model.classes = 2;
  config.model.positions = Positions::learned;
  config.model.max_length = 1024;
  return config;
}

// As models/enwik8-hkt.
Config language_model(std::int64_t levels) {
  return language_config({.heads = 4, .width = 256, .blocks = 6, .feedforward = 1024}, levels, 1024);
}

std::string name_of(std::int64_t levels) {
  return levels == 1 ? "standard, L = 1" : "HKT, L = " + std::to_string(levels);
}

// Texts whose lengths are spread evenly from the shortest to the longest.
std::vector<std::string> random_texts(std::size_t count, std::int64_t shortest, std::int64_t longest) {
  std::vector<std::string> texts;
  const auto lengths = at::randint(shortest, longest + 1, {static_cast<std::int64_t>(count)}, at::kLong);
  for (std::size_t i = 0; i < count; ++i) {
    const auto bytes = at::randint(1, 256, {lengths[static_cast<std::int64_t>(i)].item<std::int64_t>()}, at::kByte);
    texts.emplace_back(reinterpret_cast<const char*>(bytes.const_data_ptr<std::uint8_t>()),
                       static_cast<std::size_t>(bytes.numel()));
  }
  return texts;
}

// A folder with a model for the Predictor, which disappears with this object.
class TrainedFolder {
 public:
  TrainedFolder(const Config& config, const TransformerImpl& model)
      : folder_(std::filesystem::temp_directory_path() / ("hkt_bench_" + std::to_string(::getpid()))) {
    std::filesystem::create_directories(folder_);
    train::create_run({folder_}, config.to_json());
    train::save_model({folder_}, {config, {"no", "yes"}, ""}, train::copy_of_parameters(model));
  }
  ~TrainedFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }
  TrainedFolder(const TrainedFolder&) = delete;
  TrainedFolder& operator=(const TrainedFolder&) = delete;
  const std::filesystem::path& path() const { return folder_; }

 private:
  std::filesystem::path folder_;
};

// A line of the table: ours against the best of the candidates after it, which are the same with other batches.
void add_line(Table& table, const std::string& task, const std::string& model, std::int64_t tokens,
              const std::vector<Candidate>& candidates, int rounds) {
  const Timings timings(candidates, rounds);
  const auto best = std::min_element(candidates.begin() + 1, candidates.end(), [&](const auto& a, const auto& b) {
    return timings.seconds(a.name) < timings.seconds(b.name);
  });
  const auto rate = [&](const std::string& name) {
    return number(static_cast<double>(tokens) / timings.seconds(name), 0);
  };
  table.add({task, model, rate(candidates.front().name), rate(best->name), best->name,
             number(timings.ratio(candidates.front().name, best->name), 3)});
}

void add_predictions(Table& table, const std::string& task, const std::vector<std::string>& texts, int rounds) {
  std::int64_t tokens = 0;
  for (const auto& text : texts) tokens += std::ssize(text);
  for (const std::int64_t levels : {1, 3}) {
    const auto config = classifier(levels);
    const auto model = create_model(config.model);
    model->eval();
    const TrainedFolder folder(config, *model);
    const Predictor predictor(folder.path());
    const Eager eager(*model);
    const auto ours = predictor.predict(texts);
    std::vector<double> probabilities;
    for (const auto& answer : ours) probabilities.push_back(answer.probabilities.at(1));
    expect_same(at::tensor(probabilities, at::kDouble), eager_predict(eager, texts, 4096).select(1, 1), task);
    std::vector<Candidate> candidates = {{"hkt", [&] { predictor.predict(texts); }}};
    for (const std::size_t most : {1024, 4096, 16384}) {
      candidates.push_back({std::to_string(most) + " tokens", [&, most] { eager_predict(eager, texts, most); }});
    }
    add_line(table, task, name_of(levels), tokens, candidates, rounds);
  }
}

data::Split split_of(const std::vector<std::string>& texts) {
  data::Sequences sequences;
  for (std::size_t i = 0; i < texts.size(); ++i) {
    const auto* bytes = reinterpret_cast<const std::uint8_t*>(texts[i].data());
    sequences.add({bytes, texts[i].size()}, static_cast<std::int64_t>(i % 2));
  }
  return data::Split(data::part_of(std::move(sequences)));
}

// Batches of sequences of similar length.
std::vector<data::Batch> batches_of(const data::Split& split, std::int64_t size, const Config& config) {
  std::vector<std::int64_t> order(static_cast<std::size_t>(split.size()));
  std::iota(order.begin(), order.end(), std::int64_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](auto a, auto b) { return split.tokens(a).size() < split.tokens(b).size(); });
  std::vector<data::Batch> batches;
  for (std::int64_t begin = 0; begin < split.size(); begin += size) {
    const std::vector<std::int64_t> some(order.begin() + begin, order.begin() + std::min(begin + size, split.size()));
    batches.push_back(data::make_batch(split, some, {.batch = size, .max_length = config.model.max_length}));
  }
  return batches;
}

void add_evaluation(Table& table, const std::vector<std::string>& texts, int rounds) {
  const auto split = split_of(texts);
  std::int64_t tokens = 0;
  for (const auto& text : texts) tokens += std::ssize(text);
  for (const std::int64_t levels : {1, 3}) {
    const auto config = classifier(levels);
    const auto model = create_model(config.model);
    model->eval();
    const Eager eager(*model);
    const auto ours = train::evaluate(*model, split, config, at::kCPU).tally;
    const auto [loss, correct] = eager_evaluate(eager, batches_of(split, 8, config), true);
    expect_same(at::tensor({ours.loss}, at::kDouble), at::tensor({loss}, at::kDouble), "eval of a classifier");
    std::vector<Candidate> candidates = {{"hkt", [&] { train::evaluate(*model, split, config, at::kCPU); }}};
    for (const std::int64_t size : {4, 16, 64}) {
      candidates.push_back({std::to_string(size) + " sequences",
                            [&, size] { eager_evaluate(eager, batches_of(split, size, config), true); }});
    }
    add_line(table, "eval, classifier", name_of(levels), tokens, candidates, rounds);
  }
}

void add_language(Table& table, std::int64_t length, int rounds) {
  const auto bytes = at::randint(1, 256, {length}, at::kByte);
  const data::Stream stream{{bytes.const_data_ptr<std::uint8_t>(), static_cast<std::size_t>(length)}, nullptr};
  for (const std::int64_t levels : {1, 3, 5}) {
    const auto config = language_model(levels);
    const auto model = create_model(config.model);
    model->eval();
    const Eager eager(*model);
    const auto windows = data::scored_windows(length, config.model.max_length);
    const auto evaluated = [&](std::int64_t size) {
      std::vector<data::Batch> batches;
      for (std::size_t begin = 0; begin < windows.size(); begin += static_cast<std::size_t>(size)) {
        const auto some =
            std::span(windows).subspan(begin, std::min(static_cast<std::size_t>(size), windows.size() - begin));
        batches.push_back(data::make_windows(stream, some, config.model.max_length));
      }
      return eager_evaluate(eager, batches, false);
    };
    {
      const at::NoGradGuard no_grad;
      const auto batch = data::make_windows(stream, std::span(windows).first(2), config.model.max_length);
      expect_same(model->forward(batch.tokens), eager.logits(batch.tokens, {}), "a language model");
    }
    std::vector<Candidate> candidates = {{"hkt", [&] { train::score(*model, stream, config, at::kCPU); }}};
    for (const std::int64_t size : {1, 2, 8})
      candidates.push_back({std::to_string(size) + " windows", [&, size] { evaluated(size); }});
    add_line(table, "eval, language model", name_of(levels), std::ssize(windows) * config.model.max_length, candidates,
             rounds);
  }
}

}  // namespace

Table inference(bool quick) {
  Table table("predict and eval, CPU, float32: a model beside the same weights in torch's own operators",
              {"task", "model", "tokens/s", "eager tokens/s", "eager's batches", "to eager"});
  const int rounds = quick ? 3 : 7;
  torch::manual_seed(0);
  add_predictions(table, "predict, 100 to 1,000 bytes", random_texts(quick ? 32 : 64, 100, 1000), rounds);
  add_predictions(table, "predict, 10 to 100 bytes", random_texts(quick ? 200 : 1000, 10, 100), rounds);
  add_evaluation(table, random_texts(quick ? 32 : 96, 100, 1000), rounds);
  add_language(table, quick ? 1537 : 2561, rounds);
  return table;
}

}  // namespace hkt::bench
