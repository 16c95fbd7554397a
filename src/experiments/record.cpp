// SPDX-License-Identifier: Apache-2.0
// Reads a run directory.
#include "experiments/record.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>
#include <tuple>

#include "experiments/sample.h"
#include "files/regular_file.h"
#include "hkt/config.h"
#include "hkt/safetensors.h"
#include "train/config_json.h"
#include "train/metrics.h"
#include "train/phases.h"
#include "train/stored_score.h"

namespace hkt::experiments {
namespace {

namespace fs = std::filesystem;
using nlohmann::ordered_json;

std::string plural(std::int64_t count, const char* what) {
  return fmt::format("{} {}{}", count, what, count == 1 ? "" : "s");
}

// `json` is the section of the config that the model is in.
std::string summary(const ModelConfig& model, const ordered_json& json) {
  const auto word = [&](const char* key) { return json[key].get<std::string>(); };
  std::string text = model.attention != AttentionKind::hkt ? name_of(model.attention) + " attention"
                     : model.levels == 1 ? "standard attention"
                                         : fmt::format("HKT, {} levels, {} filter of {}", model.levels, word("filter"),
                                                       model.kernel_size);
  if (model.levels > 1 && model.filter_on == FilterOn::projected) text += " on queries and keys";
  if (model.short_convolution != Convolution::none)
    text += fmt::format(", {} convolution of {}", word("short_convolution"), model.convolution_taps);
  text += fmt::format(", {} positions, {}, width {}, {}", word("positions"), plural(model.blocks, "block"), model.width,
                      plural(model.heads, "head"));
  if (model.psd != Psd::free) text += ", " + word("psd") + " kernel";
  if (model.kind == ModelKind::classifier && model.mask != Mask::none) text += ", causal mask";
  return text;
}

ordered_json score_of_classifier(const StoredPredictions& stored) {
  const auto right = stored.logits.argmax(1).eq(stored.labels).contiguous();
  const auto correct = right.sum().item<std::int64_t>(), count = stored.labels.size(0);
  const auto* first = right.const_data_ptr<bool>();
  return {{"correct", correct},
          {"sequences", count},
          {"accuracy", static_cast<double>(correct) / static_cast<double>(count)},
          {"predictions", stored.checksum},
          {"correct_bits", bits_text(std::vector<bool>(first, first + count))}};
}

ordered_json score_of_language_model(const train::StoredScore& stored) {
  const auto& tally = stored.score.tally;
  return {{"bytes", tally.predictions},
          {"bits_per_byte", tally.bits()},
          {"accuracy", tally.accuracy()},
          {"by_position", train::by_position_json(stored.score)},
          {"predictions", stored.checksum}};
}

// The score on the test split, if `hkt eval` has scored the current model.
ordered_json test_score(const train::RunDirectory& run, ModelKind kind, const train::Warn& warn) {
  if (!fs::exists(run.predictions()) || !fs::exists(run.model())) return {};
  const auto is_current = [&](const auto& stored) {
    return stored.split == "test" && stored.model == load_safetensors(run.model()).checksum;
  };
  try {
    if (kind == ModelKind::language) {
      const auto stored = train::read_score(run);
      return is_current(stored) ? score_of_language_model(stored) : ordered_json();
    }
    const auto stored = read_predictions(run);
    return is_current(stored) ? score_of_classifier(stored) : ordered_json();
  } catch (const std::runtime_error& error) {
    warn(std::string(error.what()) + " It is left out.");
    return {};
  }
}

ordered_json theory_of(const train::RunDirectory& run, const train::Warn& warn) {
  if (!fs::exists(run.theory())) return {};
  if (auto theory = read_theory(run)) return *theory;
  warn(run.theory().string() + " is not valid output of hkt theory and is left out.");
  return {};
}

// Of a model without metrics, as `hkt export` writes it; null if there is no model either.
ordered_json parameters_of_model(const train::RunDirectory& run, const train::Warn& warn) {
  std::error_code error;
  if (!fs::exists(run.model(), error)) return {};
  try {
    std::int64_t count = 0;
    for (const auto& [name, tensor] : load_safetensors(run.model()).tensors) count += tensor.numel();
    return count;
  } catch (const std::runtime_error& damaged) {
    warn(std::string(damaged.what()) + " Its parameters are not counted.");
    return {};
  }
}

bool is_claim(const ordered_json& claim) {
  const auto is_text = [&](const char* key) { return claim.contains(key) && claim[key].is_string(); };
  return claim.is_object() && is_text("claim") && is_text("paper") && is_text("title") && is_text("verdict") &&
         is_text("sentence");
}

}  // namespace

ordered_json record_of(const train::RunDirectory& run, const train::Warn& warn) {
  const auto config = Config::from_json(read_file(run.config()));
  const bool language = config.model.kind == ModelKind::language;
  const auto json = to_json(config);
  auto name = run.folder.filename().string();
  if (name.empty()) name = run.folder.parent_path().filename().string();
  ordered_json record = {{"name", name},
                         {"config", json},
                         {"summary", summary(config.model, json["model"])},
                         {"parameters", 0},
                         {"best_validation", nullptr},
                         {"epochs", ordered_json::array()},
                         {"probes", ordered_json::array()}};
  for (const auto& line : train::read_metrics(run.metrics())) {
    const auto event = line.value("event", "");
    if (event == "start") record["parameters"] = line.value("parameters", std::int64_t{0});
    if (event == "epoch") {
      auto epoch = ordered_json(line);
      epoch.erase("theory");
      auto& best = record["best_validation"];
      const double validation = line.value(language ? "validation_bits_per_byte" : "validation_accuracy", 0.0);
      if (best.is_null() || (language ? validation < best.get<double>() : validation > best.get<double>()))
        best = validation;
      record["epochs"].push_back(std::move(epoch));
    }
    if (line.contains("theory")) {
      const auto epochs = event == "start" ? 0 : line.value("epoch", std::int64_t{0}) + 1;
      record["probes"].push_back({{"epoch", epochs}, {"theory", line["theory"]}});
    }
  }
  if (record["parameters"] == 0) {
    record["parameters"] = parameters_of_model(run, warn);
    if (std::error_code error; !fs::exists(run.metrics(), error)) record["exported"] = true;
  }
  record["test"] = test_score(run, config.model.kind, warn);
  record["theory"] = theory_of(run, warn);
  if (record["theory"].is_object()) record["theory"]["model"]["run"] = name;  // the folder may have been renamed
  if (auto sample = read_sample(run); sample.is_object()) record["sample"] = std::move(sample);
  if (!language && fs::exists(run.phases()) && fs::exists(run.model())) {
    if (auto phases = train::read_phases(run, load_safetensors(run.model()).checksum))
      record["phases"] = std::move(*phases);
  }
  return record;
}

std::string bits_text(const std::vector<bool>& correct) {
  constexpr std::size_t bits = 4;
  std::string text;
  for (std::size_t begin = 0; begin < correct.size(); begin += bits) {
    std::size_t digit = 0;
    for (std::size_t i = begin; i < begin + bits; ++i) digit = 2 * digit + (i < correct.size() && correct[i] ? 1 : 0);
    text += "0123456789abcdef"[digit];
  }
  return text;
}

std::optional<ordered_json> read_theory(const train::RunDirectory& run) {
  std::error_code error;
  if (!fs::exists(run.theory(), error)) return {};
  auto theory = ordered_json::parse(read_file(run.theory()), nullptr, false);
  const auto holds = [&](const char* key, bool (ordered_json::*kind)() const) {
    return theory.is_object() && theory.contains(key) && (theory[key].*kind)();
  };
  if (!holds("model", &ordered_json::is_object) || !holds("claims", &ordered_json::is_array) ||
      !holds("blocks", &ordered_json::is_array))
    return {};
  const auto checksum = theory["model"].value("checksum", ordered_json(""));
  const auto& claims = theory["claims"];
  if (!checksum.is_string() || !std::all_of(claims.begin(), claims.end(), is_claim)) return {};
  return theory;
}

StoredPredictions read_predictions(const train::RunDirectory& run) {
  const auto file = load_safetensors(run.predictions());
  StoredPredictions stored;
  for (const auto& [name, tensor] : file.tensors) {
    if (name == "logits") stored.logits = tensor;
    if (name == "labels") stored.labels = tensor;
  }
  const auto text = [&](const char* key) {
    const auto found = file.metadata.find(key);
    return found == file.metadata.end() ? std::string() : found->second;
  };
  const auto& [logits, labels] = std::tie(stored.logits, stored.labels);
  if (!logits.defined() || !labels.defined() || logits.dim() != 2 || logits.numel() == 0 ||
      !logits.is_floating_point() || labels.scalar_type() != at::kLong || labels.dim() != 1 ||
      labels.size(0) != logits.size(0)) {
    throw std::runtime_error(run.predictions().string() + " contains no predictions of hkt eval.");
  }
  stored.split = text("split");
  stored.model = text("model");
  stored.checksum = file.checksum;
  return stored;
}

}  // namespace hkt::experiments
