// SPDX-License-Identifier: Apache-2.0
// Reading, checking and writing ListOps files.
#include "data/listops_file.h"

#include <algorithm>
#include <stdexcept>
#include <string_view>

#include "data/archive.h"
#include "data/listops_expression.h"
#include "files/quote.h"
#include "files/whole_file.h"

namespace hkt::data::listops {
namespace {

struct Line {
  int label, value;
};

Line read_line(std::string_view line) {
  const auto tab = line.find('\t');
  if (tab == std::string_view::npos) throw std::invalid_argument("there is no tab between label and expression.");
  const auto label = line.substr(0, tab);
  if (label.size() != 1 || label[0] < '0' || label[0] > '9') {
    throw std::invalid_argument("the label is " + quote(label) + "; it must be a digit 0 to 9.");
  }
  return {label[0] - '0', evaluate(parse(line.substr(tab + 1)))};
}

}  // namespace

Agreement compare_labels(const std::filesystem::path& path) {
  const auto content = read_compressed(path);
  const std::string_view all = content;
  Agreement result;
  std::int64_t number = 0;
  for (std::size_t begin = 0; begin < all.size();) {
    const auto end = std::min(all.find('\n', begin), all.size());
    auto line = all.substr(begin, end - begin);
    if (line.ends_with('\r')) line.remove_suffix(1);
    begin = end + 1;
    ++number;
    if (line.empty()) continue;
    try {
      const auto [label, value] = read_line(line);
      ++result.lines;
      if (label == value) ++result.agreeing;
      if (label != value && result.first_other.empty()) {
        result.first_other = at_line(path.string(), number) + " has the label " + std::to_string(label) +
                             ", but its expression has the value " + std::to_string(value) + ".";
      }
    } catch (const std::invalid_argument& error) {
      throw std::invalid_argument(at_line(path.string(), number) + ": " + error.what());
    }
  }
  if (result.lines == 0) throw std::invalid_argument(path.string() + " has no line with a label and an expression.");
  return result;
}

void write_file(const std::filesystem::path& path, const PackedPart& part) {
  WholeFile file(path);
  for (std::int64_t i = 0; i < part.size(); ++i) {
    const auto label = part.labels[static_cast<std::size_t>(i)];
    const auto line = std::to_string(label) + "\t" + text(part.sequence(i)) + "\n";
    file.write(line.data(), line.size());
  }
  file.commit();
}

}  // namespace hkt::data::listops
