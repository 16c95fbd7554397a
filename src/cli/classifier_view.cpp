// SPDX-License-Identifier: Apache-2.0
// Accuracy, classes, confusions, calibration and mistakes, as JSON and as lines on a terminal.
#include "classifier_view.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <optional>
#include <stdexcept>
#include <tuple>

#include "files/json_fields.h"
#include "files/quote.h"
#include "files/regular_file.h"
#include "files/whole_file.h"
#include "hkt/safetensors.h"
#include "progress.h"

namespace hkt::cli {
namespace {

using nlohmann::ordered_json;

ordered_json or_null(std::optional<double> value) { return value ? ordered_json(*value) : ordered_json(); }

std::string percent(std::optional<double> value) { return value ? fmt::format("{:.2f} %", 100 * *value) : "–"; }

ordered_json classes_json(const ScoredSplit& scored) {
  auto rows = ordered_json::array();
  for (std::size_t i = 0; i < scored.score.classes.size(); ++i) {
    const auto& own = scored.score.classes[i];
    rows.push_back({{"label", scored.model.labels[i]},
                    {"sequences", own.sequences},
                    {"accuracy", own.recall().value_or(0)},
                    {"predicted", own.predicted},
                    {"precision", or_null(own.precision())},
                    {"recall", or_null(own.recall())},
                    {"f1", or_null(own.f1())}});
  }
  return rows;
}

// Only what occurs: a model may have ten thousand classes.
ordered_json confusion_json(const ScoredSplit& scored) {
  auto rows = ordered_json::object();
  for (std::size_t i = 0; i < scored.score.confusion.size(); ++i) {
    if (scored.score.confusion[i].empty()) continue;
    auto& row = rows[scored.model.labels[i]];
    for (const auto& [predicted, count] : scored.score.confusion[i]) row[scored.model.labels[predicted]] = count;
  }
  return rows;
}

ordered_json calibration_json(const train::ClassifierScore& score) {
  auto bins = ordered_json::array();
  for (const auto& bin : score.confidence) {
    const bool any = bin.sequences > 0;
    bins.push_back({{"from", bin.from},
                    {"to", bin.to},
                    {"sequences", bin.sequences},
                    {"confidence", any ? ordered_json(bin.confidence) : ordered_json()},
                    {"accuracy", any ? ordered_json(bin.accuracy) : ordered_json()}});
  }
  return {{"expected_error", score.calibration_error}, {"bins", bins}};
}

ordered_json mistakes_json(const ScoredSplit& scored) {
  auto rows = ordered_json::array();
  for (const auto& mistake : scored.score.mistakes) {
    rows.push_back({{"example", mistake.sequence + 1},
                    {"label", scored.model.labels[mistake.label]},
                    {"probability", mistake.probability},
                    {"predicted", scored.model.labels[mistake.predicted]},
                    {"predicted_probability", mistake.predicted_probability},
                    {"text", text_of(scored, mistake.sequence)}});
  }
  return rows;
}

// Throws ordered_json::exception if a value is missing or has another type.
void check_score(const ordered_json& score) {
  for (const char* key : {"split", "model"}) score.at(key).get<std::string>();
  for (const char* key : {"sequences", "correct"}) score.at(key).get<std::int64_t>();
  score.at("accuracy").get<double>();
  for (const auto& row : score.at("labels")) {
    row.at("label").get<std::string>();
    row.at("sequences").get<std::int64_t>();
  }
  for (const auto& row : score.at("confusion").items()) row.value().get<std::map<std::string, std::int64_t>>();
  for (const auto& bin : score.at("calibration").at("bins")) bin.at("sequences").get<std::int64_t>();
  for (const auto& mistake : score.at("mistakes")) {
    for (const char* key : {"label", "predicted", "text"}) mistake.at(key).get<std::string>();
    for (const char* key : {"probability", "predicted_probability"}) mistake.at(key).get<double>();
  }
}

void print_classes(const ScoredSplit& scored) {
  for (std::size_t i = 0; i < scored.score.classes.size(); ++i) {
    const auto& own = scored.score.classes[i];
    fmt::print("  {:16} {:6.2f} % of {}, precision {}, F1 {}\n", printable(scored.model.labels[i]),
               100 * own.recall().value_or(0), own.sequences, percent(own.precision()), percent(own.f1()));
  }
  if (scored.score.macro_f1) fmt::print("mean F1 of the classes {}\n", percent(scored.score.macro_f1));
}

void print_matrix(const ScoredSplit& scored) {
  fmt::print("confusion: rows are labels, columns what was predicted\n  {:16}", "");
  for (const auto& label : scored.model.labels) fmt::print(" {:>8.8}", printable(label));
  fmt::print("\n");
  for (std::size_t i = 0; i < scored.score.confusion.size(); ++i) {
    const auto& row = scored.score.confusion[i];
    fmt::print("  {:16.16}", printable(scored.model.labels[i]));
    for (std::int64_t predicted = 0; predicted < std::ssize(scored.model.labels); ++predicted) {
      const auto found = row.find(predicted);
      fmt::print(" {:>8}", found == row.end() ? 0 : found->second);
    }
    fmt::print("\n");
  }
}

// For more classes than a terminal has columns.
void print_frequent_confusions(const ScoredSplit& scored) {
  constexpr std::size_t most = 10;
  std::vector<std::tuple<std::int64_t, std::size_t, std::int64_t>> pairs;  // minus the count, label, predicted
  for (std::size_t i = 0; i < scored.score.confusion.size(); ++i) {
    for (const auto& [predicted, count] : scored.score.confusion[i]) {
      if (predicted != static_cast<std::int64_t>(i)) pairs.emplace_back(-count, i, predicted);
    }
  }
  std::sort(pairs.begin(), pairs.end());
  if (!pairs.empty()) fmt::print("most frequent confusions\n");
  for (std::size_t i = 0; i < std::min(most, pairs.size()); ++i) {
    const auto& [count, label, predicted] = pairs[i];
    fmt::print("  {:>8} × {} taken for {}\n", -count, printable(scored.model.labels[label]),
               printable(scored.model.labels[predicted]));
  }
}

void print_calibration(const train::ClassifierScore& score) {
  fmt::print("calibration: expected error {:.2f} %; of predictions with a probability of\n",
             100 * score.calibration_error);
  for (const auto& bin : score.confidence) {
    if (bin.sequences == 0) continue;
    fmt::print("  {:.1f} to {:.1f}  {} {:6.2f} % are right (mean probability {:.2f} %, {} of them)\n", bin.from, bin.to,
               bar(bin.accuracy), 100 * bin.accuracy, 100 * bin.confidence, bin.sequences);
  }
}

void print_mistakes(const ScoredSplit& scored) {
  const auto wrong = scored.predictions.tally.predictions - scored.predictions.tally.correct;
  if (scored.score.mistakes.empty()) return;
  fmt::print("the worst mistakes, {} of {}\n", scored.score.mistakes.size(), wrong);
  for (const auto& mistake : scored.score.mistakes) {
    const auto text = printable(text_of(scored, mistake.sequence));
    fmt::print("  example {}: {} ({:.4f}), taken for {} ({:.4f})\n", mistake.sequence + 1,
               printable(scored.model.labels[mistake.label]), mistake.probability,
               printable(scored.model.labels[mistake.predicted]), mistake.predicted_probability);
    if (!text.empty()) fmt::print("    {:.400}\n", text);
  }
}

}  // namespace

std::string text_of(const ScoredSplit& scored, std::int64_t sequence) {
  const auto& config = scored.model.config;
  if (config.data.task == Task::scifar) return {};
  const auto all = scored.split.tokens(sequence);
  const auto seen = all.first(std::min(all.size(), static_cast<std::size_t>(config.model.max_length)));
  if (config.data.task != Task::listops) return {seen.begin(), seen.end()};
  std::string text;
  for (const auto token : seen) {
    if (!text.empty()) text += ' ';
    text += data::token_text(config.data.task, token);
  }
  return text;
}

ordered_json json_of(const ScoredSplit& scored) {
  const auto& tally = scored.predictions.tally;
  return {{"sequences", tally.predictions},      {"correct", tally.correct},
          {"accuracy", tally.accuracy()},        {"loss", tally.mean_loss()},
          {"labels", classes_json(scored)},      {"macro_f1", or_null(scored.score.macro_f1)},
          {"confusion", confusion_json(scored)}, {"calibration", calibration_json(scored.score)},
          {"mistakes", mistakes_json(scored)}};
}

void save_score(const train::RunDirectory& run, const ScoredSplit& scored, const std::string& split,
                const std::string& model) {
  ordered_json record = {{"split", split}, {"model", model}};
  record.update(json_of(scored));
  write_file(run.score(), fields::dump(record, 1) + "\n");
}

std::optional<ordered_json> read_score(const train::RunDirectory& run, const train::Warn& warn) {
  std::error_code error;
  if (!std::filesystem::exists(run.score(), error) || !std::filesystem::exists(run.model(), error)) return {};
  try {
    auto score = ordered_json::parse(read_file(run.score()));
    check_score(score);
    if (score["model"] != load_safetensors(run.model()).checksum) return {};
    return score;
  } catch (const ordered_json::exception&) {
    warn(run.score().string() + " is not valid output of hkt eval and is left out.");
  } catch (const std::runtime_error& failure) {
    warn(std::string(failure.what()) + " It is left out.");
  }
  return {};
}

void print(const ScoredSplit& scored, const std::string& name) {
  constexpr std::size_t most_columns = 12;
  const auto& tally = scored.predictions.tally;
  fmt::print("{} accuracy {:.2f} % ({} of {}), loss {:.4f}\n", printable(name), 100 * tally.accuracy(), tally.correct,
             tally.predictions, tally.mean_loss());
  print_classes(scored);
  if (scored.model.labels.size() <= most_columns) {
    print_matrix(scored);
  } else {
    print_frequent_confusions(scored);
  }
  print_calibration(scored.score);
  print_mistakes(scored);
}

}  // namespace hkt::cli
