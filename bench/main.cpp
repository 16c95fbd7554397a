// SPDX-License-Identifier: Apache-2.0
// `make bench`: times the operators and training steps, prints tables, and writes them with commit and machine.
//   hkt_bench [--quick] [--cuda] [--only N[,N...]] [--out NAME]     writes NAME.json and NAME.md (default: no files)
//   --cuda measures on the first GPU instead of the CPU; --only: these tables alone, counted from 1, beside what NAME has.
#include <ATen/ATen.h>
#include <torch/utils.h>

#include <algorithm>
#include <charconv>
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

// NAME.json and NAME.md, written anew after each table, so that a run that is stopped leaves what it has measured. A run of a
// few tables keeps the others that the file has, each with the command and the commit that measured it.
class ResultsFile {
  using json = nlohmann::json;

 public:
  ResultsFile(std::string name, const std::string& command, bool keeps_others) : name_(std::move(name)) {
    std::ifstream file(name_ + ".json");
    const auto old = keeps_others && file ? json::parse(file) : json::object();
    results_ = {{"command", command}, {"where", hkt::train::provenance()}, {"tables", json::array()}};
    for (auto table : old.value("tables", json::array())) {
      for (const char* key : {"command", "where"})
        if (!table.contains(key)) table[key] = old[key];
      results_["tables"].push_back(table);
    }
  }

  void add(const json& table) {
    auto& tables = results_["tables"];
    const auto same =
        std::find_if(tables.begin(), tables.end(), [&](const json& other) { return other["title"] == table["title"]; });
    if (same == tables.end())
      tables.push_back(table);
    else
      *same = table;
  }

  bool write() const {
    std::ofstream markdown(name_ + ".md");
    markdown << source(results_) << "\n";
    for (const auto& table : results_["tables"]) {
      markdown << "\n### " << table["title"].get<std::string>() << "\n\n";
      if (table.contains("where")) markdown << source(table) << "\n\n";
      markdown << hkt::bench::markdown(table["columns"], table["rows"]);
    }
    std::ofstream file(name_ + ".json");
    file << results_.dump(1) << "\n";
    return static_cast<bool>(markdown.flush()) && static_cast<bool>(file.flush());
  }

 private:
  static std::string source(const json& measured) {
    const auto& where = measured["where"];
    const auto gpus = where.value("gpus", json::array());  // older files have none
    const auto text = [&](const char* key) { return where[key].get<std::string>(); };
    std::ostringstream line;
    line << "Written by `" << measured["command"].get<std::string>() << "`: commit " << text("commit") << ", "
         << text("processor") << ", " << where["threads"] << " threads, " << text("cpu_kernels") << ", "
         << (gpus.empty() ? "" : gpus[0].get<std::string>() + ", ") << "torch " << text("torch") << ", " << text("date")
         << ".";
    return line.str();
  }

  std::string name_;
  json results_;
};

}  // namespace

int main(int count, char** arguments) {
  bool quick = false, cuda = false;
  std::string out;
  std::set<std::size_t> only;
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
      for (std::string text; std::getline(numbers, text, ',');) {
        std::size_t table = 0;
        const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), table);
        if (error != std::errc() || end != text.data() + text.size() || table == 0) {
          std::cerr << "hkt_bench: --only has '" << text << "'; it must be numbers of tables, from 1 on\n";
          return 2;
        }
        only.insert(table);
      }
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
  std::cout << hkt::train::provenance().dump() << "\n";
  using Measure = hkt::bench::Table (*)(bool);
  const std::vector<Measure> on_cpu = {&hkt::bench::attention_shapes,
                                       &hkt::bench::attention_growth_with_length,
                                       &hkt::bench::attention_growth_with_levels,
                                       &hkt::bench::attention_memory,
                                       &hkt::bench::decode_steps,
                                       &hkt::bench::prefill_chunks,
                                       &hkt::bench::downsample_shapes,
                                       &hkt::bench::training_steps,
                                       &hkt::bench::generation_steps,
                                       &hkt::bench::inference};
  const std::vector<Measure> on_cuda = {&hkt::bench::cuda_attention_shapes,
                                        &hkt::bench::cuda_attention_levels,
                                        &hkt::bench::cuda_attention_float32,
                                        &hkt::bench::cuda_attention_long,
                                        &hkt::bench::cuda_attention_grouped,
                                        &hkt::bench::cuda_attention_wide_heads,
                                        &hkt::bench::cuda_decode_steps,
                                        &hkt::bench::cuda_long_decode_steps,
                                        &hkt::bench::cuda_prefill_chunks,
                                        &hkt::bench::cuda_training_steps,
                                        &hkt::bench::cuda_language_training_steps,
                                        &hkt::bench::cuda_generation_steps};
  const auto& measures = cuda ? on_cuda : on_cpu;
  const auto is_wanted = [&](size_t i) { return only.empty() || only.contains(i + 1); };
  ResultsFile results(out, command_line(count, arguments), !only.empty());
  for (size_t i = 0; i < measures.size(); ++i) {
    if (!is_wanted(i)) continue;
    const auto table = measures[i](quick);
    if (out.empty()) continue;
    results.add(table.json());
    if (!results.write()) {
      std::cerr << "hkt_bench: cannot write " << out << ".json and " << out << ".md\n";
      return 1;
    }
  }
  return 0;
}
