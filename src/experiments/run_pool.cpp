// SPDX-License-Identifier: Apache-2.0
// Starts runs, follows their metrics and starts their next stages.
#include "experiments/run_pool.h"

#include <fmt/format.h>

#include <chrono>
#include <deque>
#include <stdexcept>
#include <thread>
#include <utility>

#include "experiments/sample.h"
#include "files/whole_file.h"

namespace hkt::experiments {
namespace {

namespace fs = std::filesystem;

fs::path config_file(const Run& run) { return run.folder.string() + ".json"; }
fs::path log_file(const Run& run) { return run.folder.string() + ".log"; }

void update(RunProgress& progress, const nlohmann::json& line) {
  const auto event = line.value("event", "");
  if (event == "start") progress.steps = line.value("steps", 1.0);
  if (event == "epoch")
    progress.validation = line.value(progress.language ? "validation_bits_per_byte" : "validation_accuracy", 0.0);
  if (event != "step") return;
  progress.step = line.value("step", 0.0);
  progress.epoch = line.value("epoch", std::int64_t{0});
  progress.loss = line.value("loss", 0.0);
  progress.accuracy = line.value("accuracy", 0.0);
  progress.tokens_per_second = line.value("tokens_per_second", 0.0);
}

std::string end_of(const Run& run) {
  const auto best = run.best_validation();
  if (!best) return run.name + " diverged and is not chosen";
  return run.is_language() ? fmt::format("{} is done: best validation {:.4f} bits per byte", run.name, *best)
                           : fmt::format("{} is done: best validation accuracy {:.2f} %", run.name, 100 * *best);
}

}  // namespace

RunPool::RunPool(std::size_t jobs, int threads, std::string device, PoolHooks hooks)
    : jobs_(jobs), threads_(threads), device_(std::move(device)), hooks_(std::move(hooks)) {}

void RunPool::say(const std::string& line) const {
  if (hooks_.say) hooks_.say(line);
}

bool RunPool::run(const std::vector<Run>& runs) {
  std::deque<const Run*> waiting;
  for (const auto& run : runs) {
    check_config(run);
    if (run.next() == Run::Stage::done) {
      say(run.name + " is already done");
    } else {
      waiting.push_back(&run);
    }
  }
  std::vector<Active> active;
  while (!waiting.empty() || !active.empty()) {
    if (stopped_ || (hooks_.stop && hooks_.stop())) return false;
    while (active.size() < jobs_ && !waiting.empty()) {
      active.push_back(start(*waiting.front()));
      waiting.pop_front();
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    advance(active);
    std::vector<RunProgress> running;
    for (auto& one : active) {
      for (const auto& line : one.metrics.next()) update(one.progress, line);
      running.push_back(one.progress);
    }
    if (hooks_.progress) hooks_.progress(running, waiting.size());
  }
  return true;
}

RunPool::Active RunPool::start(const Run& run) const {
  const auto text = [](const fs::path& path) { return path.string(); };
  std::vector<std::string> arguments;
  const auto stage = run.next();
  switch (stage) {
    case Run::Stage::train:
      if (run.directory().holds_run()) {
        arguments = {"train", "--resume", text(run.folder), "--quiet", "--device", device_};
      } else {
        write_file(config_file(run), run.config.to_json());
        arguments = {"train", text(config_file(run)), "--out", text(run.folder), "--quiet", "--device", device_};
      }
      break;
    case Run::Stage::eval:
      arguments = {"eval", text(run.folder), "--split", "test", "--device", device_};
      break;
    case Run::Stage::phases:
      arguments = {"eval",     text(run.folder),           "--split",  "test",
                   "--phases", std::to_string(run.phases), "--device", device_};
      break;
    case Run::Stage::theory:
      arguments = {"theory", text(run.folder)};
      break;
    case Run::Stage::sample:
      arguments = sampling_arguments(run.directory(), run.prompt);
      break;
    case Run::Stage::done:
      throw std::logic_error(run.name + " is already done.");
  }
  arguments.insert(arguments.end(), {"--threads", std::to_string(threads_)});
  RunProgress progress;
  progress.name = run.name;
  progress.stage = stage;
  progress.language = run.is_language();
  return {&run, stage, std::make_unique<Child>(arguments, log_file(run)),
          train::MetricsReader(run.directory().metrics()), std::move(progress)};
}

void RunPool::advance(std::vector<Active>& active) {
  for (auto& one : active) {
    const auto end = one.child->ended();
    if (!end) continue;
    if (end->code == Child::interrupted) {  // stopped from outside, so all others stop, too
      stopped_ = true;
      continue;
    }
    if ((end->code != 0 || end->signal != 0) && !one.run->diverged()) {
      throw std::runtime_error(one.run->name + " " + one.child->describe_end());
    }
    const auto next = one.run->next();
    if (next == one.stage) {
      throw std::runtime_error(one.run->name + " exited without an error but did not write its results to " +
                               one.run->folder.string() + ".");
    }
    if (next == Run::Stage::done) {
      say(end_of(*one.run));
      one.child.reset();
    } else {
      one = start(*one.run);
    }
  }
  std::erase_if(active, [](const Active& one) { return one.child == nullptr; });
}

}  // namespace hkt::experiments
