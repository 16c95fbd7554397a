// SPDX-License-Identifier: Apache-2.0
// Generating ListOps expressions.
#include "data/listops.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <random>
#include <stdexcept>
#include <unordered_set>

#include "data/config_json.h"
#include "data/listops_expression.h"
#include "files/json_fields.h"
#include "files/quote.h"
#include "random.h"

namespace hkt::data {
namespace listops {
namespace {

constexpr int generator_version = 1;  // raise when the same seed gives other data
constexpr std::int64_t shortest = 4;  // [OP d d ]
constexpr std::int64_t most_tokens = 1'000'000;

enum Stream : std::uint64_t { train_stream, validation_stream, test_stream };

class Random {
 public:
  Random(std::int64_t seed, Stream stream) : engine_(mix(mix(static_cast<std::uint64_t>(seed)) + stream)) {}

  // Uniform from 0 to bound - 1.
  std::uint64_t below(std::uint64_t bound) {
    return data::below(bound, [&] { return engine_(); });
  }

 private:
  std::mt19937_64 engine_;
};

class Expressions {
 public:
  Expressions(const DataConfig& limits, Stream stream) : limits_(limits), random_(limits.seed, stream) {}

  // Draws the next expression; false if it is outside the limits. Stops as soon as it must become too long.
  bool draw() {
    tokens_.clear();
    missing_.clear();
    due_ = 1;
    for (open(); !missing_.empty();) {
      if (missing_.back() == 0) {
        missing_.pop_back();
        put(close);
      } else {
        --missing_.back();
        argument();
      }
      if (std::ssize(tokens_) + due_ > limits_.max_tokens) return false;
    }
    return std::ssize(tokens_) >= limits_.min_tokens;
  }

  const std::vector<std::uint8_t>& tokens() const { return tokens_; }

 private:
  void put(std::uint64_t token) {
    tokens_.push_back(static_cast<std::uint8_t>(token));
    --due_;
  }

  void open() {
    put(minimum + random_.below(close - minimum));
    const auto arguments =
        static_cast<std::int64_t>(2 + random_.below(static_cast<std::uint64_t>(limits_.max_arguments) - 1));
    missing_.push_back(arguments);
    due_ += arguments + 1;
  }

  void argument() {
    const auto depth = std::ssize(missing_) + 1;
    constexpr std::uint64_t quarter = digits;
    const bool may_open = depth < limits_.max_depth;
    const auto drawn = random_.below(may_open ? 4 * quarter : digits);
    if (may_open && drawn < quarter) {
      open();
    } else {
      put(digit_zero + drawn % digits);
    }
  }

  const DataConfig& limits_;
  Random random_;
  std::vector<std::uint8_t> tokens_;
  std::vector<std::int64_t> missing_;  // arguments still missing, for each open operator
  std::int64_t due_ = 0;               // tokens that must follow at least
};

// FNV-1a. Two expressions with the same hash count as equal; a collision merely drops a new expression.
std::uint64_t hash(const std::vector<std::uint8_t>& tokens) {
  std::uint64_t value = 0xcbf29ce484222325;
  for (const auto token : tokens) value = (value ^ token) * 0x100000001b3;
  return value;
}

[[noreturn]] void refuse(const std::string& why) { throw std::invalid_argument("data, task listops: " + why + "."); }

void check_limits(const DataConfig& config) {
  to_json(config);  // checks each value
  if (config.max_depth < 2) refuse("max_depth is 1; the root is an operator, so it must be at least 2");
  if (config.max_tokens < shortest) {
    refuse("max_tokens is " + std::to_string(config.max_tokens) + "; the shortest expression has 4");
  }
  if (config.max_tokens > most_tokens) {
    refuse("max_tokens is " + std::to_string(config.max_tokens) + "; it must be at most " +
           std::to_string(most_tokens));
  }
  std::int64_t longest = 1;
  for (std::int64_t depth = 1; depth < config.max_depth; ++depth) {
    longest = std::min(most_tokens, 2 + config.max_arguments * longest);
  }
  if (longest < config.min_tokens) {
    refuse("min_tokens is " + std::to_string(config.min_tokens) +
           "; with this max_depth and max_arguments the longest expression has " + std::to_string(longest));
  }
}

class Generator {
 public:
  Generator(const DataConfig& config, const Notify& notify)
      : config_(config),
        notify_(notify),
        total_(config.train_samples + config.validation_samples + config.test_samples) {}

  Sequences split(Stream stream, std::int64_t samples) {
    Expressions expressions(config_, stream);
    Sequences sequences;
    while (sequences.size() < samples) {
      const bool fits = expressions.draw();
      count(std::ssize(expressions.tokens()));
      if (!fits || !known_.insert(hash(expressions.tokens())).second) continue;
      sequences.add(expressions.tokens(), evaluate(expressions.tokens()));
      tell();
    }
    return sequences;
  }

 private:
  // Ends the search when the limits allow almost no expressions, or all of them have been found.
  void count(std::int64_t tokens) {
    constexpr std::int64_t start = 100'000'000, for_each = 100'000;
    spent_ += tokens;
    if (spent_ > start + for_each * found()) {
      refuse("after " + std::to_string(found()) + " of " + std::to_string(total_) +
             " samples almost no new expressions were found with min_tokens " + std::to_string(config_.min_tokens) +
             " to max_tokens " + std::to_string(config_.max_tokens) + "; widen the limits or ask for fewer");
    }
  }

  void tell() const {
    constexpr std::int64_t often = 1024;
    if (notify_ && (found() % often == 0 || found() == total_)) notify_(found(), total_, "generating listops");
  }

  std::int64_t found() const { return static_cast<std::int64_t>(known_.size()); }

  const DataConfig& config_;
  const Notify& notify_;
  std::int64_t total_, spent_ = 0;
  std::unordered_set<std::uint64_t> known_;
};

}  // namespace

Prepared generate(const DataConfig& config, const Notify& notify) {
  check_limits(config);
  Generator generator(config, notify);
  Prepared prepared;
  prepared.test = generator.split(test_stream, config.test_samples);
  prepared.validation = generator.split(validation_stream, config.validation_samples);
  prepared.train = generator.split(train_stream, config.train_samples);
  for (int digit = 0; digit < digits; ++digit) prepared.labels.push_back(std::to_string(digit));
  prepared.vocab = vocab;
  return prepared;
}

std::string fingerprint(const DataConfig& config) {
  check_limits(config);
  const auto keys = to_json(config);
  auto json = nlohmann::ordered_json::object();
  for (const auto& [key, value] : keys.items()) {
    json[key.substr(0, key.find("_samples"))] = value;
    if (key == "task") json["version"] = generator_version;
  }
  return json.dump();
}

}  // namespace listops

std::vector<std::string> listops_presets() { return {"paper", "lra"}; }

DataConfig listops_preset(const std::string& name) {
  DataConfig config;
  if (name == "paper") return config;
  if (name != "lra") {
    throw std::invalid_argument("unknown listops preset " + quote(name) + "; it must be one of " +
                                fields::quoted_list(listops_presets()) + " (nearest: \"" +
                                fields::nearest(name, listops_presets()) + "\").");
  }
  config.train_samples = 96000;
  config.validation_samples = 2000;
  config.test_samples = 2000;
  config.max_arguments = 10;
  config.min_tokens = 501;
  config.max_tokens = 1999;
  return config;
}

}  // namespace hkt::data
