// SPDX-License-Identifier: Apache-2.0
// Saving and loading tensors and the parameters of modules as safetensors files, which Python and others read too.
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
  NamedTensors tensors;  // in file order
  Metadata metadata;
  std::string checksum;  // of the file, already verified; empty if it has none
};

// dtypes: float64, float32, bfloat16, float16, int64, int32, uint8, bool. The file is written atomically: an older file of
// that name is replaced only when the new one is complete on the disk. A checksum of the contents is added to the metadata.
// Throws std::runtime_error if writing fails and std::invalid_argument for tensors or names that cannot be saved, in one
// sentence that names the file.
HKT_EXPORT void save_safetensors(const std::filesystem::path& path, const NamedTensors& tensors,
                                 const Metadata& metadata = {});

// Trusts nothing in the file: a truncated, damaged, inconsistent or malicious file throws std::runtime_error. The tensors
// are views into the mapped file. Only the parts that are used are read, or the whole file if it has a checksum to verify.
// Writing to the tensors does not change the file.
HKT_EXPORT SafetensorsFile load_safetensors(const std::filesystem::path& path);

// The parameters of a module by name. load returns the metadata. Floating-point values are converted to the module's dtype
// (`hkt export` writes bfloat16). A missing or unknown parameter, or one of another shape or kind of dtype, throws
// std::runtime_error and leaves the module unchanged.
HKT_EXPORT void save(const torch::nn::Module& module, const std::filesystem::path& path, const Metadata& metadata = {});
HKT_EXPORT Metadata load(torch::nn::Module& module, const std::filesystem::path& path);

}  // namespace hkt
