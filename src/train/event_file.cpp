// SPDX-License-Identifier: Apache-2.0
// TFRecords and the few protocol-buffer fields that TensorBoard reads.
#include "train/event_file.h"

#include <unistd.h>

#include <array>
#include <bit>
#include <chrono>
#include <cmath>
#include <cstring>

namespace hkt::train {
namespace {

// CRC-32C (Castagnoli), which zlib does not have.
std::uint32_t crc32c(const std::string& bytes) {
  static const auto table = [] {
    constexpr std::uint32_t polynomial = 0x82f63b78;
    std::array<std::uint32_t, 256> entries{};
    for (std::uint32_t i = 0; i < entries.size(); ++i) {
      auto value = i;
      for (int bit = 0; bit < 8; ++bit) value = value & 1 ? value >> 1 ^ polynomial : value >> 1;
      entries[i] = value;
    }
    return entries;
  }();
  std::uint32_t sum = ~0U;
  for (const char byte : bytes) sum = sum >> 8 ^ table[(sum ^ static_cast<unsigned char>(byte)) & 0xffU];
  return ~sum;
}

template <typename Number>
std::string bytes_of(Number number) {
  static_assert(std::endian::native == std::endian::little);
  std::string bytes(sizeof number, '\0');
  std::memcpy(bytes.data(), &number, sizeof number);
  return bytes;
}

std::string checked(const std::string& bytes) {
  const auto sum = crc32c(bytes);
  constexpr std::uint32_t mask = 0xa282ead8;
  return bytes + bytes_of(((sum >> 15 | sum << 17) + mask));
}

// ---- protocol-buffer encoding

enum class Wire : std::uint8_t { varint = 0, eight_bytes = 1, text = 2, four_bytes = 5 };

std::string varint(std::uint64_t value) {
  std::string bytes;
  for (; value >= 0x80; value >>= 7) bytes.push_back(static_cast<char>(value | 0x80));
  bytes.push_back(static_cast<char>(value));
  return bytes;
}
std::string key(std::uint64_t field, Wire wire) { return varint(field << 3 | static_cast<std::uint64_t>(wire)); }
std::string message(std::uint64_t field, const std::string& content) {
  return key(field, Wire::text) + varint(content.size()) + content;
}

// Fields of Event, Summary, Summary.Value and SessionLog.
constexpr std::uint64_t wall_time = 1, step_field = 2, file_version = 3, summary = 5, session_log = 7;
constexpr std::uint64_t value_field = 1, tag = 1, simple_value = 2, status = 1, started = 1;

double now() { return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count(); }

}  // namespace

EventFile::EventFile(const std::filesystem::path& folder, std::int64_t step) {
  const auto name = "events.out.tfevents." + std::to_string(static_cast<std::int64_t>(now())) + "." +
                    std::to_string(::getpid()) + ".hkt";
  file_.open(folder / name, std::ios::binary | std::ios::trunc);
  write_event(0, message(file_version, "brain.Event:2"));
  write_event(step, message(session_log, key(status, Wire::varint) + varint(started)));
  file_.flush();
}

void EventFile::write_event(std::int64_t step, const std::string& field) {
  const auto event = key(wall_time, Wire::eight_bytes) + bytes_of(now()) + key(step_field, Wire::varint) +
                     varint(static_cast<std::uint64_t>(step)) + field;
  file_ << checked(bytes_of(static_cast<std::uint64_t>(event.size()))) << checked(event);
}

void EventFile::add(const nlohmann::ordered_json& line) {
  if (!line.contains("step")) return;
  const std::string prefix = line.value("event", "") == "step" ? "train/" : "";
  std::string values;
  for (const auto& [name, value] : line.items()) {
    if (!value.is_number() || name == "step" || name == "epoch") continue;
    values += message(value_field, message(tag, prefix + name) + key(simple_value, Wire::four_bytes) +
                                       bytes_of(static_cast<float>(value.get<double>())));
  }
  if (values.empty()) return;
  write_event(line["step"], message(summary, values));
  file_.flush();
}

}  // namespace hkt::train
