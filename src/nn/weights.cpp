// SPDX-License-Identifier: Apache-2.0
// Saving and loading tensors and the parameters of modules as safetensors files.
#include <ATen/ATen.h>

#include <cstring>
#include <memory>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "files/quote.h"
#include "files/safetensors.h"
#include "hkt/safetensors.h"

namespace hkt {
namespace {

using safetensors::Type;

at::ScalarType scalar_type(Type type) {
  switch (type) {
    case Type::float64:
      return at::kDouble;
    case Type::float32:
      return at::kFloat;
    case Type::bfloat16:
      return at::kBFloat16;
    case Type::float16:
      return at::kHalf;
    case Type::int64:
      return at::kLong;
    case Type::int32:
      return at::kInt;
    case Type::uint8:
      return at::kByte;
    case Type::boolean:
      return at::kBool;
  }
  throw std::invalid_argument("a tensor has a type that hkt's safetensors files do not support.");
}

Type file_type(const std::filesystem::path& path, const std::string& name, at::ScalarType type) {
  for (const auto known : safetensors::all_types) {
    if (scalar_type(known) == type) return known;
  }
  throw std::invalid_argument(path.string() + " cannot be written: tensor \"" + name + "\" has dtype " +
                              c10::toString(type) +
                              "; supported are float64, float32, bfloat16, float16, int64, int32, uint8 and bool.");
}

// A view into the mapped file, which stays mapped while any of its tensors exists. Writes are private (copy-on-write).
at::Tensor tensor_of(const std::filesystem::path& path, const safetensors::Array& array,
                     const std::shared_ptr<MappedFile>& file) {
  const auto type = scalar_type(array.type);
  const bool aligned = reinterpret_cast<std::uintptr_t>(array.bytes.data()) % safetensors::size_of(array.type) == 0;
  try {
    if (aligned && !array.bytes.empty()) return at::from_blob(array.bytes.data(), array.shape, [file](void*) {}, type);
    auto tensor = at::empty(array.shape, type);
    if (!array.bytes.empty()) std::memcpy(tensor.data_ptr(), array.bytes.data(), array.bytes.size());
    return tensor;
  } catch (const c10::Error&) {
    throw std::runtime_error(path.string() + " is not valid safetensors: tensor " + quote(array.name) +
                             " has a shape that torch does not support.");
  }
}

std::string shape_of(const at::Tensor& tensor) {
  return nlohmann::json(tensor.sizes().vec()).dump() + " " + c10::toString(tensor.scalar_type());
}

}  // namespace

void save_safetensors(const std::filesystem::path& path, const NamedTensors& tensors, const Metadata& metadata) {
  std::vector<at::Tensor> contents;
  std::vector<safetensors::Array> arrays;
  for (const auto& [name, tensor] : tensors) {
    const auto& data = contents.emplace_back(tensor.detach().cpu().contiguous());
    arrays.push_back({name,
                      file_type(path, name, data.scalar_type()),
                      data.sizes().vec(),
                      {static_cast<std::byte*>(data.data_ptr()), data.nbytes()}});
  }
  safetensors::write(path, arrays, metadata);
}

SafetensorsFile load_safetensors(const std::filesystem::path& path) {
  auto file = safetensors::read(path);
  SafetensorsFile result{{}, std::move(file.metadata), std::move(file.checksum)};
  for (const auto& array : file.arrays) result.tensors.emplace_back(array.name, tensor_of(path, array, file.mapped));
  return result;
}

void save(const torch::nn::Module& module, const std::filesystem::path& path, const Metadata& metadata) {
  NamedTensors tensors;
  for (const auto& parameter : module.named_parameters()) tensors.emplace_back(parameter.key(), parameter.value());
  save_safetensors(path, tensors, metadata);
}

Metadata load(torch::nn::Module& module, const std::filesystem::path& path) {
  auto file = load_safetensors(path);
  const auto refuse = [&](const std::string& what) { throw std::runtime_error(path.string() + " " + what + "."); };
  const std::map<std::string, at::Tensor> stored(file.tensors.begin(), file.tensors.end());
  auto parameters = module.named_parameters();
  for (const auto& [name, tensor] : stored) {
    if (!parameters.contains(name)) refuse("has the tensor " + quote(name) + ", which the module does not have");
  }
  for (const auto& parameter : parameters) {
    const auto found = stored.find(parameter.key());
    if (found == stored.end()) refuse("lacks the tensor \"" + parameter.key() + "\"");
    const auto &have = found->second, &need = parameter.value();
    const bool converts = have.is_floating_point() && need.is_floating_point();
    if (have.sizes() != need.sizes() || (have.scalar_type() != need.scalar_type() && !converts)) {
      refuse("has \"" + parameter.key() + "\" as " + shape_of(have) + "; the module needs " + shape_of(need));
    }
  }
  const torch::NoGradGuard no_grad;
  for (auto& parameter : parameters) parameter.value().copy_(stored.at(parameter.key()));
  return file.metadata;
}

}  // namespace hkt
