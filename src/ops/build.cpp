// SPDX-License-Identifier: Apache-2.0
// The operator hkt::build: facts about this build and the kernels that it runs, for Python.
#include <torch/library.h>
#include <torch/version.h>

#include <string>

#include "hkt/ops.h"

namespace hkt::ops {
namespace {

c10::Dict<std::string, std::string> build() {
  c10::Dict<std::string, std::string> facts;
  facts.insert("version", HKT_VERSION);
  facts.insert("torch", TORCH_VERSION);
  facts.insert("cpu_kernels", cpu_kernels());
  facts.insert("without_cuda", HKT_WITHOUT_CUDA);  // why, where that is known
  return facts;
}

TORCH_LIBRARY_FRAGMENT(hkt, m) { m.def("build() -> Dict(str, str)", &build); }

}  // namespace
}  // namespace hkt::ops
