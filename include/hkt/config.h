// What a model is made of, how it is trained and on what, as structs with one JSON form; the names are the same in C++,
// on the command line, in Python and in checkpoints.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "hkt/export.h"

namespace hkt {

enum class Filter : std::uint8_t { dense, depthwise, mean };
enum class Projections : std::uint8_t { shared, per_level };
enum class Positions : std::uint8_t { sinusoidal, learned, rotary, none };
enum class Mask : std::uint8_t { none, causal };
enum class Psd : std::uint8_t { free, tied, cone };
enum class Pooling : std::uint8_t { mean, last };

// How the levels are weighed: "learned", "uniform", or in JSON the number of the one level that gets weight 1.
struct LevelWeights {
  enum class Kind : std::uint8_t { learned, uniform, one_level };
  Kind kind = Kind::learned;
  std::int64_t level = 0;  // of one_level

  bool operator==(const LevelWeights&) const = default;
};

struct ModelConfig {
  std::int64_t levels = 3;
  std::int64_t heads = 4;
  std::int64_t width = 128;
  std::int64_t blocks = 2;
  std::int64_t feedforward = 256;
  Filter filter = Filter::dense;
  std::int64_t kernel_size = 2;
  Projections projections = Projections::shared;
  LevelWeights weights;
  Positions positions = Positions::sinusoidal;
  Mask mask = Mask::none;
  Psd psd = Psd::free;
  Pooling pooling = Pooling::mean;
  double dropout = 0.1;
  std::int64_t classes = 10;
  std::int64_t vocab = 256;
  std::int64_t max_length = 1024;

  bool operator==(const ModelConfig&) const = default;
};

// Gives back the model, or throws std::invalid_argument, in one sentence, where a value is out of range or two values
// contradict each other.
HKT_EXPORT const ModelConfig& check(const ModelConfig& model);

// The name and shape of each parameter of a Classifier of this config, and how many numbers they are, without making one.
HKT_EXPORT std::map<std::string, std::vector<std::int64_t>> parameter_shapes(const ModelConfig& model);
HKT_EXPORT std::int64_t count_parameters(const ModelConfig& model);

enum class Padding : std::uint8_t { batch, full };
enum class Precision : std::uint8_t { automatic, float32, bfloat16 };
enum class DeviceKind : std::uint8_t { automatic, cpu, cuda };

struct TrainConfig {
  std::int64_t epochs = 8;
  std::int64_t batch = 64;
  double learning_rate = 5e-4;
  double weight_decay = 0.01;  // of matrices alone
  double warmup = 0.05;        // the share of all steps in which the learning rate rises; then it falls as a cosine
  double gradient_norm = 1;    // what the norm of all gradients is cut to; 0: never
  std::int64_t patience = 0;   // epochs without a better validation accuracy after which to stop; 0: never
  std::int64_t seed = 0;       // of initial weights, dropout and the order of the data
  std::int64_t threads = 0;    // of the CPU, on which the last bits depend; 0: as many as there are cores
  DeviceKind device = DeviceKind::automatic;  // likewise; automatic: CUDA where it can be used
  bool deterministic = false;  // equal bits on every run on CUDA too, at some cost; the CPU always has them
  Padding padding = Padding::batch;
  std::int64_t bucket = 64;  // batches whose sequences are sorted by length together; 1: batches as they are drawn
  Precision precision = Precision::automatic;  // bfloat16 (by autocast) on CUDA, float32 on the CPU
  double checkpoint_seconds = 60;              // between two writings of the state within an epoch

  bool operator==(const TrainConfig&) const = default;
};

enum class Task : std::uint8_t { listops, scifar, imdb, text };

struct DataConfig {
  Task task = Task::listops;

  // listops: generated from these numbers alone
  std::int64_t seed = 0;
  std::int64_t train_samples = 40000;
  std::int64_t validation_samples = 2000;
  std::int64_t test_samples = 10000;
  std::int64_t max_depth = 10;
  std::int64_t max_arguments = 5;
  std::int64_t min_tokens = 8;
  std::int64_t max_tokens = 512;

  // scifar, imdb, text: the share of each label's training examples, the last ones, that is held back for validation
  double validation = 0.1;

  // scifar, imdb: the official folder or archive; empty: the one that was downloaded
  std::string source;

  // text: files of label and text, .tsv or .jsonl; the test file may be absent
  std::string train;
  std::string test;

  bool operator==(const DataConfig&) const = default;
};

struct HKT_EXPORT Config {
  ModelConfig model;
  TrainConfig train;
  DataConfig data;

  // {"format": 1, "model": {…}, "train": {…}, "data": {…}}. Missing keys take the defaults above, "format" aside;
  // anything unknown, twice there, of the wrong type, out of range or of another task throws std::invalid_argument.
  static Config from_json(std::string_view text);
  std::string to_json() const;

  bool operator==(const Config&) const = default;
};

}  // namespace hkt
