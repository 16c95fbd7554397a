// SPDX-License-Identifier: Apache-2.0
// `make bench`: times the operators and training steps, prints tables, and writes them with commit and machine.
//   hkt_bench [--quick] [--cuda] [--only N[,N...]] [--out NAME]     writes NAME.json and NAME.md (default: no files)
//   --cuda measures on the first GPU instead of the CPU; --only: these tables alone, counted from 1.
#include <ATen/ATen.h>
#include <torch/utils.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <set>
#include <sstream>

#include "harness.h"
#include "train/provenance.h"

namespace {

// The command line, without the program's folder, with the environment variables that limit which kernels are chosen.
std::string command_line(int count, char** arguments) {
  std::string line;
  for (const char* variable :
       {"ATEN_CPU_CAPABILITY", "MKL_ENABLE_INSTRUCTIONS", "ONEDNN_MAX_CPU_ISA", "HKT_CUDA_CAPABILITY"})
    if (const char* value = std::getenv(variable)) line += std::string(variable) + "=" + value + " ";
  line += std::filesystem::path(arguments[0]).filename().string();
  for (int i = 1; i < count; ++i) line += std::string(" ") + arguments[i];
  return line;
}

}  // namespace

int main(int count, char** arguments) {
  bool quick = false, cuda = false;
  std::string out;
  std::set<int> only;
  for (int i = 1; i < count; ++i) {
    const std::string argument = arguments[i];
    if (argument == "--quick") {
      quick = true;
    } else if (argument == "--cuda") {
      cuda = true;
    } else if (argument == "--out" && i + 1 < count) {
      out = arguments[++i];
    } else if (argument == "--only" && i + 1 < count) {
      std::istringstream numbers(arguments[++i]);
      for (std::string text; std::getline(numbers, text, ',');) only.insert(std::atoi(text.c_str()));
    } else {
      std::cerr << "hkt_bench: unknown argument '" << argument
                << "'; allowed are --quick, --cuda, --only N and --out NAME\n";
      return 2;
    }
  }
  if (cuda && !hkt::bench::can_use_cuda()) {
    std::cerr << "hkt_bench: --cuda needs a build for CUDA and a GPU\n";
    return 2;
  }
  torch::manual_seed(0);
  // After one large block is freed, glibc keeps freed memory instead of returning it, as in any process that trains.
  at::empty({31 << 20}, at::kByte);
  const auto where = hkt::train::provenance();
  std::cout << where.dump() << "\n";
  std::vector<hkt::bench::Table> tables;
  using Measure = hkt::bench::Table (*)(bool);
  const std::vector<Measure> on_cpu = {&hkt::bench::attention_shapes,
                                       &hkt::bench::attention_growth_with_length,
                                       &hkt::bench::attention_growth_with_levels,
                                       &hkt::bench::attention_memory,
                                       &hkt::bench::decode_steps,
                                       &hkt::bench::prefill_chunks,
                                       &hkt::bench::downsample_shapes,
                                       &hkt::bench::training_steps};
  const std::vector<Measure> on_cuda = {&hkt::bench::cuda_attention_shapes,  &hkt::bench::cuda_attention_levels,
                                        &hkt::bench::cuda_attention_float32, &hkt::bench::cuda_attention_long,
                                        &hkt::bench::cuda_attention_grouped, &hkt::bench::cuda_attention_wide_heads,
                                        &hkt::bench::cuda_decode_steps,      &hkt::bench::cuda_long_decode_steps,
                                        &hkt::bench::cuda_prefill_chunks,    &hkt::bench::cuda_training_steps};
  const auto& measures = cuda ? on_cuda : on_cpu;
  for (size_t i = 0; i < measures.size(); ++i)
    if (only.empty() || only.count(static_cast<int>(i) + 1) > 0) tables.push_back(measures[i](quick));
  if (out.empty()) return 0;

  nlohmann::json all = {
      {"command", command_line(count, arguments)}, {"where", where}, {"tables", nlohmann::json::array()}};
  std::ofstream markdown(out + ".md");
  markdown << "Written by `" << command_line(count, arguments) << "`: commit " << where["commit"].get<std::string>()
           << ", " << where["processor"].get<std::string>() << ", " << where["threads"] << " threads, "
           << where["cpu_kernels"].get<std::string>() << ", "
           << (cuda ? where["gpus"][0].get<std::string>() + ", " : "") << "torch " << where["torch"].get<std::string>()
           << ", " << where["date"].get<std::string>() << ".\n";
  for (const auto& table : tables) {
    all["tables"].push_back(table.json());
    markdown << "\n" << table.markdown();
  }
  std::ofstream(out + ".json") << all.dump(1) << "\n";
  if (!markdown.flush()) {
    std::cerr << "hkt_bench: cannot write " << out << ".md\n";
    return 1;
  }
  return 0;
}
