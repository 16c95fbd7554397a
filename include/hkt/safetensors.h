// SPDX-License-Identifier: Apache-2.0
// Tensors in files of the safetensors format, which Python and others read, and a module's parameters in such a file.
#pragma once

#include <torch/nn/module.h>

#include <filesystem>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "hkt/export.h"

namespace hkt {

using NamedTensors = std::vector<std::pair<std::string, at::Tensor>>;
using Metadata = std::map<std::string, std::string>;

struct SafetensorsFile {
  NamedTensors tensors;  // in the order in which they lie in the file
  Metadata metadata;
  std::string checksum;  // of the whole file, and right; empty where it had none
};

// dtypes: float64, float32, bfloat16, float16, int64, int32, uint8, bool. The file is written whole: until all of it is
// on the disk an older file of that name stays as it is. A checksum of everything goes into the metadata. Errors are std::runtime_error (the disk) and
// std::invalid_argument (what was to be saved), in one sentence that names the file.
HKT_EXPORT void save_safetensors(const std::filesystem::path& path, const NamedTensors& tensors,
                                 const Metadata& metadata = {});

// Believes nothing of what it reads: a file that is cut, damaged, mixed up or malicious throws std::runtime_error. The tensors are views of the mapped file: only what is used is read (and all of it where there is a
// checksum), and writing to them changes no file.
HKT_EXPORT SafetensorsFile load_safetensors(const std::filesystem::path& path);

// The parameters of a module by name. load gives back the metadata; floating-point numbers are converted to the module's
// type (`hkt export` writes bfloat16). It refuses a file that lacks a parameter, has one too many, or has one of another
// shape or kind, and then changes nothing.
HKT_EXPORT void save(const torch::nn::Module& module, const std::filesystem::path& path, const Metadata& metadata = {});
HKT_EXPORT Metadata load(torch::nn::Module& module, const std::filesystem::path& path);

}  // namespace hkt
