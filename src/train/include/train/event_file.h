// SPDX-License-Identifier: Apache-2.0
// TensorBoard event files: the numbers of metrics lines as scalars.
#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

namespace hkt::train {

// A file of TFRecords, each of which is an Event message in protocol-buffer encoding.
class EventFile {
 public:
  // Begins a new file in the folder. TensorBoard shows the files of a folder as one run; what older ones have from `step` on,
  // which a resumed run writes again, it drops.
  EventFile(const std::filesystem::path& folder, std::int64_t step);

  // The numbers of a metrics line with a step: those of steps as train/NAME, those of epochs as they are named. Nested values
  // are left out. A file that cannot be written is not an error: metrics.jsonl has it all.
  void add(const nlohmann::ordered_json& line);

 private:
  void write_event(std::int64_t step, const std::string& field);

  std::ofstream file_;
};

}  // namespace hkt::train
