// Reading and writing safetensors: 8 bytes with the header's length, the header in JSON, then the numbers.
#include "hkt/safetensors.h"

#include <ATen/ATen.h>
#include <zlib.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <cstring>
#include <memory>
#include <set>
#include <span>
#include <stdexcept>

#include "json_fields.h"
#include "mapped_file.h"
#include "quote.h"
#include "whole_file.h"

namespace hkt {
namespace {

using fields::Json;

static_assert(std::endian::native == std::endian::little, "the format is little endian, and so is this code");

constexpr std::uint64_t longest_header = 100'000'000;  // as in the other readers of the format
constexpr std::size_t prefix = sizeof(std::uint64_t);
constexpr std::size_t alignment = 8;
constexpr const char* metadata_key = "__metadata__";

// The checksum stands in the metadata and covers the whole file but the length, its own digits taken as zeros.
constexpr const char* checksum_key = "checksum";
constexpr std::string_view checksum_label = "crc32:";
constexpr std::string_view checksum_zeros = "00000000";

struct Type {
  const char* name;
  at::ScalarType type;
};
constexpr std::array<Type, 8> types = {{{"F64", at::kDouble},
                                        {"F32", at::kFloat},
                                        {"BF16", at::kBFloat16},
                                        {"F16", at::kHalf},
                                        {"I64", at::kLong},
                                        {"I32", at::kInt},
                                        {"U8", at::kByte},
                                        {"BOOL", at::kBool}}};

std::string checksum_text(std::uint32_t sum) {
  std::string digits(checksum_zeros);
  for (auto digit = digits.rbegin(); digit != digits.rend(); ++digit, sum >>= 4) *digit = "0123456789abcdef"[sum & 15];
  return digits;
}

std::uint32_t add_to_checksum(std::uint32_t sum, const void* data, std::size_t size) {
  if (size == 0) return sum;  // a null pointer would start zlib's sum anew
  return static_cast<std::uint32_t>(crc32_z(sum, static_cast<const Bytef*>(data), size));
}

// ---- writing

const char* type_name(const std::string& name, at::ScalarType type) {
  for (const auto& known : types) {
    if (known.type == type) return known.name;
  }
  throw std::invalid_argument(
      "tensor \"" + name + "\" has dtype " + c10::toString(type) +
      "; safetensors here holds float64, float32, bfloat16, float16, int64, int32, uint8, bool.");
}

std::string make_header(const NamedTensors& tensors, const Metadata& metadata) {
  auto header = fields::OrderedJson::object();
  // First of all, so that its label is the first of that kind in the header.
  header[metadata_key][checksum_key] = std::string(checksum_label) + std::string(checksum_zeros);
  for (const auto& [key, text] : metadata) {
    if (key != checksum_key) header[metadata_key][key] = text;
  }
  std::set<std::string> names{metadata_key};
  std::uint64_t offset = 0;
  for (const auto& [name, tensor] : tensors) {
    if (!names.insert(name).second) {
      throw std::invalid_argument("tensor name \"" + name + "\" is there twice or reserved; each may be used once.");
    }
    const std::uint64_t end = offset + tensor.nbytes();
    header[name] = {{"dtype", type_name(name, tensor.scalar_type())},
                    {"shape", tensor.sizes().vec()},
                    {"data_offsets", {offset, end}}};
    offset = end;
  }
  std::string text = header.dump();
  text.resize((text.size() + alignment - 1) / alignment * alignment, ' ');
  if (text.size() > longest_header) throw std::invalid_argument("the names of the tensors make a header above 100 MB.");
  return text;
}

// Widest elements first, so that every tensor is aligned to its own element.
NamedTensors in_file_order(NamedTensors tensors) {
  std::stable_sort(tensors.begin(), tensors.end(),
                   [](const auto& a, const auto& b) { return a.second.element_size() > b.second.element_size(); });
  return tensors;
}

// ---- reading

struct Entry {
  std::string name;
  at::ScalarType type;
  std::vector<std::int64_t> shape;
  std::uint64_t begin, end;
};

class Reader {
 public:
  explicit Reader(const std::filesystem::path& path) : path_(path), file_(std::make_shared<MappedFile>(path)) {}

  SafetensorsFile read() {
    const Json header = read_header();
    SafetensorsFile file;
    std::vector<Entry> entries;
    for (const auto& [name, value] : header.items()) {
      if (name == metadata_key) {
        file.metadata = metadata(value);
      } else {
        entries.push_back(entry(name, value));
      }
    }
    check_layout(entries);
    const auto checksum = file.metadata.find(checksum_key);
    if (checksum != file.metadata.end()) {
      compare(checksum->second);
      file.checksum = checksum->second;
      file.metadata.erase(checksum);
    }
    for (const auto& entry : entries) file.tensors.emplace_back(entry.name, read_tensor(entry));
    return file;
  }

 private:
  [[noreturn]] void fail(const std::string& what) const { throw std::runtime_error(path_.string() + " " + what + "."); }
  [[noreturn]] void fail(const std::string& name, const std::string& what) const {
    fail("is not valid safetensors: tensor " + Json(name).dump(-1, ' ', true) + " " + what);
  }

  Json read_header() {
    const auto bytes = file_->bytes();
    if (bytes.size() < prefix) {
      fail("is not safetensors: it has " + std::to_string(bytes.size()) + " bytes, and 8 are the least");
    }
    std::uint64_t length = 0;
    std::memcpy(&length, bytes.data(), prefix);
    if (length > longest_header || length > bytes.size() - prefix) {
      fail("is not safetensors or is cut: its header would have " + std::to_string(length) +
           " bytes, and the file has " + std::to_string(bytes.size()));
    }
    header_.assign(reinterpret_cast<const char*>(bytes.data() + prefix), length);
    data_ = bytes.subspan(prefix + length);
    if (header_.empty() || header_.front() != '{') fail("is not safetensors: its header does not begin with {");
    try {
      return fields::parse(header_, "its header");
    } catch (const std::invalid_argument& error) {
      throw std::runtime_error(path_.string() + " is not valid safetensors: " + error.what());
    }
  }

  Metadata metadata(const Json& value) const {
    Metadata result;
    if (!value.is_object()) fail("is not valid safetensors: its __metadata__ is not an object");
    for (const auto& [key, text] : value.items()) {
      if (!text.is_string()) fail("is not valid safetensors: its __metadata__ holds something other than strings");
      result[key] = text;
    }
    return result;
  }

  std::uint64_t count(const std::string& name, const Json& value) const {
    constexpr auto largest = static_cast<std::uint64_t>(INT64_MAX);
    if (!value.is_number_unsigned() || value.get<std::uint64_t>() > largest) {
      fail(name, "has a size or offset that is not an integer from 0 to 2^63 - 1");
    }
    return value.get<std::uint64_t>();
  }

  Entry entry(const std::string& name, const Json& value) const {
    if (!value.is_object() || value.size() != 3 || !value.contains("dtype") || !value.contains("shape") ||
        !value.contains("data_offsets")) {
      fail(name, "does not have exactly dtype, shape and data_offsets");
    }
    const auto type = std::find_if(types.begin(), types.end(), [&](const Type& t) { return value["dtype"] == t.name; });
    if (type == types.end()) fail(name, "has a dtype other than F64, F32, BF16, F16, I64, I32, U8, BOOL");
    const auto& offsets = value["data_offsets"];
    if (!value["shape"].is_array() || !offsets.is_array() || offsets.size() != 2) {
      fail(name, "does not have a list as shape and two numbers as data_offsets");
    }
    Entry result{name, type->type, {}, count(name, offsets[0]), count(name, offsets[1])};
    std::uint64_t bytes = c10::elementSize(type->type);
    bool overflow = false;
    for (const auto& size : value["shape"]) {
      result.shape.push_back(static_cast<std::int64_t>(count(name, size)));
      overflow = __builtin_mul_overflow(bytes, count(name, size), &bytes) || overflow;
    }
    if (overflow || result.begin > result.end || result.end - result.begin != bytes) {
      fail(name, "has data_offsets that do not fit its shape and dtype");
    }
    return result;
  }

  // One after the other, from the first byte to the last: then nothing overlaps, nothing hides and nothing is missing.
  void check_layout(std::vector<Entry>& entries) const {
    std::sort(entries.begin(), entries.end(),
              [](const Entry& a, const Entry& b) { return std::tie(a.begin, a.end) < std::tie(b.begin, b.end); });
    std::uint64_t offset = 0;
    for (const auto& entry : entries) {
      if (entry.begin != offset) fail(entry.name, "does not begin where the one before it ends");
      offset = entry.end;
    }
    if (offset != data_.size()) {
      fail("is not valid safetensors or is cut: its tensors take " + std::to_string(offset) +
           " bytes, and the file has " + std::to_string(data_.size()) + " after its header");
    }
  }

  void compare(const std::string& stored) {
    const auto digits = header_.find(stored) + checksum_label.size();
    if (!stored.starts_with(checksum_label) || stored.size() != checksum_label.size() + checksum_zeros.size() ||
        header_.find(stored) == std::string::npos) {
      fail("is not valid safetensors: its checksum is not " + std::string(checksum_label) + " and eight digits");
    }
    header_.replace(digits, checksum_zeros.size(), checksum_zeros);
    const auto sum = add_to_checksum(add_to_checksum(0, header_.data(), header_.size()), data_.data(), data_.size());
    if (stored.substr(checksum_label.size()) != checksum_text(sum)) {
      fail("is damaged: its checksum is " + checksum_text(sum) + " and should be " +
           stored.substr(checksum_label.size()));
    }
  }

  // A view of the mapped file, which lives as long as any of its tensors; pages that are written to become private.
  at::Tensor read_tensor(const Entry& entry) {
    at::Tensor tensor;
    std::byte* data = data_.data() + entry.begin;
    const bool aligned = reinterpret_cast<std::uintptr_t>(data) % c10::elementSize(entry.type) == 0;
    try {
      if (aligned && entry.end > entry.begin) {
        tensor = at::from_blob(data, entry.shape, [file = file_](void*) {}, entry.type);
      } else {
        tensor = at::empty(entry.shape, entry.type);
        if (entry.end > entry.begin) std::memcpy(tensor.data_ptr(), data, entry.end - entry.begin);
      }
    } catch (const c10::Error&) {
      fail(entry.name, "has a shape that no tensor can have");
    }
    if (entry.type == at::kBool && tensor.numel() > 0 && tensor.view(at::kByte).max().item<int>() > 1) {
      fail(entry.name, "is BOOL and holds bytes other than 0 and 1");
    }
    return tensor;
  }

  std::filesystem::path path_;
  std::shared_ptr<MappedFile> file_;
  std::string header_;
  std::span<std::byte> data_;  // what follows the header
};

std::string shape_of(const at::Tensor& tensor) {
  return Json(tensor.sizes().vec()).dump() + " " + c10::toString(tensor.scalar_type());
}

}  // namespace

void save_safetensors(const std::filesystem::path& path, const NamedTensors& tensors, const Metadata& metadata) {
  const auto ordered = in_file_order(tensors);
  std::string header;
  try {
    header = make_header(ordered, metadata);
  } catch (const Json::exception&) {
    throw std::invalid_argument(path.string() + " cannot be written: names and metadata must be UTF-8.");
  } catch (const std::invalid_argument& error) {
    throw std::invalid_argument(path.string() + " cannot be written: " + error.what());
  }
  std::uint32_t sum = add_to_checksum(0, header.data(), header.size());
  std::vector<at::Tensor> contents;
  for (const auto& [name, tensor] : ordered) {
    const auto& data = contents.emplace_back(tensor.detach().cpu().contiguous());
    sum = add_to_checksum(sum, data.const_data_ptr(), data.nbytes());
  }
  header.replace(header.find(checksum_label) + checksum_label.size(), checksum_zeros.size(), checksum_text(sum));

  WholeFile file(path);
  const std::uint64_t length = header.size();
  file.write(&length, prefix);
  file.write(header.data(), header.size());
  for (const auto& data : contents) file.write(data.const_data_ptr(), data.nbytes());
  file.commit();
}

SafetensorsFile load_safetensors(const std::filesystem::path& path) { return Reader(path).read(); }

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
    if (!parameters.contains(name)) refuse("has the tensor " + quote(name) + ", which the module does not");
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
