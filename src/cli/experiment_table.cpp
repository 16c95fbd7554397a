// SPDX-License-Identifier: Apache-2.0
// A line for each model, then comparisons, level weights and samples.
#include "experiment_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <sstream>
#include <string>

#include "experiments/results.h"
#include "files/quote.h"

namespace hkt::cli {
namespace {

using nlohmann::ordered_json;

std::string text_of(const ordered_json& interval, int digits) {
  return fmt::format("[{:+.{}f}, {:+.{}f}]", interval[0].get<double>(), digits, interval[1].get<double>(), digits);
}

// Intervals of a difference, and what they say after correction for their number; nothing for results of earlier versions.
std::string intervals_of(const ordered_json& comparison) {
  if (!comparison.contains("verdict")) return "";
  constexpr int digits = 2;
  std::string text;
  for (const auto& [key, by] : {std::pair("interval", "paired by seed"),
                                {"welch_interval", "by Welch"},
                                {"sequences_interval", "over sequences"}}) {
    if (const auto& interval = comparison[key]; !interval.is_null())
      text += fmt::format("{} {}, ", text_of(interval, digits), by);
  }
  text += printable(comparison["verdict"].get<std::string>());
  if (!comparison["holm_p"].is_null()) text += fmt::format(" (Holm's p = {:.2g})", comparison["holm_p"].get<double>());
  return text + ", ";
}

void print_linear(const ordered_json& results) {
  if (!results.contains("linear")) return;
  for (const auto& row : results["linear"]) {
    fmt::print("{} ({}): {:.2f} ± {:.2f} %\n", printable(row["name"].get<std::string>()),
               printable(row["what"].get<std::string>()), row["mean"].get<double>(), row["deviation"].get<double>());
  }
}

// What leaving out first tokens changes, and averaging over it.
void print_phases(const ordered_json& model) {
  if (!model.contains("phases")) return;
  const auto& phases = model["phases"];
  std::string line = fmt::format("{} without its first tokens, other labels:", model["name"].get<std::string>());
  for (const auto& share : phases["changed_without_first"]) line += fmt::format(" {:.1f}", share.get<double>());
  line += fmt::format(" %; mean of {} phases: {:.2f} % ({:+.2f}", phases["phases"].get<int>(),
                      phases["mean"].get<double>(), phases["gain"].get<double>());
  if (!phases["interval"].is_null()) line += fmt::format(" {}", text_of(phases["interval"], 2));
  fmt::print("{}), {}\n", line, printable(phases["verdict"].get<std::string>()));
}

void print_groups(const ordered_json& model) {
  for (const auto& [key, what] : {std::pair("by_depth", "depth"), {"by_length", "tokens"}}) {
    if (!model.contains(key)) continue;
    std::string line = fmt::format("{} by {}:", model["name"].get<std::string>(), what);
    for (const auto& group : model[key]) {
      const auto from = group["from"].get<std::int64_t>(), to = group["to"].get<std::int64_t>();
      line += fmt::format("  {} {:.1f} %", from == to ? fmt::to_string(from) : fmt::format("{}-{}", from, to),
                          group["accuracy"].get<double>());
    }
    fmt::print("{}\n", line);
  }
}

void print_tests(const ordered_json& results) {
  for (const auto& comparison : results["comparisons"]) {
    std::string line =
        fmt::format("{} against {}: {:+.2f}, {}", comparison["model"].get<std::string>(),
                    comparison["with"].get<std::string>(), comparison["gain"].get<double>(), intervals_of(comparison));
    if (!comparison["paired_t_test_p"].is_null()) {
      line += fmt::format("paired t-test p = {:.2g}, ", comparison["paired_t_test_p"].get<double>());
    }
    line += "McNemar p =";
    for (const auto& p : comparison["mcnemar_p"]) line += fmt::format(" {:.2g}", p.get<double>());
    fmt::print("{}\n", line);
  }
}

void print_level_weights(const ordered_json& model) {
  const auto& blocks = model["level_weights"];
  for (std::size_t block = 0; block < blocks.size() && blocks[block].size() > 1; ++block) {
    std::string line = fmt::format("λ of {}, block {}:", model["name"].get<std::string>(), block);
    for (const auto& weight : blocks[block]) line += fmt::format(" {:.3f}", weight.get<double>());
    if (model.contains("level_shares")) {
      line += ", effective shares:";
      for (const auto& share : model["level_shares"].at(block)) line += fmt::format(" {:.3f}", share.get<double>());
    }
    fmt::print("{}\n", line);
  }
}

void print_intervals(const ordered_json& results) {
  const auto text = [](const ordered_json& interval) { return text_of(interval, 4); };
  for (const auto& comparison : results["comparisons"]) {
    std::string line = fmt::format("{} against {}: {:+.4f}", comparison["model"].get<std::string>(),
                                   comparison["with"].get<std::string>(), comparison["difference"].get<double>());
    if (!comparison["interval"].is_null()) line += fmt::format(" {} paired by seed", text(comparison["interval"]));
    if (!comparison["welch_interval"].is_null())
      line += fmt::format(", {} by Welch", text(comparison["welch_interval"]));
    fmt::print("{}, {}\n", line, printable(comparison["verdict"].get<std::string>()));
  }
}

// The text of each model's first seed, after the prompt that all were given.
void print_samples(const ordered_json& results) {
  bool first = true;
  for (const auto& record : results["runs"]) {
    if (!record.contains("sample")) continue;
    const auto print = [](const std::string& title, const std::string& text) {
      fmt::print("\n{}:\n", title);
      std::istringstream lines(text);
      for (std::string line; std::getline(lines, line);) fmt::print("  | {}\n", printable(line));
    };
    const auto& sample = record["sample"];
    if (first) print("the prompt, from the test part of the data", sample["prompt"].get<std::string>());
    print(record["name"].get<std::string>() + " continues", sample["text"].get<std::string>());
    first = false;
  }
}

struct Column {
  std::string mean, difference, more;  // more: what only one kind of model has
};

Column of_classifier(const ordered_json& model, const ordered_json& first, bool several) {
  const double mean = model["mean"];
  return {several ? fmt::format("{:.2f} ± {:.2f} %", mean, model["deviation"].get<double>())
                  : fmt::format("{:.2f} %", mean),
          fmt::format("{:+.2f}", mean - first["mean"].get<double>()), ""};
}

Column of_language_model(const ordered_json& model, const ordered_json& first, bool several) {
  const double mean = model["mean"];
  constexpr double million = 1e6;
  return {
      several ? fmt::format("{:.4f} ± {:.4f}", mean, model["deviation"].get<double>()) : fmt::format("{:.4f}", mean),
      fmt::format("{:+.4f}", mean - first["mean"].get<double>()),
      fmt::format("{:>7.1f} M  ", model["tokens"].get<double>() / million)};
}

}  // namespace

void print_table(const ordered_json& results) {
  const auto& models = results["models"];
  const bool several = results["seeds"].size() > 1, language = experiments::are_of_language_models(results);
  std::size_t widest = results["experiment"].get<std::string>().size();
  for (const auto& model : models) widest = std::max(widest, model["name"].get<std::string>().size());
  fmt::print("\n{:{}} {:>10}  {}{:>15}  {:>7}  {:>9}  {:>6}  {:>9}\n", results["experiment"].get<std::string>(), widest,
             "parameters", language ? "   tokens  " : "", language ? "bits per byte" : "test accuracy",
             language ? "diff." : "gain", "step", "ratio", "attention");
  const auto& first = models.front();
  for (const auto& model : models) {
    const auto [mean, difference, more] =
        language ? of_language_model(model, first, several) : of_classifier(model, first, several);
    const std::size_t width = several ? 16 : 15;  // ± takes two bytes
    fmt::print("{:{}} {:>10}  {}{:>{}}  {:>7}  {:>6.1f} ms  {:>5.2f}×  {:>8.2f}×\n", model["name"].get<std::string>(),
               widest, model["parameters"].get<std::int64_t>(), more, mean, width, &model == &first ? "" : difference,
               1e3 * model["step_seconds"].get<double>(), model["step_ratio"].get<double>(),
               model["attention_ratio"].get<double>());
  }
  if (language) {
    print_intervals(results);
  } else {
    print_tests(results);
    print_linear(results);
  }
  for (const auto& model : models) {
    print_level_weights(model);
    print_phases(model);
    print_groups(model);
  }
  if (language) print_samples(results);
}

}  // namespace hkt::cli
