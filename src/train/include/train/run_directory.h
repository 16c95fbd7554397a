// SPDX-License-Identifier: Apache-2.0
// The run directory: the files of one training run. `hkt train` writes them, and every later command reads them.
#pragma once

#include <filesystem>
#include <functional>
#include <string>

namespace hkt::train {

using Warn = std::function<void(const std::string&)>;  // gets a sentence about what was repaired or left out

struct RunDirectory {
  std::filesystem::path folder;

  std::filesystem::path config() const { return folder / "config.json"; }
  std::filesystem::path metrics() const { return folder / "metrics.jsonl"; }
  std::filesystem::path model() const { return folder / "model.safetensors"; }  // the best on validation
  std::filesystem::path state() const { return folder / "state.safetensors"; }  // the last, to resume from
  std::filesystem::path previous_state() const { return folder / "state.previous.safetensors"; }
  std::filesystem::path predictions() const { return folder / "predictions.safetensors"; }
  std::filesystem::path score() const { return folder / "score.json"; }  // of a classifier
  std::filesystem::path theory() const { return folder / "theory.json"; }
  std::filesystem::path phases() const { return folder / "phases.json"; }
  std::filesystem::path sample() const { return folder / "sample.json"; }  // text by a language model

  bool holds_run() const {
    std::error_code error;
    return std::filesystem::exists(config(), error);
  }
};

// Throws std::invalid_argument unless the folder is empty or does not exist.
void check_free(const std::filesystem::path& folder);
// Writes config.json into an empty folder that the caller has locked.
void create_run(const RunDirectory& run, const std::string& config);
// Removes a run that has not saved a state yet.
void remove_run(const RunDirectory& run);
// Throws std::invalid_argument if the folder contains no run.
RunDirectory open_run(const std::filesystem::path& folder);

// Creates the folder if needed and locks it, so that no other process trains there. Throws std::invalid_argument if one does.
class RunLock {
 public:
  explicit RunLock(const RunDirectory& run);
  ~RunLock();
  RunLock(const RunLock&) = delete;
  RunLock& operator=(const RunLock&) = delete;

 private:
  int file_;
};

}  // namespace hkt::train
