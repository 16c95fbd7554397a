// SPDX-License-Identifier: Apache-2.0
// The run directory: where the files of one training run lie. It is the contract between training and everything after.
#pragma once

#include <filesystem>
#include <functional>
#include <string>

namespace hkt::train {

using Warn = std::function<void(const std::string&)>;  // is told, in a sentence, what had to be mended or left out

struct RunDirectory {
  std::filesystem::path folder;

  std::filesystem::path config() const { return folder / "config.json"; }
  std::filesystem::path metrics() const { return folder / "metrics.jsonl"; }
  std::filesystem::path model() const { return folder / "model.safetensors"; }  // the best on validation
  std::filesystem::path state() const { return folder / "state.safetensors"; }  // the last, with all to go on
  std::filesystem::path previous_state() const { return folder / "state.previous.safetensors"; }
  std::filesystem::path predictions() const { return folder / "predictions.safetensors"; }
  std::filesystem::path theory() const { return folder / "theory.json"; }

  bool holds_run() const {
    std::error_code error;
    return std::filesystem::exists(config(), error);
  }
};

// Throws std::invalid_argument where the folder holds anything.
void check_free(const std::filesystem::path& folder);
// Writes config.json into a free folder that the caller has locked; removes what was written before the first state.
void create_run(const RunDirectory& run, const std::string& config);
void remove_run(const RunDirectory& run);
// One that is there; throws std::invalid_argument where it is not.
RunDirectory open_run(const std::filesystem::path& folder);

// Makes the folder if needed. While it lives no other process trains there; throws std::invalid_argument where one does.
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
