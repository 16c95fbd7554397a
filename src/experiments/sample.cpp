// SPDX-License-Identifier: Apache-2.0
// Choosing the prompt, and reading what was made of it.
#include "experiments/sample.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "files/quote.h"
#include "files/regular_file.h"

namespace hkt::experiments {
namespace {

using nlohmann::ordered_json;

constexpr double temperature = 0.8;
constexpr int tokens = 300, seed = 0;

// From the first beginning of a line to the last end of one, within the longest prompt.
std::string_view lines_of(std::string_view document) {
  constexpr std::size_t longest = 160;
  if (const auto first = document.find('\n'); first != std::string_view::npos) document.remove_prefix(first + 1);
  document = document.substr(0, longest);
  auto end = document.rfind('\n');
  if (end == std::string_view::npos) end = document.rfind(' ');
  return end == std::string_view::npos ? std::string_view() : document.substr(0, end + 1);
}

}  // namespace

std::string prompt_of(const data::Stream& stream) {
  constexpr std::size_t searched = std::size_t{1} << 16, shortest = 16;
  std::string_view text(reinterpret_cast<const char*>(stream.tokens.data()), std::min(stream.tokens.size(), searched));
  while (!text.empty()) {
    const auto end = std::min(text.find('\0'), text.size());
    const auto lines = lines_of(text.substr(0, end));
    if (lines.size() >= shortest && is_utf8(lines)) return std::string(lines);
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return "";
}

std::vector<std::string> sampling_arguments(const train::RunDirectory& run, const std::string& prompt) {
  return {"generate",      run.folder.string(),         "--prompt", prompt,
          "--tokens",      std::to_string(tokens),      "--seed",   std::to_string(seed),
          "--temperature", fmt::to_string(temperature), "--out",    run.sample().string()};
}

ordered_json read_sample(const train::RunDirectory& run) {
  std::error_code error;
  if (!std::filesystem::exists(run.sample(), error)) return {};
  const auto written = ordered_json::parse(read_file(run.sample()), nullptr, false);
  const auto is_text = [&](const char* key) { return written.contains(key) && written[key].is_string(); };
  if (!written.is_object() || !is_text("prompt") || !is_text("text")) return {};
  return {{"prompt", written["prompt"]}, {"text", written["text"]}, {"temperature", temperature}, {"seed", seed}};
}

}  // namespace hkt::experiments
