// Packing and unpacking: tensors like train.tokens, and in the metadata what they are.
#include "data/packed.h"

#include <ATen/ATen.h>

#include <cstdlib>
#include <map>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <system_error>

#include "hkt/safetensors.h"

namespace hkt::data {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr const char* format = "1";

[[noreturn]] void refuse(const fs::path& path, const std::string& why) {
  throw std::runtime_error(path.string() + " is damaged: " + why + ".");
}

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

template <typename T>
at::Tensor view(const std::vector<T>& values, at::ScalarType type) {
  // from_blob takes no const pointer; the tensor is only read.
  return at::from_blob(const_cast<T*>(values.data()), {static_cast<std::int64_t>(values.size())}, type);
}

// A split without sequences is left out.
void add_tensors(NamedTensors& tensors, const std::string& name, const Sequences& sequences) {
  if (sequences.size() == 0) return;
  tensors.emplace_back(name + ".tokens", view(sequences.tokens, at::kByte));
  tensors.emplace_back(name + ".offsets", view(sequences.offsets, at::kLong));
  tensors.emplace_back(name + ".labels", view(sequences.labels, at::kLong));
}

// The file's content, asked for by name.
class Content {
 public:
  explicit Content(const fs::path& path) : path_(path), file_(load_safetensors(path)) {
    if (file_.checksum.empty()) refuse(path_, "it has no checksum");
    tensors_.insert(file_.tensors.begin(), file_.tensors.end());
    if (text("format") != format) refuse(path_, "its format is not " + std::string(format));
  }

  std::string text(const std::string& key) const {
    const auto found = file_.metadata.find(key);
    if (found == file_.metadata.end()) refuse(path_, "its metadata has no \"" + key + "\"");
    return found->second;
  }

  template <typename T>
  T value(const std::string& key) const {
    try {
      return Json::parse(text(key)).get<T>();
    } catch (const Json::exception&) {
      refuse(path_, "its metadata has another \"" + key + "\" than there can be");
    }
  }

  PackedPart part(const std::string& name) const {
    if (!tensors_.contains(name + ".labels")) {
      return {at::empty({0}, at::kByte), at::zeros({1}, at::kLong), at::empty({0}, at::kLong)};
    }
    return {tensor(name + ".tokens", at::kByte), tensor(name + ".offsets", at::kLong),
            tensor(name + ".labels", at::kLong)};
  }

 private:
  at::Tensor tensor(const std::string& name, at::ScalarType type) const {
    const auto found = tensors_.find(name);
    if (found == tensors_.end() || found->second.scalar_type() != type || found->second.dim() != 1) {
      refuse(path_, "it has no list \"" + name + "\" of the right type");
    }
    return found->second;
  }

  fs::path path_;
  SafetensorsFile file_;
  std::map<std::string, at::Tensor> tensors_;
};

// All that readers of a split rely on, so that they need not check again.
void check_part(const fs::path& path, const PackedPart& part, std::int64_t classes, std::int64_t vocab) {
  const auto* offsets = part.offsets.const_data_ptr<std::int64_t>();
  if (part.offsets.numel() != part.size() + 1) refuse(path, "it has not one label for each sequence");
  if (offsets[0] != 0 || offsets[part.size()] != part.tokens.numel()) {
    refuse(path, "its sequences do not begin and end with its tokens");
  }
  const auto* labels = part.labels.const_data_ptr<std::int64_t>();
  for (std::int64_t i = 0; i < part.size(); ++i) {
    if (offsets[i + 1] <= offsets[i]) refuse(path, "a sequence is empty or ends before it begins");
    if (labels[i] < 0 || labels[i] >= classes) refuse(path, "a label is none of its " + std::to_string(classes));
  }
  if (part.tokens.numel() > 0 && part.tokens.max().item<std::int64_t>() >= vocab) {
    refuse(path, "a token is not below " + std::to_string(vocab));
  }
}

}  // namespace

void Sequences::add(std::span<const std::uint8_t> sequence, std::int64_t label) {
  tokens.insert(tokens.end(), sequence.begin(), sequence.end());
  offsets.push_back(static_cast<std::int64_t>(tokens.size()));
  labels.push_back(label);
}

void Sequences::add_all(const Sequences& others) {
  const auto before = static_cast<std::int64_t>(tokens.size());
  tokens.insert(tokens.end(), others.tokens.begin(), others.tokens.end());
  labels.insert(labels.end(), others.labels.begin(), others.labels.end());
  for (std::int64_t i = 1; i <= others.size(); ++i) offsets.push_back(before + others.offsets[i]);
}

std::optional<fs::path> data_folder_name() {
  if (const auto folder = environment("HKT_DATA"); !folder.empty()) return fs::path(folder);
  if (const auto caches = environment("XDG_CACHE_HOME"); !caches.empty()) return fs::path(caches) / "hkt";
  if (const auto home = environment("HOME"); !home.empty()) return fs::path(home) / ".cache" / "hkt";
  return {};
}

fs::path data_folder() {
  auto folder = data_folder_name();
  if (!folder) throw std::runtime_error("there is no folder for data: neither HKT_DATA nor HOME is set.");
  make_folder(*folder);
  return *folder;
}

void make_folder(const fs::path& folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (!error && fs::is_directory(folder)) return;
  throw std::runtime_error("the folder for data, " + folder.string() + ", cannot be made: " +
                           (error ? error.message() : "it is a file") + "; set HKT_DATA to one that can be written.");
}

void save_packed(const fs::path& path, const Prepared& prepared, const std::string& fingerprint,
                 const std::string& source) {
  NamedTensors tensors;
  add_tensors(tensors, "train", prepared.train);
  add_tensors(tensors, "validation", prepared.validation);
  add_tensors(tensors, "test", prepared.test);
  save_safetensors(path, tensors,
                   {{"format", format},
                    {"fingerprint", fingerprint},
                    {"source", Json(source).dump(-1, ' ', false, Json::error_handler_t::replace)},
                    {"labels", Json(prepared.labels).dump()},
                    {"vocab", std::to_string(prepared.vocab)}});
}

Packed load_packed(const fs::path& path) {
  const Content content(path);
  Packed packed;
  packed.train = content.part("train");
  packed.validation = content.part("validation");
  packed.test = content.part("test");
  packed.labels = content.value<std::vector<std::string>>("labels");
  packed.vocab = content.value<std::int64_t>("vocab");
  packed.fingerprint = content.text("fingerprint");
  packed.source = content.value<std::string>("source");
  const auto classes = static_cast<std::int64_t>(packed.labels.size());
  for (const auto* part : {&packed.train, &packed.validation, &packed.test}) {
    check_part(path, *part, classes, packed.vocab);
  }
  if (packed.train.size() == 0) refuse(path, "it has nothing to train on");
  return packed;
}

}  // namespace hkt::data
