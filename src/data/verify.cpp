// SPDX-License-Identifier: Apache-2.0
// Verifying archives and packed files.
#include "data/verify.h"

#include <stdexcept>

#include "data/digest.h"
#include "data/listops_expression.h"
#include "data/official.h"
#include "data/prepare.h"

namespace hkt::data {
namespace {

namespace fs = std::filesystem;

Finding verify_archive(const Official& set) {
  const auto archive = archive_of(set);
  const auto right = digest_of(set);
  const auto name = name_of(kind_of(right)), sum = digest_of_file(kind_of(right), archive);
  if (sum != right) {
    return {false, archive.string() + " is damaged: its " + name + " is " + sum + " and should be " + right + "."};
  }
  const std::string kind = right == set.digest ? "official" : "one given at its download, not the official one";
  return {true, archive.string() + ": its " + name + " is the " + kind + "."};
}

void check_values(const PackedPart& part) {
  for (std::int64_t i = 0; i < part.size(); ++i) {
    if (listops::evaluate(part.sequence(i)) != part.labels[static_cast<std::size_t>(i)]) {
      throw std::invalid_argument("a label differs from the value of its expression.");
    }
  }
}

Finding verify_packed(Task task, const fs::path& path) {
  try {
    const auto packed = load_packed(path);
    for (const auto* part : {&packed.train, &packed.validation, &packed.test}) {
      if (task == Task::listops) check_values(*part);
    }
    return {true, path.string() + ": intact, " + summary(task, packed) + "."};
  } catch (const std::invalid_argument& error) {
    return {false, path.string() + " is damaged: " + error.what()};
  } catch (const std::runtime_error& error) {
    return {false, error.what()};
  }
}

}  // namespace

std::vector<Finding> verify(Task task) {
  std::vector<Finding> findings;
  for (const auto& set : official()) {
    if (set.task == task && fs::exists(archive_of(set))) findings.push_back(verify_archive(set));
  }
  for (const auto& path : packed_files(task)) findings.push_back(verify_packed(task, path));
  return findings;
}

}  // namespace hkt::data
