// SPDX-License-Identifier: Apache-2.0
// Building packed files, with a recipe for each task.
#include "data/prepare.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <tuple>
#include <utility>

#include "data/archive.h"
#include "data/cifar.h"
#include "data/config_json.h"
#include "data/corpora.h"
#include "data/digest.h"
#include "data/imdb.h"
#include "data/listops.h"
#include "data/lm.h"
#include "data/official.h"
#include "data/text.h"

namespace hkt::data {
namespace {

namespace fs = std::filesystem;

constexpr const char* ending = ".safetensors";

// How a packed file is built.
struct Recipe {
  std::string name;         // of the file
  std::string fingerprint;  // of its inputs
  std::string source;       // the inputs, for messages
  std::function<Prepared()> prepare;
};

// One file for each content; the fingerprint inside resolves collisions of the shortened name.
std::string name_of(Task task, const std::string& fingerprint) {
  constexpr std::size_t digits = 16;
  return task_name(task) + "-" + digest(Digest::md5, fingerprint).substr(0, digits) + ending;
}

Recipe listops_recipe(const DataConfig& config, const Notify& notify) {
  const auto print = listops::fingerprint(config);
  return {name_of(config.task, print), print, "generated", [=] { return listops::generate(config, notify); }};
}

std::string source_of(const DataConfig& config) {
  return config.train + (config.test.empty() ? "" : " and " + config.test);
}

Recipe text_recipe(const DataConfig& config, const Notify& notify) {
  if (config.train.empty()) {
    throw std::invalid_argument(
        "data.train is empty; the task text needs a .csv, .tsv or .jsonl file or a folder there.");
  }
  const auto print = text::fingerprint(config);
  return {name_of(config.task, print), print, source_of(config), [=] { return text::read(config, notify); }};
}

Recipe lm_recipe(const DataConfig& config, const Notify& notify) {
  if (config.train.empty()) {
    throw std::invalid_argument(
        "data.train is empty; the task lm needs a file, a folder or a path with wildcards there.");
  }
  const auto print = lm::fingerprint(config);
  return {name_of(config.task, print), print, source_of(config), [=] { return lm::read(config, notify); }};
}

// How an official data set is read.
struct Reader {
  int version;
  Wanted wanted;
  std::function<Prepared(const std::string& source, const Notify& notify)> read;
};

Reader reader_of(Task task) {
  if (task == Task::scifar) return {cifar::reader_version, cifar::wanted, cifar::read};
  if (task == Task::imdb) return {imdb::reader_version, imdb::wanted, imdb::read};
  return {corpora::reader_version, corpora::wanted(task),
          [task](const auto& source, const auto& notify) { return corpora::read(task, source, notify); }};
}

std::string official_fingerprint(Task task, const std::string& files) {
  return nlohmann::ordered_json{{"task", task_name(task)}, {"version", reader_of(task).version}, {"files", files}}
      .dump();
}

Recipe source_recipe(Task task, const std::string& source, const Notify& notify) {
  const auto print = official_fingerprint(task, fingerprint_of_files(source, reader_of(task).wanted));
  return {name_of(task, print), print, source, [=] { return reader_of(task).read(source, notify); }};
}

// For configs without a source: the packed file stays valid after its archive is deleted.
Recipe official_recipe(Task task, const std::string& source, const Notify& notify) {
  return {task_name(task) + ending, official_fingerprint(task, "official"), source,
          [=] { return reader_of(task).read(source, notify); }};
}

Recipe downloaded_recipe(Task task, const Notify& notify) {
  const auto name = task_name(task);
  const auto archive = archive_of(official(task)).string();
  auto recipe = official_recipe(task, archive, notify);
  if (!fs::exists(archive)) {
    recipe.prepare = [=]() -> Prepared {
      throw std::invalid_argument("the data set " + name + " is missing: there is neither an intact packed file nor " +
                                  archive + "; run hkt data fetch " + name +
                                  ", or set data.source to its folder or archive.");
    };
  }
  return recipe;
}

Recipe recipe_of(const DataConfig& config, const Notify& notify) {
  switch (config.task) {
    case Task::listops:
      return listops_recipe(config, notify);
    case Task::text:
      return text_recipe(config, notify);
    case Task::lm:
      return lm_recipe(config, notify);
    case Task::scifar:
    case Task::imdb:
    case Task::enwik8:
    case Task::shakespeare:
    case Task::wikitext2:
      return config.source.empty() ? downloaded_recipe(config.task, notify)
                                   : source_recipe(config.task, config.source, notify);
  }
  throw std::invalid_argument("data.task is not a known task.");
}

void warn_of_size(Task task, Obtained& obtained) {
  if (task != Task::scifar && task != Task::imdb) return;
  const bool images = task == Task::scifar;
  const auto train = images ? cifar::train_images : imdb::train_reviews;
  const auto test = images ? cifar::test_images : imdb::test_reviews;
  const auto& packed = obtained.packed;
  if (packed.train.size() == train && packed.test.size() == test) return;
  obtained.notices.push_back("the data set " + task_name(task) + " from " + packed.source + " has " +
                             std::to_string(packed.train.size()) + " training and " +
                             std::to_string(packed.test.size()) + " test examples; the official one has " +
                             std::to_string(train) + " and " + std::to_string(test) + ".");
}

void make(const Recipe& recipe, Obtained& obtained) {
  auto prepared = recipe.prepare();
  obtained.notices.insert(obtained.notices.end(), prepared.notices.begin(), prepared.notices.end());
  save_packed(obtained.path, std::move(prepared), recipe.fingerprint, recipe.source);
  obtained.packed = load_packed(obtained.path);
  obtained.made = true;
}

}  // namespace

Obtained obtain(const DataConfig& config, const Notify& notify) {
  to_json(config);  // checks each value
  const auto recipe = recipe_of(config, notify);
  Obtained obtained;
  obtained.path = data_folder() / recipe.name;
  bool whole_file = false;
  if (fs::exists(obtained.path)) {
    try {
      obtained.packed = load_packed(obtained.path);
      whole_file = obtained.packed.fingerprint == recipe.fingerprint;
      if (!whole_file) obtained.notices.push_back(obtained.path.string() + " belongs to other data; it was rebuilt.");
    } catch (const std::runtime_error& error) {
      obtained.notices.push_back(std::string(error.what()) + " It was rebuilt.");
    }
  }
  if (!whole_file) make(recipe, obtained);
  warn_of_size(config.task, obtained);
  return obtained;
}

Obtained obtain_from(Task task, const std::string& source, const Notify& notify) {
  const auto recipe = official_recipe(task, fs::absolute(source).string(), notify);
  Obtained obtained;
  obtained.path = data_folder() / recipe.name;
  make(recipe, obtained);
  warn_of_size(task, obtained);
  return obtained;
}

std::string summary(Task task, const Packed& packed) {
  const auto splits = [](std::size_t train, std::size_t validation, std::size_t test) {
    return std::to_string(train) + " training, " + std::to_string(validation) + " validation and " +
           std::to_string(test) + " test ";
  };
  const auto& [train, validation, test] = std::tie(packed.train, packed.validation, packed.test);
  if (is_stream(task)) {
    const auto documents = train.labels.size() + validation.labels.size() + test.labels.size();
    return splits(train.tokens.size(), validation.tokens.size(), test.tokens.size()) + "tokens" +
           (task == Task::lm ? ", documents: " + std::to_string(documents) : "");
  }
  return splits(train.labels.size(), validation.labels.size(), test.labels.size()) + "sequences, " +
         std::to_string(packed.labels.size()) + " classes";
}

std::vector<fs::path> packed_files(Task task) {
  std::vector<fs::path> files;
  const auto name = task_name(task);
  for (const auto& file : fs::directory_iterator(data_folder())) {
    const auto stem = file.path().stem().string();
    if (file.path().extension() == ending && (stem == name || stem.starts_with(name + "-"))) {
      files.push_back(file.path());
    }
  }
  std::sort(files.begin(), files.end());
  return files;
}

}  // namespace hkt::data
