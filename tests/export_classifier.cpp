// SPDX-License-Identifier: Apache-2.0
// Writes a classifier's weights, and tokens with the logits it gives them, for a reader in another language to repeat.
// usage: export_classifier CONFIG_JSON WEIGHTS.safetensors CASE.safetensors float32|float64
#include <ATen/ATen.h>
#include <torch/utils.h>

#include <iostream>
#include <string>

#include "hkt/config.h"
#include "hkt/modules.h"
#include "hkt/safetensors.h"

namespace {

void export_classifier(const std::string& json, const std::string& weights, const std::string& test_case,
                       at::ScalarType type) {
  const auto config = hkt::Config::from_json(json);
  torch::manual_seed(1);
  const torch::NoGradGuard no_grad;
  hkt::Classifier model(config.model);
  // Away from the starting points: a cone that is the identity, or equal weights of the levels, would hide mistakes.
  for (auto& parameter : model->parameters()) parameter.add_(at::randn_like(parameter), 0.1);
  model->to(type);
  model->eval();

  constexpr int64_t batch = 4, length = 23;
  const auto tokens = at::randint(0, config.model.vocab, {batch, length}, at::kLong);
  const auto lengths = at::tensor({length, int64_t{14}, int64_t{1}, int64_t{0}}, at::kLong);
  hkt::save(*model, weights, {{"config", config.to_json()}});
  hkt::save_safetensors(test_case, {{"tokens", tokens},
                                    {"lengths", lengths},
                                    {"logits", model(tokens, lengths)},
                                    {"logits_without_lengths", model(tokens)}});
}

}  // namespace

int main(int count, char** arguments) {
  const std::string type = count == 5 ? arguments[4] : "";
  if (type != "float32" && type != "float64") {
    std::cerr << "usage: export_classifier CONFIG_JSON WEIGHTS.safetensors CASE.safetensors float32|float64\n";
    return 2;
  }
  try {
    export_classifier(arguments[1], arguments[2], arguments[3], type == "float64" ? at::kDouble : at::kFloat);
  } catch (const std::exception& error) {
    std::cerr << "export_classifier: " << error.what() << "\n";
    return 1;
  }
  return 0;
}
