// SPDX-License-Identifier: Apache-2.0
// A trained model as a folder for Hugging Face's transformers, which `import hkt.hf` makes able to load it.
#pragma once

#include <ATen/core/Tensor.h>

#include <filesystem>

#include "hkt/safetensors.h"
#include "train/checkpoint.h"

namespace hkt::train {

struct HuggingFaceFolder {
  std::filesystem::path folder;

  std::filesystem::path config() const { return folder / "config.json"; }
  std::filesystem::path model() const { return folder / "model.safetensors"; }
  std::filesystem::path generation() const { return folder / "generation_config.json"; }  // of language models
  std::filesystem::path tokenizer() const { return folder / "tokenizer_config.json"; }    // of models of bytes
};

// Whether the tokens of a model are the bytes of a text, so that it can have a tokenizer.
bool is_of_bytes(const Config& config);

// Writes the files into an existing folder. All parameters have the dtype `type`, which is bfloat16 or float32.
void save_for_hugging_face(const HuggingFaceFolder& out, const Identity& identity, const NamedTensors& parameters,
                           at::ScalarType type);

}  // namespace hkt::train
