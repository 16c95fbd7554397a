// metrics.jsonl: what happened in a run, an object a line.
#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <vector>

namespace hkt::train {

class MetricsFile {
 public:
  // Goes on after the first `keep` bytes of the file; what is behind them was written after the state one resumes from.
  MetricsFile(std::filesystem::path path, std::uint64_t keep);
  ~MetricsFile();
  MetricsFile(const MetricsFile&) = delete;
  MetricsFile& operator=(const MetricsFile&) = delete;

  void add(const nlohmann::ordered_json& line);  // throws std::runtime_error where the disk is full
  void flush();                                  // to the disk
  std::uint64_t bytes() const { return bytes_; }

 private:
  std::filesystem::path path_;
  int file_ = -1;
  std::uint64_t bytes_;
};

// The whole lines of such a file; a last line that is cut is left out.
std::vector<nlohmann::json> read_metrics(const std::filesystem::path& path);

}  // namespace hkt::train
