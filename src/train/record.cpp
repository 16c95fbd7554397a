// Reading a run directory.
#include "record.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <optional>

#include "hkt/config.h"
#include "hkt/safetensors.h"
#include "metrics.h"

namespace hkt::train {
namespace {

namespace fs = std::filesystem;
using nlohmann::ordered_json;

std::string summary(const ordered_json& model) {
  const std::int64_t levels = model["levels"], blocks = model["blocks"], heads = model["heads"];
  std::string text = levels == 1 ? "standard attention"
                                 : fmt::format("HKT, {} levels, {} filter of {}", levels,
                                               model["filter"].get<std::string>(), model["kernel_size"].get<int>());
  text += fmt::format(", {} positions, {} block{}, width {}, {} head{}", model["positions"].get<std::string>(), blocks,
                      blocks == 1 ? "" : "s", model["width"].get<int>(), heads, heads == 1 ? "" : "s");
  if (model["psd"] != "free") text += ", " + model["psd"].get<std::string>() + " kernel";
  if (model["mask"] != "none") text += ", causal mask";
  return text;
}

// The score on the test split, if `hkt eval` has taken it of the present model.
ordered_json test_score(const RunDirectory& run, const Warn& warn) {
  if (!fs::exists(run.predictions()) || !fs::exists(run.model())) return {};
  try {
    const auto file = load_safetensors(run.predictions());
    if (file.metadata.at("split") != "test" || file.metadata.at("model") != load_safetensors(run.model()).checksum)
      return {};
    at::Tensor logits, labels;
    for (const auto& [name, tensor] : file.tensors) (name == "logits" ? logits : labels) = tensor;
    const auto correct = logits.argmax(1).eq(labels).sum().item<std::int64_t>();
    return {{"correct", correct},
            {"sequences", labels.size(0)},
            {"accuracy", static_cast<double>(correct) / static_cast<double>(std::max<std::int64_t>(1, labels.size(0)))},
            {"predictions", file.checksum}};
  } catch (const std::exception& error) {
    warn(run.predictions().string() + " is left out: " + error.what());
    return {};
  }
}

ordered_json theory_of(const RunDirectory& run, const Warn& warn) {
  std::ifstream stream(run.theory(), std::ios::binary);
  if (!stream) return {};
  auto parsed = ordered_json::parse(stream, nullptr, false);
  if (!parsed.is_discarded()) return parsed;
  warn(run.theory().string() + " is damaged, and left out.");
  return {};
}

}  // namespace

ordered_json record_of(const RunDirectory& run, const Warn& warn) {
  std::ifstream stream(run.config());
  const std::string text{std::istreambuf_iterator<char>(stream), {}};
  const auto config = ordered_json::parse(Config::from_json(text).to_json());
  auto name = run.folder.filename().string();
  if (name.empty()) name = run.folder.parent_path().filename().string();
  ordered_json record = {{"name", name},
                         {"config", config},
                         {"summary", summary(config["model"])},
                         {"parameters", 0},
                         {"best_validation", nullptr},
                         {"epochs", ordered_json::array()},
                         {"probes", ordered_json::array()}};
  for (const auto& line : read_metrics(run.metrics())) {
    const auto event = line.value("event", "");
    if (event == "start") record["parameters"] = line.value("parameters", 0);
    if (event == "epoch") {
      auto epoch = ordered_json(line);
      epoch.erase("theory");
      const double accuracy = line.value("validation_accuracy", 0.0);
      if (record["best_validation"].is_null() || accuracy > record["best_validation"].get<double>())
        record["best_validation"] = accuracy;
      record["epochs"].push_back(std::move(epoch));
    }
    if (line.contains("theory"))
      record["probes"].push_back(
          {{"epoch", event == "start" ? 0 : line.value("epoch", 0) + 1}, {"theory", line["theory"]}});
  }
  record["test"] = test_score(run, warn);
  record["theory"] = theory_of(run, warn);
  if (record["theory"].is_object()) record["theory"]["model"]["run"] = name;  // wherever it lay
  return record;
}

}  // namespace hkt::train
