// SPDX-License-Identifier: Apache-2.0
// The commands of the program, one file each. add_X declares the options of X; the action runs after parsing.
#pragma once

#include <CLI/App.hpp>
#include <functional>

namespace hkt::cli {

// The chosen command; returns the exit code. std::invalid_argument becomes exit 2, any other exception exit 1.
using Action = std::function<int()>;

void add_config(CLI::App& program, Action& action);
void add_completion(CLI::App& program, Action& action);
void add_data(CLI::App& program, Action& action);
void add_describe(CLI::App& data, Action& action);
void add_train(CLI::App& program, Action& action);
void add_eval(CLI::App& program, Action& action);
void add_predict(CLI::App& program, Action& action);
void add_generate(CLI::App& program, Action& action);
void add_export(CLI::App& program, Action& action);
void add_explain(CLI::App& program, Action& action);
void add_report(CLI::App& program, Action& action);
void add_theory(CLI::App& program, Action& action);
void add_sweep_width(CLI::App& theory, Action& action);
void add_tune(CLI::App& program, Action& action);
void add_reproduce(CLI::App& program, Action& action);
void add_info(CLI::App& program, Action& action);

}  // namespace hkt::cli
