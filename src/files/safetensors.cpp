// SPDX-License-Identifier: Apache-2.0
// Reading and writing safetensors: 8 bytes with the header's length, the header in JSON, then the tensors' data.
#include "files/safetensors.h"

#include <zlib.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <iterator>
#include <set>
#include <stdexcept>
#include <string_view>
#include <tuple>

#include "files/json_fields.h"
#include "files/whole_file.h"

namespace hkt::safetensors {
namespace {

using fields::Json;
using Metadata = std::map<std::string, std::string>;

static_assert(std::endian::native == std::endian::little, "the format is little endian, and so is this code");

constexpr std::uint64_t longest_header = 100'000'000;  // as in the other readers of the format
constexpr std::size_t prefix = sizeof(std::uint64_t);
constexpr std::size_t alignment = 8;
constexpr const char* metadata_key = "__metadata__";

// The checksum is in the metadata. It covers the file except the 8 bytes of length, with its own digits read as zeros.
constexpr const char* checksum_key = "checksum";
constexpr std::string_view checksum_label = "crc32:";
constexpr std::string_view checksum_zeros = "00000000";

std::string checksum_text(std::uint32_t sum) {
  std::string digits(checksum_zeros);
  for (auto digit = digits.rbegin(); digit != digits.rend(); ++digit, sum >>= 4) *digit = "0123456789abcdef"[sum & 15];
  return digits;
}

std::uint32_t add_to_checksum(std::uint32_t sum, const void* data, std::size_t size) {
  if (size == 0) return sum;  // zlib restarts the sum if the pointer is null
  return static_cast<std::uint32_t>(crc32_z(sum, static_cast<const Bytef*>(data), size));
}

// ---- writing

std::string make_header(const std::vector<Array>& arrays, const Metadata& metadata) {
  auto header = fields::OrderedJson::object();
  // First, because write() searches the header for the first occurrence of the label.
  header[metadata_key][checksum_key] = std::string(checksum_label) + std::string(checksum_zeros);
  for (const auto& [key, text] : metadata) {
    if (key != checksum_key) header[metadata_key][key] = text;
  }
  std::set<std::string> names{metadata_key};
  std::uint64_t offset = 0;
  for (const auto& array : arrays) {
    if (!names.insert(array.name).second) {
      throw std::invalid_argument("the tensor name \"" + array.name + "\" is used twice or reserved.");
    }
    const std::uint64_t end = offset + array.bytes.size();
    header[array.name] = {{"dtype", name_of(array.type)}, {"shape", array.shape}, {"data_offsets", {offset, end}}};
    offset = end;
  }
  std::string text = header.dump();
  text.resize((text.size() + alignment - 1) / alignment * alignment, ' ');
  if (text.size() > longest_header) {
    throw std::invalid_argument("the names of the tensors and the metadata would make a header of more than 100 MB.");
  }
  return text;
}

// ---- reading

struct Entry {
  std::string name;
  Type type;
  std::vector<std::int64_t> shape;
  std::uint64_t begin, end;
};

class Reader {
 public:
  explicit Reader(const std::filesystem::path& path) : path_(path), file_(std::make_shared<MappedFile>(path)) {}

  File read() {
    const Json header = read_header();
    File file;
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
    for (const auto& entry : entries) file.arrays.push_back(array(entry));
    file.mapped = file_;
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
      fail("is not safetensors: it has " + std::to_string(bytes.size()) + " bytes, fewer than 8");
    }
    std::uint64_t length = 0;
    std::memcpy(&length, bytes.data(), prefix);
    if (length > longest_header || length > bytes.size() - prefix) {
      fail("is not safetensors or is truncated: its header would have " + std::to_string(length) +
           " bytes, but the file has " + std::to_string(bytes.size()));
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
      if (!text.is_string()) fail("is not valid safetensors: its __metadata__ has values other than strings");
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
    const auto type =
        std::find_if(all_types.begin(), all_types.end(), [&](Type known) { return value["dtype"] == name_of(known); });
    if (type == all_types.end()) fail(name, "has a dtype other than F64, F32, BF16, F16, I64, I32, U8, BOOL");
    const auto& offsets = value["data_offsets"];
    if (!value["shape"].is_array() || !offsets.is_array() || offsets.size() != 2) {
      fail(name, "does not have a list as shape and two numbers as data_offsets");
    }
    Entry result{name, *type, {}, count(name, offsets[0]), count(name, offsets[1])};
    std::uint64_t bytes = size_of(*type);
    bool overflow = false;
    for (const auto& size : value["shape"]) {
      result.shape.push_back(static_cast<std::int64_t>(count(name, size)));
      overflow = __builtin_mul_overflow(bytes, count(name, size), &bytes) || overflow;
    }
    if (overflow || result.begin > result.end || result.end - result.begin != bytes) {
      fail(name, "has data_offsets that do not match its shape and dtype");
    }
    return result;
  }

  // Tensors must follow each other from the first byte to the last: no overlaps, no hidden bytes, nothing missing.
  void check_layout(std::vector<Entry>& entries) const {
    std::sort(entries.begin(), entries.end(),
              [](const Entry& a, const Entry& b) { return std::tie(a.begin, a.end) < std::tie(b.begin, b.end); });
    std::uint64_t offset = 0;
    for (const auto& entry : entries) {
      if (entry.begin != offset) fail(entry.name, "does not begin where the previous tensor ends");
      offset = entry.end;
    }
    if (offset != data_.size()) {
      fail("is not valid safetensors or is truncated: its tensors take " + std::to_string(offset) +
           " bytes, but the file has " + std::to_string(data_.size()) + " after its header");
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

  Array array(const Entry& entry) const {
    const auto bytes = data_.subspan(entry.begin, entry.end - entry.begin);
    const auto is_bool = [](std::byte value) { return value <= std::byte{1}; };
    if (entry.type == Type::boolean && !std::all_of(bytes.begin(), bytes.end(), is_bool)) {
      fail(entry.name, "is BOOL and contains bytes other than 0 and 1");
    }
    return {entry.name, entry.type, entry.shape, bytes};
  }

  std::filesystem::path path_;
  std::shared_ptr<MappedFile> file_;
  std::string header_;
  std::span<std::byte> data_;  // the bytes after the header
};

}  // namespace

const char* name_of(Type type) {
  switch (type) {
    case Type::float64:
      return "F64";
    case Type::float32:
      return "F32";
    case Type::bfloat16:
      return "BF16";
    case Type::float16:
      return "F16";
    case Type::int64:
      return "I64";
    case Type::int32:
      return "I32";
    case Type::uint8:
      return "U8";
    case Type::boolean:
      return "BOOL";
  }
  throw std::invalid_argument("a tensor has a type that hkt's safetensors files do not support.");
}

std::size_t size_of(Type type) {
  switch (type) {
    case Type::float64:
    case Type::int64:
      return 8;
    case Type::float32:
    case Type::int32:
      return 4;
    case Type::bfloat16:
    case Type::float16:
      return 2;
    case Type::uint8:
    case Type::boolean:
      return 1;
  }
  throw std::invalid_argument("a tensor has a type that hkt's safetensors files do not support.");
}

void write(const std::filesystem::path& path, const std::vector<Array>& unsorted, const Metadata& metadata) {
  std::vector<Array> arrays;  // the largest elements first, so that all are aligned
  for (const std::size_t size : {8U, 4U, 2U, 1U}) {
    std::copy_if(unsorted.begin(), unsorted.end(), std::back_inserter(arrays),
                 [size](const Array& array) { return size_of(array.type) == size; });
  }
  std::string header;
  try {
    header = make_header(arrays, metadata);
  } catch (const Json::exception&) {
    throw std::invalid_argument(path.string() + " cannot be written: names and metadata must be UTF-8.");
  } catch (const std::invalid_argument& error) {
    throw std::invalid_argument(path.string() + " cannot be written: " + error.what());
  }
  std::uint32_t sum = add_to_checksum(0, header.data(), header.size());
  for (const auto& array : arrays) sum = add_to_checksum(sum, array.bytes.data(), array.bytes.size());
  header.replace(header.find(checksum_label) + checksum_label.size(), checksum_zeros.size(), checksum_text(sum));

  WholeFile file(path);
  const std::uint64_t length = header.size();
  file.write(&length, prefix);
  file.write(header.data(), header.size());
  for (const auto& array : arrays) file.write(array.bytes.data(), array.bytes.size());
  file.commit();
}

File read(const std::filesystem::path& path) { return Reader(path).read(); }

}  // namespace hkt::safetensors
