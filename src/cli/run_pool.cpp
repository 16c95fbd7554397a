// The pool: starting, watching and awaiting the processes.
#include "run_pool.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <deque>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <thread>

#include "files/regular_file.h"
#include "files/whole_file.h"
#include "hkt/safetensors.h"
#include "interrupt.h"
#include "progress.h"
#include "train/metrics.h"
#include "train/record.h"

namespace hkt::cli {
namespace {

namespace fs = std::filesystem;

fs::path config_file(const Run& run) { return run.folder.string() + ".json"; }
fs::path log_file(const Run& run) { return run.folder.string() + ".log"; }

// A folder from another version of the protocol would be scored as if it were this one's.
void check_config(const Run& run) {
  if (!run.directory().holds_run()) return;
  auto found = Config::from_json(read_file(run.directory().config()));
  found.train.threads = run.config.train.threads;  // another machine makes no other experiment
  found.train.device = run.config.train.device;
  if (found != run.config) {
    throw std::invalid_argument(run.folder.string() +
                                " holds a run with another config; remove it, or name another folder with --out.");
  }
}

std::string describe(const Run& run) {
  const auto lines = train::read_metrics(run.directory().metrics());
  std::string text = fmt::format("{:18} ", run.name);
  if (lines.empty()) return text + "starting";
  if (lines.back().value("event", "") == "end")
    return text + (run.next() == Run::Stage::theory ? "examining the model" : "scoring the test set");
  const double steps = lines.front().value("steps", 1.0);
  double step = 0, validation = -1;
  std::string note;
  for (const auto& line : lines) {
    if (line.value("event", "") == "epoch") validation = line.value("validation_accuracy", 0.0);
    if (line.value("event", "") != "step") continue;
    step = line.value("step", 0.0);
    note =
        fmt::format(" epoch {}  loss {:.3f}  accuracy {:4.1f} %  {:.0f} tokens/s", line.value("epoch", 0) + 1,
                    line.value("loss", 0.0), 100 * line.value("accuracy", 0.0), line.value("tokens_per_second", 0.0));
  }
  text += bar(step / steps) + fmt::format(" {:3.0f} %", 100 * step / steps) + note;
  if (validation >= 0) text += fmt::format("  validation {:.1f} %", 100 * validation);
  return text;
}

std::string last_event(const Run& run) {
  const auto lines = train::read_metrics(run.directory().metrics());
  return lines.empty() ? "" : lines.back().value("event", "");
}

}  // namespace

bool Run::trained() const { return last_event(*this) == "end"; }

bool Run::diverged() const { return !scores && last_event(*this) == "diverged"; }

// Of another split or an earlier epoch, or damaged: it is scored again.
bool Run::scored() const {
  if (!trained() || !fs::exists(directory().predictions())) return false;
  try {
    const auto metadata = load_safetensors(directory().predictions()).metadata;
    return metadata.at("split") == "test" && metadata.at("model") == load_safetensors(directory().model()).checksum;
  } catch (const std::exception&) {
    return false;
  }
}

// Of the present model.
bool Run::examined() const {
  const auto theory = train::read_theory(directory());
  return theory && (*theory)["model"].value("checksum", "") == load_safetensors(directory().model()).checksum;
}

double Run::best_validation() const {
  return train::read_metrics(directory().metrics()).back().value("best_validation_accuracy", 0.0);
}

Run::Stage Run::next() const {
  if (diverged()) return Stage::done;
  if (!trained()) return Stage::train;
  if (scores && !scored()) return Stage::eval;
  return examines && !examined() ? Stage::theory : Stage::done;
}

RunPool::RunPool(std::size_t jobs, int threads, std::string device)
    : jobs_(jobs), threads_(threads), device_(std::move(device)) {}

bool RunPool::run(const std::vector<Run>& runs) {
  std::deque<const Run*> waiting;
  for (const auto& run : runs) {
    check_config(run);
    if (run.next() == Run::Stage::done) {
      lines_.say(run.name + " is done already");
    } else {
      waiting.push_back(&run);
    }
  }
  std::vector<Active> active;
  while (!waiting.empty() || !active.empty()) {
    if (Interrupt::asked() || stopped_) return false;
    while (active.size() < jobs_ && !waiting.empty()) {
      active.push_back(start(*waiting.front()));
      waiting.pop_front();
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    advance(active);
    std::vector<std::string> texts;
    for (const auto& one : active) texts.push_back(describe(*one.run));
    if (!waiting.empty()) texts.push_back(fmt::format("{} more to come", waiting.size()));
    lines_.show(texts);
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
    case Run::Stage::theory:
      arguments = {"theory", text(run.folder)};
      break;
    case Run::Stage::done:
      throw std::logic_error(run.name + " is done already.");
  }
  arguments.insert(arguments.end(), {"--threads", std::to_string(threads_)});
  return {&run, stage, std::make_unique<Child>(arguments, log_file(run))};
}

void RunPool::advance(std::vector<Active>& active) {
  for (auto& one : active) {
    const auto end = one.child->ended();
    if (!end) continue;
    if (end->code == interrupted) {  // somebody asked it to stop, and so all of this
      stopped_ = true;
      continue;
    }
    if ((end->code != 0 || end->signal != 0) && !one.run->diverged()) {
      throw std::runtime_error(one.run->name + " " + one.child->account());
    }
    const auto next = one.run->next();
    if (next == one.stage) {
      throw std::runtime_error(one.run->name + " ended without what it was to leave in " + one.run->folder.string() +
                               ".");
    }
    if (next == Run::Stage::done) {
      lines_.say(one.run->diverged() ? one.run->name + " diverged: it is not chosen"
                                     : fmt::format("{} is done: best validation accuracy {:.2f} %", one.run->name,
                                                   100 * one.run->best_validation()));
      one.child.reset();
    } else {
      one = start(*one.run);
    }
  }
  std::erase_if(active, [](const Active& one) { return one.child == nullptr; });
}

}  // namespace hkt::cli
