// SPDX-License-Identifier: Apache-2.0
// A sample of a language model's text: the same prompt for all models of an experiment, continued by `hkt generate`.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "data/stream.h"
#include "train/run_directory.h"

namespace hkt::experiments {

// A few whole lines from the beginning of a stream, or words where there are no lines; empty if there is nothing that could be a
// prompt, which must be UTF-8 and without the byte 0.
std::string prompt_of(const data::Stream& stream);

// The arguments of `hkt generate` that write the sample into the run directory.
std::vector<std::string> sampling_arguments(const train::RunDirectory& run, const std::string& prompt);

// {"prompt", "text", "temperature", "seed"}; null if there is none or the file is something else.
nlohmann::ordered_json read_sample(const train::RunDirectory& run);

}  // namespace hkt::experiments
