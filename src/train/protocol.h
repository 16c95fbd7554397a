// The protocol of the experiments: which models are trained, on what, for how long, with which seeds.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "hkt/config.h"

namespace hkt::train {

enum class Budget : std::uint8_t { quick, full };

struct ProtocolModel {
  std::string name, what;
  nlohmann::json config;               // to be fitted to the data
  std::vector<double> learning_rates;  // if any: chosen among on validation, with the first seed
  std::vector<std::string> baselines;  // the models it is compared with
};

struct Protocol {
  std::string task;
  std::vector<std::int64_t> seeds;
  std::vector<ProtocolModel> models;
};

std::vector<std::string> protocol_tasks();

// quick: standard attention and HKT, one seed. full: with the baselines the paper lacks, three seeds. `changes` are laid
// over the preset before the models are derived from it.
Protocol protocol(const std::string& task, Budget budget, const std::vector<std::string>& changes = {});

// The parameters of a model of this config.
std::int64_t count_parameters(const ModelConfig& config);

}  // namespace hkt::train
