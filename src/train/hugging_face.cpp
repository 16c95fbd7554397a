// SPDX-License-Identifier: Apache-2.0
// The files of a model for Hugging Face's transformers. python/hkt/hf.py reads them.
#include "train/hugging_face.h"

#include <set>
#include <string>

#include "files/json_fields.h"
#include "files/whole_file.h"
#include "nn/config_json.h"

namespace hkt::train {
namespace {

using fields::OrderedJson;

constexpr int indent = 2;
constexpr const char* parameter_prefix = "model.";  // the module of hkt is the attribute `model` of theirs

bool is_language(const Identity& identity) { return identity.config.model.kind == ModelKind::language; }

// What transformers calls a key of the section "model". Empty for those that it keeps in the architecture and in the labels, and for
// those of attention that Python does not have.
std::string their_name(const std::string& key) {
  static const std::set<std::string> without = {"kind",    "classes",     "attention", "window",
                                                "globals", "random_keys", "features",  "block_size"};
  if (without.contains(key)) return "";
  if (key == "max_length") return "max_position_embeddings";
  if (key == "tied") return "tie_word_embeddings";
  return key;
}

OrderedJson config_of(const Identity& identity, at::ScalarType type) {
  OrderedJson config;
  config["architectures"] =
      OrderedJson::array({is_language(identity) ? "HktForCausalLM" : "HktForSequenceClassification"});
  config["model_type"] = "hkt";
  config["dtype"] = type == at::kFloat ? "float32" : "bfloat16";
  const auto model = to_json(identity.config.model);  // items() refers to it
  for (const auto& [key, value] : model.items()) {
    if (const auto name = their_name(key); !name.empty()) config[name] = value;
  }
  for (std::size_t i = 0; i < identity.labels.size(); ++i) {
    config["id2label"][std::to_string(i)] = identity.labels[i];
    config["label2id"][identity.labels[i]] = i;
  }
  return config;
}

// Generation pads on the left and continues the end of a prompt; a classifier reads the beginning.
OrderedJson tokenizer_of(const Identity& identity) {
  const char* side = is_language(identity) ? "left" : "right";
  return {{"tokenizer_class", "HktTokenizer"},
          {"model_max_length", identity.config.model.max_length},
          {"padding_side", side},
          {"truncation_side", side}};
}

void write_json(const std::filesystem::path& path, const OrderedJson& json) {
  write_file(path, fields::dump(json, indent) + "\n");
}

}  // namespace

bool is_of_bytes(const Config& config) { return config.data.task != Task::listops && config.data.task != Task::scifar; }

void save_for_hugging_face(const HuggingFaceFolder& out, const Identity& identity, const NamedTensors& parameters,
                           at::ScalarType type) {
  NamedTensors tensors;
  for (const auto& [name, tensor] : parameters) tensors.emplace_back(parameter_prefix + name, tensor);
  save_safetensors(out.model(), tensors, {{"format", "pt"}});
  if (is_language(identity)) {
    // Byte 0 ends documents, pads, and begins an empty prompt.
    write_json(out.generation(), {{"bos_token_id", 0}, {"eos_token_id", 0}, {"pad_token_id", 0}});
  }
  if (is_of_bytes(identity.config)) write_json(out.tokenizer(), tokenizer_of(identity));
  write_json(out.config(), config_of(identity, type));
}

}  // namespace hkt::train
