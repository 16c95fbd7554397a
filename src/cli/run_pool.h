// Training runs as processes of their own, several at a time, with a line for each on the terminal.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "child.h"
#include "hkt/config.h"
#include "live_lines.h"
#include "train/run_directory.h"

namespace hkt::cli {

// One run of one model: `hkt train`, and as far as it is wanted `hkt eval` and `hkt theory`.
struct Run {
  std::string name;
  Config config;
  std::filesystem::path folder;
  bool scores = true;  // false: only trained, to choose by validation
  bool examines = false;

  train::RunDirectory directory() const { return {folder}; }
  bool trained() const;
  bool diverged() const;  // one only to choose from, whose loss or gradient was not finite at last
  bool scored() const;
  bool examined() const;
  double best_validation() const;  // accuracy, of a trained one

  enum class Stage : std::uint8_t { train, eval, theory, done };
  Stage next() const;  // what is to be done first
};

class RunPool {
 public:
  RunPool(std::size_t jobs, int threads, std::string device);

  // Runs what is not done yet. False: interrupted. Throws std::invalid_argument where a folder holds another run, and
  // std::runtime_error where a run fails; one that is only to be chosen from may diverge.
  bool run(const std::vector<Run>& runs);

 private:
  struct Active {
    const Run* run;
    Run::Stage stage;
    std::unique_ptr<Child> child;
  };
  Active start(const Run& run) const;
  void advance(std::vector<Active>& active);

  std::size_t jobs_;
  bool stopped_ = false;  // a run was asked to stop by somebody else
  int threads_;
  std::string device_;
  LiveLines lines_;
};

}  // namespace hkt::cli
