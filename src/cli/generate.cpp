// SPDX-License-Identifier: Apache-2.0
// hkt generate: a language model continues a text.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/App.hpp>
#include <algorithm>
#include <chrono>
#include <memory>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "commands.h"
#include "files/json_fields.h"
#include "files/line_reader.h"
#include "files/whole_file.h"
#include "hkt/decoding.h"
#include "hkt/sampling.h"
#include "interrupt.h"
#include "options.h"
#include "print.h"
#include "text_stream.h"
#include "train/checkpoint.h"

namespace hkt::cli {
namespace {

struct Options {
  std::string folder, out;
  std::optional<std::string> prompt;
  std::int64_t tokens = 256;
  SamplingOptions sampling;
  std::vector<std::string> stop;
  bool lines = false, echo = false, json = false;
  MachineOptions machine;
};

constexpr std::int64_t end_of_document = 0;  // also begins an empty prompt
constexpr std::size_t longest_prompt = std::size_t{1} << 26;

struct Timing {
  std::int64_t prompt = 0, generated = 0;
  double prompt_seconds = 0, seconds = 0;
};

// Continues one text. The model sees at most max_length tokens: when they are full, it goes on from the last half of them.
class Generation {
 public:
  Generation(LanguageModel model, at::Device device) : model_(std::move(model)), device_(device) {}

  // Passes each token to `take` until it returns false, the document ends, or Ctrl-C. Returns why it ended.
  template <class Take>
  std::string run(const std::string& prompt, std::int64_t most, Sampler& sampler, const Take& take) {
    history_.assign(prompt.begin(), prompt.end());
    for (auto& token : history_) token &= 0xff;
    if (history_.empty()) history_ = {end_of_document};
    timing_ = {std::ssize(history_)};
    if (most == 0) return "length";
    const auto capacity = std::min(model_->config().max_length, timing_.prompt + most);
    DecodingState state(model_, 1, capacity);
    const auto begin = Clock::now();
    auto logits = refill(state);
    timing_.prompt_seconds = seconds_since(begin);
    const auto generating = Clock::now();
    const auto ended = [&](const char* why) {
      timing_.seconds = seconds_since(generating);
      return std::string(why);
    };
    while (true) {
      const auto token = sampler.sample(logits[0]);
      ++timing_.generated;
      if (token == end_of_document) return ended("end");
      if (!take(static_cast<char>(token))) return ended("stop");
      if (Interrupt::asked()) return ended("interrupt");
      if (timing_.generated == most) return ended("length");
      history_.push_back(token);
      logits = state.lengths()[0] < capacity ? state.step(tensor_of({&token, 1})) : refill(state);
    }
  }

  const Timing& timing() const { return timing_; }

 private:
  using Clock = std::chrono::steady_clock;
  static double seconds_since(Clock::time_point begin) {
    return std::chrono::duration<double>(Clock::now() - begin).count();
  }

  at::Tensor tensor_of(at::ArrayRef<std::int64_t> tokens) const { return at::tensor(tokens, at::kLong).to(device_); }

  // The logits after the history, or as much of its end as leaves half of the room.
  at::Tensor refill(DecodingState& state) {
    state.clear();
    at::ArrayRef<std::int64_t> tokens = history_;
    if (std::ssize(history_) > state.capacity())
      tokens = tokens.slice(tokens.size() - static_cast<std::size_t>((state.capacity() + 1) / 2));
    return state.prefill(tensor_of(tokens).unsqueeze(0));
  }

  LanguageModel model_;
  at::Device device_;
  std::vector<std::int64_t> history_;
  Timing timing_;
};

LanguageModel language_model_of(const Options& options, at::Device device) {
  const auto trained = train::load_model({options.folder}, device, warn);
  if (trained.identity.config.model.kind != ModelKind::language) {
    throw std::invalid_argument(options.folder + " contains a classifier; hkt predict uses it.");
  }
  if (trained.identity.config.model.vocab != 256) {
    throw std::invalid_argument(fmt::format("{} has a vocabulary of {}; hkt generate needs bytes, 256.", options.folder,
                                            trained.identity.config.model.vocab));
  }
  auto model = LanguageModel(std::dynamic_pointer_cast<LanguageModelImpl>(trained.model));
  if (device.is_cuda()) model->to(at::kBFloat16);
  return model;
}

// Threads that read the weights of one token wait for each other some hundred times, so that small models are faster with fewer.
int default_threads(const LanguageModelImpl& model) {
  constexpr std::int64_t bytes_per_thread = std::int64_t{32} << 20;
  std::int64_t bytes = 0;
  for (const auto& parameter : model.parameters()) bytes += static_cast<std::int64_t>(parameter.nbytes());
  return static_cast<int>(std::clamp<std::int64_t>(bytes / bytes_per_thread, 1, at::get_num_threads()));
}

// What a text became.
struct Written {
  std::string text, why;
};

Written write_one(Generation& generation, const std::string& prompt, const Options& options, Sampler& sampler) {
  TextStream stream(options.stop, options.json ? nullptr : stdout, ::isatty(STDOUT_FILENO) != 0);
  if (options.echo) stream.write(prompt);
  const auto why = generation.run(prompt, options.tokens, sampler, [&](char byte) { return stream.add(byte); });
  stream.finish();
  return {stream.text(), why};
}

std::string json_line(const std::string& prompt, const Written& written, const Timing& timing) {
  const nlohmann::ordered_json line = {{"prompt", prompt},
                                       {"text", written.text},
                                       {"tokens", timing.generated},
                                       {"ended", written.why},
                                       {"seconds", timing.seconds}};
  return fields::dump(line) + "\n";
}

std::vector<std::string> prompts_of(const Options& options) {
  if (options.prompt) {
    if (options.lines) throw std::invalid_argument("--lines reads standard input; it cannot be used with --prompt.");
    return {*options.prompt};
  }
  if (::isatty(STDIN_FILENO) != 0) return {""};  // nothing given: from the beginning of a document
  LineReader input(STDIN_FILENO, longest_prompt);
  std::vector<std::string> prompts;
  std::string whole;
  while (const auto line = input.next()) {
    if (line->cut) throw std::invalid_argument("a line of standard input has more than 64 MiB.");
    if (options.lines) {
      prompts.emplace_back(line->text);
    } else {
      whole += (whole.empty() && prompts.empty() ? "" : "\n") + std::string(line->text);
      prompts.assign(1, whole);
    }
  }
  if (prompts.empty() && !options.lines) prompts.emplace_back();
  return prompts;
}

int run(const Options& options) {
  Sampler sampler(options.sampling);
  for (const auto& stop : options.stop) {
    if (stop.empty()) throw std::invalid_argument("--stop is empty; it must be the text to stop before.");
  }
  const auto device = chosen_device(options.machine);
  const auto model = language_model_of(options, device);
  at::set_num_threads(options.machine.threads.value_or(default_threads(*model)));
  Generation generation(model, device);
  const auto prompts = prompts_of(options);
  for (const auto& prompt : prompts) {
    if (prompt.find('\0') != std::string::npos)
      throw std::invalid_argument("a prompt contains the byte 0, which ends documents.");
  }
  const Interrupt interrupt;
  Timing all;
  std::string lines;
  for (const auto& prompt : prompts) {
    const auto written = write_one(generation, prompt, options, sampler);
    const auto& timing = generation.timing();
    const auto line = json_line(prompt, written, timing);
    if (options.json) fmt::print("{}", line);
    lines += line;
    std::fflush(stdout);
    all.prompt += timing.prompt, all.prompt_seconds += timing.prompt_seconds;
    all.generated += timing.generated, all.seconds += timing.seconds;
    if (written.why == "interrupt") break;
    if (std::ferror(stdout) != 0) break;  // nobody reads any more
  }
  print_error(fmt::format("hkt: {} tokens at {:.0f} tokens/s, after {} tokens of prompt in {:.2f} s\n", all.generated,
                          static_cast<double>(all.generated) / std::max(all.seconds, 1e-9), all.prompt,
                          all.prompt_seconds));
  if (Interrupt::asked()) return interrupted;
  if (!options.out.empty()) write_file(options.out, lines);
  return 0;
}

}  // namespace

void add_generate(CLI::App& program, Action& action) {
  const auto options = std::make_shared<Options>();
  auto& command = *program.add_subcommand("generate", "Continue a text with a language model");
  command.add_option("folder", options->folder, "a run directory of a language model")->required();
  command.add_option("--prompt", options->prompt, "the text to continue (default: standard input)");
  command.add_option("--tokens", options->tokens, "the most tokens (bytes) to write")
      ->capture_default_str()
      ->check(CLI::Range(0, 1 << 30));
  command.add_option("--temperature", options->sampling.temperature, "0: always the most probable token")
      ->capture_default_str();
  command.add_option("--top-k", options->sampling.top_k, "draw from the K most probable tokens; 0: all")
      ->capture_default_str();
  command.add_option("--top-p", options->sampling.top_p, "draw from the most probable tokens that have P together")
      ->capture_default_str();
  command.add_option("--seed", options->sampling.seed, "random seed")->capture_default_str();
  command.add_option("--stop", options->stop, "stop before this text; may be given several times");
  command.add_flag("--lines", options->lines, "each line of standard input is a prompt of its own");
  command.add_flag("--echo", options->echo, "print the prompt, too");
  command.add_flag("--json", options->json, "print one JSON object for each prompt");
  command.add_option("--out", options->out, "a file for these JSON objects");
  add_machine_options(command, options->machine);
  command.footer(
      "Prints what the model writes, as it writes it. A model sees at most its max_length tokens; a longer text goes "
      "on\n"
      "from the last half of them.\n\n"
      "Examples:\n  hkt generate runs/mine --prompt \"The history of \" --temperature 0.8 --echo\n"
      "  echo \"def main():\" | hkt generate runs/mine --tokens 500 --stop \"\\n\\n\"");
  command.callback([options, &action] { action = [options] { return run(*options); }; });
}

}  // namespace hkt::cli
