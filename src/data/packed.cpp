// SPDX-License-Identifier: Apache-2.0
// Reading and writing packed files: arrays such as train.tokens, and metadata that describes them.
#include "data/packed.h"

#include <zlib.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <functional>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <system_error>
#include <type_traits>
#include <utility>

#include "files/safetensors.h"

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
constexpr auto type_of = std::is_same_v<T, std::uint8_t> ? safetensors::Type::uint8 : safetensors::Type::int64;

template <typename T>
void add_array(std::vector<safetensors::Array>& arrays, const std::string& name, std::vector<T>& values) {
  arrays.push_back({name, type_of<T>, {std::ssize(values)}, std::as_writable_bytes(std::span(values))});
}

// A split without sequences is left out.
void add_arrays(std::vector<safetensors::Array>& arrays, const std::string& name, Sequences& sequences) {
  if (sequences.size() == 0) return;
  add_array(arrays, name + ".tokens", sequences.tokens);
  add_array(arrays, name + ".offsets", sequences.offsets);
  add_array(arrays, name + ".labels", sequences.labels);
}

// The file's content, by name.
class Content {
 public:
  explicit Content(const fs::path& path) : path_(path), file_(safetensors::read(path)) {
    if (file_.checksum.empty()) refuse(path_, "it has no checksum");
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
      refuse(path_, "its metadata has an invalid \"" + key + "\"");
    }
  }

  PackedPart part(const std::string& name) const {
    static constexpr std::array<std::int64_t, 1> no_offsets = {0};
    if (find(name + ".labels") == file_.arrays.end()) return {{}, no_offsets, {}, {}};
    return {values<std::uint8_t>(name + ".tokens"), values<std::int64_t>(name + ".offsets"),
            values<std::int64_t>(name + ".labels"), file_.mapped};
  }

 private:
  std::vector<safetensors::Array>::const_iterator find(const std::string& name) const {
    return std::find_if(file_.arrays.begin(), file_.arrays.end(),
                        [&](const safetensors::Array& array) { return array.name == name; });
  }

  template <typename T>
  std::span<const T> values(const std::string& name) const {
    const auto found = find(name);
    if (found == file_.arrays.end() || found->type != type_of<T> || found->shape.size() != 1) {
      refuse(path_, "it has no list \"" + name + "\" of the right type");
    }
    const auto bytes = found->bytes;
    if (reinterpret_cast<std::uintptr_t>(bytes.data()) % alignof(T) != 0) {
      refuse(path_, "its list \"" + name + "\" is not aligned");
    }
    return {reinterpret_cast<const T*>(bytes.data()), bytes.size() / sizeof(T)};
  }

  fs::path path_;
  safetensors::File file_;
};

// Everything that readers of a split rely on without further checks.
void check_part(const fs::path& path, const PackedPart& part, std::int64_t classes, std::int64_t vocab) {
  const auto& offsets = part.offsets;
  if (std::ssize(offsets) != part.size() + 1) refuse(path, "the numbers of labels and sequences differ");
  if (offsets.front() != 0 || offsets.back() != std::ssize(part.tokens)) {
    refuse(path, "its offsets do not cover its tokens");
  }
  if (std::adjacent_find(offsets.begin(), offsets.end(), std::greater_equal<>()) != offsets.end()) {
    refuse(path, "a sequence is empty or ends before it begins");
  }
  for (const auto label : part.labels) {
    if (label < 0 || label >= classes) refuse(path, "a label is not one of its " + std::to_string(classes));
  }
  if (!part.tokens.empty() && *std::max_element(part.tokens.begin(), part.tokens.end()) >= vocab) {
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

void Sequences::add_document(std::string_view text) {
  tokens.insert(tokens.end(), text.begin(), text.end());
  tokens.push_back(0);
  offsets.push_back(static_cast<std::int64_t>(tokens.size()));
  labels.push_back(0);
}

void Sequences::keep(std::int64_t count) {
  labels.resize(static_cast<std::size_t>(count));
  offsets.resize(labels.size() + 1);
  tokens.resize(static_cast<std::size_t>(offsets.back()));
}

std::span<const std::uint8_t> PackedPart::sequence(std::int64_t i) const {
  const auto begin = offsets[static_cast<std::size_t>(i)], end = offsets[static_cast<std::size_t>(i) + 1];
  return tokens.subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(end - begin));
}

PackedPart part_of(Sequences sequences) {
  const auto owner = std::make_shared<const Sequences>(std::move(sequences));
  return {owner->tokens, owner->offsets, owner->labels, owner};
}

std::string checksum_of(std::initializer_list<std::span<const std::byte>> pieces) {
  auto sum = crc32_z(0, nullptr, 0);
  for (const auto piece : pieces) {
    if (!piece.empty()) sum = crc32_z(sum, reinterpret_cast<const Bytef*>(piece.data()), piece.size());
  }
  return "crc32:" + std::to_string(sum);
}

std::optional<fs::path> data_folder_name() {
  if (const auto folder = environment("HKT_DATA"); !folder.empty()) return fs::path(folder);
  if (const auto caches = environment("XDG_CACHE_HOME"); !caches.empty()) return fs::path(caches) / "hkt";
  if (const auto home = environment("HOME"); !home.empty()) return fs::path(home) / ".cache" / "hkt";
  return {};
}

fs::path data_folder() {
  auto folder = data_folder_name();
  if (!folder) throw std::runtime_error("no data folder: neither HKT_DATA nor HOME is set.");
  make_folder(*folder);
  return *folder;
}

void make_folder(const fs::path& folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (!error && fs::is_directory(folder)) return;
  throw std::runtime_error("the data folder " + folder.string() + " cannot be created: " +
                           (error ? error.message() : "it is a file") + "; set HKT_DATA to a writable folder.");
}

void save_packed(const fs::path& path, Prepared prepared, const std::string& fingerprint, const std::string& source) {
  std::vector<safetensors::Array> arrays;
  add_arrays(arrays, "train", prepared.train);
  add_arrays(arrays, "validation", prepared.validation);
  add_arrays(arrays, "test", prepared.test);
  safetensors::write(path, arrays,
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
  if (packed.train.size() == 0) refuse(path, "it has no training sequences");
  return packed;
}

}  // namespace hkt::data
