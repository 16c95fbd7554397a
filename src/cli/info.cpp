// SPDX-License-Identifier: Apache-2.0
// hkt info: the build, this machine, and which kernels will run.
#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/App.hpp>
#include <memory>
#include <string>
#include <vector>

#include "commands.h"
#include "data/packed.h"
#include "files/json_fields.h"
#include "files/quote.h"
#include "hkt/ops.h"
#include "options.h"
#include "train/provenance.h"

namespace hkt::cli {
namespace {

std::string why_these_kernels(const std::string& chosen) {
  const char* limit = std::getenv("ATEN_CPU_CAPABILITY");
  if (limit != nullptr) return fmt::format("ATEN_CPU_CAPABILITY is {}", limit);
  if (chosen == "avx512_bf16") return "this machine has AVX-512 with bfloat16 products";
  if (chosen == "avx512") return "this machine has AVX-512, without bfloat16 products";
  if (chosen == "avx2") return "this machine has no AVX-512, or torch does not use it";
  return "this machine has no AVX2, or torch does not use it";
}

// The features that decide which CPU kernels run.
std::vector<std::string> processor_features() {
  std::vector<std::string> all;
#ifdef __x86_64__
  if (__builtin_cpu_supports("avx2")) all.emplace_back("avx2");
  if (__builtin_cpu_supports("fma")) all.emplace_back("fma");
  if (__builtin_cpu_supports("avx512f")) all.emplace_back("avx512f");
  if (__builtin_cpu_supports("avx512bw")) all.emplace_back("avx512bw");
  if (__builtin_cpu_supports("avx512dq")) all.emplace_back("avx512dq");
  if (__builtin_cpu_supports("avx512vl")) all.emplace_back("avx512vl");
  if (__builtin_cpu_supports("avx512bf16")) all.emplace_back("avx512bf16");
#endif
  return all;
}

using nlohmann::ordered_json;

ordered_json facts() {
  auto all = train::provenance();
  all["cpu_kernels_reason"] = why_these_kernels(all["cpu_kernels"]);
  all["processor_features"] = processor_features();
  const auto trouble = why_no_cuda();
  all["cuda"] = !trouble;
  all["cuda_reason"] = trouble.value_or("built with CUDA, and a GPU is available");
  const auto folder = data::data_folder_name();
  all["data"] = folder ? ordered_json(folder->string()) : ordered_json();
  return all;
}

int run(bool json) {
  const auto all = facts();
  if (json) {
    fmt::print("{}\n", fields::dump(all, 2));
    return 0;
  }
  const auto text = [&](const char* key) { return all[key].get<std::string>(); };
  fmt::print("hkt {} (commit {}), torch {}\n", text("version"), text("commit"), text("torch"));
  fmt::print("processor   {}, {} threads\n", text("processor"), all["threads"].get<int>());
  fmt::print("            {}\n", fmt::join(all["processor_features"].get<std::vector<std::string>>(), " "));
  fmt::print("CPU kernels {}: {}\n", text("cpu_kernels"), text("cpu_kernels_reason"));
  fmt::print("CUDA        {}: {}\n", all["cuda"].get<bool>() ? "yes" : "no", text("cuda_reason"));
  const auto names = all["gpus"].get<std::vector<std::string>>();
  fmt::print("GPU         {}\n", names.empty() ? "none" : fmt::format("{}", fmt::join(names, ", ")));
  fmt::print("data        {}\n",
             all["data"].is_null() ? "no folder: neither HKT_DATA nor HOME is set" : printable(text("data")));
  return 0;
}

}  // namespace

void add_info(CLI::App& program, Action& action) {
  const auto json = std::make_shared<bool>(false);
  auto& command = *program.add_subcommand("info", "Show the build, this machine, and which kernels will run");
  command.add_flag("--json", *json, "print JSON");
  command.footer("Example:\n  hkt info");
  command.callback([json, &action] { action = [json] { return run(*json); }; });
}

}  // namespace hkt::cli
