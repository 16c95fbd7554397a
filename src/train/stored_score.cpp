// SPDX-License-Identifier: Apache-2.0
// A score as tensors, and back.
#include "train/stored_score.h"

#include <ATen/ATen.h>

#include <cmath>
#include <map>
#include <stdexcept>
#include <vector>

#include "hkt/safetensors.h"

namespace hkt::train {
namespace {

constexpr std::int64_t most_bytes = std::int64_t{1} << 53;

// A column for each part of the tallies.
struct Columns {
  std::vector<double> loss;
  std::vector<std::int64_t> correct, bytes;

  void add(const Tally& tally) {
    loss.push_back(tally.loss);
    correct.push_back(tally.correct);
    bytes.push_back(tally.predictions);
  }
};

at::Tensor tensor_of(const std::vector<double>& values) { return at::tensor(values, at::kDouble); }
at::Tensor tensor_of(const std::vector<std::int64_t>& values) { return at::tensor(values, at::kLong); }

// A reader of the columns of a file that anyone may have written.
class Reader {
 public:
  explicit Reader(const RunDirectory& run) : path_(run.predictions()), file_(load_safetensors(path_)) {
    for (const auto& [name, tensor] : file_.tensors) tensors_[name] = tensor;
  }

  const SafetensorsFile& file() const { return file_; }

  std::vector<double> numbers(const char* name) const {
    const auto column = found(name, at::kDouble);
    std::vector<double> values(column.const_data_ptr<double>(), column.const_data_ptr<double>() + column.numel());
    for (const double value : values) require(std::isfinite(value) && value >= 0);
    return values;
  }

  std::vector<std::int64_t> counts(const char* name) const {
    const auto column = found(name, at::kLong);
    const auto* begin = column.const_data_ptr<std::int64_t>();
    std::vector<std::int64_t> values(begin, begin + column.numel());
    for (const auto value : values) require(value >= 0 && value <= most_bytes);
    return values;
  }

  void require(bool holds) const {
    if (!holds) throw std::runtime_error(path_.string() + " contains no score of a language model by hkt eval.");
  }

 private:
  at::Tensor found(const char* name, at::ScalarType type) const {
    const auto tensor = tensors_.find(name);
    require(tensor != tensors_.end() && tensor->second.scalar_type() == type);
    return tensor->second.contiguous();
  }

  std::filesystem::path path_;
  SafetensorsFile file_;
  std::map<std::string, at::Tensor> tensors_;
};

}  // namespace

void save_score(const RunDirectory& run, const LanguageScore& score, const std::string& split,
                const std::string& model) {
  Columns segments, ranges;
  std::vector<std::int64_t> positions;
  for (const auto& tally : score.segments) segments.add(tally);
  for (const auto& [begin, end, tally] : score.by_position) {
    positions.insert(positions.end(), {begin, end});
    ranges.add(tally);
  }
  save_safetensors(run.predictions(),
                   {{"loss", tensor_of(segments.loss)},
                    {"correct", tensor_of(segments.correct)},
                    {"bytes", tensor_of(segments.bytes)},
                    {"positions", tensor_of(positions).view({-1, 2})},
                    {"position_loss", tensor_of(ranges.loss)},
                    {"position_bytes", tensor_of(ranges.bytes)}},
                   {{"split", split}, {"model", model}});
}

StoredScore read_score(const RunDirectory& run) {
  const Reader reader(run);
  StoredScore stored;
  auto& score = stored.score;
  const auto loss = reader.numbers("loss");
  const auto correct = reader.counts("correct"), bytes = reader.counts("bytes");
  reader.require(!loss.empty() && correct.size() == loss.size() && bytes.size() == loss.size());
  for (std::size_t i = 0; i < loss.size(); ++i) {
    reader.require(correct[i] <= bytes[i] && bytes[i] <= segment_bytes);
    score.segments.push_back({loss[i], correct[i], bytes[i]});
    score.tally.loss += loss[i];
    score.tally.correct += correct[i];
    score.tally.predictions += bytes[i];
  }
  reader.require(score.tally.predictions > 0 && std::isfinite(score.tally.loss));
  const auto positions = reader.counts("positions"), position_bytes = reader.counts("position_bytes");
  const auto position_loss = reader.numbers("position_loss");
  reader.require(positions.size() == 2 * position_loss.size() && position_bytes.size() == position_loss.size());
  for (std::size_t i = 0; i < position_loss.size(); ++i) {
    reader.require(positions[2 * i] < positions[2 * i + 1]);
    score.by_position.push_back({positions[2 * i], positions[2 * i + 1], {position_loss[i], 0, position_bytes[i]}});
  }
  const auto text = [&](const char* key) {
    const auto found = reader.file().metadata.find(key);
    return found == reader.file().metadata.end() ? std::string() : found->second;
  };
  stored.split = text("split");
  stored.model = text("model");
  stored.checksum = reader.file().checksum;
  return stored;
}

nlohmann::ordered_json by_position_json(const LanguageScore& score) {
  auto ranges = nlohmann::ordered_json::array();
  for (const auto& [begin, end, tally] : score.by_position) {
    if (tally.predictions > 0) ranges.push_back({{"begin", begin}, {"end", end}, {"bits_per_byte", tally.bits()}});
  }
  return ranges;
}

}  // namespace hkt::train
