// SPDX-License-Identifier: Apache-2.0
// Running an experiment with progress on the terminal.
#include "experiment_view.h"

#include <ATen/Parallel.h>
#include <fmt/format.h>

#include <numbers>

#include "interrupt.h"
#include "print.h"
#include "progress.h"

namespace hkt::cli {
namespace {

using experiments::Run;

std::string describe(const experiments::RunProgress& run) {
  std::string text = fmt::format("{:18} ", run.name);
  if (run.stage == Run::Stage::theory) return text + "examining the model";
  if (run.stage == Run::Stage::eval) return text + "scoring the test set";
  if (run.stage == Run::Stage::phases) return text + "scoring the test set from other starts";
  if (run.stage == Run::Stage::sample) return text + "writing a sample";
  if (run.steps == 0) return text + "starting";
  const double share = run.step / run.steps;
  text += fmt::format("{} {:3.0f} %", bar(share), 100 * share);
  const auto score = [&](double loss, double accuracy) {
    return run.language ? fmt::format("{:.3f} bits per byte", loss / std::numbers::ln2)
                        : fmt::format("loss {:.3f}  accuracy {:4.1f} %", loss, 100 * accuracy);
  };
  if (run.step > 0) {
    text += fmt::format(" epoch {}  {}  {:.0f} tokens/s", run.epoch + 1, score(run.loss, run.accuracy),
                        run.tokens_per_second);
  }
  if (!run.validation) return text;
  return text + (run.language ? fmt::format("  validation {:.3f}", *run.validation)
                              : fmt::format("  validation {:.1f} %", 100 * *run.validation));
}

}  // namespace

data::Dataset load_data(const DataConfig& config) {
  data::Dataset dataset;
  {
    Progress progress("data");
    dataset = data::load(config, [&](auto done, auto total, const auto& what) { progress.show(done, total, what); });
  }
  for (const auto& notice : dataset.notices) warn(notice);
  return dataset;
}

data::Streams load_streams(const DataConfig& config) {
  data::Streams streams;
  {
    Progress progress("data");
    streams =
        data::load_streams(config, [&](auto done, auto total, const auto& what) { progress.show(done, total, what); });
  }
  for (const auto& notice : streams.notices) warn(notice);
  return streams;
}

experiments::TaskData load_task(const DataConfig& config) {
  if (is_stream(config.task)) return load_streams(config);
  return load_data(config);
}

experiments::PoolHooks pool_hooks(LiveLines& lines) {
  experiments::PoolHooks hooks;
  hooks.progress = [&](const std::vector<experiments::RunProgress>& running, std::size_t waiting) {
    std::vector<std::string> texts;
    for (const auto& run : running) texts.push_back(describe(run));
    if (waiting > 0) texts.push_back(fmt::format("{} more waiting", waiting));
    lines.show(texts);
  };
  hooks.say = [&](const std::string& line) { lines.say(line); };
  hooks.stop = [] { return Interrupt::asked(); };
  return hooks;
}

std::optional<nlohmann::ordered_json> run_experiment(const experiments::Protocol& protocol,
                                                     const std::filesystem::path& folder, const std::string& budget,
                                                     const std::string& command, int jobs,
                                                     const MachineOptions& machine, bool keeps_finished) {
  const auto device = chosen_device(machine);
  if (machine.threads) at::set_num_threads(*machine.threads);
  LiveLines lines;
  return experiments::run_experiment(protocol, {.folder = folder,
                                                .budget = budget,
                                                .command = command,
                                                .keeps_finished = keeps_finished,
                                                .jobs = jobs,
                                                .device = device,
                                                .load = load_task,
                                                .pool = pool_hooks(lines),
                                                .warn = warn});
}

}  // namespace hkt::cli
