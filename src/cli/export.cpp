// SPDX-License-Identifier: Apache-2.0
// hkt export: a copy of a trained model for distribution: without training state, in bfloat16 by default, for hkt or for
// transformers.
#include <ATen/ATen.h>
#include <fmt/format.h>

#include <CLI/App.hpp>
#include <filesystem>
#include <memory>
#include <stdexcept>

#include "commands.h"
#include "files/whole_file.h"
#include "options.h"
#include "print.h"
#include "train/checkpoint.h"
#include "train/hugging_face.h"
#include "train/run_directory.h"

namespace hkt::cli {
namespace {

namespace fs = std::filesystem;

struct Options {
  std::string folder, out, precision = "bfloat16";
  bool hugging_face = false;
};

at::ScalarType type_of(const std::string& precision) {
  if (precision == "bfloat16") return at::kBFloat16;
  if (precision == "float32") return at::kFloat;
  throw std::invalid_argument("--precision is \"" + precision + "\"; it must be bfloat16 or float32.");
}

int run(const Options& options) {
  const auto type = type_of(options.precision);
  auto trained = train::load_model({options.folder}, at::kCPU, warn);
  if (const auto attention = trained.identity.config.model.attention;
      options.hugging_face && attention != AttentionKind::hkt) {
    throw std::invalid_argument(options.folder + " has model.attention \"" + name_of(attention) +
                                "\"; the Python package, which --hf is for, knows \"hkt\" alone.");
  }
  trained.identity.config.data.source.clear();  // where this machine had the archive means nothing elsewhere
  trained.identity.config.train.init.clear();   // nor where the weights came from
  const train::RunDirectory out{options.out};
  train::check_free(out.folder);
  std::error_code error;
  fs::create_directories(out.folder, error);
  if (error) throw std::invalid_argument(options.out + " cannot be created: " + error.message() + ".");
  auto parameters = train::copy_of_parameters(*trained.model);
  for (auto& [name, tensor] : parameters) tensor = tensor.to(type);
  if (options.hugging_face) {
    train::save_for_hugging_face({out.folder}, trained.identity, parameters, type);
    if (!train::is_of_bytes(trained.identity.config)) warn("the model's tokens are not bytes; it gets no tokenizer.");
  } else {
    train::save_model(out, trained.identity, parameters);
    write_file(out.config(), trained.identity.config.to_json());
  }
  fmt::print("{}: {} bytes\n", out.model().string(), fs::file_size(out.model()));
  return 0;
}

}  // namespace

void add_export(CLI::App& program, Action& action) {
  const auto options = std::make_shared<Options>();
  auto& command = *program.add_subcommand("export", "Copy a trained model without its training state");
  command.add_option("folder", options->folder, "a run directory")->required();
  command.add_option("--out", options->out, "the folder for the copy")->required();
  command.add_option("--precision", options->precision, "of its weights: bfloat16 or float32")->capture_default_str();
  command.add_flag("--hf", options->hugging_face, "write the files of Hugging Face's transformers instead");
  command.footer(
      "The copy works with eval, predict, explain and theory; training cannot be resumed from it.\n"
      "A copy with --hf is for Python instead: after `import hkt.hf`, AutoModelForCausalLM or\n"
      "AutoModelForSequenceClassification loads it, and pipeline() takes its folder.\n\n"
      "Examples:\n  hkt export runs/mine --out models/mine\n  hkt export runs/mine --out models/mine-hf --hf");
  command.callback([options, &action] { action = [options] { return run(*options); }; });
}

}  // namespace hkt::cli
